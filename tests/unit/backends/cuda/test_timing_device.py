"""Evaluation of time stamps, and the conditions under which they are discarded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.backends.cuda.helpers import LEAST_US, TAIL, durations_of, empty_of, kept_ahead
from kernelmate.backends.cuda.timing_device import placements_for


def test_an_empty_kernel_takes_what_an_empty_kernel_takes() -> None:
    empties = [3.6] * 16
    assert durations_of([3.6, 5.6], empties, 1.88) == pytest.approx([1.88, 3.88])


def test_what_stamps_take_in_a_process_cancels() -> None:
    for more in (0.0, 0.2):
        spans, empties = [5.0 + more, 9.0 + more], [3.5 + more] * 16
        assert durations_of(spans, empties, 1.88) == pytest.approx([3.38, 7.38])


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=50), st.lists(st.floats(0, 100), min_size=4, max_size=16))
def test_a_duration_is_positive_whatever_the_noise(spans: list[float], empties: list[float]) -> None:
    assert all(one >= LEAST_US for one in durations_of(spans, empties, 1.88))


def test_a_few_disturbed_empty_kernels_do_not_count() -> None:
    assert durations_of([5.0], [3.5] * 13 + [80.0] * 3, 1.88) == pytest.approx([3.38])


@pytest.mark.parametrize("fast", [0, 2, 4, 7])
def test_empty_kernels_that_lie_beside_other_code_do_not_count(fast: int) -> None:
    noise = [0.03 * (one % 4) for one in range(24)]
    spans = [3.55 + more for more in noise[:fast]] + [3.9 + more for more in noise[fast:]]
    assert empty_of(spans) == pytest.approx(3.945, abs=0.035)


@pytest.mark.parametrize("late", [0, 3, 5, TAIL])
def test_the_last_stamps_in_the_stream_do_not_count(late: int) -> None:
    """Seen on an H100: 19 spans around 3.85 us, and the last five 3.14."""
    noise = [0.03 * (one % 3) for one in range(24)]
    spans = [3.82 + more for more in noise[: 24 - late]] + [3.14] * late
    assert empty_of(spans) == pytest.approx(3.85)
    assert empty_of(spans[:12]) == pytest.approx(3.85), "of few spans all count"


def test_the_host_must_be_done_before_the_gpu_begins_or_be_faster_than_it() -> None:
    short, long = [4.0] * 90, [200.0] * 90
    assert kept_ahead(900_000, 1_500_000, short)
    assert not kept_ahead(2_000_000, 1_500_000, short)
    assert kept_ahead(2_000_000, 1_500_000, long)


def test_small_arrays_are_placed_often_and_large_ones_once() -> None:
    assert [placements_for(size) for size in (0, 32 << 20, 256 << 20, 4 << 30)] == [12, 12, 4, 1]
