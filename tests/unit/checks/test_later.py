"""A timed version's later launches, put together by hand."""

from __future__ import annotations

import numpy as np

from kernelmate.backends.base import RunResult
from kernelmate.backends.timed import RepeatedLaunch
from kernelmate.checks.answers import ExpectedOutputs
from kernelmate.checks.guard_findings import later_findings
from kernelmate.checks.styles import NORMAL
from kernelmate.checks.timed import KeptLaunch, Timed
from kernelmate.checks.tolerances import Allowed
from kernelmate.checks.trials import FIRST, LaunchOutcome, PlannedLaunch
from kernelmate.records import Argument, Contract

CONTRACT = Contract("k", ({"n": 4},), ("1",), ("32",), (Argument("y", "out", "float32", ("n",)),))
RIGHT = {"y": np.arange(4, dtype=np.float32)}
WRONG = {"y": np.full(4, -9, np.float32)}
ANSWER = ExpectedOutputs({"y": np.arange(4.0)}, Allowed({"y": np.full(4, 1e-6)}, {"y": np.full(4, 1e-3)}))
KEPT = KeptLaunch(LaunchOutcome(PlannedLaunch(FIRST, NORMAL, 0, 0), {}, RunResult(RIGHT)), ANSWER)


def codes(timed: Timed, kept: KeptLaunch | None = KEPT) -> list[tuple[str, str | None]]:
    return [(code, buffer) for code, _, buffer in later_findings(CONTRACT, kept, timed)]


def test_launches_that_do_the_same_work_say_nothing() -> None:
    assert codes(Timed(None, outputs=RIGHT, repeats=RepeatedLaunch(100, 5.0, 5.1, 5.2, RIGHT, (5.0, 6.0)))) == []


def test_an_output_that_timed_launches_left_wrong_is_told_once() -> None:
    repeats = RepeatedLaunch(100, 1.0, 50.0, None, WRONG, (1.0, 900.0))
    assert codes(Timed(None, outputs=WRONG, repeats=repeats)) == [("stateful", "y")]


def test_an_output_that_only_the_last_of_many_launches_left_wrong_is_told() -> None:
    assert codes(Timed(None, outputs=RIGHT, repeats=RepeatedLaunch(100, None, None, None, WRONG))) == [
        ("stateful", "y")
    ]


def test_idle_launches_and_late_clocks_are_told_apart_from_impossible_times() -> None:
    repeats = RepeatedLaunch(100, 1.0, 50.0, None, RIGHT, (1.0, 900.0))
    found = codes(Timed(None, outputs=RIGHT, repeats=repeats, doubt="1 us is not possible"))
    assert found == [("sub-physical-time", None), ("stateful", None), ("sub-physical-time", None)]


def test_times_are_judged_where_the_arrays_were_not_kept() -> None:
    assert codes(Timed(None, outputs=WRONG, repeats=RepeatedLaunch(100, 1.0, 50.0, None, WRONG)), None) == [
        ("stateful", None)
    ]
