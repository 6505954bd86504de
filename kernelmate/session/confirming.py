"""Judges again, on a GPU, versions that were only promising without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kernelmate.decide.objective import read_objective
from kernelmate.decide.ranking import best_first
from kernelmate.measure.statistics import undecided
from kernelmate.records import (
    Candidate,
    Confirmation,
    ConfirmationReport,
    Judged,
    Kernel,
    Outcome,
    PortableJudgement,
    Promise,
    Verdict,
)
from kernelmate.session.candidates import verdict_on
from kernelmate.session.judging import JudgingContext
from kernelmate.source import find_kernels, same_kernel
from kernelmate.source.blocks import kernel_named

OnConfirmed = Callable[[Confirmation], None]


def confirm(
    context: JudgingContext, carried: PortableJudgement, promises: Sequence[Promise], on_judged: OnConfirmed | None
) -> ConfirmationReport:
    """Judge the kernel and each promising version on the GPU, and compare with the earlier results.

    Args:
        context: for the carried kernel, on the GPU.
        carried: the document with the earlier results.
        promises: the versions to judge.
        on_judged: called with each as soon as it is judged.

    Raises:
        InputError: the reference cannot be used, or the prompt not be read. CompileTimeout: the kernel's compilation
        did
            not end. EnvironmentFailed: compiler or worker are unavailable.
    """
    baselines = context.baselines()
    baseline = baselines[0].verdict
    objective = carried.objective
    if objective is None and carried.prompt is not None:
        objective = read_objective(carried.prompt, baseline)
    found: dict[int, Confirmation] = {}
    judged: list[Judged] = []
    for promise in promises:
        version = candidate_kernel(context.kernel, promise)
        candidate = Candidate(promise.author, promise.why, version, promise.contract)
        verdict = verdict_on(context, candidate, baselines, objective)
        confirmation = Confirmation(promise, verdict, outcome_of(verdict))
        judged.append(Judged(candidate, verdict))
        found[id(judged[-1])] = confirmation
        if on_judged is not None:
            on_judged(confirmation)
    if objective is not None:
        judged = best_first(judged, objective, context.kernel, context.contract)
    confirmations = tuple(found[id(one)] for one in judged)
    return ConfirmationReport(
        carried.given, objective, baseline, carried.timing, confirmations, _notes(context, carried)
    )


def candidate_kernel(kernel: Kernel, promise: Promise) -> Kernel:
    """Returns the promising version within the carried unit."""
    unit = replace(kernel.unit, text=promise.source, file_text=promise.source)
    fused = kernel_named(find_kernels(unit), promise.contract.kernel) if kernel.parts else None
    return same_kernel(kernel, unit) if fused is None else fused


def outcome_of(verdict: Verdict) -> Outcome:
    """Classifies the GPU's verdict; a right version that is neither faster nor slower remains undecided."""
    if verdict.accepted:
        return "confirmed"
    if verdict.accepted is None:
        return "undecided"
    sound = verdict.correct is not False and not any(finding.severity == "error" for finding in verdict.findings)
    timed = verdict.objective is None or verdict.objective.name == "time"
    if sound and timed and verdict.speedup is not None and undecided(verdict.speedup):
        return "undecided"
    return "refuted"


def _notes(context: JudgingContext, carried: PortableJudgement) -> tuple[str, ...]:
    if context.target.name == carried.given.target:
        return ()
    return (
        f"Times were predicted for {carried.given.target} and measured on {context.target.name}: ratios between versions may "
        "be compared, times may not.",
    )
