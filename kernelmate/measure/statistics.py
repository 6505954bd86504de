"""Intervals of ratios: when one version may be called faster than another."""

from __future__ import annotations

import math

from kernelmate.records import Speedup, Timing

Z95 = 1.959964
"""Half-width of a 95% interval of the normal distribution, in standard deviations."""

MODEL_FACTOR = 1.6
"""A predicted time is taken to be within this factor, either way, of the measured one.

So are 95 of 100 times of kernels whose family was held out from the fit (`measure/fit.json`, 134 variants on an H100). GPUs
that it was not fitted to may do worse.
"""

RATIO_FACTOR = 1.8
"""A predicted ratio of two versions of one kernel is taken to be within this factor, either way, of the measured one.

So are 95 of 100 ratios within families that were held out from the fit (`fit.json`, `ratio`); half of them are within 1.2.
Versions that are predicted to lie closer to each other than this are undecided.
"""

MODEL_CORRELATION = 1 - (math.log(RATIO_FACTOR) / math.log(MODEL_FACTOR)) ** 2 / 2
"""How much of the model's error two versions of one kernel share.

Both are predicted for the same target, sizes and inputs, so an error in a bandwidth, a latency or the launch floor moves
both alike and cancels in their ratio. With log-errors of standard deviation s and correlation c the ratio's log-error has
s * sqrt(2 (1 - c)).
"""


def log_half_width(timing: Timing) -> float:
    """Half the 95% interval of a time, in units of its natural logarithm."""
    low, high = timing.ci95_us
    if not (0 < low <= high < math.inf):
        return math.inf
    return (math.log(high) - math.log(low)) / 2


def speedup(before: Timing, after: Timing) -> Speedup:
    """How many times faster `after` is than `before`, with its 95% interval.

    Measured times have independent errors, which add in quadrature on the logarithm. Predicted ones share most of
    theirs: each enters with the model's own error, reduced by `MODEL_CORRELATION`.

    Raises:
        ValueError: one is measured and the other predicted, or a time is not a positive number.
    """
    if before.kind != after.kind:
        raise ValueError(f"a {before.kind} time cannot be compared with a {after.kind} one")
    if not (0 < before.median_us < math.inf and 0 < after.median_us < math.inf):
        raise ValueError(f"times must be positive: {before.median_us} us and {after.median_us} us")
    ratio = before.median_us / after.median_us
    wide_before, wide_after = log_half_width(before), log_half_width(after)
    variance = wide_before**2 + wide_after**2
    if before.kind == "predicted" and math.isfinite(variance):
        variance -= 2 * MODEL_CORRELATION * wide_before * wide_after
    width = math.sqrt(max(variance, 0.0)) if math.isfinite(variance) else math.inf
    return Speedup(before.kind, ratio, (ratio * math.exp(-width), ratio * math.exp(width) if width < 700 else math.inf))


def undecided(ratio: Speedup) -> bool:
    """Neither faster nor slower can be claimed: the interval holds 1."""
    return ratio.ci95[0] <= 1 <= ratio.ci95[1]


def faster(ratio: Speedup) -> bool:
    """The whole interval is above 1."""
    return ratio.ci95[0] > 1


def slower(ratio: Speedup, limit: float = 0.0) -> bool:
    """The whole interval is below 1, and the time rose by more than `limit` (a fraction)."""
    return ratio.ci95[1] < 1 and 1 / ratio.median > 1 + limit


def show(ratio: Speedup) -> str:
    """A ratio as people read it: `1.42x [1.40, 1.44]`."""
    return f"{ratio.median:.3g}x [{ratio.ci95[0]:.3g}, {ratio.ci95[1]:.3g}]"
