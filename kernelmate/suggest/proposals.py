"""A model's proposal as a candidate: its kernel in the user's file, its launch in the contract."""

from __future__ import annotations

from dataclasses import replace

from kernelmate.errors import KernelmateError
from kernelmate.records import Candidate, Cost
from kernelmate.source import change_launch, parse_contract
from kernelmate.suggest.base import AuthorFailed, SuggestRequest
from kernelmate.suggest.replies import Proposal
from kernelmate.suggest.untrusted import Forbidden, spliced

MOST_WHY = 2000


def proposed(request: SuggestRequest, proposal: Proposal, author: str, cost: Cost | None = None) -> Candidate:
    """The candidate that a proposal is.

    Args:
        request: of the search.
        proposal: as read from the model's answer.
        author: for the candidate, and for messages.
        cost: what its model was paid.

    Raises:
        AuthorFailed: its text may not be compiled, or its launch cannot be written.
    """
    why = "; ".join(step.what for step in proposal.changes) or proposal.analysis
    contract = request.contract
    wanted = {"grid": proposal.grid, "block": proposal.block, "shared": proposal.shared}
    changed = {key: value for key, value in wanted.items() if value and value != getattr(contract, key)}
    try:
        kernel = spliced(request.kernel, proposal.kernel)
        if changed:
            kernel = change_launch(kernel, **changed, contract=contract)  # type: ignore[arg-type]
            contract = parse_contract(kernel) or replace(contract, **changed)  # type: ignore[arg-type]
    except Forbidden as error:
        raise AuthorFailed("malformed", f"{author} wrote what may not be compiled: {error}") from None
    except KernelmateError as error:
        raise AuthorFailed("malformed", f"{author} wrote what cannot be put into the file: {error.message}") from None
    return Candidate(author, " ".join(why.split())[:MOST_WHY], kernel, contract, cost)
