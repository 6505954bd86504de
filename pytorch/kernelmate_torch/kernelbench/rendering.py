"""Results as text and as a document of JSON, and their fast_p.

fast_p is the share of tasks with a right candidate that is over p times as fast as a baseline.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from kernelmate.measure.statistics import Z95
from kernelmate_torch.kernelbench.records import CODES, BenchmarkedTask, CandidateVerdict, TaskFinding

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
BASELINES = ("eager", "compile", "max-autotune")
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class FastShare:
    """fast_p for one p.

    Attributes:
        p: the speed-up that is exceeded; 0 requires only right results.
        baseline: whose time is compared; None for p = 0.
        audited: False for the benchmark's own rule over all tasks, True for agreement with float64 over tasks without a flaw.
        share: of the tasks.
        low, high: its 95 % interval.
        tasks: their number.
    """

    p: float
    baseline: str | None
    audited: bool
    share: float
    low: float
    high: float
    tasks: int


def fast_shares(results: Sequence[BenchmarkedTask]) -> list[FastShare]:
    """Returns fast_p raw and audited: only for p = 0 if no candidate has a time, else for each baseline that has one.

    A task without a candidate counts as one with a wrong candidate. A task is left out if its candidate needs a GPU and there is none.
    """
    judged = [one for one in results if one.candidate is None or one.candidate.passes is not None]
    timed = [name for name in BASELINES if any(one.candidate is not None and name in one.candidate.speeds for one in judged)]  # fmt: skip
    found: list[FastShare] = []
    for audited in (False, True):
        chosen = [one for one in judged if not (audited and one.audit.flagged)]
        found.append(_share(chosen, 0.0, None, audited=audited))
        found += [_share(chosen, p, name, audited=audited) for name in timed for p in THRESHOLDS[1:]]
    return found


def _share(results: Sequence[BenchmarkedTask], p: float, baseline: str | None, *, audited: bool) -> FastShare:
    """Returns the share with its bootstrap interval: tasks are resampled, and speed-ups drawn from their intervals."""
    count = len(results)
    if not count:
        return FastShare(p, baseline, audited, math.nan, math.nan, math.nan, 0)
    right = np.array([_is_right(one.candidate, audited=audited) for one in results])
    if baseline is None:
        middle, widths = np.zeros(count), np.zeros(count)
    else:
        logs = [_speed(one.candidate, baseline) for one in results]
        middle, widths = np.array([one[0] for one in logs]), np.array([one[1] for one in logs])
    limit = math.log(p) if p > 0 else -math.inf
    share = float(np.mean(right & (middle > limit)))
    generator = np.random.default_rng(count)
    drawn = generator.integers(0, count, (RESAMPLES, count))
    with np.errstate(invalid="ignore"):
        speeds = middle[drawn] + widths[drawn] * generator.standard_normal((RESAMPLES, count))
    shares = np.mean(right[drawn] & (speeds > limit), axis=1)
    low, high = np.quantile(shares, (0.025, 0.975))
    return FastShare(p, baseline, audited, share, min(float(low), share), max(float(high), share), count)


def _is_right(verdict: CandidateVerdict | None, *, audited: bool) -> bool:
    return verdict is not None and bool(verdict.right if audited else verdict.passes)


def _speed(verdict: CandidateVerdict | None, baseline: str) -> tuple[float, float]:
    """Returns the logarithm of a speed-up, and its standard deviation; without a time it exceeds no p."""
    speed = None if verdict is None else verdict.speeds.get(baseline)
    if speed is None:
        return -math.inf, 0.0
    width = (
        (math.log(speed.high) - math.log(speed.low)) / (2 * Z95) if speed.low > 0 and math.isfinite(speed.high) else 0.0
    )
    return math.log(speed.ratio), width


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
