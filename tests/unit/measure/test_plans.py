"""Number of launches of a timing, from cost and budget alone."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.measure import timing
from kernelmate.measure.timing import plan

times = st.floats(0.5, 5e6)


def planned(time_us: float, budget_s: float = 0.2, versions: int = 2, full: bool = True, overhead: float = 8.0):
    return plan([time_us] * versions, time_us + overhead, budget_s * 1e6, flush_us=150, full=full)


@given(times, st.floats(0.001, 10), st.integers(1, 2), st.booleans())
def test_a_plan_is_within_its_bounds(time_us: float, budget_s: float, versions: int, full: bool) -> None:
    one = planned(time_us, budget_s, versions, full)
    assert timing.LONG_BLOCKS <= one.blocks <= timing.BLOCKS
    assert 1 <= one.counted <= timing.MOST_LAUNCHES * max(1, budget_s / 0.2) + 1
    assert (one.warm_up, one.lead) in ((0, 0), (timing.WARM_UP, 0), (timing.WARM_UP, timing.LEAD))
    assert one.turns in (timing.FEWEST_TURNS, timing.TURNS)
    assert all(1 <= launches <= timing.MOST_IN_GRAPH for launches in one.in_graph)
    assert (one.cold > 0) == (one.period_rounds > 0) == (full and time_us < timing.LONG_US)


@given(st.floats(1, 2000), st.integers(1, 2))
def test_what_is_counted_fits_its_part_of_the_budget(time_us: float, versions: int) -> None:
    one = planned(time_us, versions=versions)
    launches = one.blocks * len(one.order(0, versions))
    assert launches * (time_us + 8) <= 1.02 * 0.2e6 * timing.WARM_SHARE


@given(times, st.integers(0, 11))
def test_both_versions_have_the_same_turns_and_blocks_alternate(time_us: float, block: int) -> None:
    one = planned(time_us)
    order = one.order(block, 2)
    counted = Counter(version for at, version in enumerate(order) if one.counts(at))
    assert counted == {0: one.turns * one.counted, 1: one.turns * one.counted}
    assert order[0] == block % 2
    assert tuple(1 - version for version in order) == one.order(block + 1, 2)


@given(st.floats(1, 900))
def test_straight_and_bent_drifts_cancel_within_a_block(time_us: float) -> None:
    one = planned(time_us)
    places = [
        [at for at, version in enumerate(one.order(0, 2)) if version == mine and one.counts(at)] for mine in (0, 1)
    ]
    if one.turns == timing.TURNS:
        for power in (1, 2):
            drifts = [sum(place**power for place in mine) for mine in places]
            assert drifts[0] == pytest.approx(drifts[1])


def test_slow_kernels_have_fewer_launches_but_an_interval() -> None:
    assert [planned(us).blocks for us in (2.0, 500.0, 8_000.0, 50_000.0, 2e6)] == [12, 12, 6, 4, 2]
    assert planned(2e6).cold == planned(2e6).period_rounds == 0
    assert len(planned(2e6).order(0, 2)) == 4
    assert planned(50_000.0).cold == 2


def test_a_larger_budget_buys_more_launches() -> None:
    assert planned(300.0, 2.0).counted > planned(300.0, 0.2).counted
    assert planned(3.0, 2.0).counted == 10 * planned(3.0, 0.2).counted == 10 * timing.MOST_LAUNCHES
    assert planned(8_000.0, 5.0).blocks > planned(8_000.0, 0.2).blocks


def test_a_single_version_has_two_turns_in_a_block() -> None:
    one = planned(100.0, versions=1)
    assert set(one.order(1, 1)) == {0}
    assert len(one.order(0, 1)) == one.lead + one.turns * (one.warm_up + one.counted)


@pytest.mark.parametrize(("time_us", "launches"), [(0.0, 500), (2.0, 500), (10.0, 100), (1e3, 10), (1e4, 3), (1e5, 1)])
def test_graphs_take_about_a_millisecond(time_us: float, launches: int) -> None:
    assert timing.graph_launches(time_us) == launches
