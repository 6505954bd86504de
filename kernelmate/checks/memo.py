"""Cache of results that a warm worker keeps between judgements, limited in bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Generic, TypeVar

from kernelmate.checks.precision import Array, on_device

T = TypeVar("T")


class Memo(Generic[T]):
    """A least-recently-used cache: entries are evicted when their arrays exceed `limit` bytes.

    The newest entry is kept whatever its size until the next one arrives, because it is requested again while in use.

    Args:
        limit: bytes of arrays kept in host memory.
        arrays: returns the arrays of a value.
        device_limit: bytes of arrays kept on a GPU.
    """

    def __init__(self, limit: int, arrays: Callable[[T], Iterable[Array]], device_limit: int = 0) -> None:
        self._limits, self._arrays = (limit, device_limit), arrays
        self._kept: OrderedDict[Hashable, tuple[T, tuple[int, int]]] = OrderedDict()
        self._bytes = [0, 0]

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Returns the cached value for a key, else makes and stores it."""
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key][0]
        value = make()
        self._keep(key, value)
        return value

    def replace(self, key: Hashable, value: T) -> None:
        """Replaces the value of a key."""
        if key in self._kept:
            self._count(self._kept.pop(key)[1], -1)
        self._keep(key, value)

    def _keep(self, key: Hashable, value: T) -> None:
        size = [0, 0]
        for array in self._arrays(value):
            size[on_device(array)] += array.nbytes
        self._kept[key] = value, (size[0], size[1])
        self._count(size, 1)
        while len(self._kept) > 1 and any(held > limit for held, limit in zip(self._bytes, self._limits, strict=True)):
            self._count(self._kept.popitem(last=False)[1][1], -1)

    def bound_device(self, limit: int) -> None:
        """Sets the limit of bytes kept on a GPU."""
        self._limits = self._limits[0], limit

    def forget_device(self) -> None:
        """Frees all entries kept on a GPU."""
        for key in [key for key, (_, size) in self._kept.items() if size[1]]:
            self._count(self._kept.pop(key)[1], -1)

    def _count(self, size: Sequence[int], sign: int) -> None:
        self._bytes = [held + sign * more for held, more in zip(self._bytes, size, strict=True)]

    def known(self, key: Hashable) -> T | None:
        """Returns the cached value for a key; None if it is not there."""
        return self._kept[key][0] if key in self._kept else None
