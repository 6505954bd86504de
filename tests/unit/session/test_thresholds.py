"""Limits on how much worse a kernel may become."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kernelmate.errors import UsageError
from kernelmate.records import Allowance, Counters, Finding, FindingCode, Resources, Speedup, Timing, Verdict
from kernelmate.session.thresholds import DEFAULTS, figures_of, is_stopped_by_limit, more_findings, read_allowances

COUNTERS = Counters("emulated", 1, 1000, 1, 500, 0, 1, 0, 0, 0, None, 0, 0)
VERDICT = Verdict(
    kernel="k", instance=None, backend="emulator", target="H100 SXM", arch="sm_90", compiler="NVRTC", binary=None, seed=7,
    compiled=True, diagnostics=(), resources=Resources(32, 512, 256, 0, 8, 1024, 100), occupancy=None, correct=True, cases=(),
    findings=(), timing=None, speedup=None, counters=COUNTERS, objective=None, accepted=True, reasons=(),
)  # fmt: skip


def timed(low: float, median: float, high: float, kind: Any = "measured") -> Verdict:
    return replace(VERDICT, timing=Timing(kind, median, (low, high), None, None, None, None, None))


def figure(name: str, before: Verdict | None, after: Verdict, *allowed: str) -> Any:
    found = figures_of(before, after, read_allowances(allowed), 0)
    return next(one for one in found if one.metric == name)


def test_nothing_may_get_worse_by_default() -> None:
    assert DEFAULTS["registers"] == Allowance("registers", 0)
    more = replace(VERDICT, resources=replace(VERDICT.resources, registers=33))
    assert figure("registers", VERDICT, more).worse
    assert not figure("registers", VERDICT, VERDICT).worse
    assert not figure("registers", more, VERDICT).worse


@pytest.mark.parametrize(
    ("text", "worse"),
    [("registers=+1", False), ("registers=0", True), ("registers=4%", False), ("registers=any", False)],
)
def test_an_allowance_is_an_amount_a_share_or_any(text: str, worse: bool) -> None:
    more = replace(VERDICT, resources=replace(VERDICT.resources, registers=33))
    assert figure("registers", VERDICT, more, text).worse is worse


def test_static_and_dynamic_shared_memory_are_one() -> None:
    other = replace(VERDICT, resources=replace(VERDICT.resources, shared_bytes=0, dynamic_shared_bytes=769))
    assert (figure("shared_bytes", VERDICT, other).before, figure("shared_bytes", VERDICT, other).worse) == (768, True)


def test_sectors_may_move_by_half_a_percent() -> None:
    a_few, many = (replace(VERDICT, counters=replace(COUNTERS, global_load_sectors=n)) for n in (1007, 1008))
    assert not figure("sectors", VERDICT, a_few).worse
    assert figure("sectors", VERDICT, many).worse


def test_a_figure_that_is_not_known_before_is_not_held_to_anything() -> None:
    assert figure("registers", None, VERDICT).most is None
    unknown = replace(VERDICT, resources=replace(VERDICT.resources, spill_bytes=None))
    assert not figure("spill_bytes", unknown, VERDICT).worse


@pytest.mark.parametrize(
    ("after", "worse"),
    [
        ((10.0, 10.0, 10.0), False),
        ((10.1, 10.15, 10.2), False),
        ((10.4, 10.5, 10.6), True),
        ((9.0, 10.9, 13.0), False),
        ((5.0, 5.1, 5.2), False),
    ],
)
def test_a_measured_time_fails_beyond_its_interval_and_two_per_cent(
    after: tuple[float, float, float], worse: bool
) -> None:
    found = figure("time", timed(9.99, 10.0, 10.01), timed(*after))
    assert found.worse is worse
    assert found.note.startswith("measured ")


def test_the_ratio_of_blocks_timed_together_goes_before_two_times() -> None:
    together = replace(timed(10.4, 10.5, 10.6), speedup=Speedup("measured", 1.0, (0.99, 1.01)))
    assert not figure("time", timed(9.99, 10.0, 10.01), together).worse


def test_a_predicted_time_never_fails() -> None:
    found = figure("time", timed(1, 1, 1, "predicted"), timed(99, 100, 101, "predicted"))
    assert (found.worse, found.note) == (False, "predicted, not gated")


def finding(code: str, severity: Any = "error") -> Finding:
    return Finding(FindingCode(code), severity, "x", "k.cu", 3, 1)


def fresh(before: Verdict | None, after: Verdict, *allowed: str, guessed: bool = False) -> tuple[list[str], list[str]]:
    failures, found = more_findings(before, after, read_allowances(allowed), guessed=guessed)
    return failures, [f"{one.severity} {one.code}" for one in found]


def test_findings_are_more_by_code_and_by_severity() -> None:
    race, warned = replace(VERDICT, findings=(finding("shared-race"),)), replace(VERDICT, findings=(finding("shared-race", "warning"),))  # fmt: skip
    assert fresh(race, race) == ([], [])
    assert fresh(race, warned) == ([], [])
    assert fresh(warned, race)[1] == ["error shared-race"]
    twice = replace(VERDICT, findings=(finding("shared-race"), finding("shared-race")))
    assert fresh(race, twice)[1] == ["error shared-race"]
    assert fresh(race, twice, "findings=+1")[0] == []
    assert fresh(race, replace(VERDICT, findings=(finding("trap"),)))[1] == ["error trap"]


def test_notes_and_limits_of_the_emulator_are_nobodys_fault() -> None:
    slow = replace(VERDICT, correct=None, findings=(finding("time-limit"), finding("shared-race", "note")))
    assert fresh(VERDICT, slow) == ([], [])


def test_only_limits_of_time_memory_and_instructions_excuse_an_open_verdict() -> None:
    left = replace(VERDICT, correct=None, cases=())
    assert left.unreached
    assert not is_stopped_by_limit(left)
    assert not is_stopped_by_limit(replace(left, findings=(finding("worker-crash"),)))
    assert is_stopped_by_limit(replace(left, findings=(finding("time-limit"),)))


def test_a_new_kernel_fails_by_errors_alone_and_by_a_guess_only_where_it_does_not_compile() -> None:
    warned, wrong, broken = (
        replace(VERDICT, findings=(finding(code, severity),))
        for code, severity in (("shared-race", "warning"), ("wrong-values", "error"), ("compile-error", "error"))
    )
    assert fresh(None, warned) == ([], [])
    assert fresh(None, wrong)[1] == ["error wrong-values"]
    assert fresh(None, wrong, guessed=True) == ([], [])
    assert fresh(None, broken, guessed=True)[1] == ["error compile-error"]


def test_a_wrong_kernel_without_a_finding_fails_too() -> None:
    assert fresh(VERDICT, replace(VERDICT, correct=False))[0] == ["it is wrong, and was not before"]
    assert fresh(replace(VERDICT, correct=False), replace(VERDICT, correct=False))[0] == []


def test_settings_come_before_the_command_line() -> None:
    allowed = read_allowances(["spills=+4"], {"spills": "any", "registers": 3})
    assert allowed["spill_bytes"] == Allowance("spill_bytes", 4)
    assert allowed["registers"] == Allowance("registers", 3)


@pytest.mark.parametrize("text", ["", "registers", "regs=1", "time=+3", "findings=3%", "registers=-1", "sectors=5 %%"])
def test_what_cannot_be_read_says_how_to_write_it(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        read_allowances([text])
    assert raised.value.hint is not None
