"""Every goal can be met: a version that a person wrote meets it, judged as any other. No training sees these versions."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmate.config import load_settings
from kernelmate.session import Session
from kernelmate.source import load_kernels
from kernelmate.suggest.metrics import rightness
from kernelmate.suggest.untrusted import screen
from kernelmate.upskill.exam.goals import Goal, load_exam

SOLUTIONS = Path(__file__).resolve().parents[3] / "data" / "exam"
GOALS = load_exam().goals


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(backend="emulator", seed=7, history=False, timeout_s=600)) as opened:
        yield opened


def solution_of(goal: Goal) -> Path:
    """A file for this goal alone, else the one for all of the kernel's."""
    own = SOLUTIONS / f"{goal.kernel}.{goal.metric}.cu"
    return own if own.is_file() else SOLUTIONS / f"{goal.kernel}.cu"


def test_every_solution_is_one_of_a_goal() -> None:
    assert {solution_of(goal) for goal in GOALS} == set(SOLUTIONS.glob("*.cu"))


@pytest.mark.slow
@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.name)
def test_a_version_written_by_hand_meets_the_goal(goal: Goal, session: Session) -> None:
    kernel = goal.load()
    (solution,) = load_kernels(solution_of(goal))
    assert screen(kernel, solution) is None  # a model may write it
    found = session.compare(kernel, solution, goal.prompt)
    assert bool(rightness(found.baseline[0])) is (goal.metric != "correct")
    verdict = found.candidate[0]
    assert verdict.objective is not None
    assert verdict.objective.name == goal.metric
    assert goal.met(verdict), verdict.reasons
    assert not goal.met(found.baseline[0])
