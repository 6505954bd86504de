"""Footprints of source lines in sectors of global memory: a bit of each line, in a mark of each sector."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from kernelmate.backends.emulator.decode import Decoded
from kernelmate.backends.emulator.operations import AsyncCopy, Atomic, BulkCopy, Load, Store, TensorCopy
from kernelmate.backends.emulator.types import Array

MOST_LINES = 32
"""Maximum of separately tracked lines, so that marks take at most an eighth of the memory that they describe."""
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


def marks_of(decoded: Decoded) -> Marks:
    """Returns the marks of a kernel's instructions that may access global memory."""
    lines: dict[int | None, list[int]] = {}
    for number, step in enumerate(decoded.steps):
        operation = step.operation
        known = isinstance(operation, Load | Store | Atomic | BulkCopy | TensorCopy) and operation.space in _GLOBAL
        if known or isinstance(operation, AsyncCopy):
            position = step.position
            lines.setdefault(position.line or None if position else None, []).append(number)
    # The highest bit is shared by lines that are not distinguished.
    told = dict(list(lines.items())[: MOST_LINES - 1])
    width = next(width for width in (8, 16, 32) if len(told) < width)
    bits = {number: bit for bit, numbers in enumerate(told.values()) for number in numbers}
    return Marks(bits, tuple(told), frozenset(lines.keys() - told.keys()), width)
