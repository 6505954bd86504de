"""Decodes loads, stores, atomic operations and fences; asynchronous copies, and the barriers (mbarrier) that track them."""

from __future__ import annotations

from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes
from kernelmate.backends.emulator.numerics.mbarrier_state import pending_of
from kernelmate.backends.emulator.operands import items_of
from kernelmate.backends.emulator.operations import (
    AsyncCopy,
    AsyncGroup,
    Atomic,
    BulkCopy,
    BulkGroup,
    Compute,
    Load,
    NoOperation,
    Operation,
    PhaseBarrier,
    Store,
    TensorCopy,
)
from kernelmate.backends.emulator.program import (
    Address,
    Immediate,
    Instruction,
    Operand,
    Register,
    Sink,
    TensorAddress,
    Vector,
)
from kernelmate.backends.emulator.spaces import CLUSTER_SHARED
from kernelmate.backends.emulator.types import SIZES

SPACES = frozenset({"global", "shared", "local", "param", "const"})
_SYNCHRONIZING = frozenset({"volatile", "relaxed", "acquire", "release", "mmio"})
_HINTS = frozenset(
    {
        "weak",
        "nc",
        "ca",
        "cg",
        "cs",
        "lu",
        "cv",
        "wb",
        "wt",
        "cta",
        "gpu",
        "sys",
        "cluster",
        "unified",
        "v2",
        "v4",
        "v8",
    }
    | {"L1__evict_normal", "L1__evict_unchanged", "L1__evict_first", "L1__evict_last", "L1__no_allocate"}
    | {"L2__64B", "L2__128B", "L2__256B", "L2__evict_first", "L2__evict_last", "L2__evict_normal", "L2__cache_hint"}
)


def space_in(instruction: Instruction) -> str:
    """Returns the state space of the qualifiers; `generic` by default.

    Raises:
        Unsupported: a part of a state space that PTX does not have.
    """
    for part in instruction.parts[1:]:
        name, _, rest = part.partition("__")
        if name in SPACES:
            if rest not in {"", "cta", "cluster", "entry", "func"}:
                raise Unsupported(f"qualifier .{part} of {instruction.opcode}")
            return CLUSTER_SHARED if rest == "cluster" else name
    return "generic"


def _check(instruction: Instruction) -> str:
    kind = instruction.kind
    if kind not in SIZES or kind == "pred":
        raise Unsupported(f"type .{kind} of {instruction.opcode}")
    for part in instruction.parts[1:-1]:
        if part not in _HINTS | _SYNCHRONIZING and part.partition("__")[0] not in SPACES:
            raise Unsupported(f"qualifier .{part.replace('__', '::')} of {instruction.opcode}")
    return kind


def address_of(operand: Operand) -> Address:
    """Returns the operand as an address.

    Raises:
        Unsupported: it is not an address.
    """
    if not isinstance(operand, Address):
        raise Unsupported("an operand that is not an address")
    return operand


@decodes("ld", "ldu")
def decode_load(instruction: Instruction) -> Operation:
    """Loads one to four elements."""
    kind = _check(instruction)
    synchronizing = any(part in _SYNCHRONIZING for part in instruction.parts)
    return Load(
        space_in(instruction),
        kind,
        items_of(instruction.operands[0]),
        address_of(instruction.operands[1]),
        synchronizing,
    )


@decodes("st")
def decode_store(instruction: Instruction) -> Operation:
    """Stores one to four elements."""
    kind = _check(instruction)
    synchronizing = any(part in _SYNCHRONIZING for part in instruction.parts)
    return Store(
        space_in(instruction),
        kind,
        items_of(instruction.operands[1]),
        address_of(instruction.operands[0]),
        synchronizing,
    )


@decodes("membar", "fence")
def decode_fence(instruction: Instruction) -> Operation:
    """Does nothing to values, because accesses are executed in order; only the race checks take a fence into account."""
    if not instruction.has("proxy"):
        return NoOperation(fence=True)
    kind, *rest = instruction.parts[2:]
    if kind == "alias":
        return NoOperation()
    if kind == "async" and len(rest) <= 1:
        return NoOperation(proxy=rest[0].partition("__")[0] if rest else "generic")
    if kind == "async__generic":
        return NoOperation(fence=True, proxy="shared")
    raise Unsupported(instruction.opcode)


@decodes("prefetch", "prefetchu", "applypriority", "nanosleep", "pmevent", "griddepcontrol", "setmaxnreg")
def decode_hint(instruction: Instruction) -> Operation:
    """No operation: these hints do not change results."""
    del instruction
    return NoOperation()


@decodes("createpolicy")
def decode_policy(instruction: Instruction) -> Operation:
    """Returns a cache policy, zero for each, because policies do not change results."""
    return Compute(((instruction.operands[0], "b64"),), ((Immediate(0), "b64"),), lambda policy: policy)


ACTIONS = frozenset({"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"})
_ORDERS = frozenset({"relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys", "noftz"})


@decodes("atom", "red")
def decode_atomic(instruction: Instruction) -> Operation:
    """Atomic operations with (`atom`) and without (`red`) the old value, of one element of up to 64 bits."""
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


_ACTIONS = {
    "init": "init", "inval": "inval", "arrive": "arrive", "arrive_drop": "drop", "test_wait": "test", "try_wait": "test",
    "expect_tx": "expect", "complete_tx": "complete",
}  # fmt: skip
_BARRIER_PARTS = frozenset(
    {"relaxed", "acquire", "release", "cta", "cluster", "noComplete", "parity", "b64", "expect_tx"}
)


@decodes("mbarrier")
def decode_phase_barrier(instruction: Instruction) -> Operation:
    """Barriers in shared memory, with the transaction counts of bulk copies."""
    action, operands = instruction.parts[1], list(instruction.operands)
    if action == "pending_count":
        return Compute(((operands[0], "u32"),), ((operands[1], "u64"),), pending_of)
    known = _BARRIER_PARTS | SPACES
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


_COPY_HINTS = frozenset({"async", "ca", "cg", "shared", "shared__cta", "global", "L2__64B", "L2__128B", "L2__256B"})


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
    if parts[1] != "async" or not set(parts[1:]) <= _COPY_HINTS or "global" not in parts or len(operands) not in {3, 4}:
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
        return NoOperation()
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
