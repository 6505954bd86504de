"""Figures count goals and not answers, and what is written is read back."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmate.errors import SourceError
from kernelmate_training.exam.records import (
    ORDER,
    Attempt,
    ExamResult,
    GoalResult,
    Standing,
    goal_lines,
    joined,
    read_result,
    summary_lines,
    to_json,
)


def model(number: int, standing: Standing, seconds: float | None = None, again: bool | None = None) -> Attempt:
    return Attempt("model", number, standing, "local:m", 2.0, 1.5, "because", seconds, again)


def recipe(standing: Standing) -> Attempt:
    return Attempt("recipes", 0, standing, "recipe:r")


def goal(name: str, *attempts: Attempt) -> GoalResult:
    return GoalResult(name, "k", "time", 4.0, attempts)


RESULT = ExamResult(
    version=1,
    sha256="0" * 64,
    whole=False,
    backend="emulator",
    target="H100 SXM",
    seed=1,
    model={"name": "m"},
    k=3,
    recipes=True,
    goals=(
        goal("greedy-does-it", model(0, "met", 0.5, True), model(1, "wrong"), recipe("right")),
        goal("a-later-answer-does-it", model(0, "unreadable", 1.5), model(2, "met", None, False)),
        goal("too-late", model(0, "right", 1.0), model(3, "met")),
        goal("recipes-do-it", model(0, "better", 2.0), recipe("met")),
        goal("nobody-does-it", model(0, "broken"), recipe("unchanged")),
    ),
    labels={"output": "edits"},
)


def test_figures_are_of_goals_and_of_the_first_k_answers() -> None:
    figures = {one.entrant: (one.right, one.better, one.met, one.goals) for one in RESULT.figures()}
    assert figures == {
        "model, greedy": (3, 2, 1, 5),
        "model, k = 3": (4, 3, 2, 5),
        "recipes": (2, 1, 1, 5),
        "both": (4, 3, 3, 5),
    }


def test_without_a_model_there_are_figures_of_recipes_alone() -> None:
    alone = ExamResult(1, "", True, "emulator", "H100 SXM", 1, None, 0, True, RESULT.goals)
    assert [one.entrant for one in alone.figures()] == ["recipes"]


def test_what_was_judged_again_and_how_long_greedy_answers_took_is_told() -> None:
    assert RESULT.held() == (1, 2)
    assert RESULT.greedy_seconds() == (0.5, 1.5, 1.0, 2.0)
    text = "\n".join(summary_lines(RESULT))
    assert "2 versions that met a goal were judged again with other inputs; 1 of them are right." in text
    assert "A greedy answer took 1.25 s (median), 2.00 s at most, of 4." in text


def test_a_result_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "exam.json"
    document = to_json(RESULT)
    path.write_text(json.dumps(document))
    assert read_result(path) == RESULT
    assert document["figures"][3] == {"entrant": "both", "right": 4, "better": 3, "met": 3, "goals": 5}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"goals": 1}'])
def test_what_is_no_result_is_said_to_be_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "exam.json"
    path.write_text(text)
    with pytest.raises(SourceError, match=r"exam\.json is not the result of an exam"):
        read_result(path)


def test_kernels_written_from_references_have_figures_of_their_own() -> None:
    written = Attempt("synthesis", 0, "met", "synthesis:rows-warp")
    goals = (*RESULT.goals[:4], replace(RESULT.goals[4], attempts=(*RESULT.goals[4].attempts, written)))
    figures = {one.entrant: one.met for one in replace(RESULT, model=None, goals=goals).figures()}
    assert figures == {"recipes": 1, "synthesis": 1, "recipes and synthesis": 2}
    assert " ".join(list(goal_lines(replace(RESULT, goals=goals)))[5].split()).startswith(
        "nobody-does-it time 4 x x = MET"
    )


def test_the_table_has_a_line_for_each_goal_with_how_far_each_entrant_came() -> None:
    lines = [" ".join(line.split()) for line in goal_lines(RESULT)]
    assert lines[1] == "greedy-does-it time 4 MET MET r - local:m to 2"
    assert lines[2].startswith("a-later-answer-does-it time 4 ? MET -")
    assert lines[5].startswith("nobody-does-it time 4 x x =")


def test_each_standing_reaches_itself_and_those_before_it() -> None:
    for place, standing in enumerate(ORDER):
        assert [model(0, standing).reached(other) for other in ORDER] == [other <= place for other in range(len(ORDER))]


def test_results_of_a_model_and_of_recipes_that_were_run_apart_are_joined() -> None:
    def part(author: str) -> tuple[GoalResult, ...]:
        return tuple(
            replace(goal, attempts=tuple(one for one in goal.attempts if one.author == author)) for goal in RESULT.goals
        )

    model = replace(RESULT, recipes=False, goals=part("model"))
    recipes = replace(RESULT, model=None, k=0, goals=part("recipes")[::-1])
    both = joined(model, recipes)
    assert both.figures() == RESULT.figures()
    assert both.model == RESULT.model
    with pytest.raises(SourceError, match="differ in backend"):
        joined(replace(model, backend="cuda"), recipes)
    with pytest.raises(SourceError, match="differ in sha256"):
        joined(model, replace(recipes, sha256="1" * 64))
    with pytest.raises(SourceError, match="must be a model's"):
        joined(recipes, model)
