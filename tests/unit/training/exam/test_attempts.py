"""Attempts at a goal by the session: the standing of each answer, from real verdicts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmate.config import load_settings
from kernelmate.records import Candidate
from kernelmate.session import Session
from kernelmate.source import same_kernel, with_text
from kernelmate.suggest.base import AuthorFailed, SuggestRequest
from kernelmate_training.exam.answers import Answered
from kernelmate_training.exam.attempts import Terms, attempt_goal
from kernelmate_training.exam.goals import Goal, load_exam
from kernelmate_training.exam.records import GoalResult
from kernelmate_training.exam.running import Wanted, run

pytestmark = pytest.mark.exhaustive(share=0.2, together=True)

SOLUTIONS = Path(__file__).resolve().parents[3] / "data" / "exam"


class Dictated:
    """Answers with given texts; None cannot be read."""

    def __init__(self, *texts: str | None) -> None:
        self.texts = texts
        self.asked: list[SuggestRequest] = []

    def identity(self) -> Mapping[str, str]:
        return {"name": "dictated"}

    def of(self, goal: str, request: SuggestRequest, k: int) -> Iterator[Answered]:
        self.asked.append(request)
        for number, text in enumerate(self.texts[:k]):
            if text is None:
                yield Answered(number, None, "no line of it is an edit", 0.25)
                continue
            kernel = same_kernel(request.kernel, with_text(request.kernel.unit, text))
            yield Answered(number, Candidate("local:dictated", "", kernel, request.contract), seconds=0.5)


@pytest.fixture(scope="module")
def sessions() -> Iterator[tuple[Session, Session]]:
    first, second = (load_settings(backend="emulator", seed=seed, history=False, timeout_s=300) for seed in (3, 4))
    with Session(first) as one, Session(second) as other:
        yield one, other


def only(name: str) -> Goal:
    (goal,) = load_exam((name,)).goals
    return goal


def test_every_answer_is_judged_and_told_apart(sessions: tuple[Session, Session]) -> None:
    goal = only("fix-complex-product")
    text = goal.path.read_text(encoding="utf-8")
    good = (SOLUTIONS / "fix_complex_product.cu").read_text(encoding="utf-8")
    answers = Dictated(
        None,
        text,
        good.replace("float2 f =", "float2 f ;="),
        text.replace("s.x * f.y + s.y * f.x", "s.x * f.y"),
        good,
        good.replace("float2 s", "float2 s"),
        "#include </etc/passwd>\n" + good,
    )
    result = attempt_goal(sessions[0], goal, answers, Terms(k=7, recipes=0), other=sessions[1])
    standings = [one.standing for one in result.attempts]
    assert standings == ["unreadable", "unchanged", "broken", "wrong", "met", "met", "broken"]
    assert [one.again for one in result.attempts] == [None, None, None, None, True, None, None]
    assert [one.seconds for one in result.attempts[:2]] == [0.25, 0.5]
    assert result.attempts[0].why == "no line of it is an edit"
    assert "forbidden-source" in result.attempts[6].why
    assert (result.before, result.attempts[4].after) == (0.0, 1.0)


def test_a_version_within_the_products_limits_that_misses_the_goals_own_is_better_and_no_more(
    sessions: tuple[Session, Session],
) -> None:
    goal = replace(only("sobel-shared"), most=300)
    good = (SOLUTIONS / "sobel_tile.cu").read_text(encoding="utf-8")
    result = attempt_goal(sessions[0], goal, Dictated(good), Terms(k=1, recipes=0))
    (attempt,) = result.attempts
    assert (attempt.standing, attempt.after) == ("better", 340.0)
    assert attempt.again is None


def test_recipes_end_with_their_first_version_that_meets_the_goal_and_a_model_is_not_told_of_it(
    sessions: tuple[Session, Session],
) -> None:
    goal = only("fix-trapezoid")
    answers = Dictated(goal.path.read_text(encoding="utf-8"))
    result = attempt_goal(sessions[0], goal, answers, Terms(k=1, recipes=5), other=sessions[1])
    mine = [one for one in result.attempts if one.author == "recipes"]
    assert mine[-1].standing == "met"
    assert mine[-1].label.startswith("recipe:")
    assert mine[-1].again is True
    assert all(one.standing != "met" for one in mine[:-1])
    assert answers.asked[0].versions() == ()


def test_a_model_that_cannot_be_asked_is_a_problem_of_the_goal_and_not_of_the_exam(
    sessions: tuple[Session, Session],
) -> None:
    class Silent(Dictated):
        def of(self, goal: str, request: SuggestRequest, k: int) -> Iterator[Answered]:
            raise AuthorFailed("truncated", "The kernel is too long for the model.")

    result = attempt_goal(sessions[0], only("fix-trapezoid"), Silent(), Terms(recipes=0))
    assert result.attempts == ()
    assert result.problem == "The kernel is too long for the model."


def test_a_prompt_that_is_read_as_something_else_is_said(sessions: tuple[Session, Session]) -> None:
    goal = replace(only("fix-trapezoid"), prompt="make it faster")
    result = attempt_goal(sessions[0], goal, None, Terms(recipes=1))
    assert "is read as time" in result.problem


def test_what_was_done_before_an_interruption_is_not_done_again(tmp_path: Path) -> None:
    wanted = Wanted(goals=("fix-time-shift", "fix-trapezoid"), terms=Terms(recipes=3, again=False))
    keep, told = tmp_path / "run" / "part", list[tuple[str, int, int]]()

    def stop_after_one(result: GoalResult, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(wanted, on_goal=stop_after_one, keep=keep)
    lines = keep.read_text().splitlines()
    assert [json.loads(line).get("goal") for line in lines] == [None, "fix-time-shift"]
    marked = json.loads(lines[1]) | {"seconds": 12345.0}
    keep.write_text(f'{lines[0]}\n{json.dumps(marked)}\n{{"goal": "fix-trapez')
    result = run(wanted, on_goal=lambda one, done, total: told.append((one.goal, done, total)), keep=keep)
    assert told == [("fix-time-shift", 1, 2), ("fix-trapezoid", 2, 2)]
    assert result.goals[0].seconds == 12345.0
    assert not result.whole
    assert [one.goal for one in result.goals if one.reached("met", ("recipes",))] == ["fix-time-shift", "fix-trapezoid"]

    other = replace(wanted, seed=5)
    assert run(replace(other, goals=("fix-time-shift",)), keep=keep).goals[0].seconds != 12345.0


def test_processes_side_by_side_find_the_same(tmp_path: Path) -> None:
    wanted = Wanted(goals=("fix-time-shift", "fix-trapezoid"), terms=Terms(recipes=3, again=False))
    alone, together = run(wanted), run(replace(wanted, jobs=2))
    assert [replace(one, seconds=0) for one in alone.goals] == [replace(one, seconds=0) for one in together.goals]
