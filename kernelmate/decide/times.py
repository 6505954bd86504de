"""Times of two versions at the listed sizes, and their mean by the contract's weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from kernelmate.measure.statistics import RatioError, speedup, weighted_mean
from kernelmate.records import MOSTLY_LAUNCHING, Contract, Size, SizeMetrics, Speedup, Timing, Verdict

LAUNCH_US = 1.0
"""Microseconds of slowdown that are tolerated if launch overhead dominates both versions' times."""


@dataclass(frozen=True, slots=True)
class SizeTimes:
    """Both versions' times at one listed size.

    Attributes:
        size: the size; None if only the verdicts' own times are known.
        weight: its weight in the contract; None without weights.
        headline: True for the contract's first size.
        before, after: times of the baseline and the candidate.
        ratio: before over after; None if they cannot be compared.
    """

    size: Size | None
    weight: float | None
    headline: bool
    before: Timing | None
    after: Timing | None
    ratio: Speedup | None


def times_at(
    baseline: Verdict,
    candidate: Verdict,
    baseline_sizes: Sequence[SizeMetrics],
    candidate_sizes: Sequence[SizeMetrics],
    contract: Contract | None,
    error: RatioError,
) -> tuple[SizeTimes, ...]:
    """Returns both versions' times at every listed size at which both ran, the headline first.

    If the headline has no ratio, the times of the two verdicts take its place.

    Ratios come from timing blocks that contain both versions, else from the two times.
    """
    found = []
    for number, (before, after) in enumerate(pair_sizes(baseline_sizes, candidate_sizes)):
        if after is None:
            continue
        headline = number == 0 if contract is None else before.size == contract.sizes[0]
        weight = None if contract is None else contract.weight(before.size)
        first = after.beside or before.timing
        ratio = after.speedup or _ratio(first, after.timing, error)
        found.append(SizeTimes(before.size, weight, headline, first, after.timing, ratio))
    if not any(one.headline and one.ratio is not None for one in found):
        ratio = candidate.speedup if candidate.speedup is not None and candidate.speedup.kind == "measured" else None
        ratio = ratio or _ratio(baseline.timing, candidate.timing, error)
        found = [one for one in found if not one.headline]
        found.insert(0, SizeTimes(None, None, True, baseline.timing, candidate.timing, ratio))
    return tuple(found)


def mean_by_weights(times: Sequence[SizeTimes]) -> Speedup | None:
    """Returns the weighted geometric mean of the ratios; None without weights, or if a size that counts has no ratio."""
    ratios = [one.ratio for one in times if one.weight]
    known = [ratio for ratio in ratios if ratio is not None]
    if not known or len(known) < len(ratios):
        return None
    return weighted_mean(known, [one.weight for one in times if one.weight])


def mean_us(times: Sequence[SizeTimes], of: Literal["before", "after"]) -> float | None:
    """Returns the weighted geometric mean of one version's times, in microseconds."""
    weights = [one.weight for one in times if one.weight]
    medians = [median_us(one, of) for one in times if one.weight]
    if not all(medians):
        return None
    total = sum(weight * math.log(median) for weight, median in zip(weights, medians, strict=True) if median)
    return math.exp(total / sum(weights))


def median_us(times: SizeTimes, of: Literal["before", "after"]) -> float | None:
    """Returns one version's median time at a size, in microseconds; None without a time."""
    timing = times.before if of == "before" else times.after
    return None if timing is None else timing.median_us


def never_vetoes(times: SizeTimes) -> bool:
    """Returns True for a size at which a slowdown never rejects a version.

    Its weight is 0, or it is unweighted with times that launch overhead dominates and that differ by less than 1 us.
    """
    if times.weight is not None:
        return times.weight == 0
    if times.headline or times.before is None or times.after is None or not mostly_launching(times):
        return False
    return abs(times.after.median_us - times.before.median_us) < LAUNCH_US


def mostly_launching(times: SizeTimes) -> bool:
    """Returns True if launch overhead dominates both times: each is less than twice an empty kernel's."""
    both = (times.before, times.after)
    return all(timing is not None and any(n.startswith(MOSTLY_LAUNCHING) for n in timing.notes) for timing in both)


def pair_sizes(
    baseline: Sequence[SizeMetrics], candidate: Sequence[SizeMetrics]
) -> list[tuple[SizeMetrics, SizeMetrics | None]]:
    """Pairs the baseline's figures at each listed size with the candidate's; None if the candidate did not run."""
    by_size = {tuple(sorted(size.size.items())): size for size in candidate}
    return [(size, by_size.get(tuple(sorted(size.size.items())))) for size in baseline]


def _ratio(before: Timing | None, after: Timing | None, error: RatioError) -> Speedup | None:
    if before is None or after is None or before.kind != after.kind:
        return None
    if not (0 < before.median_us < math.inf and 0 < after.median_us < math.inf):
        return None
    return speedup(before, after, error)
