"""Repairs as answers: the first that is right is taught, and what a broken version's row says of it leads there again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kernelmate.suggest.codec.applicable import offered
from kernelmate.suggest.repairs import ALL
from kernelmate_training.corpus.group_processing import repairs_of
from kernelmate_training.corpus.judging import Judge
from kernelmate_training.examples import question_of, version_of

pytestmark = pytest.mark.exhaustive(share=0.2, together=True)

REPAIRS = {repair.name for repair in ALL}


@pytest.fixture(scope="module")
def rows(studied: Callable[..., list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Mistakes of some problems."""
    return [row for row in studied(("int-map", "row-total", "transpose"), count=4, seed=5) if row["task"] == "debug"]


def test_mistakes_are_mended_by_repairs_that_the_judges_words_lead_to(rows: list[dict[str, Any]]) -> None:
    acted = [row for row in rows if row.get("actions")]
    assert len(acted) > len(rows) / 3
    for row in acted:
        (action,) = row["actions"]
        assert action["recipe"] in REPAIRS
        assert row["after"]["verdict"]["correct"] is True
    for row in rows:
        offers = tuple((offer["recipe"], offer["variants"]) for offer in row["offers"])
        assert offers == offered(question_of(row))
        assert {name for name, _ in offers} <= REPAIRS


def test_a_compiler_error_stands_where_a_users_verdict_has_it(rows: list[dict[str, Any]]) -> None:
    compiled = [row for row in rows if row["broken"].startswith("compile-error")]
    assert compiled
    for row in compiled:
        verdict = row["before"]["verdict"]
        assert verdict["findings"][0]["code"] == "compile-error"
        assert verdict["diagnostics"][0]["message"] in row["broken"]
        assert verdict["diagnostics"][0]["file"] is None


def test_what_mends_is_judged_and_comes_first_of_those_that_do(judge: Judge, rows: list[dict[str, Any]]) -> None:
    row = next(row for row in rows if row.get("actions"))
    judge.begin(row["seed"])
    offers, mending = repairs_of(judge, question_of(row), "")
    assert mending is not None
    assert [mending.step] == [(action["recipe"], action["variant"]) for action in row["actions"]]
    assert mending.judged.text == version_of(row["after"]).text
    names = [name for name, _ in offers]
    assert names.index(mending.step[0]) >= 0
    assert mending.judged.right
