"""Times and ratios of blocks: what the intervals promise, held to clocks that drift, jump and step."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.measure.blocks import BOOTSTRAP_FROM, SYSTEMATIC, midmean, ratio_of, time_of

positive = st.floats(0.01, 1e6, allow_nan=False, allow_infinity=False)


@given(st.lists(positive, min_size=1, max_size=50))
def test_the_mean_of_the_middle_half_lies_among_the_values(values: list[float]) -> None:
    middle = midmean(values)
    assert min(values) * (1 - 1e-12) <= middle <= max(values) * (1 + 1e-12)


def test_the_mean_of_the_middle_half_ignores_outliers_and_averages_over_steps() -> None:
    assert midmean([10, 10, 10, 10, 10, 10, 10, 5000]) == 10
    # Time stamps step by 32 ns: six launches of 2.016 and six of 2.048 us took 2.032 on average.
    assert midmean([2.016, 2.048] * 6) == pytest.approx(2.032)


def test_there_is_no_time_without_launches() -> None:
    with pytest.raises(ValueError, match="no launches"):
        midmean([])
    with pytest.raises(ValueError, match="positive"):
        time_of([])
    with pytest.raises(ValueError, match="positive"):
        time_of([1.0, 0.0])
    with pytest.raises(ValueError, match="blocks of one version"):
        ratio_of([1.0], [1.0, 2.0])


@given(st.lists(positive, min_size=1, max_size=20))
def test_the_median_lies_in_its_interval(blocks: list[float]) -> None:
    median, (low, high) = time_of(blocks)
    assert low * (1 - 1e-9) <= median <= high * (1 + 1e-9)
    logs = np.log(blocks)
    pairs = [(one + other) / 2 for at, one in enumerate(logs) for other in logs[at:]]
    assert median == pytest.approx(float(np.exp(np.median(pairs))))


@pytest.mark.parametrize("slow", [4, 5, 6, 7, 8])
def test_a_kernel_with_two_times_has_the_same_median_however_its_placements_fall(slow: int) -> None:
    median, (low, high) = time_of([9.0] * (12 - slow) + [9.6] * slow)
    assert median == pytest.approx(math.sqrt(9.0 * 9.6))
    assert 9.0 - 1e-9 <= low <= median <= high <= 9.6 + 1e-9


def test_some_disturbed_blocks_do_not_move_the_median() -> None:
    assert time_of([5.0] * 9 + [50.0] * 3)[0] == pytest.approx(5.0)


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=20))
def test_a_ratio_turned_round_has_its_interval_turned_round(pairs: list[tuple[float, float]]) -> None:
    before, after = [b for b, _ in pairs], [a for _, a in pairs]
    one, other = ratio_of(before, after), ratio_of(after, before)
    assert one.median * other.median == pytest.approx(1)
    if len(pairs) == 1:
        assert (one.ci95[0], one.ci95[1]) == (0.0, math.inf)
    elif len(pairs) < BOOTSTRAP_FROM and one.ci95[1] < math.inf:
        assert one.ci95[0] * other.ci95[1] == pytest.approx(1)


def test_one_block_says_nothing_and_few_say_little() -> None:
    assert ratio_of([2.0], [1.0]).ci95 == (0.0, math.inf)
    two, four = ratio_of([2.0, 2.002], [1.0, 1.0]), ratio_of([2.0, 2.002] * 2, [1.0] * 4)
    assert two.ci95[1] - two.ci95[0] > 3 * (four.ci95[1] - four.ci95[0])
    assert two.ci95[0] < 2.001 < two.ci95[1]


def test_equal_blocks_still_have_the_width_that_no_repetition_takes_away() -> None:
    ratio = ratio_of([3.0] * 12, [3.0] * 12)
    assert ratio.median == 1
    assert ratio.ci95 == pytest.approx((1 / (1 + SYSTEMATIC), 1 + SYSTEMATIC))


def drifting(random: np.random.Generator, blocks: int) -> tuple[list[float], list[float]]:
    """A kernel against itself while the clock drifts by 5% over the blocks, in steps of 32 ns, with rare disturbances."""
    before, after = [], []
    for block in range(blocks):
        clock = 1 + 0.05 * block / blocks
        for into in (before, after):
            launches = 6.0 * clock * (1 + 0.004 * random.standard_normal(20))
            launches[random.random(20) < 0.03] *= 3
            into.append(midmean(list(np.round(launches / 0.032) * 0.032)))
    return before, after


def jumping(random: np.random.Generator, blocks: int) -> tuple[list[float], list[float]]:
    """A kernel against itself with errors that a whole block shares, and some blocks that are far off."""
    shared = 50 * np.exp(0.03 * random.standard_normal(blocks))
    own = np.exp(0.004 * random.standard_t(3, (2, blocks)))
    return list(shared * own[0]), list(shared * own[1])


@pytest.mark.parametrize("clock", [drifting, jumping])
@pytest.mark.parametrize("blocks", [3, 6, 12])
def test_intervals_of_a_kernel_against_itself_hold_1_as_often_as_they_say(clock, blocks: int) -> None:
    random = np.random.default_rng(blocks)
    held = wide = 0
    for _ in range(400):
        ratio = ratio_of(*clock(random, blocks))
        held += ratio.ci95[0] <= 1 <= ratio.ci95[1]
        wide += ratio.ci95[1] / ratio.ci95[0] > 1.04
    # 95% are promised; of 400 trials 93% is two standard deviations less.
    assert held >= 0.93 * 400
    if blocks == 12:
        assert wide < 40


def test_a_real_difference_is_seen_through_a_drift_larger_than_it() -> None:
    random = np.random.default_rng(5)
    seen = 0
    for _ in range(100):
        before, after = drifting(random, 12)
        seen += ratio_of([1.02 * one for one in before], after).ci95[0] > 1
    assert seen >= 95
