"""What a warm worker remembers from one judgement to the next, within a number of bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from kernelmate.checks.kinds import Array

T = TypeVar("T")


class Memo(Generic[T]):
    """Values by key; the ones unused for longest go when their arrays take more than `limit` bytes.

    Args:
        limit: bytes of arrays that are kept.
        arrays: the arrays of a value.
    """

    def __init__(self, limit: int, arrays: Callable[[T], Iterable[Array]]) -> None:
        self._limit, self._arrays = limit, arrays
        self._kept: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()
        self._bytes = 0

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """The value that was made for this key before, else made now. A value too large to keep is only returned."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][0]
        value = make()
        size = sum(array.nbytes for array in self._arrays(value))
        if size <= self._limit:
            self._kept[key] = value, size
            self._bytes += size
            while self._bytes > self._limit:
                self._bytes -= self._kept.popitem(last=False)[1][1]
        return value

    def known(self, key: Hashable) -> T | None:
        """The value that was made for this key, where it is still kept."""
        return self._kept[key][0] if key in self._kept else None
