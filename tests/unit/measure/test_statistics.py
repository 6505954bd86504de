from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.measure.statistics import (
    ANY,
    EDITED,
    MODEL_FACTOR,
    RATIO_FACTOR,
    RatioError,
    faster,
    show,
    slower,
    speedup,
    undecided,
    weighted_mean,
)
from kernelmate.records import Speedup, Timing

times = st.floats(min_value=0.1, max_value=1e6)
widths = st.floats(min_value=1.0, max_value=4.0)


def make(median: float, width: float, kind: str) -> Timing:
    return Timing(kind, median, (median / width, median * width), None, None, None, None, None)  # type: ignore[arg-type]


@given(times, times, widths, widths, st.sampled_from(["measured", "predicted"]))
def test_the_interval_holds_the_ratio(before: float, after: float, one: float, other: float, kind: str) -> None:
    ratio = speedup(make(before, one, kind), make(after, other, kind))
    assert ratio.median == pytest.approx(before / after)
    assert ratio.ci95[0] <= ratio.median <= ratio.ci95[1]
    assert faster(ratio) + undecided(ratio) + slower(ratio) == 1


@given(times, widths, st.sampled_from(["measured", "predicted"]))
def test_a_version_is_never_faster_than_itself(median: float, width: float, kind: str) -> None:
    assert undecided(speedup(make(median, width, kind), make(median, width, kind)))


@given(times, times, widths, widths)
def test_swapping_the_versions_inverts_the_interval(a: float, b: float, one: float, other: float) -> None:
    there = speedup(make(a, one, "measured"), make(b, other, "measured"))
    back = speedup(make(b, other, "measured"), make(a, one, "measured"))
    assert there.ci95[0] == pytest.approx(1 / back.ci95[1])


def test_measured_errors_add_in_quadrature() -> None:
    ratio = speedup(make(20, math.exp(0.3), "measured"), make(10, math.exp(0.4), "measured"))
    assert ratio.ci95 == pytest.approx((2 * math.exp(-0.5), 2 * math.exp(0.5)))


def test_what_a_predicted_ratio_may_be_wrong_by_is_less_than_what_the_times_may_be() -> None:
    before, after = make(40, MODEL_FACTOR, "predicted"), make(10, MODEL_FACTOR, "predicted")
    low, high = speedup(before, after).ci95
    assert math.log(high / low) / 2 == pytest.approx(math.log(RATIO_FACTOR))
    assert low > 4 / MODEL_FACTOR**2


@given(st.floats(min_value=1e-4, max_value=1e4), st.sampled_from([ANY, EDITED]))
def test_a_predicted_ratio_lies_within_its_interval_and_the_inverse_in_the_inverse(
    ratio: float, error: RatioError
) -> None:
    low, high = error.interval(ratio)
    assert low <= ratio <= high
    assert error.interval(1 / ratio) == pytest.approx((1 / high, 1 / low)) or ratio == 1


@given(st.floats(min_value=1.0, max_value=100.0), st.floats(min_value=1.0, max_value=3.0))
def test_larger_predicted_changes_claim_more(ratio: float, more: float) -> None:
    assert EDITED.interval(ratio * more)[0] >= EDITED.interval(ratio)[0] * (1 - 1e-12)


def test_a_rewrite_needs_less_to_be_called_than_any_two_kernels() -> None:
    before, after = make(1.3, MODEL_FACTOR, "predicted"), make(1.0, MODEL_FACTOR, "predicted")
    assert undecided(speedup(before, after))
    assert faster(speedup(before, after, EDITED))
    assert undecided(speedup(make(1.17, MODEL_FACTOR, "predicted"), after, EDITED))


def test_two_predictions_differ_beyond_the_stated_ratio() -> None:
    def time(median: float) -> Timing:
        return make(median, MODEL_FACTOR, "predicted")

    assert undecided(speedup(time(0.99 * RATIO_FACTOR), time(1)))
    assert faster(speedup(time(1.01 * RATIO_FACTOR), time(1)))
    assert slower(speedup(time(1), time(1.01 * RATIO_FACTOR)))


def test_measured_and_predicted_times_are_not_compared() -> None:
    with pytest.raises(ValueError, match="predicted"):
        speedup(make(1, 1, "measured"), make(1, 1, "predicted"))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_a_time_is_a_positive_number(bad: float) -> None:
    with pytest.raises(ValueError, match="positive"):
        speedup(make(1, 1, "measured"), make(bad, 1, "measured"))


def test_slower_takes_a_limit() -> None:
    ratio = speedup(make(10, 1.001, "measured"), make(10.5, 1.001, "measured"))
    assert slower(ratio, 0.02)
    assert not slower(ratio, 0.10)


def test_a_ratio_is_shown_with_its_interval() -> None:
    assert show(speedup(make(14.2, 1.01, "measured"), make(10, 1.0, "measured"))) == "1.42x [1.41, 1.43]"


def around(median: float, width: float, kind: str = "measured") -> Speedup:
    return Speedup(kind, median, (median * math.exp(-width), median * math.exp(width)))  # type: ignore[arg-type]


def test_a_weighted_mean_is_geometric_and_measured_errors_add_in_quadrature() -> None:
    mean = weighted_mean([around(2.0, 0.3), around(0.5, 0.1)], [6, 2])
    middle = math.exp(0.75 * math.log(2) - 0.25 * math.log(2))
    width = math.hypot(0.75 * 0.3, 0.25 * 0.1)
    assert mean.median == pytest.approx(middle)
    assert mean.ci95 == pytest.approx((middle * math.exp(-width), middle * math.exp(width)))
    assert (mean.kind, mean.weighted) == ("measured", True)


def test_errors_of_predicted_ratios_are_the_models_and_do_not_cancel() -> None:
    mean = weighted_mean([around(2.0, 0.3, "predicted"), around(2.0, 0.1, "predicted")], [1, 1])
    assert mean.ci95 == pytest.approx((2 * math.exp(-0.2), 2 * math.exp(0.2)))


def test_each_end_of_a_weighted_mean_comes_from_the_same_ends() -> None:
    mean = weighted_mean([Speedup("measured", 2.0, (1.0, 2.0)), Speedup("measured", 2.0, (2.0, 8.0))], [1, 1])
    assert mean.ci95 == pytest.approx((2**0.5, 4.0))


def test_a_size_of_weight_0_has_no_say_in_the_mean_and_one_without_bounds_leaves_it_without() -> None:
    unbounded = Speedup("measured", 1.0, (0.0, math.inf))
    assert weighted_mean([around(2.0, 0.1), unbounded], [1, 0]).ci95 == pytest.approx(around(2.0, 0.1).ci95)
    assert weighted_mean([around(2.0, 0.1), unbounded], [1, 1]).ci95 == (0.0, math.inf)


@pytest.mark.parametrize(
    ("ratios", "weights"),
    [([], []), ([around(2, 0.1)], [0]), ([around(2, 0.1), around(2, 0.1, "predicted")], [1, 1])],
)
def test_what_has_no_mean_is_refused(ratios: list[Speedup], weights: list[float]) -> None:
    with pytest.raises(ValueError, match="weighted mean"):
        weighted_mean(ratios, weights)
