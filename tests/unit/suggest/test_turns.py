"""Suggesters take turns, so that one with slow candidates does not keep the others waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from kernelmate.records import Candidate
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
            yield one if isinstance(one, Pause) else Candidate(str(one), "", request.kernel, request.contract)

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
    """Asks suggesters whose candidates take the seconds after the colon of their name; gives the order of judgement."""

    def run(*suggesters: Steps, most: int = 100) -> tuple[list[str], AskedSuggesters]:
        order: list[str] = []
        now = [0.0]

        def judge(candidate: Candidate) -> Any:
            order.append(candidate.author)
            now[0] += float(candidate.author.partition(":")[2] or 1)

        request = replace(ask(SOURCE), stop=lambda: len(order) >= most)
        asked = ask_in_turns(suggesters, request, judge, clock=lambda: now[0])
        return order, asked

    return run


def test_cheap_candidates_are_judged_while_another_has_used_more_time(asked_in_turns) -> None:
    order, asked = asked_in_turns(Steps("slow", ["a:12", "b:12"]), Steps("cheap", ["c:1", "d:1", "e:1"]))
    assert order == ["a:12", "c:1", "d:1", "e:1", "b:12"]
    assert asked == AskedSuggesters((), ())


def test_a_pause_lets_the_others_be_asked(asked_in_turns) -> None:
    order, _ = asked_in_turns(
        Steps("pausing", [Pause.OTHERS_MAY, "a:3", Pause.OTHERS_MAY, "b:1"]), Steps("other", ["c:1", "d:1"])
    )
    assert order == ["a:3", "c:1", "d:1", "b:1"]


def test_one_that_waits_for_the_others_continues_once_they_have_ended(asked_in_turns) -> None:
    order, _ = asked_in_turns(Steps("model", ["a:1", Pause.AFTER_OTHERS, "b:1"]), Steps("other", ["c:9", "d:9"]))
    assert order == ["a:1", "c:9", "d:9", "b:1"]
    alone, _ = asked_in_turns(Steps("model", [Pause.AFTER_OTHERS, "b:1"]))
    assert alone == ["b:1"]


def test_a_failure_costs_no_candidate_of_the_others_and_is_said(asked_in_turns) -> None:
    broken = Steps("broken", [ValueError("no")], notes=["said before"])
    order, asked = asked_in_turns(broken, Steps("other", ["c:1"], notes=["said after"]))
    assert order == ["c:1"]
    assert asked.notes == ("broken failed: ValueError: no", "said before", "said after")


def test_those_that_were_not_asked_to_their_end_are_named(asked_in_turns) -> None:
    order, asked = asked_in_turns(
        Steps("slow", ["a:12", "b:12"]), Steps("cheap", ["c:1"]), Steps("late", ["d:1"]), most=2
    )
    assert order == ["a:12", "c:1"]
    assert asked.unfinished == ("slow", "cheap", "late")
