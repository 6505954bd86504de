"""Global memory: one buffer per array, far apart, so that a wrong address never hits another one unnoticed.

Each sector of a buffer has a mark with a bit for each source line that has accessed it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kernelmate.backends.emulator.decode import DecodedKernel
from kernelmate.backends.emulator.operations import (
    AsyncCopy,
    Atomic,
    BulkCopy,
    Load,
    Store,
    SurfaceAccess,
    TensorCopy,
    TextureFetch,
)
from kernelmate.backends.emulator.spaces import BUFFER_SPACING, GLOBAL_BASE
from kernelmate.backends.emulator.types import Array

MOST_LINES = 32
"""Maximum number of separately tracked lines, so that marks take at most an eighth of the memory that they describe."""
SECTOR_BYTES = 32
_GLOBAL = frozenset({"global", "generic", "const"})


@dataclass(frozen=True, slots=True)
class Marks:
    """Mark bits of lines.

    Attributes:
        bits: by instruction, the bit of its line; other instructions have the highest bit.
        lines: by bit, the line.
        several: lines that share the highest bit and are not distinguished.
        width: bits of a mark: 8, 16 or 32.
    """

    bits: Mapping[int, int]
    lines: tuple[int | None, ...]
    several: frozenset[int | None]
    width: int

    def mark(self, step: int) -> int:
        """Returns the bits that an instruction adds to the mark of a sector."""
        return 1 << self.bits.get(step, self.width - 1)

    def footprints(self, touched: Iterable[Array]) -> dict[int | None, int | None]:
        """Returns the distinct bytes touched by each line, in whole sectors; None for lines that are not distinguished."""
        found: dict[int | None, int | None] = dict.fromkeys(self.lines, 0)
        for marks in touched:
            for bit, line in enumerate(self.lines):
                sectors = int(np.count_nonzero(marks & marks.dtype.type(1 << bit)))
                found[line] = (found[line] or 0) + SECTOR_BYTES * sectors
        return found | dict.fromkeys(self.several)


_ADDRESSED = Load | Store | Atomic | BulkCopy | TensorCopy | TextureFetch | SurfaceAccess


def marks_of(decoded: DecodedKernel) -> Marks:
    """Returns the marks of a kernel's instructions that may access global memory."""
    lines: dict[int | None, list[int]] = {}
    for number, step in enumerate(decoded.steps):
        operation = step.operation
        known = isinstance(operation, _ADDRESSED) and operation.space in _GLOBAL
        if known or isinstance(operation, AsyncCopy):
            position = step.position
            lines.setdefault(position.line or None if position else None, []).append(number)
    # The highest bit is shared by lines that are not distinguished.
    told = dict(list(lines.items())[: MOST_LINES - 1])
    width = next(width for width in (8, 16, 32) if len(told) < width)
    bits = {number: bit for bit, numbers in enumerate(told.values()) for number in numbers}
    return Marks(bits, tuple(told), frozenset(lines.keys() - told.keys()), width)


_SMALLEST = 256 << 10
"""Number of bytes below which the allocator itself keeps pages."""
_MOST = 64 << 20
"""Maximum total bytes that are kept for later launches."""


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


_ALIGNMENT = 256
_SECTOR = 32
_NOTHING = np.empty(0, np.uint8)


@dataclass(slots=True)
class Buffer:
    """One array in global or constant memory.

    Attributes:
        origin: address of `data[0]`, a multiple of 256.
        lead: bytes from there to the array's first byte.
        size: the array's bytes.
        data: lead, array, and padding to whole vectors.
        writable: True if the kernel may write it.
        visible: True for an argument, False for a module variable.
        read_first: True if it was loaded where the kernel had not yet stored.
        stored: per granule, True if the kernel has stored there; None before the first store.
        touched: per 32-byte sector, the marks of its accesses; None if not counted.
        period: bytes after which the contents repeat, of which `data` holds only the first; None if it holds all.
    """

    name: str
    origin: int
    lead: int
    size: int
    data: Array
    writable: bool
    visible: bool
    constant: bool = False
    read_first: bool = False
    stored: Array | None = None
    touched: Array | None = None
    period: int | None = None
    views: dict[Any, Array] = field(default_factory=dict)

    @property
    def address(self) -> int:
        """Address of the array's first byte."""
        return self.origin + self.lead

    @property
    def outlives(self) -> bool:
        """Returns True for an argument or a persistent variable, whose earlier contents are visible outside the launch."""
        return self.visible or not self.constant

    @property
    def limit(self) -> int:
        """Offset from the origin of the first byte past the array."""
        return self.lead + self.size

    def view(self, dtype: np.dtype[Any]) -> Array:
        """Returns all of `data` as elements of a type."""
        found = self.views.get(dtype)
        if found is None:
            found = self.views[dtype] = self.data.view(dtype)
        return found

    def rows(self, dtype: np.dtype[Any], count: int) -> Array:
        """Returns all of `data` as rows of `count` elements."""
        key = (dtype, count)
        found = self.views.get(key)
        if found is None:
            found = self.views[key] = self.data.view(dtype).reshape(-1, count)
        return found

    def elements(self, offsets: Array, shift: Any) -> Array:
        """Returns the indices in `data` of elements of 2 to the power `shift` bytes at offsets from the origin."""
        held = offsets if self.period is None else offsets % np.uint64(self.period)
        return np.asarray(held >> shift).view(np.int64)

    def content(self) -> Array:
        """Returns the array's bytes."""
        return self.data[self.lead : self.limit]


class GlobalMemory:
    """All buffers of one launch, each in an address slot of its own.

    Args:
        slots: number of buffers.
        seed: permutes the slots and shifts the starts; 0 keeps their order.
        granule: bytes per entry of `Buffer.stored`.
        marks: mark bits for `Buffer.touched`; None to omit it.
        first_slot: number of the first slot.
    """

    def __init__(self, slots: int, seed: int, granule: int, marks: Marks | None, first_slot: int = 0) -> None:
        random = np.random.default_rng([seed, 1]) if seed else None
        self._order = (random.permutation(slots) if random is not None else np.arange(slots)) + first_slot
        self._shift = random.integers(0, 4096, slots) if random is not None else np.zeros(slots, np.int64)
        self.slots = slots
        self.by_slot: dict[int, Buffer] = {}
        self.buffers: list[Buffer] = []
        self.granule_shift = granule.bit_length() - 1
        self.marks = marks

    def add(
        self, name: str, content: Array, *, lead: int = 0, writable: bool, visible: bool, constant: bool = False,
        size: int | None = None,
    ) -> Buffer:  # fmt: skip
        """Adds a buffer with a copy of `content` (bytes), moved `lead` bytes off its alignment.

        An array of `size` bytes, if that is given, repeats `content`, and its first reads are not recorded.
        """
        number = len(self.buffers)
        slot = int(self._order[number])
        origin = GLOBAL_BASE + slot * BUFFER_SPACING + BUFFER_SPACING // 2 + int(self._shift[number]) * _ALIGNMENT
        length = -(-(lead + content.size) // _SECTOR) * _SECTOR + _SECTOR
        data = BYTES.take(length)
        data[:lead] = 0
        data[lead : lead + content.size] = content
        data[lead + content.size :] = 0
        touched = None if self.marks is None else np.zeros(length // _SECTOR, f"u{self.marks.width // 8}")
        buffer = Buffer(name, origin, lead, content.size, data, writable, visible, constant, touched=touched)
        if size is not None:
            buffer.size, buffer.period, buffer.read_first = size, content.size, True
        self.buffers.append(buffer)
        self.by_slot[slot] = buffer
        return buffer

    def close(self) -> None:
        """Releases all buffers; other references to them stay valid.

        The launch's objects form reference cycles, which would keep the buffers until the next garbage collection.
        """
        for buffer in self.buffers:
            buffer.views.clear()
            buffer.data, buffer.stored, buffer.touched = _NOTHING, None, None

    def at(self, address: int) -> Buffer | None:
        """Returns the buffer in whose slot an address lies."""
        return self.by_slot.get((address - GLOBAL_BASE) // BUFFER_SPACING)

    def slots_of(self, addresses: Array) -> Array:
        """Returns the slot number of each address."""
        return (addresses.astype(np.int64) - GLOBAL_BASE) // BUFFER_SPACING

    def in_slot(self, slot: int) -> Buffer | None:
        """Returns the buffer of a slot."""
        return self.by_slot.get(slot)

    def note_read(self, buffer: Buffer, offsets: Array, size: int) -> None:
        """Updates `read_first`; `offsets` are from the origin."""
        if buffer.stored is None:
            buffer.read_first = True
            return
        granules = offsets >> np.uint64(self.granule_shift)
        for step in range(max(1, size >> self.granule_shift)):
            if not buffer.stored[granules + np.uint64(step)].all():
                buffer.read_first = True
                return

    def note_store(self, buffer: Buffer, offsets: Array, size: int) -> None:
        """Records stores until the kernel is known to read the buffer anyway."""
        stored = self.stored(buffer)
        granules = offsets >> np.uint64(self.granule_shift)
        for step in range(max(1, size >> self.granule_shift)):
            stored[granules + np.uint64(step)] = True

    def stored(self, buffer: Buffer) -> Array:
        """Returns `buffer.stored`, created on first use."""
        if buffer.stored is None:
            buffer.stored = np.zeros((buffer.data.size >> self.granule_shift) + 1, bool)
        return buffer.stored

    def footprints(self) -> dict[int | None, int | None]:
        """Returns the distinct bytes touched by each source line, in whole sectors; None if unknown."""
        touched = (buffer.touched for buffer in self.buffers if buffer.touched is not None)
        return {} if self.marks is None else self.marks.footprints(touched)

    def footprint(self) -> int:
        """Returns the unique bytes touched, in whole sectors."""
        return (
            sum(int(np.count_nonzero(buffer.touched)) for buffer in self.buffers if buffer.touched is not None)
            * _SECTOR
        )
