"""Conversion of a model's proposal to a candidate: its kernel in the user's file, its launch in the contract."""

from __future__ import annotations

from dataclasses import replace

from kernelmate.errors import KernelmateError
from kernelmate.records import Candidate, Cost
from kernelmate.source import change_launch, parse_contract
from kernelmate.suggest.allowed_tokens import ForbiddenText
from kernelmate.suggest.base import AuthorFailed, SuggestRequest
from kernelmate.suggest.replies import Proposal
from kernelmate.suggest.untrusted import as_written, screen, spliced, without_contracts

MOST_WHY = 2000


def proposed(
    request: SuggestRequest, proposal: Proposal | Candidate, author: str, cost: Cost | None = None
) -> Candidate:
    """Return a proposal as a candidate; a proposal that already is one gets its cost.

    A forbidden text becomes a candidate too if it contains the kernel: it is rejected with a finding that the user, the
    history and repair prompts see.

    Args:
        request: the request of the search.
        proposal: as read from the model's answer.
        author: for the candidate, and for messages.
        cost: what its model was paid.

    Raises:
        AuthorFailed: its text does not hold the kernel, or its launch cannot be written.
    """
    if isinstance(proposal, Candidate):
        return replace(proposal, cost=cost)
    why = " ".join(("; ".join(step.what for step in proposal.changes) or proposal.analysis).split())[:MOST_WHY]
    said = (proposal.analysis, *(f"{step.what} {step.why}" for step in proposal.changes))
    steps = tuple(" ".join(text.split())[:MOST_WHY] for text in said if text.strip())
    if without_contracts(proposal.kernel) != proposal.kernel:
        steps = (*steps, "A contract block in the answer was left out: what the kernel is held to is yours to say.")
    contract = request.contract
    wanted = {"grid": proposal.grid, "block": proposal.block, "shared": proposal.shared}
    changed = {key: value for key, value in wanted.items() if value and value != getattr(contract, key)}
    try:
        kernel = spliced(request.kernel, proposal.kernel)
        if changed:
            kernel = change_launch(kernel, **changed, contract=contract)  # type: ignore[arg-type]
            contract = parse_contract(kernel) or replace(contract, **changed)  # type: ignore[arg-type]
    except ForbiddenText as error:
        written = as_written(request.kernel, proposal.kernel)
        if written is not None and screen(request.kernel, written) is not None:
            return Candidate(author, why, written, contract, cost, steps=steps)
        raise AuthorFailed("malformed", f"{author} wrote code that may not be compiled: {error}") from None
    except KernelmateError as error:
        raise AuthorFailed(
            "malformed", f"{author} wrote code that cannot be inserted into the file: {error.message}"
        ) from None
    return Candidate(author, why, kernel, contract, cost, steps=steps)
