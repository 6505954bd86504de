"""Rewrites that apply to a kernel's text, found in the background so that a list of actions is available at once."""

from __future__ import annotations

import logging

from kernelmate.decide.objective import read_objective
from kernelmate.errors import KernelmateError
from kernelmate.records import Candidate, Judged
from kernelmate.session import Session
from kernelmate.suggest.base import SuggestRequest
from kernelmate_lsp.document_state import CompileResult
from kernelmate_lsp.job_queue import QueuedJob

log = logging.getLogger(__name__)


def _judge_nothing(_: Candidate) -> Judged:
    raise KernelmateError("Nothing is judged while offers are collected.")


def offers_of(job: QueuedJob, session: Session, checked: CompileResult) -> dict[str, Candidate]:
    """The first change that each recipe has for a kernel, by the recipe's name. None is compiled or judged.

    Args:
        job: looked at between recipes.
        session: of the document's settings; only compiles.
        checked: what compiling told.

    Raises:
        Unwanted: there is a newer text.
    """
    # Recipes load the syntax tree's grammar, which compiling does without.
    from kernelmate.suggest.recipes import ALL

    if checked.contract is None or not checked.verdicts or not checked.verdicts[0].compiled:
        return {}
    prepared = session.prepare(checked.kernel, checked.verdicts[0].instance)[0]
    request = SuggestRequest(
        kernel=checked.kernel,
        contract=checked.contract,
        compiled=prepared.compiled,
        verdict=checked.verdicts[0],
        objective=read_objective("make it faster"),
        target=session.target,
        judge=_judge_nothing,
        versions=tuple,
        stop=job.unwanted.is_set,
    )
    found = {}
    for recipe in ALL:
        job.check()
        try:
            first = next(iter(recipe.candidates(request)), None)
        except Exception:  # one recipe's bug must not cost the others
            log.exception("recipe %s failed", recipe.name)
            continue
        if first is not None:
            found[recipe.name] = first
    return found
