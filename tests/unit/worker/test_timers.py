"""What a judged launch is timed with, and how the budget is shared among sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from kernelmate.backends.base import RunResult
from kernelmate.checks.timed import TimedLaunch
from kernelmate.records import JudgeTask, LaunchShape, Timing
from kernelmate.worker.timers import PRINTS, budget_of, timer_for, with_note


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
