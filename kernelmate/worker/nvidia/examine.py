"""Adds results of NVIDIA's tools to a judgement if they were requested."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from kernelmate.checks.findings import ranked
from kernelmate.records import Finding, FindingCode, Judgement, JudgeTask
from kernelmate.worker.nvidia import profiler
from kernelmate.worker.nvidia.sanitizer import sanitize
from kernelmate.worker.nvidia.tool import ToolFailed

Tell = Callable[[str, int, int], None]

FAULTS = frozenset(
    {
        FindingCode.ILLEGAL_ADDRESS,
        FindingCode.OUT_OF_BOUNDS_WRITE,
        FindingCode.OUT_OF_BOUNDS_READ,
        FindingCode.MISALIGNED_ACCESS,
        FindingCode.TRAP,
    }
)
"""Findings that a GPU reports of a launch without a line, and memcheck with one."""


def examine(task: JudgeTask, judgement: Judgement, device: int, tell: Tell) -> Judgement:
    """Adds the tools' findings, as far as the task requests them.

    Args:
        task: the judged task.
        judgement: its judgement so far.
        device: the GPU's number.
        tell: called as stages begin.
    """
    if any(finding.code == FindingCode.HANG for finding in judgement.findings):
        line = "NVIDIA's tools were not run: a launch did not end, and would not end under them either"
        return replace(judgement, reasons=(*judgement.reasons, line))
    known = [f for f in judgement.findings if f.severity == "error" and f.line is not None]
    if task.sanitize and known and task.baseline is not None:
        line = f"compute-sanitizer was not run: {known[0].code} at line {known[0].line} rejects the version already"
        judgement = replace(judgement, reasons=(*judgement.reasons, line))
    elif task.sanitize:
        findings, lines = sanitize(task, device, tell)
        judgement = with_findings(judgement, findings, lines)
    if task.profile:
        tell(profiler.STAGE, 0, 1)
        try:
            return replace(judgement, hardware=profiler.profile(task, device))
        except ToolFailed as reason:
            judgement = replace(
                judgement, reasons=(*judgement.reasons, f"no hardware counters: {reason}{_instead(judgement)}")
            )
    return judgement


def with_findings(judgement: Judgement, findings: Sequence[Finding], lines: Sequence[str]) -> Judgement:
    """Returns a judgement with a sanitizer's findings; a GPU fault without a line is replaced by the one with a line."""
    errors = [finding for finding in findings if finding.severity == "error"]
    located = any(finding.code in FAULTS and finding.line is not None for finding in errors)
    kept = [f for f in judgement.findings if not (located and f.code in FAULTS and f.line is None and f.buffer is None)]
    return replace(
        judgement,
        correct=False if errors else judgement.correct,
        findings=ranked((*kept, *findings)),
        reasons=(*judgement.reasons, *lines),
    )


def _instead(judgement: Judgement) -> str:
    counted = any(metrics.counters is not None for metrics in judgement.metrics)
    return "; the counters shown are the emulator's" if counted else ""
