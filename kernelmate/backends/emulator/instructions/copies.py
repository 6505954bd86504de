"""Decoders of asynchronous copies and of the barriers (mbarrier) that track them."""

from __future__ import annotations

from kernelmate.backends.emulator.instructions.memory import SPACES, address_of, space_in
from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes
from kernelmate.backends.emulator.numerics.phases import pending_of
from kernelmate.backends.emulator.operations import (
    AsyncCopy,
    AsyncGroup,
    BulkCopy,
    BulkGroup,
    Compute,
    Nothing,
    Operation,
    PhaseBarrier,
    TensorCopy,
)
from kernelmate.backends.emulator.program import Address, Immediate, Instruction, Operand, Register, Sink, TensorAddress
from kernelmate.backends.emulator.spaces import CLUSTER_SHARED

_ACTIONS = {
    "init": "init", "inval": "inval", "arrive": "arrive", "arrive_drop": "drop", "test_wait": "test", "try_wait": "test",
    "expect_tx": "expect", "complete_tx": "complete",
}  # fmt: skip
_ORDERS = frozenset({"relaxed", "acquire", "release", "cta", "cluster", "noComplete", "parity", "b64", "expect_tx"})


@decodes("mbarrier")
def decode_phase_barrier(instruction: Instruction) -> Operation:
    """Barriers in shared memory, with the transaction counts of bulk copies."""
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
    transactions = rest.pop() if instruction.has("expect_tx") or kind == "complete" else None
    value = rest[0] if rest else Immediate(0 if kind in {"expect", "complete"} else 1)
    space = space_in(instruction)
    if space == CLUSTER_SHARED and (kind in {"init", "inval", "test"} or result is not None):
        raise Unsupported(f"{instruction.opcode} with a result, or other than an arrival or a count of bytes")
    return PhaseBarrier(kind, space, address_of(address), value, result, instruction.has("parity"), transactions)


def decode_copies_arrive(instruction: Instruction) -> Operation:
    """`cp.async.mbarrier.arrive`."""
    action = "count_copies" if instruction.has("noinc") else "copies"
    return PhaseBarrier(action, space_in(instruction), address_of(instruction.operands[0]), Immediate(1))


_HINTS = frozenset({"async", "ca", "cg", "shared", "shared__cta", "global", "L2__64B", "L2__128B", "L2__256B"})


@decodes("cp")
def decode_copy(instruction: Instruction) -> Operation:
    """`cp.async` of 4, 8 or 16 bytes with its groups, `cp.async.mbarrier.arrive`, and bulk copies and their reductions."""
    parts, operands = instruction.parts, instruction.operands
    if instruction.has("bulk"):
        return decode_bulk(instruction)
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
    return AsyncCopy(to, origin, size.bits, taken, _registers(to, origin, taken))


_BULK_HINTS = frozenset(
    {"async", "bulk", "reduce", "mbarrier__complete_tx__bytes", "bulk_group", "L2__cache_hint", "noftz"}
)
_BULK_SPACES = {"global": "global", "shared__cta": "shared", "shared__cluster": CLUSTER_SHARED}
_TENSOR_SPACES = frozenset({("shared", "global"), (CLUSTER_SHARED, "global"), ("global", "shared")})
_COPY_SPACES = _TENSOR_SPACES | {(CLUSTER_SHARED, "shared")}
"""State spaces of destination and source."""
_EXTREMA = frozenset({"s32", "u32", "s64", "u64", "f16", "bf16"})
_BITS = frozenset({"b32", "b64"})
REDUCTIONS = {
    "add": frozenset({"u32", "s32", "u64", "f16", "bf16", "f32", "f64"}), "min": _EXTREMA, "max": _EXTREMA,
    "inc": frozenset({"u32"}), "dec": frozenset({"u32"}), "and": _BITS, "or": _BITS, "xor": _BITS,
}  # fmt: skip
"""Types of each operation of `cp.reduce.async.bulk`."""


def decode_bulk(instruction: Instruction) -> Operation:
    """`cp.async.bulk`, `cp.reduce.async.bulk`, and their groups.

    PTX ISA, Data Movement and Conversion Instructions: Bulk copy.
    """
    parts, operands = instruction.parts, instruction.operands
    if "commit_group" in parts:
        return BulkGroup()
    if "wait_group" in parts:
        (left,) = operands
        if not isinstance(left, Immediate):
            raise Unsupported(instruction.opcode)
        return BulkGroup(left.bits, reads=instruction.has("read"))
    if "prefetch" in parts:
        return Nothing()
    if "tensor" in parts:
        return decode_tensor(instruction)
    spaces, action, rest = _bulk_form(instruction)
    kind = instruction.kind if action else ""
    if rest - {kind} or spaces not in _COPY_SPACES or (action and kind not in REDUCTIONS[action]):
        raise Unsupported(instruction.opcode)
    to, origin = (address_of(operand) for operand in operands[:2])
    barrier = address_of(operands[3]) if spaces[0] != "global" else None
    registers = _registers(to, origin, operands[2], barrier)
    return BulkCopy(spaces, to, origin, operands[2], barrier, action, kind, registers)


def _bulk_form(instruction: Instruction) -> tuple[tuple[str, str], str, set[str]]:
    """Returns the state spaces of destination and source, the reduction or an empty text, and the other qualifiers."""
    parts = instruction.parts
    spaces = [_BULK_SPACES[part] for part in parts if part in _BULK_SPACES]
    reduces = parts[1] == "reduce"
    action = next((part for part in parts[2:] if part in REDUCTIONS), "") if reduces else ""
    if len(spaces) != 2 or (reduces and not action):
        raise Unsupported(instruction.opcode)
    return (spaces[0], spaces[1]), action, set(parts[1:]) - _BULK_HINTS - _BULK_SPACES.keys() - {action}


def _registers(*operands: Operand | None) -> tuple[Register, ...]:
    """Returns the registers among operands and the bases of addresses."""
    read = (operand.base if isinstance(operand, Address) else operand for operand in operands)
    return tuple(part for part in read if isinstance(part, Register))


_TILES = frozenset({"tensor", "tile", "1d", "2d", "3d", "4d", "5d"})


def decode_tensor(instruction: Instruction) -> Operation:
    """Copies of boxes by tensor maps, in tile mode.

    PTX ISA, Data Movement and Conversion Instructions: Tensor copy.
    """
    parts, operands = instruction.parts, instruction.operands
    spaces, action, rest = _bulk_form(instruction)
    if rest - _TILES or spaces not in _TENSOR_SPACES:
        raise Unsupported(instruction.opcode)
    loads = spaces[0] != "global"
    place, other = (operands[1], operands[0]) if loads else (operands[0], operands[1])
    if not isinstance(place, TensorAddress) or f"{len(place.coordinates.items)}d" not in parts:
        raise Unsupported(instruction.opcode)
    shared, barrier = address_of(other), address_of(operands[2]) if loads else None
    registers = _registers(place.map, *place.coordinates.items, shared, barrier)
    return TensorCopy(loads, place.map, place.coordinates.items, shared, spaces[not loads], barrier, action, registers)
