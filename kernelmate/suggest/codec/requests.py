"""Conversion between a search's requests and a codec's questions, shared by training and inference."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TypeVar

from kernelmate.errors import KernelmateError
from kernelmate.records import Candidate, Contract, Diagnostic, Finding, FindingCode, Judged, Kernel, Unit, Verdict
from kernelmate.source import change_launch, same_kernel, with_text
from kernelmate.source.tokens import line_starts
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.codec.base import (
    CodecLaunch,
    CodecVersion,
    DecodedAnswer,
    Question,
    TriedVersion,
    UndecodableAnswer,
)
from kernelmate.suggest.repairs.base import unit_position

Said = TypeVar("Said", Diagnostic, Finding)

_CODES: frozenset[str] = frozenset(FindingCode)
_SAID = re.compile(r"(?P<code>[a-z-]+): (?:line (?P<line>\d+): )?(?P<message>.*)", re.DOTALL)
_BUFFER = re.compile(r"at byte \d+ of (\w+), which has")


def launch_of(contract: Contract) -> CodecLaunch:
    """Returns the part of a contract that versions may change."""
    return CodecLaunch(contract.grid, contract.block, contract.shared, contract.require)


def question_of(request: SuggestRequest) -> Question:
    """Returns a search's request as a question, without earlier versions."""
    verdict = _placed(request.verdict, request.kernel.unit)
    return Question(
        text=request.kernel.unit.text,
        kernel=request.kernel.name,
        launch=launch_of(request.contract),
        metric=request.objective.metric,
        prompt=request.objective.prompt,
        task="debug" if request.objective.metric == "correct" else "generate",
        target=request.target.name,
        arch=request.target.arch,
        contract=request.contract,
        verdict=verdict,
        broken=words_on(verdict) if request.objective.metric == "correct" else None,
    )


def repair_of(request: SuggestRequest, failed: Judged) -> Question:
    """Returns the question about a version that failed: the version itself, with its findings."""
    candidate = failed.candidate
    verdict = _placed(failed.verdict, candidate.kernel.unit)
    asked = replace(
        question_of(request),
        text=candidate.kernel.unit.text,
        kernel=candidate.kernel.name,
        launch=launch_of(candidate.contract),
        contract=candidate.contract,
        verdict=verdict,
    )
    words = words_on(verdict)
    return asked if words is None else replace(asked, task="debug", metric="correct", broken=words)


def _placed(verdict: Verdict, unit: Unit) -> Verdict:
    """Returns a verdict with its positions converted from the user's file to the unit's text."""

    def placed(said: Said) -> Said:
        if said.file not in (None, unit.path) or said.line is None:
            return said
        place = unit_position(unit, said.line, said.column)
        if place is None:
            return said
        offset, line = place
        column = None if said.column is None else offset - line_starts(unit.text)[line - 1] + 1
        return replace(said, file=None, line=line, column=column)

    findings, diagnostics = tuple(map(placed, verdict.findings)), tuple(map(placed, verdict.diagnostics))
    return replace(verdict, findings=findings, diagnostics=diagnostics)


def words_on(verdict: Verdict) -> str | None:
    """Returns the error text of a verdict in the form of a corpus; None for a right version.

    It is the compiler's first error, else the first finding that rejects.
    """
    for diagnostic in verdict.diagnostics:
        if diagnostic.severity == "error":
            return f"compile-error: line {diagnostic.line}: {diagnostic.message}"
    for finding in verdict.findings:
        if finding.severity == "error":
            place = f"line {finding.line}: " if finding.line else ""
            return f"{finding.code}: {place}{finding.message}"
    return None


def finding_of(words: str) -> Finding | None:
    """Parses a finding from the text of `words_on`; None for other text."""
    if words.startswith("wrong values"):
        return Finding(FindingCode.WRONG_VALUES, "error", words)
    said = _SAID.fullmatch(words)
    if said is None or said["code"] not in _CODES:
        return None
    buffer = _BUFFER.search(said["message"])
    line = int(said["line"]) if said["line"] else None
    return Finding(FindingCode(said["code"]), "error", said["message"], line=line, buffer=buffer[1] if buffer else None)


def tried_of(judged: Judged) -> TriedVersion:
    """Returns an earlier version in the form of a question."""
    candidate, verdict = judged.candidate, judged.verdict
    codes = tuple(finding.code for finding in verdict.findings if finding.severity == "error")
    speedup = None if verdict.speedup is None else verdict.speedup.median
    version = CodecVersion(candidate.kernel.unit.text, launch_of(candidate.contract))
    return TriedVersion(version, verdict.accepted, speedup, codes)


def candidate_of(kernel: Kernel, contract: Contract, answer: DecodedAnswer, author: str) -> Candidate:
    """Returns an answer as a candidate: its text in the user's file, its launch in the contract.

    A version made only by built-in rewrites has `recipe:NAME, chosen by AUTHOR` as its author, so that its speedup is
    predicted with the error of recipes.

    Args:
        kernel: the kernel of the question.
        contract: the kernel's contract.
        answer: the decoded answer.
        author: the author of the answer.

    Raises:
        UndecodableAnswer: the answer contains no version, or the version cannot be inserted into the user's file.
    """
    version, analysis = answer.version, answer.analysis
    if version is None:
        raise UndecodableAnswer("The answer holds no version.")
    if answer.rewrites:
        author = f"recipe:{'+'.join(answer.rewrites)}, chosen by {author}"
    launch = version.launch
    try:
        changed = same_kernel(kernel, with_text(kernel.unit, version.text))
        if kernel.unit.language == "python" and launch != launch_of(contract):
            # The string's text has its launch already; the file's contract block and calls are outside of it.
            changed = change_launch(
                changed, grid=launch.grid, block=launch.block, shared=launch.shared, contract=contract
            )
    except KernelmateError as error:
        raise UndecodableAnswer(f"The answer cannot be put into the file: {error.message}") from None
    new = replace(contract, grid=launch.grid, block=launch.block, shared=launch.shared, require=launch.require)
    why = " ".join(analysis) or "Says nothing of what was changed."
    return Candidate(author, why, changed, new, steps=analysis)
