"""Interface between authors, which propose candidates, and the session, which judges them.

Authors import neither worker nor history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from kernelmate.records import Candidate, Compiled, Contract, Judged, Kernel, Objective, Target, Verdict


class Expect(Protocol):
    """Function that is told of candidates to come."""

    def __call__(self, candidate: Candidate, *, full: bool = False) -> None:
        """Starts work for a candidate."""
        ...


@dataclass(frozen=True, slots=True)
class SuggestRequest:
    """Inputs of a suggester.

    Attributes:
        kernel: the baseline. contract: its contract. verdict: everything known about it.
        compiled: the baseline compiled (PTX, SASS-bearing CUBIN, resources).
        objective: what the user asked for, as understood.
        judge: judges one candidate in the worker; cached by content, so asking twice costs nothing.
        versions: everything judged so far for this kernel, best first by the objective.
        stop: True once the user has cancelled or the budget is spent; look at it between candidates.
        earlier: what earlier searches found for this kernel on the same target, best first by the objective.
        quick_evaluation: a first look at one candidate, several times cheaper than judging it: what is known of it without running
            it where that decides, else a run at the headline size alone. Never shown, unless it already rejects the
            candidate; None if there is no such look.
        trace: the graph of the contract's reference as text, traced in the worker; raises `ReferenceFailed`. None if
            there is no worker.
        expect: called with candidates that will probably be evaluated next, so that they are compiled meanwhile; `full` if
            they will be judged in full, without a quick evaluation before.
    """

    kernel: Kernel
    contract: Contract
    compiled: Compiled
    verdict: Verdict
    objective: Objective
    target: Target
    judge: Callable[[Candidate], Judged]
    versions: Callable[[], Sequence[Judged]]
    stop: Callable[[], bool]
    earlier: Callable[[], Sequence[Judged]] = tuple
    quick_evaluation: Callable[[Candidate], Judged] | None = None
    expect: Expect | None = None
    trace: Callable[[], str] | None = None


def candidate_key(kernel: Kernel, contract: Contract) -> tuple[str, ...]:
    """Key of versions that a reader cannot distinguish: the definition and the launch."""
    return (kernel.source, *contract.grid, "|", *contract.block, "|", contract.shared)


class Suggester(Protocol):
    """Interface of sources of candidates: a recipe, a model, a router over others."""

    name: str

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Yields candidates, cheapest and most promising first. Yielding none is allowed; raising is not."""
        ...


class AuthorFailed(Exception):
    """An author gives no answer; the message is one line, with a remedy if there is one.

    Attributes:
        kind: `missing`, `key`, `consent`, `budget`, `refused`, `truncated`, `limit`, `overloaded`, `timeout`,
            `connection`, `server`, `request`, `malformed`, `cancelled`.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
