"""Memory of launches that have ended, taken again by the next: the first touch of fresh pages costs more than the copy."""

from __future__ import annotations

import sys
import threading

import numpy as np

from kernelmate.backends.emulator.types import Array

_SMALLEST = 256 << 10
"""Bytes below which the allocator itself keeps pages."""
_MOST = 64 << 20
"""Bytes kept for later launches, in all."""


def _references(arrays: list[Array], number: int) -> int:
    return sys.getrefcount(arrays[number])


_UNHELD = _references([np.empty(1, np.uint8)], 0)
"""Reference count of an otherwise unused array in a list; it depends on the interpreter's version."""


class BufferPool:
    """Byte arrays that are reused once there are no references to them or their views."""

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        self._kept: list[Array] = []
        self._alone = threading.Lock()

    def take(self, length: int) -> Array:
        """Returns an array of this many bytes with arbitrary contents."""
        if length < _SMALLEST:
            return np.empty(length, np.uint8)
        with self._alone:
            for number in range(len(self._kept)):
                fits = length <= self._kept[number].size <= 2 * length
                if fits and _references(self._kept, number) <= _UNHELD:
                    return self._kept[number][:length]
            fresh = np.empty(length, np.uint8)
            self._keep(fresh)
            return fresh[:]

    def _keep(self, array: Array) -> None:
        """Adds an array, and drops the oldest if the pool gets too large; users keep dropped arrays."""
        if array.size > self._most:
            return
        self._kept.append(array)
        while sum(kept.size for kept in self._kept) > self._most:
            del self._kept[0]


BYTES = BufferPool()
"""The pool of this process."""
