"""A library's results beside a kernel's: right within the kernel's tolerance, or named and left without a time."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.base import RunResult
from kernelmate.checks.answers import ExpectedOutputs
from kernelmate.checks.case_launches import LaunchOutcome, PlannedLaunch
from kernelmate.checks.styles import NORMAL
from kernelmate.checks.timed import JudgedLaunch, MeasuredAlternative, checked_library_time
from kernelmate.checks.tolerances import MaximumErrors
from kernelmate.records import Alternative, Argument, Contract, Speedup, Timing

WANT = np.array([1.0, 2.0, 4.0])
CONTRACT = Contract("k", ({"n": 3},), ("1",), ("32",), (Argument("y", "out", "float32", ("n",)),))
TIMING = Timing("measured", 10.0, (9.9, 10.1), None, None, 100, None, False)
FOUND = Alternative(
    "torch", "add, from reference.py:f", "TF32 off", None, None, TIMING, TIMING, Speedup("measured", 1.0, (0.9, 1.1))
)


def kept(answer: bool = True) -> JudgedLaunch:
    error = {"y": np.full(3, 1e-3)}
    expected = ExpectedOutputs({"y": WANT}, MaximumErrors(error, {"y": np.full(3, 1e-1)}, {}))
    outcome = LaunchOutcome(PlannedLaunch(0, NORMAL, 0, 0), {}, RunResult({"y": WANT.astype(np.float32)}, ()))
    return JudgedLaunch(outcome, expected if answer else None)


def judged(made: Any, answer: bool = True) -> Alternative:
    return checked_library_time(
        MeasuredAlternative(FOUND, {"y": np.asarray(made, np.float32)}), CONTRACT, {"n": 3}, kept(answer)
    )


def test_results_within_the_tolerance_keep_their_time() -> None:
    found = judged(WANT + 5e-4)
    assert found.correct is True
    assert found.max_error == pytest.approx(0.5, rel=1e-2)
    assert (found.timing, found.kernel) == (TIMING, TIMING)
    assert found.why is None


@pytest.mark.parametrize(
    ("made", "said"),
    [([1, 2, 5], r"y differs at \[2\] \(5.0, not 4.0\), 1e\+03 times"), ([1, np.nan, 4], "y differs at")],
)
def test_a_library_that_computes_something_else_is_named_and_has_no_time(made: list[float], said: str) -> None:
    found = judged(made)
    assert found.correct is False
    assert (found.timing, found.kernel, found.speedup) == (None, None, None)
    assert found.why is not None
    assert found.why.startswith("it computes something else: ")
    assert re.search(said, found.why), found.why


def test_without_expected_results_a_time_does_not_count() -> None:
    found = judged(WANT, answer=False)
    assert found.correct is None
    assert found.timing is None
    assert found.why == "there are no expected results to compare its results with"


def test_a_computation_without_results_keeps_its_own_reason() -> None:
    failed = Alternative("compile", "add", "", why="RuntimeError: no compiler")
    assert checked_library_time(MeasuredAlternative(failed, {}), CONTRACT, {"n": 3}, kept()) == failed
