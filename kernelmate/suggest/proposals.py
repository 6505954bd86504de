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
    """Return a proposal as a candidate; a proposal that is a candidate already gets its cost.

    Text that is forbidden but contains the kernel also becomes a candidate. It is rejected with a finding that the
    user, the history and repair prompts show.

    Args:
        request: the search's request.
        proposal: the parsed answer.
        author: the candidate's author, also named in messages.
        cost: the cost of the author's model.

    Raises:
        AuthorFailed: the text does not contain the kernel, or the launch cannot be written.
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
