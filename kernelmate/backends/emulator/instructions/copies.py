"""Asynchronous copies from global to shared memory, their groups, and waiting for them."""

from __future__ import annotations

from kernelmate.backends.emulator.instructions.memory import address_of
from kernelmate.backends.emulator.instructions.phases import decode_copies_arrive
from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes
from kernelmate.backends.emulator.operations import AsyncCopy, AsyncGroup, Operation
from kernelmate.backends.emulator.program import Immediate, Instruction, Operand, Register

_HINTS = frozenset({"async", "ca", "cg", "shared", "shared__cta", "global", "L2__64B", "L2__128B", "L2__256B"})


@decodes("cp")
def decode_copy(instruction: Instruction) -> Operation:
    """`cp.async` of 4, 8 or 16 bytes, its groups and waiting for them, and `cp.async.mbarrier.arrive`."""
    parts, operands = instruction.parts, instruction.operands
    if parts[1:] == ("async", "commit_group"):
        return AsyncGroup(commits=True)
    if parts[1:] == ("async", "wait_all"):
        return AsyncGroup(commits=True, left=0)
    if parts[1:] == ("async", "wait_group"):
        (left,) = operands
        if not isinstance(left, Immediate):
            raise Unsupported(instruction.opcode)
        return AsyncGroup(left=left.bits)
    if parts[1:4] == ("async", "mbarrier", "arrive"):
        return decode_copies_arrive(instruction)
    if parts[1] != "async" or not set(parts[1:]) <= _HINTS or "global" not in parts or len(operands) not in {3, 4}:
        raise Unsupported(instruction.opcode)
    to, origin, size = address_of(operands[0]), address_of(operands[1]), operands[2]
    if not isinstance(size, Immediate) or size.bits not in {4, 8, 16}:
        raise Unsupported(f"size of {instruction.opcode}")
    taken: Operand | None = operands[3] if len(operands) == 4 else None
    registers = [part for part in (to.base, origin.base, taken) if isinstance(part, Register)]
    return AsyncCopy(to, origin, size.bits, taken, tuple(registers))
