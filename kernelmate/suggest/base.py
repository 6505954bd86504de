"""Interface between authors, which propose candidates, and the session, which judges them.

Authors import neither worker nor history.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from kernelmate.records import Candidate, Compiled, Contract, Judged, Kernel, Objective, Target, Verdict


class Expect(Protocol):
    """Function that announces candidates that will probably be evaluated next."""

    def __call__(self, candidate: Candidate, *, full: bool = False) -> None:
        """Starts to compile a candidate; `full` if it will be judged without a quick evaluation before."""
        ...


@dataclass(frozen=True, slots=True)
class SuggestRequest:
    """Inputs of a suggester.

    Attributes:
        kernel: the baseline.
        contract: the baseline's contract.
        verdict: the baseline's verdict.
        compiled: the compiled baseline (PTX, CUBIN, resources).
        objective: the interpreted objective.
        judge: judges one candidate in the worker; results are cached by content.
        versions: returns all versions judged so far for this kernel, best first by the objective.
        stop: returns True once the user has cancelled or the budget is spent; suggesters check it between candidates.
        earlier: returns the results of earlier searches for this kernel on the same target, best first by the
            objective.
        quick_evaluation: evaluates one candidate at several times lower cost than `judge`: by static facts if they
            suffice, else by a run at the headline size alone. Its result is shown only if it rejects the candidate.
            None if not available.
        trace: returns the graph that new kernels are written from, as text, and a note if it is not that of the reference,
            else ""; raises `ReferenceFailed`. None without a worker.
        expect: called with candidates that will probably be evaluated next, so that they are compiled in advance;
            `full` if they will be judged without a quick evaluation before.
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
    trace: Callable[[], tuple[str, str]] | None = None


def candidate_key(kernel: Kernel, contract: Contract) -> tuple[str, ...]:
    """Returns a key that is equal for versions with equal definition, grid, block and shared memory."""
    return (kernel.source, *contract.grid, "|", *contract.block, "|", contract.shared)


class Pause(Enum):
    """A step of a suggester without a candidate, after which another suggester may continue.

    `OTHERS_MAY` follows a quick evaluation; `AFTER_OTHERS` precedes steps that are taken only once the others have ended.
    """

    OTHERS_MAY = "others may"
    AFTER_OTHERS = "after others"


class Suggester(Protocol):
    """Interface of sources of candidates: a recipe, a model, a router over others.

    One that evaluates many versions between two candidates may also have `steps`, like `propose` but with a `Pause` after
    each of them.
    """

    name: str

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Yields candidates, cheapest and most promising first. Yielding none is allowed; raising is not."""
        ...


class AuthorFailed(Exception):
    """An author cannot answer; the message is one line, with a remedy if there is one.

    Attributes:
        kind: `missing`, `key`, `consent`, `budget`, `refused`, `truncated`, `limit`, `overloaded`, `timeout`,
            `connection`, `server`, `request`, `malformed`, `cancelled`.
    """

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind
