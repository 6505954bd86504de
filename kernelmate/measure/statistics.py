"""Confidence intervals of ratios, and the criterion for calling one version faster than another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelmate.records import Speedup, Timing

Z95 = 1.959964
"""Half-width of a 95% interval of the normal distribution, in standard deviations."""

SHORT_TIMES = 2.0
"""A kernel is dominated by launch overhead if it takes less than this multiple of an empty kernel's time."""

MODEL_FACTOR = 1.6
"""Error factor of predictions: a predicted time is assumed within this factor of the measured one, either way.

This held for 95% of kernels whose family was held out from the fit (`measure/fit.json`, 134 variants on an H100).
Errors on GPUs other than the fitted one may be larger.
"""

RATIO_FACTOR = 1.8
"""Error factor of predicted ratios of two versions of one kernel, either way.

This held for 95% of ratios within families that were held out from the fit (`fit.json`, `ratio`); half of them are
within 1.2. Versions with a predicted ratio closer to 1 than this are undecided.
"""


@dataclass(frozen=True, slots=True)
class RatioError:
    """Error of a predicted ratio relative to the measured one, as natural logarithms, separately for each direction.

    Attributes:
        over: allowed overestimation of the change.
        over_slope: its increase for each e-fold of the predicted ratio.
        under, under_slope: likewise for underestimation.
    """

    over: float
    over_slope: float
    under: float
    under_slope: float

    def interval(self, ratio: float) -> tuple[float, float]:
        """Returns the 95% interval of a predicted ratio (before over after)."""
        change = abs(math.log(ratio))
        large = min(change, 1.0)
        less, more = self.over + self.over_slope * large, self.under + self.under_slope * large
        low, high = change - less, change + more
        if ratio < 1:
            low, high = -high, -low
        return math.exp(min(low, 700.0)), math.exp(min(high, 700.0))


EDITED = RatioError(over=0.09, over_slope=0.47, under=0.35, under_slope=1.1)
"""Error of a predicted ratio between a version and the one it was derived from by a built-in rewrite or a changed launch.

Chosen so that 95% of the measured ratios of 351 such pairs lie within. The pairs are of 44 kernels outside the fit,
measured on an H100 (`benchmarks.prediction_intervals`). With each kernel's own pairs left out of the choice, 93.4 to
94.9% lie within. Of 119 other pairs of the same kernels, measured afterwards, 92.4 % lie within
(`benchmarks/results/recipes_gpu.txt`), less than the nominal 95 %; one gained 0.3 % less than claimed, after which
`over_slope` was raised from 0.45. The model underestimates float atomics on one address, and threads that work much
longer than the others.
"""

ANY = RatioError(over=math.log(RATIO_FACTOR), over_slope=0.0, under=math.log(RATIO_FACTOR), under_slope=0.0)
"""Error of a predicted ratio of any two kernels that do the same work."""


def log_half_width(timing: Timing) -> float:
    """Returns half the 95% interval of a time, as a natural logarithm."""
    low, high = timing.ci95_us
    if not (0 < low <= high < math.inf):
        return math.inf
    return (math.log(high) - math.log(low)) / 2


def speedup(before: Timing, after: Timing, error: RatioError = ANY) -> Speedup:
    """Returns the speedup of `after` over `before`, with its 95% interval.

    Measured times have independent errors, which add in quadrature on the logarithm. Predicted times share most of
    their errors, so the error of their ratio was determined separately (`error`) and is smaller than that of the times.

    Raises:
        ValueError: one is measured and the other predicted, or a time is not a positive number.
    """
    if before.kind != after.kind:
        raise ValueError(f"a {before.kind} time cannot be compared with a {after.kind} one")
    if not (0 < before.median_us < math.inf and 0 < after.median_us < math.inf):
        raise ValueError(f"times must be positive: {before.median_us} us and {after.median_us} us")
    ratio = before.median_us / after.median_us
    if before.kind == "predicted":
        return Speedup("predicted", ratio, error.interval(ratio))
    variance = log_half_width(before) ** 2 + log_half_width(after) ** 2
    width = math.sqrt(max(variance, 0.0)) if math.isfinite(variance) else math.inf
    return Speedup(before.kind, ratio, (ratio * math.exp(-width), ratio * math.exp(width) if width < 700 else math.inf))


def weighted_mean(ratios: Sequence[Speedup], weights: Sequence[float]) -> Speedup:
    """Returns the weighted geometric mean of the ratios r_i of several sizes, with its 95% interval.

    With weights normalised to w_i = weight_i / sum of weights, the mean is exp(sum of w_i ln r_i). An end of the interval
    lies as far from it, on the logarithm, as the distances d_i = |ln r_i - ln end_i| of the sizes' own ends give: of
    measured ratios, whose errors are independent, sqrt(sum of (w_i d_i)^2); of predicted ones, which share the model's
    error, sum of w_i d_i.

    Raises:
        ValueError: measured and predicted ratios are mixed, there are none, or no weight is positive.
    """
    kinds = {ratio.kind for ratio in ratios}
    total = sum(weights)
    if len(kinds) != 1 or not total > 0:
        raise ValueError("a weighted mean takes ratios of one kind, and weights of which one at least is positive")
    kind = kinds.pop()
    shares = [weight / total for weight in weights]
    middle = sum(share * math.log(ratio.median) for share, ratio in zip(shares, ratios, strict=True))

    def distance(end: int) -> float:
        parts = [
            share * _log_distance(ratio.median, ratio.ci95[end])
            for share, ratio in zip(shares, ratios, strict=True)
            if share > 0
        ]
        return math.hypot(*parts) if kind == "measured" else sum(parts)

    low, high = middle - distance(0), middle + distance(1)
    return Speedup(kind, math.exp(middle), (math.exp(low), math.exp(high) if high < 700 else math.inf), weighted=True)


def _log_distance(one: float, other: float) -> float:
    return abs(math.log(one) - math.log(other)) if 0 < one < math.inf and 0 < other < math.inf else math.inf


def undecided(ratio: Speedup) -> bool:
    """Returns True if neither faster nor slower can be claimed: the interval contains 1."""
    return ratio.ci95[0] <= 1 <= ratio.ci95[1]


def faster(ratio: Speedup) -> bool:
    """Returns True if the whole interval is above 1."""
    return ratio.ci95[0] > 1


def slower(ratio: Speedup, limit: float = 0.0) -> bool:
    """Returns True if the whole interval is below 1 and the time rose by more than `limit` (a fraction)."""
    return ratio.ci95[1] < 1 and 1 / ratio.median > 1 + limit


def show(ratio: Speedup) -> str:
    """Formats a ratio with its interval: `1.42x [1.40, 1.44]`."""
    return f"{ratio.median:.3g}x [{ratio.ci95[0]:.3g}, {ratio.ci95[1]:.3g}]"
