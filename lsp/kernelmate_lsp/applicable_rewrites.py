"""Finds rewrites that apply to a kernel's text, in the background, so that code actions are available at once."""

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
    """Return the first change of each recipe for a kernel, by the recipe's name. Nothing is compiled or judged.

    Args:
        job: checked for cancellation between recipes.
        session: a session with the document's settings.
        checked: the kernel's compile result.

    Raises:
        JobUnwanted: the text has changed.
    """
    # Recipes load the tree-sitter grammar, which compiling does not need.
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
        except Exception:  # a defect of one recipe must not affect the others
            log.exception("recipe %s failed", recipe.name)
            continue
        if first is not None:
            found[recipe.name] = first
    return found
