"""The verdict on one candidate over all template instances, and detection of versions that can share a verdict."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path

from kernelmate.compiler.project import header_words
from kernelmate.decide.ranking import best_first
from kernelmate.records import (
    Candidate,
    Contract,
    Finding,
    FindingCode,
    Judged,
    Kernel,
    Objective,
    Optimization,
    Verdict,
)
from kernelmate.report.words import stopped_words
from kernelmate.session.judging import JudgedInstance, JudgingContext, directory_of
from kernelmate.session.preparing import PreparedVersion
from kernelmate.source.blocks import compared_with
from kernelmate.source.other_files import LaunchingFile, following_changes
from kernelmate.source.triton import same_elsewhere

REWRITES = "recipe:"
"""Author prefix of built-in rewrites."""

MOST_PLACES = 3
"""Largest number of launches in other files that a reason names."""

OTHERS_COMPARE = "with which the results of"
"""Words of the sentence on kernels whose reference a candidate changes."""

OWN = (REWRITES, "synthesis:", "triton:")
"""Author prefixes of the built-in suggesters: rewrites, kernels written from references, constants of Triton kernels."""

TRUSTED = (*OWN, "user")
"""Authors whose text may be compiled before it is screened."""


def verdict_on(
    context: JudgingContext, candidate: Candidate, baselines: tuple[JudgedInstance, ...], objective: Objective | None
) -> Verdict:
    """Returns a candidate's verdict over all instances.

    Text with a forbidden construct is rejected before it is compiled.

    Raises:
        ReferenceFailed: the reference cannot be used.
        EnvironmentFailed: the compiler or the worker is unavailable.
    """
    finding = rejection_reason(context, candidate)
    return (
        turned_away(baselines[0].verdict, finding) if finding else judged_by(context, candidate, baselines, objective)
    )


def rejection_reason(context: JudgingContext, candidate: Candidate) -> Finding | None:
    """Returns the reason for not compiling a candidate; None if there is none."""
    # Screening loads the tree-sitter grammar, which judging does not need.
    from kernelmate.suggest.untrusted import screen

    if candidate.author == "user" or context.kernel.parts:
        return None  # no model writes kernels for a pipeline
    if candidate.kernel.unit.language == "triton":
        if same_elsewhere(context.kernel, candidate.kernel):
            return None
        message = "The candidate changes its file outside of the kernel, its contract and its launches."
        return Finding(FindingCode.FORBIDDEN_SOURCE, "error", message, file=candidate.kernel.unit.path)

    def in_headers() -> frozenset[str]:
        paths = tuple(Path(one).resolve() for one in context.preparer.options.include_paths)
        return header_words(context.kernel.unit.text, directory_of(context.kernel), paths)

    return screen(context.kernel, candidate.kernel, in_headers)


def judged_by(
    context: JudgingContext,
    candidate: Candidate,
    baselines: tuple[JudgedInstance, ...],
    objective: Objective | None,
    prepared: Sequence[PreparedVersion] = (),
) -> Verdict:
    """Returns the verdict over all instances for a candidate that may be compiled.

    `prepared` is its compiled form if known.

    Raises:
        ReferenceFailed: the reference cannot be used.
        EnvironmentFailed: the compiler or the worker is unavailable.
    """
    edited = candidate.author.startswith(REWRITES)
    trials = context.candidates(
        candidate.kernel, candidate.contract, baselines, objective, edited=edited, prepared=prepared, until_hang=True
    )
    return with_caution(candidate, worst_verdict(trials))


def other_seed(seed: int) -> int:
    """Returns a different seed that is derived from the given one."""
    drawn = int.from_bytes(hashlib.sha256(str(seed).encode()).digest()[:4]) >> 1
    return drawn if drawn != seed else drawn ^ 1


def content_key(kernel: Kernel, contract: Contract) -> str:
    """Returns a key that versions with the same code and launch share."""
    parts = (
        kernel.unit.text,
        kernel.name,
        *contract.grid,
        "|",
        *contract.block,
        "|",
        contract.shared,
        *contract.require,
    )
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


def is_measured(verdict: Verdict) -> bool:
    """Returns True if the time was measured on a GPU."""
    return verdict.timing is not None and verdict.timing.kind == "measured"


def shared_verdict(verdict: Verdict, author: str) -> Verdict:
    """Returns the verdict on a version whose binary and launch equal another version's."""
    reason = f"the same binary and launch as {author}, whose verdict this is"
    return replace(verdict, reasons=(*verdict.reasons, reason))


def is_wrong(verdict: Verdict) -> bool:
    """Returns True for a version that does not compile, gives wrong results, or has a rejecting finding."""
    errors = any(finding.severity == "error" for finding in verdict.findings)
    return errors or not verdict.compiled or verdict.correct is False


def turned_away(baseline: Verdict, finding: Finding) -> Verdict:
    """Returns the verdict on a text that is rejected before compilation."""
    return replace(
        baseline,
        binary=None,
        compiled=False,
        diagnostics=(),
        resources=None,
        occupancy=None,
        correct=None,
        cases=(),
        findings=(finding,),
        timing=None,
        speedup=None,
        counters=None,
        objective=None,
        accepted=False,
        reasons=(f"{finding.code}: {finding.message}",),
        **{one.name: one.default for one in fields(Verdict) if one.default is not MISSING},
    )


def with_caution(candidate: Candidate, verdict: Verdict) -> Verdict:
    """Returns the verdict on a candidate with a caution from its author: promising at most, with the reason."""
    if candidate.caution is None or verdict.accepted is False:
        return verdict
    return replace(verdict, accepted=None, reasons=(candidate.caution, *verdict.reasons))


def with_launches_elsewhere(
    kernel: Kernel, before: Contract, candidate: Candidate, files: Sequence[LaunchingFile], verdict: Verdict
) -> Judged:
    """Returns a judged candidate with the changes of other files that launch the kernel.

    It is promising at most if a launch there cannot follow its contract.

    Args:
        kernel: the kernel as it was.
        before: its contract.
        candidate: the candidate, in which the launches of its own file are changed.
        files: the other files that launch the kernel.
        verdict: the verdict.
    """
    candidate = with_dependents(kernel, candidate)
    if not files or verdict.accepted is False:
        return Judged(candidate, verdict)
    changes, places = following_changes(kernel, files, before, candidate.contract)
    candidate = replace(candidate, other_files=changes)
    if not places:
        return Judged(candidate, verdict)
    listed = ", ".join(places[:MOST_PLACES]) + (", ..." if len(places) > MOST_PLACES else "")
    said = f"its launch differs, and {listed} still {'launches' if len(places) == 1 else 'launch'} it as before: change that too"
    return Judged(candidate, replace(verdict, accepted=None, reasons=(said, *verdict.reasons)))


def with_dependents(kernel: Kernel, candidate: Candidate) -> Candidate:
    """Returns a candidate whose reason names the kernels that are compared with the one that it changes."""
    others = compared_with(kernel)
    if not others or candidate.kernel.source == kernel.source or OTHERS_COMPARE in candidate.why:
        return candidate
    names = " and ".join(filter(None, [", ".join(others[:-1]), others[-1]]))
    said = f"{kernel.name} is the reference {OTHERS_COMPARE} {names} are compared."
    return replace(candidate, why=f"{candidate.why} {said}")


@dataclass(frozen=True, slots=True)
class BegunSearch:
    """The beginning of a search, known once the kernel itself was judged.

    Attributes:
        objective: the interpretation of the prompt.
        baseline: the verdict on the kernel.
        kernel: the kernel that the search starts from.
        contract: its contract.
    """

    objective: Objective
    baseline: Verdict
    kernel: Kernel
    contract: Contract

    def stopped(self, found: Sequence[Judged]) -> Optimization:
        """Returns the result of the search if it is ended from outside: its candidates so far, best first."""
        ranked = best_first(found, self.objective, self.kernel, self.contract)
        best = 0 if ranked and ranked[0].verdict.worth_taking else None
        return Optimization(self.objective, self.baseline, tuple(ranked), best, (stopped_words(len(ranked), best),))


def worst_verdict(trials: Sequence[JudgedInstance]) -> Verdict:
    """Returns the verdict that represents all instances.

    The first rejected, else undecided, else promising one, else the first.
    """
    order = {False: 0, None: 2, True: 3}
    return min(
        (trial.verdict for trial in trials), key=lambda verdict: 1 if verdict.undecided else order[verdict.accepted]
    )
