"""Results of operations: a value for each register that they write."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelmate.backends.emulator.sass.code import SassOp
from kernelmate.backends.emulator.sass.graph import Unknown
from kernelmate.backends.emulator.sass.operands import Read, Values
from kernelmate.backends.emulator.types import Array

Compute = Callable[[Values], tuple[Array, ...]]
LOW = np.uint64(0xFFFFFFFF)
UPPER = np.uint64(32)
"""Shift of the upper word of 64 bits."""


def low(total: Array) -> Array:
    """The lower word of 64 bits."""
    return (total & LOW).astype(np.uint32)


def kept(op: SassOp, *results: Read | None) -> Compute:
    """Returns the result operands that are registers."""
    kept = [read for text, read in zip(op.outputs, results, strict=False) if text not in {"PT", "UPT", "RZ", "URZ"}]
    if len(kept) != len(op.results) or None in kept:
        raise Unknown(f"a form of {op.opcode} that is not modelled")
    reads = [read for read in kept if read is not None]
    return lambda values: tuple(read(values) for read in reads)


def both(op: SassOp, total: Callable[[Values], Array]) -> Compute:
    """A result of 64 bits in a pair of registers."""
    if len(op.results) != 2 or len(op.outputs) != 1:
        raise Unknown(f"a form of {op.opcode} that is not modelled")

    def halves_of(values: Values) -> tuple[Array, ...]:
        result = total(values)
        return low(result), low(result >> UPPER)

    return halves_of
