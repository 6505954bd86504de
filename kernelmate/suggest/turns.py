"""Turns of several suggesters in one search: the one that has taken the least time so far is asked next."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kernelmate.records import Candidate, Judged
from kernelmate.suggest.base import Pause, Suggester, SuggestRequest

Steps: TypeAlias = "Iterator[Candidate | Pause]"


@dataclass(frozen=True, slots=True)
class AskedSuggesters:
    """Result of asking suggesters in turns.

    Attributes:
        notes: failures and notes of the suggesters, in the order of the suggesters.
        unfinished: names of suggesters that were not asked to their end, or not at all.
    """

    notes: tuple[str, ...]
    unfinished: tuple[str, ...]


@dataclass(slots=True)
class _Turns:
    """One suggester: its steps, None before it is first asked, and the seconds that it and its candidates took."""

    suggester: Suggester
    steps: Steps | None = None
    used_s: float = 0.0
    waits: bool = False
    failure: str | None = None
    ended: bool = False


def ask_in_turns(
    suggesters: Iterable[Suggester],
    request: SuggestRequest,
    judge: Callable[[Candidate], Judged],
    clock: Callable[[], float] = time.monotonic,
) -> AskedSuggesters:
    """Judges the candidates of all suggesters until they end or the request is stopped.

    A suggester whose candidates take long, such as kernels for tensor cores, does not keep the others waiting: after each of
    its candidates and pauses, the suggester that has taken the least time is asked. A suggester that fails costs none of the
    others' candidates. One that waits for the others is asked again once they have ended.
    """
    all_ = [_Turns(one) for one in suggesters]
    open_ = list(all_)
    while open_:
        ready = [one for one in open_ if not one.waits] or open_
        turn = min(ready, key=lambda one: one.used_s)
        if turn.steps is None and request.stop():
            open_.remove(turn)
            continue
        began = clock()
        if not _taken(turn, request, judge):
            open_.remove(turn)
        turn.used_s += clock() - began
    return AskedSuggesters(tuple(_notes(all_)), tuple(one.suggester.name for one in all_ if not one.ended))


def _taken(turn: _Turns, request: SuggestRequest, judge: Callable[[Candidate], Judged]) -> bool:
    """Takes one step of a suggester; returns False if there is no further one, or its candidate comes after the end."""
    try:
        if turn.steps is None:
            turn.steps = steps_of(turn.suggester, request)
        step = next(turn.steps, None)
        if isinstance(step, Candidate):
            if request.stop():
                return False
            judge(step)
    except Exception as error:  # noqa: BLE001 -- one suggester's bug must not cost the others' candidates
        turn.failure = f"{turn.suggester.name} failed: {type(error).__name__}: {error}"
        turn.ended = True
        return False
    turn.waits = step is Pause.AFTER_OTHERS
    # A suggester that ends because the request was stopped may have had more to propose.
    turn.ended = step is None and not request.stop()
    return step is not None


def steps_of(suggester: Suggester, request: SuggestRequest) -> Steps:
    """Returns the candidates of a suggester, with its pauses if it has any."""
    steps: Callable[[SuggestRequest], Steps] = getattr(suggester, "steps", suggester.propose)
    return iter(steps(request))


def candidates_of(steps: Steps) -> Iterator[Candidate]:
    """Yields the candidates among steps."""
    return (one for one in steps if isinstance(one, Candidate))


def _notes(turns: Sequence[_Turns]) -> Iterator[str]:
    for turn in turns:
        if turn.failure is not None:
            yield turn.failure
        yield from getattr(turn.suggester, "notes", ())
