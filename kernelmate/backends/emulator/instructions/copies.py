"""Decoders of asynchronous copies and of the barriers (mbarrier) that track them."""

from __future__ import annotations

from kernelmate.backends.emulator.instructions.memory import SPACES, address_of, space_in
from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes
from kernelmate.backends.emulator.numerics.phases import pending_of
from kernelmate.backends.emulator.operations import AsyncCopy, AsyncGroup, Compute, Operation, PhaseBarrier
from kernelmate.backends.emulator.program import Immediate, Instruction, Operand, Register, Sink
from kernelmate.backends.emulator.spaces import CLUSTER_SHARED

_ACTIONS = {
    "init": "init", "inval": "inval", "arrive": "arrive", "arrive_drop": "drop", "test_wait": "test", "try_wait": "test",
}  # fmt: skip
_ORDERS = frozenset({"relaxed", "acquire", "release", "cta", "cluster", "noComplete", "parity", "b64"})


@decodes("mbarrier")
def decode_phase_barrier(instruction: Instruction) -> Operation:
    """Barriers in shared memory, without the transaction counts of bulk copies (`expect_tx`, `complete_tx`)."""
    action, operands = instruction.parts[1], list(instruction.operands)
    if action == "pending_count":
        return Compute(((operands[0], "u32"),), ((operands[1], "u64"),), pending_of)
    known = _ORDERS | SPACES
    if action not in _ACTIONS or any(part.partition("__")[0] not in known for part in instruction.parts[2:]):
        raise Unsupported(instruction.opcode)
    kind = _ACTIONS[action]
    result: Operand | None = None
    if kind in {"arrive", "drop", "test"}:
        first = operands.pop(0)
        result = None if isinstance(first, Sink) else first
    address, *rest = operands
    value = rest[0] if rest else Immediate(1)
    space = space_in(instruction)
    if space == CLUSTER_SHARED and (kind not in {"arrive", "drop"} or result is not None):
        raise Unsupported(f"{instruction.opcode} with a result, or other than an arrival")
    return PhaseBarrier(kind, space, address_of(address), value, result, instruction.has("parity"))


def decode_copies_arrive(instruction: Instruction) -> Operation:
    """`cp.async.mbarrier.arrive`."""
    action = "count_copies" if instruction.has("noinc") else "copies"
    return PhaseBarrier(action, space_in(instruction), address_of(instruction.operands[0]), Immediate(1))


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
