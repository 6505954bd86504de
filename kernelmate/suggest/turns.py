"""Turns of several suggesters in one search: the one that has cost the least so far is asked next.

Costs are estimates and not measured, so that equal seeds give equal searches.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from kernelmate.records import Candidate, Judged
from kernelmate.suggest.base import Pause, Suggester, SuggestRequest

Steps: TypeAlias = "Iterator[Candidate | Pause]"

QUICK, FULL, SLOW = 1, 4, 12
"""Estimated costs of a quick evaluation, of a verdict, and of one on a kernel that the emulator has no native code for."""

_TENSOR_CORES = re.compile(r"\b(?:w?mma|wgmma|ldmatrix)(?:\.|_|\b|::)")


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
    """One suggester: its steps, None before it is first asked, and the estimated cost of its evaluations so far."""

    suggester: Suggester
    steps: Steps | None = None
    used: int = 0
    waits: bool = False
    failure: str | None = None
    ended: bool = False


def ask_in_turns(
    suggesters: Iterable[Suggester],
    request: SuggestRequest,
    judge: Callable[[Candidate], Judged],
) -> AskedSuggesters:
    """Judges the candidates of all suggesters until they end or the request is stopped.

    A suggester whose candidates take long, such as kernels for tensor cores, does not keep the others waiting: after each of
    its candidates and pauses, the suggester with the least cost is asked, the first of several. A suggester that fails costs none of the
    others' candidates. One that waits for the others is asked again once they have ended.
    """
    all_ = [_Turns(one) for one in suggesters]
    open_ = list(all_)
    while open_:
        ready = [one for one in open_ if not one.waits] or open_
        turn = min(ready, key=lambda one: one.used)
        if turn.steps is None and request.stop():
            open_.remove(turn)
            continue
        if not _taken(turn, request, judge):
            open_.remove(turn)
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
        turn.used += cost_of(step)
    except Exception as error:  # noqa: BLE001 -- one suggester's bug must not cost the others' candidates
        turn.failure = f"{turn.suggester.name} failed: {type(error).__name__}: {error}"
        turn.ended = True
        return False
    turn.waits = step is Pause.AFTER_OTHERS
    # A suggester that ends because the request was stopped may have had more to propose.
    turn.ended = step is None and not request.stop()
    return step is not None


def cost_of(step: Candidate | Pause | None) -> int:
    """Returns the estimated cost of the evaluation that a step stands for."""
    if not isinstance(step, Candidate):
        return QUICK if step is Pause.OTHERS_MAY else 0
    return SLOW if _TENSOR_CORES.search(step.kernel.source) else FULL


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
