"""Moves, packing and unpacking, and conversions between address spaces."""

from __future__ import annotations

import numpy as np

from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes, require
from kernelmate.backends.emulator.operations import Compute, Operation, ReadClock
from kernelmate.backends.emulator.program import Instruction, Operand, Sink, Special, Vector
from kernelmate.backends.emulator.spaces import cluster_addresses, from_generic, in_space, ranks_of, to_generic
from kernelmate.backends.emulator.types import SIZES, UNSIGNED, Array

CLOCKS = frozenset({"%clock", "%clock_hi", "%clock64", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"})


def _identity(value: Array) -> Array:
    return value


@decodes("mov")
def decode_move(instruction: Instruction) -> Operation:
    """Moves one value, or packs or unpacks a vector."""
    kind = instruction.kind
    if kind not in SIZES:
        raise Unsupported(f"type .{kind}")
    destination, source = instruction.operands
    if isinstance(source, Special) and source.name in CLOCKS:
        return ReadClock((destination, kind), source.name)
    if isinstance(source, Vector):
        return _pack(destination, source.items, kind)
    if isinstance(destination, Vector):
        return _unpack(destination.items, source, kind)
    bits = kind if kind == "pred" else f"b{8 * SIZES[kind]}"
    return Compute(((destination, bits),), ((source, bits),), _identity)


def _part(kind: str, count: int) -> str:
    bits = 8 * SIZES[kind] // count
    if bits < 8 or bits * count != 8 * SIZES[kind]:
        raise Unsupported(f"mov of {count} parts in .{kind}")
    return f"b{bits}"


def _pack(destination: Operand, items: tuple[Operand, ...], kind: str) -> Compute:
    part = _part(kind, len(items))
    dtype = UNSIGNED[SIZES[kind]]
    bits = 8 * SIZES[part]

    def function(*values: Array) -> Array:
        result = values[0].astype(dtype)
        for index, value in enumerate(values[1:], 1):
            result = result | (value.astype(dtype) << dtype.type(bits * index))
        return result

    return Compute(((destination, f"b{8 * SIZES[kind]}"),), tuple((item, part) for item in items), function)


def _unpack(items: tuple[Operand, ...], source: Operand, kind: str) -> Compute:
    part = _part(kind, len(items))
    dtype = UNSIGNED[SIZES[part]]
    bits = 8 * SIZES[part]
    wanted = [(index, item) for index, item in enumerate(items) if not isinstance(item, Sink)]

    def function(value: Array) -> tuple[Array, ...]:
        return tuple((value >> value.dtype.type(bits * index)).astype(dtype) for index, _ in wanted)

    results = tuple((item, part) for _, item in wanted)
    source_kind = f"b{8 * SIZES[kind]}"
    if len(wanted) == 1:
        return Compute(results, ((source, source_kind),), lambda value: function(value)[0])
    return Compute(results, ((source, source_kind),), function)


@decodes("cvta")
def decode_address(instruction: Instruction) -> Operation:
    """Conversion between addresses of a state space and generic addresses."""
    space = next((part for part in instruction.parts[1:] if part not in {"to", "u64", "u32"}), "")
    convert = from_generic(space) if instruction.has("to") else to_generic(space)
    if instruction.kind != "u64":
        raise Unsupported(instruction.opcode)
    destination, source = instruction.operands
    return Compute(((destination, "u64"),), ((source, "u64"),), convert)


@decodes("isspacep")
def decode_is_space(instruction: Instruction) -> Operation:
    """Tests if a generic address is in a space."""
    test = in_space(instruction.parts[1])
    destination, source = instruction.operands
    return Compute(((destination, "pred"),), ((source, "u64"),), lambda value: np.asarray(test(value)))


_RANK = (Special("%cluster_ctarank"), "u32")


@decodes("mapa")
def decode_map(instruction: Instruction) -> Operation:
    """Address of a variable of shared memory in another block of the cluster."""
    require(instruction, {"shared__cluster", "u32", "u64"})
    kind = _address_kind(instruction)
    destination, source, rank = instruction.operands
    return Compute(((destination, kind),), ((source, kind), (rank, "u32"), _RANK), cluster_addresses)


@decodes("getctarank")
def decode_rank(instruction: Instruction) -> Operation:
    """Rank of the block of the cluster whose shared memory an address points to."""
    require(instruction, {"shared__cluster", "u32", "u64"})
    destination, source = instruction.operands
    return Compute(((destination, "u32"),), ((source, _address_kind(instruction)), _RANK), ranks_of)


def _address_kind(instruction: Instruction) -> str:
    """Returns the type of the addresses; generic ones have 64 bits."""
    kind = instruction.kind
    if kind not in {"u32", "u64"} or (kind == "u32" and not instruction.has("shared__cluster")):
        raise Unsupported(f"type .{kind} of {instruction.opcode}")
    return kind
