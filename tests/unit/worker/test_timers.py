"""Timers of judged launches, and the division of the budget among sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import RunResult
from kernelmate.checks.timed import TimedLaunch
from kernelmate.compiler import find_target
from kernelmate.records import Argument, Contract, Counters, JudgeTask, LaunchShape, Timing
from kernelmate.worker.timers import PRINTS, _doubt, budget_of, timer_for, with_note


@pytest.fixture
def launch(task: Callable[..., JudgeTask]) -> Callable[..., TimedLaunch]:
    def make(**changes: Any) -> TimedLaunch:
        shape = LaunchShape((1, 1, 1), (32, 1, 1))
        fields = TimedLaunch(
            task().candidate, shape, RunResult({}), True, True, 1, None, lambda: None, None, frozenset()  # type: ignore[arg-type]
        )  # fmt: skip
        return replace(fields, **changes)

    return make


def test_the_headline_gets_most_of_the_budget_and_the_others_share_the_rest(launch: Callable[..., TimedLaunch]) -> None:
    assert budget_of(launch(), 0.2) == 0.2
    shares = [budget_of(launch(sizes=3, headline=headline), 0.2) for headline in (True, False, False)]
    assert shares[0] > 2 * shares[1]
    assert shares[1] == shares[2]
    assert sum(shares) == pytest.approx(0.2)


@pytest.mark.parametrize(("sound", "budget_s"), [(False, 0.2), (True, 0.0)])
def test_nothing_is_run_for_what_is_wrong_or_not_to_be_timed(
    launch: Callable[..., TimedLaunch], task: Callable[..., JudgeTask], sound: bool, budget_s: float
) -> None:
    def run() -> Any:
        raise AssertionError("nothing is to be launched")

    timer = timer_for(replace(task(), timing_budget_s=budget_s), SimpleNamespace(name="cuda", poisoned=False))  # type: ignore[arg-type]
    assert timer(launch(sound=sound, run=run)) is None


def test_a_note_is_added_to_those_that_a_time_has() -> None:
    timing = Timing(
        "measured", 3.0, (2.9, 3.1), None, None, 40, 1980, False, notes=("also on the GPU: python3 (pid 7)",)
    )
    noted = with_note(timing, PRINTS)
    assert noted.notes == ("also on the GPU: python3 (pid 7)", PRINTS)
    assert noted.median_us == timing.median_us


def gpu(memory_khz: int, bus_bits: int) -> Any:
    """A GPU as its driver states it, 132 SMs at 1980 MHz with 50 MB of L2."""
    stated = {
        "MemoryClockRate": memory_khz, "GlobalMemoryBusWidth": bus_bits, "MultiProcessorCount": 132, "ClockRate": 1_980_000,
        "L2CacheSize": 50 << 20,
    }  # fmt: skip
    return SimpleNamespace(device=SimpleNamespace(attributes=stated))


def test_a_time_is_doubted_by_what_the_gpu_itself_states(launch: Callable[..., TimedLaunch]) -> None:
    args = (Argument("x", "in", "float32", ("n",)), Argument("y", "out", "float32", ("n",)))
    contract = Contract("k", ({"n": 1},), ("1",), ("32",), args)
    read = 1 << 30
    counters = Counters("emulated", 1, read // 32, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0)
    arrays = {"x": np.zeros(1, np.float32), "y": np.zeros(1, np.float32)}
    result = RunResult(arrays, counters=counters, footprint_bytes=read + 4, reads=frozenset({"x"}))
    made = launch(result=result)
    made = replace(made, version=replace(made.version, contract=contract))
    target = find_target("H100 SXM")
    us = (read - (50 << 20)) / 4.0e6  # at 4 TB/s, which an H200 may read with and an H100 not
    timing = Timing("measured", us, (us, us), None, None, 40, 1980, False)
    said = _doubt(gpu(2_619_000, 5120), target, made, timing)
    assert said is not None
    assert "beyond what L2 holds, at peak DRAM bandwidth" in said
    assert _doubt(gpu(3_201_000, 6144), target, made, timing) is None
    assert _doubt(gpu(2_619_000, 5120), target, made, None) is None
