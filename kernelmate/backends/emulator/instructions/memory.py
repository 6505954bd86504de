"""Loads and stores, atomic operations and reductions; fences, prefetches and hints."""

from __future__ import annotations

from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes
from kernelmate.backends.emulator.operations import Atomic, Compute, Load, Nothing, Operation, Store
from kernelmate.backends.emulator.program import Address, Immediate, Instruction, Operand, Sink, Vector
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
    """Return the state space of the qualifiers; `generic` by default.

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


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def address_of(operand: Operand) -> Address:
    """Return the operand as an address.

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
        _items(instruction.operands[0]),
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
        _items(instruction.operands[1]),
        address_of(instruction.operands[0]),
        synchronizing,
    )


@decodes("membar", "fence")
def decode_fence(instruction: Instruction) -> Operation:
    """Does nothing to values, because accesses are executed in order; only the race checks take a fence into account."""
    if not instruction.has("proxy"):
        return Nothing(fence=True)
    kind, *rest = instruction.parts[2:]
    if kind == "alias":
        return Nothing()
    if kind == "async" and len(rest) <= 1:
        return Nothing(proxy=rest[0].partition("__")[0] if rest else "generic")
    if kind == "async__generic":
        return Nothing(fence=True, proxy="shared")
    raise Unsupported(instruction.opcode)


@decodes("prefetch", "prefetchu", "applypriority", "nanosleep", "pmevent", "griddepcontrol", "setmaxnreg")
def decode_hint(instruction: Instruction) -> Operation:
    """Accepted and ignored: they do not change results."""
    del instruction
    return Nothing()


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
