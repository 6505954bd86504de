"""Results as text and as a document of JSON."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from kernelmate_torch.kernelbench.records import CODES, BenchmarkedTask, CandidateVerdict, TaskFinding
from kernelmate_torch.kernelbench.scores import BASELINES, FastShare, fast_shares

SCORE_NAMES = {"eager": "eager", "compile": "torch.compile", "max-autotune": "torch.compile, max-autotune"}


def task_lines(result: BenchmarkedTask, *, notes: bool) -> Iterator[str]:
    """Yields the lines about one task: its findings, and the verdict on its candidate.

    Args:
        result: of the task.
        notes: also show what does not exclude the task or reject the candidate.
    """
    audit = result.audit
    state = "not audited" if audit.failed else "flagged" if audit.flagged else "sound"
    if audit.smaller and not audit.failed:
        sizes = ", ".join(f"{name} = {value}" for name, value in audit.smaller.items())
        state += f"; its parts were tried at {sizes}" + ("" if audit.full else ", its own sizes take too long here")
    yield f"{result.task}: {state}"
    if audit.failed:
        yield f"  {audit.failed}"
    yield from _finding_lines(audit.findings, notes=notes)
    if result.candidate is not None:
        yield f"  {_verdict_line(result.candidate)}"
        yield from _finding_lines(result.candidate.findings, notes=True, indent="    ")


def _finding_lines(findings: Sequence[TaskFinding], *, notes: bool, indent: str = "  ") -> Iterator[str]:
    for one in findings:
        if notes or one.severity == "error":
            place = f", line {one.line}" if one.line else ""
            yield f"{indent}{'note: ' if one.severity == 'note' else ''}{one.code}{place}: {one.message}"


def _verdict_line(verdict: CandidateVerdict) -> str:
    if verdict.passes is None:
        return f"{verdict.file}: not judged"
    words = ["right" if verdict.right else "rejected"]
    if bool(verdict.passes) != bool(verdict.right):
        words.append("passes the benchmark's own rule" if verdict.passes else "fails the benchmark's own rule")
    if verdict.compared and verdict.right:
        words.append(f"{verdict.compared} comparisons, largest deviation {verdict.deviation:.2g} of the largest value")
    if verdict.smaller:
        words.append(f"at {', '.join(f'{name} = {value}' for name, value in verdict.smaller.items())}")
    words += [
        f"{speed.ratio:.2f}x [{speed.low:.2f}, {speed.high:.2f}] of {SCORE_NAMES[name]}" for name, speed in verdict.speeds.items()
    ]  # fmt: skip
    if verdict.time_us is not None:
        roof = "" if verdict.roof_share is None else f", {verdict.roof_share:.0%} of the roof"
        words.append(f"{verdict.time_us:.4g} us{roof}")
    return f"{verdict.file}: {'; '.join(words)}"


def summary_lines(results: Sequence[BenchmarkedTask], total: int, *, candidates: bool) -> Iterator[str]:
    """Yields the lines after the tasks: how many are flagged and for what, fast_p, and why there are no times.

    Args:
        results: of the tasks that were run.
        total: number of the chosen tasks.
        candidates: there are candidates.
    """
    flagged = [one for one in results if one.audit.flagged]
    whole = f"{len(results)} tasks" if len(results) == total else f"{len(results)} of {total} tasks"
    absolute, relative = results[0].tolerance if results else (0.0, 0.0)
    yield f"{whole} at atol = {absolute:g}, rtol = {relative:g}: {len(results) - len(flagged)} sound, {len(flagged)} excluded from the audited score"  # fmt: skip
    counts = Counter(code for one in flagged for code in {finding.code for finding in one.audit.findings if finding.severity == "error"})  # fmt: skip
    for code in CODES:
        if counts[code]:
            yield f"  {counts[code]:3} {code}: {CODES[code]}"
    failed = sum(bool(one.audit.failed) for one in results)
    if failed:
        yield f"  {failed:3} could not be run"
    if not candidates:
        return
    yield from _score_lines(fast_shares(results))
    timed = any(one.candidate is not None and one.candidate.time_us is not None for one in results)
    if not timed:
        yield "No times and no fast_p over p = 0: they are measured on a GPU that PyTorch can use alone."
    unjudged = sum(one.candidate is not None and one.candidate.passes is None for one in results)
    if unjudged:
        yield f"{unjudged} candidates were not judged and are left out of the score."


def _score_lines(shares: Sequence[FastShare]) -> Iterator[str]:
    for one in shares:
        rule = "audited" if one.audited else "raw"
        against = "" if one.baseline is None else f" against {SCORE_NAMES[one.baseline]}"
        value = "no tasks" if math.isnan(one.share) else f"{one.share:.3f} [{one.low:.3f}, {one.high:.3f}] of {one.tasks} tasks"  # fmt: skip
        yield f"fast_{one.p:g} {rule}{against}: {value}"


def document(results: Sequence[BenchmarkedTask], total: int, *, candidates: bool) -> dict[str, Any]:
    """Returns the document that `--json` prints; a number that is unknown is null."""
    shares = fast_shares(results) if candidates else []
    return {
        "tasks": total,
        "done": len(results),
        "flagged": [one.task for one in results if one.audit.flagged],
        "baselines": list(BASELINES),
        "fast_p": [
            {
                "p": one.p, "baseline": one.baseline, "audited": one.audited, "tasks": one.tasks,
                "share": None if math.isnan(one.share) else one.share,
                "ci95": None if math.isnan(one.share) else [one.low, one.high],
            }
            for one in shares
        ],
        "results": msgspec.to_builtins(list(results)),
    }  # fmt: skip
