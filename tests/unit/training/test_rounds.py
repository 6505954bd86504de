"""Rounds of training on judged answers, and their rewards."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.suggest.codec import codec_named
from kernelmate_training.examples import lines_of, question_of, version_of
from kernelmate_training.judges import Case, Judges, judge_all
from kernelmate_training.rewards import RIGHT, Grade, advantages, reward
from kernelmate_training.rounds import RoundQuestion, figures, lessons, run_round, tried_of, weighted_answers
from kernelmate_training.settings import Upskill

CORPUS = Path(__file__).resolve().parents[2] / "data" / "upskill"
CODEC = codec_named("mixed-2")


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Upskill:
    return Upskill.model_validate(
        {
            "name": "r", "folder": tmp_path_factory.mktemp("r"), "corpus": {"folder": CORPUS, "workers": 1},
            "training": {"steps": 1}, "models": [{"name": "m"}],
            "rounds": {"kind": "both", "prompts": 3, "k": 3, "seconds": 400},
        }
    )  # fmt: skip


def by_prompt() -> dict[str, dict[str, Any]]:
    rows = [json.loads(line) for line in lines_of(CORPUS)]
    return {CODEC.ask(question_of(row)).prompt: row for row in rows if row["task"] != "analyse"}


def oracle(prompts: Sequence[str]) -> list[tuple[int, str]]:
    """Answers each question as the corpus would, then with a statement left out, then with nonsense."""
    known, found = by_prompt(), []
    for number, prompt in enumerate(prompts):
        row = known[prompt]
        question = question_of(row)
        after = version_of(row["after"])
        broken = type(after)(after.text.replace(" += ", " -= ", 1).replace("] = ", "] = 1.0f + ", 1), after.launch)
        found += [(number, CODEC.answer(question, after)), (number, "@nonsense")]
        if broken.text != after.text:
            found.append((number, CODEC.answer(question, broken)))
    return found


@pytest.fixture(scope="module")
def played(settings: Upskill) -> list[RoundQuestion]:
    return run_round(settings, CODEC, "self", 0, oracle)


def test_right_answers_are_told_from_wrong_ones(played: list[RoundQuestion]) -> None:
    assert len(played) == 3
    for one in played:
        known = CODEC.answer(one.question, version_of(one.line["after"]))
        good = [CODEC.answer(one.question, answer.version) == known for answer, _ in one.answers]
        assert [grade.right for _, grade in one.answers] == good
        assert any(good)
        assert one.unreadable == 1


def test_what_was_right_and_better_is_learned_and_what_was_wrong_with_its_repair(played: list[RoundQuestion], settings: Upskill) -> None:  # fmt: skip
    learned = lessons(played, CODEC, settings.rounds, "self")
    better = sum(grade.right and grade.better for one in played for _, grade in one.answers)
    mended = [example for example in learned if example.task == "debug" and "@says" in example.prompt]
    counted = figures(played, learned, "self", 1.0)
    assert counted.better == better > 0
    assert len(learned) >= better
    wrong = sum(not grade.right for one in played if one.question.task == "generate" for _, grade in one.answers)
    assert len(mended) >= min(wrong, 1)
    assert all(example.answer.endswith(CODEC.end) for example in learned)


def test_a_contrastive_question_shows_what_became_of_versions_best_first(played: list[RoundQuestion]) -> None:
    for one in played:
        tried = tried_of(one, settle=None)
        ranks = [bool(entry.accepted) for entry in tried]
        assert ranks == sorted(ranks, reverse=True)
        assert all(entry.version != version_of(one.line["before"]) for entry in tried)


def test_an_answer_that_ends_its_judge_costs_its_question_alone(settings: Upskill) -> None:
    rows = [row for row in map(json.loads, lines_of(CORPUS)) if row["task"] == "generate"][:2]
    endless = rows[0]["before"]["source"].replace("{\n", "{\n  while (clock() != 0) {}\n", 1)
    cases = [
        Case(number, row["before"]["source"], row["before"]["source"], row["problem"]["metric"], row["problem"]["prompt"], (text,), "H100 SXM", 1)
        for number, (row, text) in enumerate(zip(rows, (endless, rows[1]["after"]["source"]), strict=True))
    ]  # fmt: skip
    grades = judge_all(cases, workers=1)
    assert not grades[0][0].right
    assert grades[0][0].words
    assert grades[1][0].right


def test_answers_drawn_by_chance_are_weighed_against_their_group(
    played: list[RoundQuestion], settings: Upskill
) -> None:
    found = weighted_answers(played, CODEC, settings.rounds)
    assert found
    for one in played:
        mine = [answer for answer in found if answer.prompt == CODEC.ask(one.question).prompt]
        known = CODEC.answer(one.question, version_of(one.line["after"]))
        gains = {answer.answer: answer.advantage for answer in mine}
        assert gains[known] > 0 > gains["@nonsense"]
        assert abs(sum(answer.advantage for answer in mine)) < 1e-6


def test_a_pool_of_judges_serves_several_rounds() -> None:
    rows = [row for row in map(json.loads, lines_of(CORPUS)) if row["task"] == "generate"][:2]
    cases = [
        Case(number, row["before"]["source"], row["before"]["source"], row["problem"]["metric"], row["problem"]["prompt"], (row["after"]["source"],), "H100 SXM", 1)
        for number, row in enumerate(rows)
    ]  # fmt: skip
    with Judges(1) as judges:
        first = judges.grades(cases[:1])
        process = judges._pool[0].process.pid
        second = judges.grades(cases)
        assert judges._pool[0].process.pid == process
    assert [first[0][0].right, second[0][0].right, second[1][0].right] == [True] * 3
    assert not judges._pool


GAINS = st.floats(0.01, 100.0)


@given(GAINS)
def test_a_wrong_answer_is_worth_nothing_whatever_it_gains(gain: float) -> None:
    assert reward(Grade(right=False, gain=gain), 1.5) == 0.0


@given(GAINS, GAINS)
def test_a_larger_gain_is_worth_no_less(one: float, other: float) -> None:
    less, more = sorted((one, other))
    assert reward(Grade(right=True, gain=less), 1.5) <= reward(Grade(right=True, gain=more), 1.5)


@given(GAINS)
def test_rewards_are_bounded(gain: float) -> None:
    assert 0.0 <= reward(Grade(right=True, gain=gain), 1.5) <= 1.0 + RIGHT


def test_what_noise_could_be_counts_for_little_and_what_is_beyond_the_clip_for_no_more() -> None:
    noise = reward(Grade(right=True, gain=1.01), 1.5) - RIGHT
    assert 0 < noise < 0.25 * math.log(1.01)
    assert reward(Grade(right=True, gain=50.0), 1.5) == reward(Grade(right=True, gain=5.0), 1.5) == 1.0 + RIGHT
    assert reward(Grade(right=True), 1.5) == RIGHT


@given(st.lists(st.floats(0.0, 1.1), min_size=1, max_size=16))
def test_advantages_of_a_question_add_up_to_nothing(rewards: list[float]) -> None:
    found = advantages(rewards)
    assert sum(found) == pytest.approx(0.0, abs=1e-6)
    assert all(one <= other for one, other in itertools.pairwise(found)) or rewards != sorted(rewards)


def test_answers_that_are_all_alike_teach_nothing() -> None:
    assert advantages([0.4, 0.4, 0.4]) == [0.0, 0.0, 0.0]
    assert advantages([]) == []
