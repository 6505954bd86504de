"""fast_p of a set of results: the share of tasks with a right candidate that is over p times as fast as a baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernelmate.measure.statistics import Z95
from kernelmate_torch.kernelbench.records import BenchmarkedTask, CandidateVerdict

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
BASELINES = ("eager", "compile", "max-autotune")
RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class FastShare:
    """fast_p for one p.

    Attributes:
        p: the speed-up that is exceeded; 0 asks for right results alone.
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
    """Returns fast_p raw and audited: for p = 0 alone where no candidate has a time, else for each baseline that has one.

    A task without a candidate counts as one with a wrong candidate, one whose candidate needs a GPU that is not there is left out.
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
    """Returns the share with its interval: tasks are drawn anew, and speed-ups within their own intervals."""
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
