"""Atomic operations and reductions in memory."""

from __future__ import annotations

from kernelmate.backends.emulator.instructions.memory import SPACES, address_of, space_in
from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes
from kernelmate.backends.emulator.operations import Atomic, Operation
from kernelmate.backends.emulator.program import Instruction, Sink, Vector
from kernelmate.backends.emulator.types import SIZES

ACTIONS = frozenset({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"})
_ORDERS = frozenset({"relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "noftz"})


@decodes("atom", "red")
def decode_atomic(instruction: Instruction) -> Operation:
    """`atom` and `red`."""
    kind = instruction.kind
    action = next((part for part in instruction.parts[1:] if part in ACTIONS), None)
    if action is None or kind not in SIZES:
        raise Unsupported(instruction.opcode)
    for part in instruction.parts[1:-1]:
        if part not in ACTIONS | _ORDERS and part.partition("__")[0] not in SPACES:
            raise Unsupported(f"qualifier .{part.replace('__', '::')} of {instruction.opcode}")
    operands = list(instruction.operands)
    result = operands.pop(0) if instruction.name == "atom" else None
    if any(isinstance(operand, Vector) for operand in operands):
        raise Unsupported(f"vector form of {instruction.opcode}")
    address, value, *swap = operands
    return Atomic(
        space_in(instruction),
        action,
        kind,
        None if isinstance(result, Sink) else result,
        address_of(address),
        value,
        swap[0] if swap else None,
    )
