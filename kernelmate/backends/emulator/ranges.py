"""Operand ranges of divisions and square roots for which ptxas's code takes its fast path with certainty.

ptxas's code tests the operands and calls a slow-path function if its short sequence would not round correctly. The
tests of `rcp` and `sqrt` were read from its code; `div` in f32 uses one instruction (FCHK) with undocumented bounds, so
only operands far inside them are assumed safe.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelmate.backends.emulator.decode import DecodedStep
from kernelmate.backends.emulator.operations import Compute
from kernelmate.backends.emulator.registers import Bound, Value, spread
from kernelmate.backends.emulator.types import Array

if TYPE_CHECKING:
    from kernelmate.backends.emulator.machine import Machine


@dataclass(frozen=True, slots=True)
class Range:
    """Range of an operand's bits after masking with `mask`: from `low` to `low + span`."""

    mask: int
    low: int
    span: int


def _exponents(bits: int, first: int, last: int, mask: int) -> Range:
    """Returns the range of numbers whose biased exponents lie between two, inclusive."""
    mantissa = 23 if bits == 32 else 52
    low = first << mantissa
    return Range(mask, low, ((last + 1) << mantissa) - 1 - low)


_ABS_32, _ABS_64 = (1 << 31) - 1, (1 << 63) - 1
_RANGES = {
    "rcp.rn.f32": _exponents(32, 1, 252, _ABS_32),
    "sqrt.rn.f32": Range((1 << 32) - 1, 0x0D000000, 0x727FFFFF),
    "div.rn.f32": _exponents(32, 127 - 48, 127 + 48, _ABS_32),
    "rcp.rn.f64": _exponents(64, 1023 - 200, 1023 + 200, _ABS_64),
    "sqrt.rn.f64": _exponents(64, 1023 - 200, 1023 + 200, (1 << 64) - 1),
    "div.rn.f64": _exponents(64, 1023 - 200, 1023 + 200, _ABS_64),
}


def range_of(step: DecodedStep) -> Range | None:
    """Returns the range that all operands must be in for the fast path; None without a known one."""
    return _RANGES.get(step.opcode) if isinstance(step.operation, Compute) else None


def with_range_check(bound: Bound, values: list[Value], limits: Range, machine: Machine, number: int) -> Bound:
    """Returns an operation that also records its number once an operand is outside the limits."""
    unusual = machine.unusual
    assert unusual is not None, "only what is counted is watched"

    def run(group: Any, active: Any) -> None:
        if number not in unusual:
            lanes = machine.lanes_of(active)
            if any(_outside(spread(value, lanes, len(lanes)), limits) for value in values):
                unusual.add(number)
        bound(group, active)

    return run


def _outside(operand: Array, limits: Range) -> bool:
    kind = np.dtype(f"u{operand.dtype.itemsize}")
    bits = np.ascontiguousarray(operand).view(kind)
    mask, low, span = (kind.type(bound) for bound in (limits.mask, limits.low, limits.span))
    return bool((((bits & mask) - low) > span).any())
