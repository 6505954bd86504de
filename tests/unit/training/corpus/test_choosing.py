"""Choices to learn: all applicable rewrites are tried, the best are right, and a row says how its version was made."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from kernelmate.compiler import find_target
from kernelmate.decide.metrics import METRICS, metric_value
from kernelmate.suggest.codec.applicable import REWRITES, assumed, offered, with_steps
from kernelmate_training.corpus.choosing import (
    CLOSE,
    MOST,
    PROVEN,
    SHARE,
    Choice,
    asking_of,
    choose,
    close,
    cost_of,
    improvable_metrics,
    improvement_factor,
    next_rewrites,
)
from kernelmate_training.corpus.families import registry
from kernelmate_training.corpus.group_processing import draw_group
from kernelmate_training.corpus.judging import Judge, Judged, content_of
from kernelmate_training.examples import question_of, verdict_of, version_of

pytestmark = pytest.mark.exhaustive(share=0.2, together=True)

FAMILIES = ("heavy-map", "dense-rows", "sum-all", "offset-variance")


@pytest.fixture(scope="module")
def rows(studied: Callable[..., list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """All rows of some problems."""
    return studied(FAMILIES, count=2, seed=3)


@pytest.fixture(scope="module")
def first(judge: Judge) -> Judged:
    """A right version with a row of its own per thread."""
    group = draw_group(registry()["column-map"], 2, 9)
    judge.begin(group.seed)
    return judge.judge(group.texts[0])


def test_actions_make_the_version_after_of_the_one_before(rows: list[dict[str, Any]]) -> None:
    acted = [row for row in rows if row.get("actions")]
    assert {row["task"] for row in acted} == {"generate", "analyse", "debug"}
    for row in acted:
        steps = [(action["recipe"], action["variant"]) for action in row["actions"]]
        assert row["author"] == "recipe:" + "+".join(name for name, _ in steps)
        made, whys = with_steps(assumed(question_of(row)), steps)
        assert made.kernel.unit.text == version_of(row["after"]).text
        assert set(whys) <= set(row["reasoning"])


def test_offers_are_what_a_model_is_offered_and_hold_the_first_action(rows: list[dict[str, Any]]) -> None:
    assert all("offers" in row for row in rows)
    for row in rows:
        listed = tuple((offer["recipe"], offer["variants"]) for offer in row["offers"])
        assert listed == offered(question_of(row))
        for action in row.get("actions", ())[:1]:
            assert 0 <= action["variant"] < dict(listed)[action["recipe"]]


def test_the_best_comes_first_and_the_others_are_nearly_as_good(rows: list[dict[str, Any]]) -> None:
    asked: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        if row["task"] == "generate" and "rank" in row:
            metric = row["problem"]["metric"]
            verdict = verdict_of(row, row["after"]["verdict"])
            if metric not in ("time", "accuracy"):  # neither stands in the side of a row
                cost = cost_of(metric, verdict)
                assert cost is not None
                asked.setdefault((row["before"]["source"], metric), {})[row["rank"]] = cost
    assert any(len(ranks) > 1 for ranks in asked.values())
    for ranks in asked.values():
        assert sorted(ranks) == list(range(1, len(ranks) + 1))
        assert all(ranks[1] <= cost <= ranks[1] + (CLOSE - 1) * abs(ranks[1]) for cost in ranks.values())


def test_what_is_chosen_is_right_and_better_than_the_version_before(judge: Judge, first: Judged) -> None:
    tried = 0
    for metric in METRICS:
        asking = asking_of(first, metric)
        if asking is None:
            continue
        tried += 1
        assert len(asking.options) <= MOST
        assert all(metric in REWRITES[name].metrics for name, _ in asking.offers)
        was = cost_of(metric, first.verdict)
        for choice in choose(judge, asking, first, None):
            assert choice.judged.right
            assert was is not None
            assert choice.cost < was
            assert improvement_factor(choice, was) > 1
            assert choice.cost == cost_of(metric, choice.judged.verdict)
    assert tried > 3


def test_equal_questions_give_equal_choices(judge: Judge, first: Judged) -> None:
    asking = asking_of(first, "time")
    assert asking is not None
    again = Judge(find_target("H100 SXM"))
    group = draw_group(registry()["column-map"], 2, 9)
    again.begin(group.seed)
    fresh = again.judge(group.texts[0])
    other = asking_of(fresh, "time")
    assert other is not None
    assert other.options == asking.options
    one, two = choose(judge, asking, first, None), choose(again, other, fresh, None)
    assert [(c.option.steps, c.cost) for c in one] == [(c.option.steps, c.cost) for c in two]


def test_a_second_step_is_another_rewrite_on_what_the_first_made(judge: Judge, first: Judged) -> None:
    asking = asking_of(first, "time")
    assert asking is not None
    option = asking.options[0]
    then = next_rewrites(asking, Choice(option, judge.judge(option.text), 1.0))
    assert then is not None
    for one in then.options:
        (name, _), (second, _) = one.steps
        assert (name, 0) == option.steps[0]
        assert second != name
        assert with_steps(asking.request, one.steps)[0].kernel.unit.text == one.text
        assert one.text not in (first.text, option.text)


def test_a_version_is_close_by_what_it_costs_and_by_what_it_gains(judge: Judge, first: Judged) -> None:
    asking = asking_of(first, "time")
    assert asking is not None
    option = asking.options[0]

    def costs(before: float, *of: float) -> list[float]:
        return [one.cost for one in close([Choice(option, first, cost) for cost in of], before)]

    assert costs(100, 50, 50 * CLOSE - 0.1, 50 * CLOSE + 0.1) == [50, 50 * CLOSE - 0.1]
    assert costs(100, 90, 100 - 10 * SHARE - 0.1, 100 - 10 * SHARE + 0.1) == [90, 100 - 10 * SHARE - 0.1]
    assert costs(100, 50, 50, 50, 50) == [50] * PROVEN
    assert costs(-0.5, -1.0, -0.95, -0.6) == [-1.0, -0.95]
    assert costs(100) == []


def test_no_metric_is_asked_for_that_cannot_get_better(first: Judged) -> None:
    asked = list(improvable_metrics(first, Random(1)))
    assert len(set(asked)) == len(asked) >= 2
    assert "time" not in asked
    assert all(metric_value(metric, first.verdict) != 0 for metric in asked)
    assert set(asked) == set(improvable_metrics(first, Random(2)))


def test_the_same_code_launched_alike_is_judged_once(judge: Judge) -> None:
    group = draw_group(registry()["column-map"], 2, 9)
    judge.begin(group.seed)
    text = group.texts[0]
    known = judge.judge(text)
    same = judge.judge(text.replace("{\n", "{\n  // the same again\n"))
    assert same.text != text
    assert content_of(same) == content_of(known)
    assert same.verdict is known.verdict
    judge.begin(group.seed + 1)
    assert judge.judge(text).verdict is not known.verdict


def test_nothing_is_asked_about_what_is_wrong(judge: Judge) -> None:
    judge.begin(1)
    assert asking_of(judge.judge("__global__ void f(float* x) { x[0] = nothing; }"), "time") is None
