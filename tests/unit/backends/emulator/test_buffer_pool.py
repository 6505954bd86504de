"""Memory of ended launches is taken again, and only once nobody holds it."""

from __future__ import annotations

import numpy as np

from kernelmate.backends.emulator.memory import BufferPool

LENGTH = 1 << 20


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_what_nobody_holds_is_taken_again() -> None:
    spare = BufferPool()
    first = spare.take(LENGTH)
    where = address(first)
    del first
    assert address(spare.take(LENGTH)) == where


def test_what_somebody_holds_a_view_of_is_not() -> None:
    spare = BufferPool()
    first = spare.take(LENGTH)
    view = first[64:].view(np.float32)
    view[:] = 1.0
    where = address(first)
    del first
    second = spare.take(LENGTH)
    second[:] = 7
    assert address(second) != where
    assert (view == 1.0).all()


def test_a_little_is_not_taken_from_what_is_much_larger() -> None:
    spare = BufferPool()
    spare.take(8 * LENGTH)
    assert spare.take(LENGTH).base.size == LENGTH


def test_no_more_is_kept_than_may_be() -> None:
    spare = BufferPool(most=3 * LENGTH)
    held = [spare.take(LENGTH) for _ in range(5)]
    assert len({address(one) for one in held}) == 5
    assert sum(one.size for one in spare._kept) == 3 * LENGTH
    spare.take(4 * LENGTH)
    assert sum(one.size for one in spare._kept) == 3 * LENGTH
