"""Speculative reads: plain reads whose value an atomic of the same thread verifies.

The compare-and-swap loop in CUDA's own guide starts with a plain read, and a maximum is often read before it is raised.
Formally both race with other threads' atomics, but the atomic decides whatever the read returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kernelmate.backends.emulator.decode import DecodedStep
from kernelmate.backends.emulator.operations import Atomic, Compute, Load
from kernelmate.backends.emulator.program import Address, Register, Symbol
from kernelmate.backends.emulator.types import SIZES

_DECIDING = frozenset({"cas", "min", "max"})
"""Atomics that compare the memory's contents before they change it."""

_WORDS = frozenset({4, 8})
"""Bytes that are read in one piece."""


def guessing_loads(steps: Sequence[DecodedStep]) -> frozenset[int]:
    """Returns numbers of plain loads followed by a deciding atomic of the same address and width."""
    named = _named(steps)
    decided: set[tuple[str, int, str]] = set()
    found = set()
    for number in reversed(range(len(steps))):
        operation = steps[number].operation
        if isinstance(operation, Atomic) and operation.action in _DECIDING:
            place = _place(operation.address, operation.kind, named)
            if place is not None:
                decided.add(place)
        elif (
            isinstance(operation, Load)
            and len(operation.results) == 1
            and not operation.synchronizing
            and _place(operation.address, operation.kind, named) in decided
        ):
            found.add(number)
    return frozenset(found)


def _named(steps: Sequence[DecodedStep]) -> dict[str, Symbol]:
    """Returns registers that hold the address of a variable."""
    found = {}
    for step in steps:
        if isinstance(step.operation, Compute) and step.opcode.startswith("mov.") and len(step.writes) == 1:
            operand = step.operation.sources[0][0]
            if isinstance(operand, Symbol):
                found[step.writes[0]] = operand
    return found


def _place(address: Address, kind: str, named: Mapping[str, Symbol]) -> tuple[str, int, str] | None:
    """Returns the address of an access as far as its text determines it: base name, offset, and width in bits."""
    base, offset = address.base, address.offset
    if isinstance(base, Register) and base.name in named:
        base = named[base.name]
    if isinstance(base, Symbol):
        offset += base.offset
    if base is None or SIZES[kind] not in _WORDS:
        return None
    return base.name, offset, str(8 * SIZES[kind])
