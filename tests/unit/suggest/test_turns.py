"""Suggesters take turns, so that one with slow candidates does not keep the others waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kernelmate.records import Candidate
from kernelmate.source import apply_edits
from kernelmate.suggest.base import Pause, SuggestRequest
from kernelmate.suggest.turns import AskedSuggesters, ask_in_turns


@dataclass
class Steps:
    """Proposes what it is given; an exception among it is raised."""

    name: str
    given: list[object]
    notes: list[str] = field(default_factory=list)

    def steps(self, request: SuggestRequest) -> Iterator[Any]:
        for one in self.given:
            if isinstance(one, Exception):
                raise one
            yield one if isinstance(one, Pause) else self.candidate(str(one), request)

    def candidate(self, author: str, request: SuggestRequest) -> Candidate:
        """Returns a candidate; one whose author begins with `slow` uses tensor cores."""
        kernel = request.kernel
        if author.startswith("slow"):
            kernel = apply_edits(kernel, [(kernel.end - 1, kernel.end - 1, "mma_sync(c, a, b, c);")])
        return Candidate(author, "", kernel, request.contract)

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        return (one for one in self.steps(request) if isinstance(one, Candidate))


SOURCE = """\
// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, 256)"
// block = 256
// [args]
// x = "inout float32[n]"
// n = "int32"
// ///
__global__ void k(float *x, int n) {}
"""


@pytest.fixture
def asked_in_turns(ask: Callable[..., SuggestRequest]) -> Callable[..., tuple[list[str], AskedSuggesters]]:
    """Asks suggesters; gives the order of judgement."""

    def run(*suggesters: Steps, most: int = 100) -> tuple[list[str], AskedSuggesters]:
        order: list[str] = []

        def judge(candidate: Candidate) -> Any:
            order.append(candidate.author)

        request = replace(ask(SOURCE), stop=lambda: len(order) >= most)
        asked = ask_in_turns(suggesters, request, judge)
        return order, asked

    return run


def test_cheap_candidates_are_judged_while_another_has_cost_more(asked_in_turns) -> None:
    order, asked = asked_in_turns(Steps("slow", ["slow 1", "slow 2"]), Steps("cheap", ["c", "d", "e", "f"]))
    assert order == ["slow 1", "c", "d", "e", "slow 2", "f"]
    assert asked == AskedSuggesters((), ())


def test_each_quick_evaluation_lets_the_others_be_asked(asked_in_turns) -> None:
    quick = [Pause.OTHERS_MAY] * 5
    order, _ = asked_in_turns(Steps("kernels", ["a", "b", "c"]), Steps("recipes", [*quick, "d"]))
    assert order == ["a", "b", "d", "c"]


def test_one_that_waits_for_the_others_continues_once_they_have_ended(asked_in_turns) -> None:
    order, _ = asked_in_turns(Steps("model", ["a", Pause.AFTER_OTHERS, "b"]), Steps("other", ["c", "d", "e"]))
    assert order == ["a", "c", "d", "e", "b"]
    alone, _ = asked_in_turns(Steps("model", [Pause.AFTER_OTHERS, "b"]))
    assert alone == ["b"]


def test_a_failure_costs_no_candidate_of_the_others_and_is_said(asked_in_turns) -> None:
    broken = Steps("broken", [ValueError("no")], notes=["said before"])
    order, asked = asked_in_turns(broken, Steps("other", ["c"], notes=["said after"]))
    assert order == ["c"]
    assert asked.notes == ("broken failed: ValueError: no", "said before", "said after")


def test_those_that_were_not_asked_to_their_end_are_named(asked_in_turns) -> None:
    order, asked = asked_in_turns(Steps("first", ["a", "b"]), Steps("second", ["c"]), Steps("third", ["d"]), most=2)
    assert order == ["a", "c"]
    assert asked.unfinished == ("first", "second", "third")
