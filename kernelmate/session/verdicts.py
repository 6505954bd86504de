"""Construction of verdicts from the results of the compiler, the worker, and the comparison with the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelmate.checks.findings import ranked
from kernelmate.checks.guards import suspicious_speedup
from kernelmate.decide.times import SizeTimes
from kernelmate.errors import LaunchTooLarge
from kernelmate.measure.statistics import ANY, RatioError, speedup
from kernelmate.records import (
    BackendName,
    Case,
    Contract,
    FindingCode,
    Judgement,
    Kernel,
    SizeMetrics,
    Speedup,
    StageVerdict,
    Target,
    Timing,
    Verdict,
)
from kernelmate.session.preparing import PreparedVersion, kernel_finding
from kernelmate.worker.client import TaskDeath

MOST_PRINTED = 600
"""Maximum number of characters of a dead worker's output that a message quotes."""

OUT_OF_TIME = (
    "The emulator ran out of time, which says nothing about the kernel: judge smaller sizes (--size), allow more time "
    "(--timeout, or timeout_s in the settings), or use a GPU."
)
TOO_MUCH_MEMORY = "Judge smaller sizes (--size), or raise memory_limit_mb in the settings."
OUT_OF_MEMORY = f"Emulating and checking takes it, which says nothing about the kernel. {TOO_MUCH_MEMORY}"
CRASHED = (
    "Emulated code cannot end the process that emulates it, so this says nothing about the kernel. Judge it again, and "
    "report it where it comes back."
)
OF_THE_EMULATOR = {
    # Emulation is much slower than a GPU, so a timeout is no evidence of a hang. A thread that does not end reaches the
    # limit of instructions.
    FindingCode.HANG: (FindingCode.TIME_LIMIT, OUT_OF_TIME),
    FindingCode.OUT_OF_MEMORY: (FindingCode.OUT_OF_MEMORY, OUT_OF_MEMORY),
    FindingCode.WORKER_CRASH: (FindingCode.WORKER_CRASH, CRASHED),
}
"""Worker deaths that are not the kernel's fault on the emulator: the finding's code, and the advice."""


def compiled_verdict(prepared: PreparedVersion, target: Target, backend: BackendName, seed: int) -> Verdict:
    """Returns the verdict on a version that has not run yet."""
    compiled = prepared.compiled
    return Verdict(
        kernel=prepared.kernel.label,
        instance=compiled.instance,
        backend=backend,
        target=target.name,
        arch=compiled.arch,
        compiler=compiled.compiler,
        binary=compiled.binary,
        seed=seed,
        compiled=compiled.ok,
        diagnostics=compiled.diagnostics,
        resources=prepared.resources,
        occupancy=prepared.occupancy,
        correct=None,
        cases=(),
        findings=prepared.findings,
        timing=None,
        speedup=None,
        counters=None,
        objective=None,
        accepted=False if prepared.findings else None,
        reasons=(),
        stages=compiled_stages(prepared),
    )


def compiled_stages(prepared: PreparedVersion) -> tuple[StageVerdict, ...] | None:
    """Returns the verdicts on a pipeline's stages as far as they follow from compilation; None for a kernel."""
    contract = prepared.contract
    if contract is None or not contract.stages:
        return None
    kernels = iter(prepared.stages)
    found = []
    for stage in contract.stages:
        one = None if stage.library else next(kernels, None)
        shape = None if one is None else one.launch
        found.append(
            StageVerdict(
                name=stage.name,
                expression=stage.contract.reference if stage.library else None,
                grid=None if shape is None else shape.grid,
                block=None if shape is None else shape.block,
                resources=None if one is None else one.resources,
                occupancy=None if one is None else one.occupancy,
            )
        )
    return tuple(found)


def _judged_stages(
    stages: tuple[StageVerdict, ...] | None, judgement: Judgement, headline: SizeMetrics | None
) -> tuple[StageVerdict, ...] | None:
    """Adds the worker's results to stages: figures of the headline size, and correctness over all listed sizes."""
    if stages is None or not judgement.metrics:
        return stages
    found = []
    for number, stage in enumerate(stages):
        sizes = [one.stages[number] for one in judgement.metrics]
        compared = [one for one in sizes if one.correct is not None]
        here = None if headline is None else headline.stages[number]
        found.append(
            replace(
                stage,
                correct=all(one.correct for one in compared) if compared else None,
                unjudged=None if compared else next((one.unjudged for one in sizes), None),
                max_error=max((one.max_error for one in compared if one.max_error is not None), default=None),
                counters=None if here is None else here.counters,
                timing=None if here is None else here.timing,
                temporaries_written_bytes=None if here is None else here.temporaries_written_bytes,
                temporaries_read_bytes=None if here is None else here.temporaries_read_bytes,
            )
        )
    return tuple(found)


def temporaries_words(baseline: Verdict, verdict: Verdict) -> tuple[str, ...]:
    """Returns a sentence on the bytes of temporaries that a version of a pipeline saves or adds; none if nothing changes."""
    before, after = _through_temporaries(baseline), _through_temporaries(verdict)
    if before is None or after is None or before == after:
        return ()
    return (
        f"bytes of temporaries between stages: {before[0]:,} written and {before[1]:,} read before, "
        f"{after[0]:,} written and {after[1]:,} read now",
    )


def _through_temporaries(verdict: Verdict) -> tuple[int, int] | None:
    """Returns the bytes of temporaries that the stages write and read; None if they were not counted."""
    if verdict.stages is None:
        return (0, 0)
    counted = [(one.temporaries_written_bytes, one.temporaries_read_bytes) for one in verdict.stages]
    if any(written is None or read is None for written, read in counted):
        return None
    return sum(written or 0 for written, _ in counted), sum(read or 0 for _, read in counted)


def with_doubt(verdict: Verdict, baseline: Verdict, kernel: Kernel) -> Verdict:
    """Adds a warning if the speedup is larger than the change explains."""
    predicted = ratio_of_times(baseline.predicted, verdict.predicted)
    said = suspicious_speedup.find(verdict.speedup, predicted, baseline.counters, verdict.counters)
    if said is None:
        return verdict
    finding = replace(kernel_finding(kernel, FindingCode.SUSPICIOUS_SPEEDUP, said), severity="warning")
    return replace(verdict, findings=ranked((*verdict.findings, finding)))


def limit_exceeded(kernel: Kernel, error: LaunchTooLarge) -> Judgement:
    """Returns the judgement of a version that exceeds the emulator's limits, if nothing else rejects it."""
    said = " ".join(part for part in (error.message, error.hint) if part)
    return Judgement(None, (), (kernel_finding(kernel, FindingCode.TIME_LIMIT, said),), ())


def with_death(verdict: Verdict, kernel: Kernel, death: TaskDeath) -> Verdict:
    """Returns the verdict of a version that ended its worker: rejected, but called wrong only if that was observed."""
    message = f"{death.detail}{printed(death)}"
    if death.judge_failed:
        message += " This is a fault of KernelMate and says nothing about the kernel; please report it."
    elif verdict.backend == "emulator" and death.kind in OF_THE_EMULATOR:
        code, advice = OF_THE_EMULATOR[death.kind]
        return replace(verdict, correct=None, findings=(kernel_finding(kernel, code, f"{message} {advice}"),))
    finding = kernel_finding(kernel, death.kind, message)
    return replace(verdict, correct=None if death.judge_failed else False, findings=(finding,))


def printed(death: TaskDeath) -> str:
    """Returns the process's last output in one line, as a sentence to append."""
    lines = " | ".join(line.strip() for line in death.output.splitlines())
    return f" It printed: {lines[-MOST_PRINTED:]}" if lines else ""


def with_judgement(verdict: Verdict, judgement: Judgement, contract: Contract) -> Verdict:
    """Adds the worker's results to a verdict; headline figures only if that size ran."""
    headline = next((one for one in judgement.metrics if one.size == contract.sizes[0]), None)
    reasons = judgement.reasons
    if contract.inferred and judgement.only_written:
        reasons += (f"only ever written, so `out` in a contract: {', '.join(judgement.only_written)}",)
    stage_lines = {stage.name: stage.contract.line for stage in contract.stages}
    return replace(
        verdict,
        correct=judgement.correct,
        cases=judgement.cases,
        findings=tuple(
            replace(one, line=stage_lines.get(one.stage, contract.line))
            if one.stage is not None and one.line is None
            else one
            for one in judgement.findings
        ),
        timing=None if headline is None else headline.timing,
        counters=None if headline is None else headline.counters,
        lines=None if headline is None else headline.lines,
        predicted=None if headline is None else headline.predicted,
        reasons=reasons,
        hardware=judgement.hardware,
        assumes=judgement.assumes,
        stages=_judged_stages(verdict.stages, judgement, headline),
        against=None if headline is None else headline.against or None,
    )


def with_weights(cases: tuple[Case, ...], contract: Contract, times: Sequence[SizeTimes]) -> tuple[Case, ...]:
    """Returns the cases with their size's weight and ratio of times."""
    found = []
    for case in cases:
        if case.origin == "contract":
            ratio = next((one.ratio for one in times if one.size == case.size), None)
            case = replace(case, weight=contract.weight(case.size), speedup=ratio)
        found.append(case)
    return tuple(found)


def ratio_of_times(before: Timing | None, after: Timing | None, error: RatioError = ANY) -> Speedup | None:
    """Returns the ratio of two times of one kind.

    The result is None if either time is missing, they differ in kind, or no ratio is defined.
    """
    if before is None or after is None or before.kind != after.kind:
        return None
    try:
        return speedup(before, after, error)
    except ValueError:
        return None
