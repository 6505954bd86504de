"""Placement of the arrays of timed launches."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from kernelmate.backends.cuda.timing_arena import ALIGNMENT, laid_out


@given(st.lists(st.integers(0, 10**7), max_size=8), st.integers(0, 6))
def test_arrays_are_aligned_and_do_not_overlap(sizes: list[int], place: int) -> None:
    offsets, whole = laid_out(sizes, place)
    assert all(offset % ALIGNMENT == 0 for offset in offsets)
    for (start, size), following in itertools.pairwise([*zip(offsets, sizes, strict=True), (whole, 0)]):
        assert start + size <= following[0]


def test_places_differ_in_the_distances_between_arrays() -> None:
    sizes = [1 << 20, 1 << 20, 1 << 20]
    assert len({tuple(laid_out(sizes, place)[0]) for place in range(6)}) == 6
