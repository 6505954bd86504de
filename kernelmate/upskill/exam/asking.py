"""From a search's request to a codec's question, and from its answer to a candidate."""

from __future__ import annotations

from dataclasses import replace

from kernelmate.errors import KernelmateError
from kernelmate.records import Candidate, Verdict
from kernelmate.source import same_kernel, with_text
from kernelmate.suggest.base import AuthorFailed, SuggestRequest
from kernelmate.suggest.codec.base import Answer, Launch, Question


def question_of(request: SuggestRequest) -> Question:
    """What a model may be told of a request, without what others have tried."""
    contract, mending = request.contract, request.objective.metric == "correct"
    return Question(
        text=request.kernel.unit.text,
        kernel=request.kernel.name,
        launch=Launch(contract.grid, contract.block, contract.shared, contract.require),
        metric=request.objective.metric,
        prompt=request.objective.prompt,
        task="debug" if mending else "generate",
        target=request.target.name,
        arch=request.target.arch,
        contract=contract,
        verdict=request.verdict,
        broken=broken_words(request.verdict) if mending else None,
    )


def broken_words(verdict: Verdict) -> str | None:
    """The compiler's or the judge's words on a version that is wrong, as a corpus has them; None where it is right."""
    for diagnostic in verdict.diagnostics:
        if diagnostic.severity == "error":
            return f"compile-error: line {diagnostic.line}: {diagnostic.message}"
    for finding in verdict.findings:
        if finding.severity == "error":
            place = f"line {finding.line}: " if finding.line else ""
            return f"{finding.code}: {place}{finding.message}"
    return None


def candidate_of(request: SuggestRequest, answer: Answer, author: str) -> Candidate:
    """The candidate that an answer is.

    Raises:
        AuthorFailed: the answer holds no version, or one without the kernel.
    """
    version = answer.version
    if version is None:
        raise AuthorFailed("malformed", f"{author} gave no version.")
    launch = version.launch
    try:
        kernel = same_kernel(request.kernel, with_text(request.kernel.unit, version.text))
    except KernelmateError as error:
        raise AuthorFailed("malformed", f"{author} wrote what is no version: {error.message}") from None
    contract = replace(
        request.contract, grid=launch.grid, block=launch.block, shared=launch.shared, require=launch.require
    )
    why = "; ".join(answer.analysis) or "an answer of the model"
    return Candidate(author, why, kernel, contract, steps=answer.analysis)
