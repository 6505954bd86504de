"""Memory requests of warps, counted for many warps at once."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.backends.emulator.counters import GlobalCounter, SharedCounter

Counter = GlobalCounter | SharedCounter


@st.composite
def accesses(draw: Callable[[Any], Any]) -> tuple[int, np.ndarray, np.ndarray]:
    """Bytes of one access, lanes, and offsets: the same lanes of several warps, or other ones in the last warp."""
    size = draw(st.sampled_from([1, 2, 4, 8, 16]))
    warps = sorted(draw(st.sets(st.integers(0, 40), min_size=1, max_size=6)))
    active = sorted(draw(st.sets(st.integers(0, 31), min_size=1, max_size=32)))
    last = sorted(draw(st.sets(st.integers(0, 31), min_size=1, max_size=32))) if draw(st.booleans()) else active
    moved, step = draw(st.sampled_from([0, 4, 32, 128, 132])), draw(st.integers(0, 33)) * size
    lanes, offsets = [], []
    for number, warp in enumerate(warps):
        for lane in last if number == len(warps) - 1 else active:
            lanes.append(32 * warp + lane)
            offsets.append(number * moved // size * size + lane * step)
    return size, np.array(lanes, np.int64), np.array(offsets, np.int64)


def counted(
    make: Callable[[], Counter], kind: type, size: int, *parts: tuple[np.ndarray, np.ndarray]
) -> tuple[int, ...]:
    counter = make()
    site: Any = SimpleNamespace(number=1, action="load", size=size, served=None)
    for lanes, offsets in parts:
        counter.access(site, lanes, offsets.astype(kind), None)
    found = counter.sites[1]
    return found.requests, found.passes, found.lanes, found.lines


@pytest.mark.parametrize(("make", "kind"), [(GlobalCounter, np.uint64), (SharedCounter, np.uint32)])
@given(access=accesses())
def test_warps_counted_together_are_as_many_counted_one_by_one(
    make: Callable[[], Counter], kind: type, access: tuple[int, np.ndarray, np.ndarray]
) -> None:
    size, lanes, offsets = access
    alone = [(lanes[lanes >> 5 == warp], offsets[lanes >> 5 == warp]) for warp in dict.fromkeys(lanes >> 5)]
    assert counted(make, kind, size, (lanes, offsets)) == counted(make, kind, size, *alone)


def test_half_a_warp_of_every_block_takes_one_pass_each() -> None:
    """As in the last steps of a tree over shared memory: lanes 0 to 15 of the first of eight warps, in many blocks."""
    lanes = (256 * np.arange(64)[:, None] + np.arange(16)).ravel()
    offsets = np.tile(4 * np.arange(16), 64)
    assert counted(SharedCounter, np.uint32, 4, (lanes, offsets)) == (64, 64, 1024, 0)
    assert counted(SharedCounter, np.uint32, 4, (lanes, 32 * offsets)) == (64, 16 * 64, 1024, 0)
    assert counted(GlobalCounter, np.uint64, 4, (lanes, offsets)) == (64, 128, 1024, 64)
