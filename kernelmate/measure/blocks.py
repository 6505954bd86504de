"""Times and ratios with confidence intervals, from blocks of launches.

A block is a few launches of each version close together, alternating A B B A B A A B, with its own placement of code
and arrays in memory. Drifts slower than a block (clocks, temperature) affect both versions alike, so ratios are taken
per block. The bootstrap resamples blocks, not launches, because launches of one block share their errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from kernelmate.records import Speedup

BOOTSTRAP_FROM = 6
"""Fewest blocks for the bootstrap: in 97 of 100 cases the true median lies between the extremes of six blocks."""

RESAMPLES = 2000

SYSTEMATIC = 0.001
"""Systematic half-width, as a fraction, that every measured ratio's interval gets in addition to its statistical one.

Equal code at two places in memory does not run equally fast: instruction caches and block order differ. This is the
assumed part that more blocks would not average out.
"""

T95 = (math.inf, 12.706, 4.303, 3.182, 2.776)
"""97.5% quantile of Student's t for 0 to 4 degrees of freedom."""


def midmean(values: Sequence[float]) -> float:
    """Returns the mean of the middle half.

    Time stamps have a resolution of 32 ns, which a mean smooths and a median does not.

    Raises:
        ValueError: there are no values.
    """
    if not values:
        raise ValueError("no launches in a block")
    ordered = sorted(values)
    cut = len(ordered) // 4
    middle = ordered[cut : len(ordered) - cut]
    return sum(middle) / len(middle)


def time_of(blocks: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """Returns the Hodges-Lehmann median over the blocks and its 95% interval, in microseconds.

    It is the median of the geometric means of all pairs of blocks, each paired with itself too. Some kernels have one time in half of the placements and
    another in the rest; a plain median then picks either by chance, while this one stays stable between them.

    Args:
        blocks: one time for each block, positive.

    Raises:
        ValueError: there are no blocks, or a time is not positive.
    """
    middle, low, high = _interval(blocks, _hodges_lehmann)
    return math.exp(middle), (math.exp(low), _exp(high))


def ratio_of(before: Sequence[float], after: Sequence[float]) -> Speedup:
    """Returns the speedup of `after`: the median of the blocks' ratios, with its 95% interval.

    Args:
        before: one time for each block.
        after: of the same blocks.

    Raises:
        ValueError: the numbers of blocks differ or are zero, or a time is not positive.
    """
    if len(before) != len(after):
        raise ValueError(f"{len(before)} blocks of one version and {len(after)} of the other")
    middle, low, high = _interval([b / a for b, a in zip(before, after, strict=True)], _median)
    more = math.log1p(SYSTEMATIC)
    return Speedup("measured", math.exp(middle), (math.exp(low - more), _exp(high + more)))


Floats = npt.NDArray[np.float64]


def _median(rows: Floats) -> Floats:
    return np.asarray(np.median(rows, axis=-1))


def _hodges_lehmann(rows: Floats) -> Floats:
    first, second = np.triu_indices(rows.shape[-1])
    return _median((rows[..., first] + rows[..., second]) / 2)


def _interval(values: Sequence[float], middle_of: Callable[[Floats], Floats]) -> tuple[float, float, float]:
    """Returns centre and 95% interval of the logarithms, by bootstrap, or by Student's t if blocks are few.

    The resampling has a fixed seed, so that equal blocks have equal intervals.
    """
    if not values or not all(0 < value < math.inf for value in values):
        raise ValueError(f"times must be positive: {list(values)}")
    logs = np.log(np.asarray(values, np.float64))
    middle, count = float(middle_of(logs)), len(logs)
    if count >= BOOTSTRAP_FROM:
        draws = np.random.default_rng(count).integers(0, count, (RESAMPLES, count))
        low, high = np.quantile(middle_of(logs[draws]), (0.025, 0.975))
        return middle, min(float(low), middle), max(float(high), middle)
    if count == 1:
        return middle, -math.inf, math.inf
    half = T95[count - 1] * float(np.std(logs, ddof=1)) / math.sqrt(count)
    mean = float(np.mean(logs))
    return middle, min(mean - half, middle), max(mean + half, middle)


def _exp(value: float) -> float:
    return math.exp(value) if value < 700 else math.inf
