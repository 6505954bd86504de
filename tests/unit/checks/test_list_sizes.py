"""Sizes at which lists are longer, and searches deeper, than a version's code allows."""

from __future__ import annotations

from kernelmate.checks.list_sizes import has_lists, long_sizes, searched_sizes
from kernelmate.records import Argument, Contract

ARGUMENTS = (
    Argument("table", "in", "int32", ("rows", "pages")), Argument("x", "in", "float32", ("rows", "dim")),
    Argument("y", "out", "int32", ("rows", "dim")),
)  # fmt: skip
LISTED = ({"rows": 4, "pages": 6, "dim": 32}, {"rows": 1, "pages": 1, "dim": 1})
CONTRACT = Contract("k", LISTED, ("rows",), ("64",), ARGUMENTS, inputs="made.py:make")


def test_only_made_or_ascending_integers_are_lists() -> None:
    ascending = (Argument("e", "in", "int32", ("n",), distribution="ascending(0, 9)"),)
    assert has_lists(CONTRACT)
    assert has_lists(Contract("k", ({"n": 4},), ("1",), ("64",), ascending))
    assert not has_lists(Contract("k", LISTED, ("rows",), ("64",), ARGUMENTS))


def test_names_of_integer_inputs_exceed_a_limit_several_times() -> None:
    found = list(long_sizes(CONTRACT, LISTED, LISTED, {256}))
    assert found == [{"rows": 513, "pages": 3, "dim": 3}, {"rows": 3, "pages": 513, "dim": 3}]
    assert list(long_sizes(CONTRACT, LISTED, found, {256})) == []
    assert list(long_sizes(CONTRACT, LISTED, LISTED, set())) == []


def test_a_search_takes_more_steps_than_a_new_constant() -> None:
    found = list(searched_sizes(CONTRACT, LISTED, LISTED, ("12", "3", "0x7f")))
    assert found == [{"rows": 8192, "pages": 6, "dim": 32}, {"rows": 4, "pages": 8192, "dim": 32}]
    assert list(searched_sizes(CONTRACT, LISTED, LISTED, ("3", "4096"))) == []
