"""Every goal can be met: a version that a person wrote meets it, judged as any other. No training sees these versions.

Versions are judged by a look at the headline size, as a search takes it, and repairs by a whole verdict; with
KERNELMATE_TEST_EXAM=whole in the environment all are judged whole, which takes four times as long.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelmate.config import load_settings
from kernelmate.decide.metrics import rightness
from kernelmate.decide.objective import read_objective
from kernelmate.records import Verdict
from kernelmate.session import Session
from kernelmate.source import load_kernels, parse_contract
from kernelmate.suggest.untrusted import screen
from kernelmate_training.exam.goals import Goal, load_exam

SOLUTIONS = Path(__file__).resolve().parents[3] / "data" / "exam"
GOALS = load_exam().goals
WHOLE = os.environ.get("KERNELMATE_TEST_EXAM") == "whole"


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


def evaluated_quickly(goal: Goal, session: Session) -> tuple[Verdict, Verdict, Verdict]:
    """The kernel, the version written by hand, and the kernel once more as if it were one, at the headline size."""
    kernel = goal.load()
    (solution,) = load_kernels(solution_of(goal))
    context = session._context(kernel, (), None, None)
    context.worker.start()
    instance = next(iter(context.contract.instances), None)
    before = context._try(context.preparer.prepare(kernel, context.contract, instance), None, None, quick=True)
    objective = read_objective(goal.prompt, before.verdict)
    own = parse_contract(solution, context.contract) or context.contract
    after, unchanged = (
        context._try(context.preparer.prepare_candidate(*version, instance), before, objective, quick=True).verdict
        for version in ((solution, own), (kernel, context.contract))
    )
    return before.verdict, after, unchanged


def compared(goal: Goal, session: Session) -> tuple[Verdict, Verdict, Verdict]:
    """The same by whole verdicts."""
    kernel = goal.load()
    (solution,) = load_kernels(solution_of(goal))
    found = session.compare(kernel, solution, goal.prompt)
    return found.baseline[0], found.candidate[0], session.compare(kernel, kernel, goal.prompt).candidate[0]


@pytest.mark.exhaustive(share=0.1)
@pytest.mark.slow
@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.name)
def test_a_version_written_by_hand_meets_the_goal_and_the_kernel_itself_does_not(goal: Goal, session: Session) -> None:
    (solution,) = load_kernels(solution_of(goal))
    assert screen(goal.load(), solution) is None  # a model may write it
    judge = compared if WHOLE or goal.metric == "correct" else evaluated_quickly
    before, after, unchanged = judge(goal, session)
    assert bool(rightness(before)) is (goal.metric != "correct")
    assert after.objective is not None
    assert after.objective.name == goal.metric
    assert goal.met(after), after.reasons
    assert not goal.met(unchanged)
