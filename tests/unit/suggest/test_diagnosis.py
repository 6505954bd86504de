"""Diagnosis of a kernel's limits: each cause is stated if its figures show it, and not otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kernelmate.records import Cause, LineCounters, Occupancy, Roofline, Roofs, Verdict, Work
from kernelmate.suggest.diagnosis import _LIMITERS, diagnose

COALESCED = LineCounters(
    5, thread_instructions=32_000, global_load_requests=1000, global_load_sectors=4000, global_bytes_asked=128_000,
    l1_lines=1000,
)  # fmt: skip


def roofline(limiter: str, l1_bytes: float = 1000.0, warm: float | None = 0.4) -> Roofline:
    work = Work({"fp32": 100.0}, 1000.0, l1_bytes, l1_bytes, limiter)
    roofs = Roofs("table", 3350.0, 7000.0, 33_000.0, {"fp32": 67.0})
    figures: dict[str, Any] = dict.fromkeys(Roofline.__dataclass_fields__)
    return Roofline(**figures | {"work": work, "roofs": roofs, "kind": "predicted", "bound": "memory", "warm": warm,
                                 "peak_tflops": 67.0, "ridge": 20.0, "dram_us": 1.0, "l2_us": 1.0, "l1_us": 1.0,
                                 "compute_us": 1.0})  # fmt: skip


@pytest.fixture
def causes(verdict: Callable[..., Verdict]) -> Callable[..., dict[str, Cause]]:
    """Causes by their code, of a verdict that has nothing to complain of but what is named."""

    def make(*lines: LineCounters, **changes: Any) -> dict[str, Cause]:
        clean = replace(verdict(time_us=50.0), occupancy=Occupancy(1.0, "threads", 8, 10.0), lines=(COALESCED, *lines))
        return {cause.code: cause for cause in diagnose(replace(clean, **changes))}

    return make


def test_where_nothing_stands_out_nothing_is_said(causes: Callable[..., dict[str, Cause]]) -> None:
    assert causes() == {}


def test_what_bounds_it_comes_first_with_the_share_of_its_roof(causes: Callable[..., dict[str, Cause]]) -> None:
    found = causes(roofline=roofline("dram"))
    assert next(iter(found)) == "bound"
    assert found["bound"].what == "bound by memory (dram). It reaches 40% of its roof, as predicted."
    assert "less than 1%" in causes(roofline=roofline("dram", warm=0.001))["bound"].what


def test_a_part_of_the_same_name_as_what_bounds_it_is_said_once(causes: Callable[..., dict[str, Cause]]) -> None:
    waiting = replace(roofline("latency"), bound="latency")
    assert causes(roofline=waiting)["bound"].what.startswith("bound by latency. It reaches")


def test_barriers_are_named_where_time_goes_by_in_waiting(causes: Callable[..., dict[str, Cause]]) -> None:
    often, seldom = (
        LineCounters(8, thread_instructions=64, barriers=900),
        LineCounters(9, thread_instructions=64, barriers=100),
    )
    assert "barriers" not in causes(often, seldom)
    found = causes(often, seldom, roofline=roofline("latency"))["barriers"]
    assert (found.line, "900 times" in found.what) == (8, True)


def test_an_unknown_limiter_is_named_all_the_same(causes: Callable[..., dict[str, Cause]]) -> None:
    assert "something" in causes(roofline=roofline("something"))["bound"].what


def test_every_part_of_the_prediction_has_its_words(verdict: Callable[..., Verdict]) -> None:
    parts = {"issue", "fp32", "fp64", "fp16", "sfu", "int", "shuffle", "shared", "l1", "l2", "dram", "atomics", "blocks", "launch", "latency"}  # fmt: skip
    assert parts <= set(_LIMITERS)


def test_accesses_of_which_little_is_used_are_named_at_their_line(causes: Callable[..., dict[str, Cause]]) -> None:
    strided = LineCounters(
        9, thread_instructions=32_000, global_load_requests=1000, global_load_sectors=32_000, global_bytes_asked=128_000,
        l1_lines=32_000,
    )  # fmt: skip
    cause = causes(strided)["uncoalesced"]
    assert cause.line == 9
    assert "32.0 sectors" in cause.what
    assert "12% are used" in cause.what
    assert cause.share is not None
    assert cause.share > 0.9


def test_bank_conflicts_are_counted_in_ways(causes: Callable[..., dict[str, Cause]]) -> None:
    cause = causes(LineCounters(7, shared_load_wavefronts=32_000, bank_conflicts=31_000))["bank-conflicts"]
    assert "32.0-way" in cause.what


def test_cheap_lines_are_not_spoken_of(causes: Callable[..., dict[str, Cause]]) -> None:
    assert causes(LineCounters(7, shared_load_wavefronts=4, bank_conflicts=2)) == {}


def test_causes_come_by_their_own_time_and_not_by_that_of_their_line(causes: Callable[..., dict[str, Cause]]) -> None:
    conflicts = LineCounters(7, shared_load_wavefronts=9000, bank_conflicts=8000)
    branches = LineCounters(8, thread_instructions=10**6, divergent_branches=200)
    found = list(causes(conflicts, branches).values())
    assert [cause.line for cause in found] == [7, 8]
    assert found[0].estimated_us == pytest.approx(50 * 8000 / (9000 + 10**6 / 128 + 1000 + 32_000 / 128))


def test_causes_of_less_than_two_per_cent_come_behind_those_of_the_launch(
    causes: Callable[..., dict[str, Cause]],
) -> None:
    branches = LineCounters(8, thread_instructions=10**7, divergent_branches=5)
    found = list(causes(branches, occupancy=Occupancy(0.25, "registers", 2, 10.0)))
    assert found == ["occupancy", "divergence"]


def test_contended_atomics_are_named_before_barriers_that_cost_little(causes: Callable[..., dict[str, Cause]]) -> None:
    atomics = LineCounters(
        16, thread_instructions=6_000_000, shared_atomic_requests=32_768, shared_atomic_wavefronts=32_768,
        atomic_contention=11.0,
    )  # fmt: skip
    barriers = LineCounters(14, thread_instructions=33_792, barriers=132)
    found = causes(barriers, atomics, roofline=roofline("latency"))
    assert list(found) == ["bound", "contended-atomics", "barriers"]
    contended = found["contended-atomics"]
    assert "32,768 atomics of warps on shared memory" in contended.what
    assert "11.0 lanes" in contended.what
    assert "copy" in contended.remedy
    assert "contended-atomics" not in causes(replace(atomics, atomic_contention=1.2))
    assert "global memory" in causes(
        replace(atomics, shared_atomic_requests=0, shared_atomic_wavefronts=0, global_atomic_requests=32_768)
    )["contended-atomics"].what  # fmt: skip


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        ("__shared__ float tile[32][32];\ny = tile[threadIdx.x][i];", "pad the row"),
        ("__shared__ float tile[32 * 32];\ny = tile[threadIdx.x * 32 + i];", "pad the row"),
        ("__shared__ float line[1024];\ny = line[at];", "let neighbouring threads"),
        ("__shared__ float other[1024], line[8];\ny = x[at];", "pad the row"),
        ("", "pad the row"),
    ],
)
def test_only_an_array_with_rows_is_to_be_padded(verdict: Callable[..., Verdict], text: str, advice: str) -> None:
    line = LineCounters(2, shared_load_wavefronts=32_000, bank_conflicts=31_000)
    found = {cause.code: cause for cause in diagnose(replace(verdict(time_us=50.0), lines=(line,)), text)}
    assert advice in found["bank-conflicts"].remedy


def test_conflicts_of_atomics_are_not_padded(causes: Callable[..., dict[str, Cause]]) -> None:
    line = LineCounters(7, shared_atomic_requests=1000, shared_atomic_wavefronts=4000, bank_conflicts=3000)
    assert "copy" in causes(line)["bank-conflicts"].remedy


def test_atomics_are_named_where_they_are_what_takes_longest(causes: Callable[..., dict[str, Cause]]) -> None:
    line = LineCounters(4, global_atomic_requests=5000, global_atomic_sectors=9000)
    assert causes(line, roofline=roofline("atomics"))["atomics"].line == 4
    assert "atomics" not in causes(line, roofline=roofline("dram"))


def test_barriers_count_where_they_are_dear(causes: Callable[..., dict[str, Cause]]) -> None:
    assert "barriers" in causes(LineCounters(6, thread_instructions=10**6, barriers=64))


def test_data_that_is_read_again_and_again_is_named(causes: Callable[..., dict[str, Cause]]) -> None:
    assert "8.0 times" in causes(roofline=roofline("l2", l1_bytes=8000.0))["rereading"].what
    assert "rereading" not in causes(roofline=roofline("l2", l1_bytes=2000.0))


def test_spills_hide_the_local_memory_that_they_are(causes: Callable[..., dict[str, Cause]], verdict: Callable[..., Verdict]) -> None:  # fmt: skip
    spilled = verdict(spill_bytes=64, local_bytes=64).resources
    assert {"spills"} == set(causes(resources=spilled))
    indexed = verdict(spill_bytes=0, local_bytes=40).resources
    assert "40 bytes" in causes(resources=indexed)["local-memory"].what


@pytest.mark.parametrize(
    ("theoretical", "limiter", "waves", "codes"),
    [
        (0.25, "registers", 10.0, {"occupancy"}),
        (0.25, "launch", None, set()),
        (1.0, "threads", 0.2, {"small-grid"}),
        (1.0, "threads", 1.1, {"tail"}),
        (1.0, "threads", 1.9, set()),
        (1.0, "threads", 9.1, set()),
        (1.0, "threads", 1.0, set()),
    ],
)
def test_the_launch_is_looked_at_as_a_whole(
    causes: Callable[..., dict[str, Cause]], theoretical: float, limiter: str, waves: float | None, codes: set[str]
) -> None:
    assert set(causes(occupancy=Occupancy(theoretical, limiter, 2, waves))) == codes


def test_a_very_short_launch_is_said_to_be_one(
    causes: Callable[..., dict[str, Cause]], timing: Callable[..., Any]
) -> None:
    assert "2 us, measured" in causes(timing=timing(2.0))["short"].what
