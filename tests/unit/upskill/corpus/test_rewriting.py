"""Recipes as a source of pairs: what they make is judged like the rest, and a row says how it was made."""

from __future__ import annotations

import json
from random import Random

import pytest

from kernelmate.compiler import find_target
from kernelmate.suggest.codec.offers import REWRITES, assumed
from kernelmate.suggest.codec.programs import taken
from kernelmate.upskill.corpus.families import registry
from kernelmate.upskill.corpus.judging import Judge
from kernelmate.upskill.corpus.rewriting import MOST_STEPS, rewritten
from kernelmate.upskill.corpus.study import draw_group, study
from kernelmate.upskill.examples import question_of, version_of

FAMILY = registry()["column-map"]


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(find_target("H100 SXM"))


@pytest.fixture(scope="module")
def rows(judge: Judge) -> list[dict[str, object]]:
    """Of some problems, those rows that recipes made."""
    some = [registry()[name] for name in ("heavy-map", "dense-rows")]
    found = [
        json.loads(row.line) for family in some for number in range(5) for row in study(judge, family, number, 3).rows
    ]
    return [row for row in found if row["author"] != "corpus"]


def test_rows_say_by_which_recipes_they_were_made(rows: list[dict[str, object]]) -> None:
    assert rows
    for row in rows:
        steps = [(action["recipe"], action["variant"]) for action in row["actions"]]  # type: ignore[attr-defined]
        assert 1 <= len(steps) <= MOST_STEPS
        assert row["author"] == "recipe:" + "+".join(name for name, _ in steps)
        made, whys = taken(assumed(question_of(row)), steps)
        assert made.kernel.unit.text == version_of(row["after"]).text  # type: ignore[arg-type]
        assert set(whys) <= set(row["reasoning"])  # type: ignore[call-overload]


def test_equal_draws_give_equal_versions_that_differ_from_what_they_began_with(judge: Judge) -> None:
    group = draw_group(FAMILY, 2, 9)
    judge.begin(group.seed)
    judged = judge.judge(group.texts[0])
    made = [rewritten(judged, Random(seed)) for seed in range(12)]
    assert made == [rewritten(judged, Random(seed)) for seed in range(12)]
    found = [one for one in made if one is not None]
    assert len({one.text for one in found}) > 2
    assert all(one.text != judged.text and one.metric in REWRITES[one.steps[0][0]].metrics for one in found)


def test_nothing_is_made_of_what_is_wrong(judge: Judge) -> None:
    judge.begin(1)
    assert rewritten(judge.judge("__global__ void f(float* x) { x[0] = nothing; }"), Random(1)) is None
