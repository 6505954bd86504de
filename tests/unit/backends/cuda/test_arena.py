"""Placement of the arrays of judged and of timed launches on the device, and detection of writes around them."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.backends.base import GUARD_BYTES, ArrayArgument
from kernelmate.backends.cuda.arena import ALIGNMENT, array_offsets, gaps_of, written_around
from kernelmate.backends.cuda.timing_arena import ALIGNMENT as TIMING_ARENA_ALIGNMENT
from kernelmate.backends.cuda.timing_arena import laid_out

arrays = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 3)), min_size=1, max_size=5)


def arguments_of(shapes: list[tuple[int, int]]) -> list[ArrayArgument]:
    return [ArrayArgument(f"a{i}", np.zeros(n, np.float32), misalign=m) for i, (n, m) in enumerate(shapes)]


@given(arrays, st.integers(0, 2**31))
def test_arrays_are_aligned_and_lie_apart(shapes: list[tuple[int, int]], seed: int) -> None:
    spans, size = array_offsets(arguments_of(shapes), seed)
    ordered = sorted(spans.values(), key=lambda span: span.start)
    assert ordered[0].start >= GUARD_BYTES
    assert ordered[-1].end + GUARD_BYTES <= size
    for before, after in itertools.pairwise(ordered):
        assert after.start - before.end >= GUARD_BYTES
    for span in ordered:
        assert (span.start - 4 * span.argument.misalign) % ALIGNMENT == 0


def test_addresses_change_with_the_seed() -> None:
    arguments = arguments_of([(100, 0), (100, 0), (100, 0)])
    assert len({tuple(span.start for span in array_offsets(arguments, seed)[0].values()) for seed in range(8)}) > 4


def test_each_array_that_was_written_around_is_named_once_with_its_first_place() -> None:
    spans, _ = array_offsets(arguments_of([(10, 0), (10, 0)]), 0)
    behind = [spans["a0"].end + step for step in (3, 4, 5)]
    findings = written_around(spans, np.array([*behind, spans["a1"].start - 2]))
    assert [(f.code, f.buffer, f.offset) for f in findings] == [
        ("out-of-bounds-write", "a0", 40),
        ("out-of-bounds-write", "a1", -4),
    ]
    assert "0 bytes behind its end" in findings[0].message
    assert "4 bytes before it" in findings[1].message


@given(arrays, st.integers(0, 2**31))
def test_bands_are_all_that_no_array_lies_in(shapes: list[tuple[int, int]], seed: int) -> None:
    spans, size = array_offsets(arguments_of(shapes), seed)
    covered = np.zeros(size, np.int8)
    for start, end in gaps_of(spans.values(), size):
        covered[start:end] += 1
    for span in spans.values():
        covered[span.start : span.end] += 1
    assert bool((covered == 1).all())


@given(st.lists(st.integers(0, 10**7), max_size=8), st.integers(0, 6))
def test_arrays_are_aligned_and_do_not_overlap(sizes: list[int], place: int) -> None:
    offsets, whole = laid_out(sizes, place)
    assert all(offset % TIMING_ARENA_ALIGNMENT == 0 for offset in offsets)
    for (start, size), following in itertools.pairwise([*zip(offsets, sizes, strict=True), (whole, 0)]):
        assert start + size <= following[0]


def test_places_differ_in_the_distances_between_arrays() -> None:
    sizes = [1 << 20, 1 << 20, 1 << 20]
    assert len({tuple(laid_out(sizes, place)[0]) for place in range(6)}) == 6
