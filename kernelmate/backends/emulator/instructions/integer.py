"""Integer arithmetic: add to mad, with carries, saturation, 24-bit and dot-product forms.

Video instructions work on two halves or four bytes of a register; NVRTC generates them for `__vabsdiffu4` and similar
intrinsics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes, require
from kernelmate.backends.emulator.numerics.integers import divide, multiply_high, remainder
from kernelmate.backends.emulator.operations import Compute, Operation
from kernelmate.backends.emulator.program import Instruction, Register
from kernelmate.backends.emulator.types import DTYPES, Array

CARRY = Register("%cc")
"""The condition code register's carry flag, kept as one more predicate."""

INTEGERS = frozenset({"u16", "s16", "u32", "s32", "u64", "s64"})
_WIDER = {"u16": "u32", "s16": "s32", "u32": "u64", "s32": "s64"}
_UFUNCS: dict[str, np.ufunc] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def plain(instruction: Instruction, kind: str, function: Callable[..., Any], ufunc: np.ufunc | None = None) -> Compute:
    """Returns the operation of an instruction whose result and sources all have one type."""
    first, *rest = instruction.operands
    return Compute(((first, kind),), tuple((operand, kind) for operand in rest), function, ufunc)


def decode_add(instruction: Instruction) -> Operation:
    """`add` and `sub` of integers, saturating or not, with or without carry out."""
    kind = instruction.kind
    require(instruction, INTEGERS | {"sat", "cc"})
    if instruction.has("cc"):
        return _with_carry(instruction, carry_in=False)
    ufunc = _UFUNCS[instruction.name]
    if instruction.has("sat"):
        if kind != "s32":
            raise Unsupported(f".sat with .{kind}")
        return plain(instruction, kind, lambda a, b: _saturated(ufunc(a.astype(np.int64), b.astype(np.int64))))
    return plain(instruction, kind, ufunc, ufunc)


def _saturated(value: Array) -> Array:
    return np.clip(value, -(2**31), 2**31 - 1).astype(np.int32)


@decodes("addc", "subc")
def decode_carry(instruction: Instruction) -> Operation:
    """Add and subtract with carry."""
    require(instruction, INTEGERS | {"cc"})
    return _with_carry(instruction, carry_in=True)


def _with_carry(instruction: Instruction, *, carry_in: bool) -> Compute:
    kind = "u" + instruction.kind[1:]
    subtract = instruction.name.startswith("sub")

    def function(a: Array, b: Array, *carry: Array) -> Any:
        addend = carry[0].astype(a.dtype) if carry else a.dtype.type(0)
        first = a - b if subtract else a + b
        out = (a < b) if subtract else (first < a)
        result = first - addend if subtract else first + addend
        out = out | ((first < addend) if subtract else (result < first))
        return (result, out) if instruction.has("cc") else result

    destination, left, right = instruction.operands
    results = ((destination, kind), (CARRY, "pred")) if instruction.has("cc") else ((destination, kind),)
    sources = ((left, kind), (right, kind)) + (((CARRY, "pred"),) if carry_in else ())
    return Compute(results, sources, function)


def decode_multiply(instruction: Instruction) -> Operation:
    """`mul` of integers: lo, hi, wide."""
    kind = instruction.kind
    require(instruction, INTEGERS | {"lo", "hi", "wide"})
    if instruction.has("wide"):
        wide = _WIDER[kind]
        first, left, right = instruction.operands
        dtype = DTYPES[wide]
        return Compute(
            ((first, wide),),
            ((left, kind), (right, kind)),
            lambda a, b: np.multiply(a.astype(dtype), b.astype(dtype)),
        )
    if instruction.has("hi"):
        return plain(instruction, kind, multiply_high)
    return plain(instruction, kind, np.multiply, np.multiply)


def decode_mad(instruction: Instruction) -> Operation:
    """`mad` of integers: lo, hi, wide, saturating, with carry out."""
    kind = instruction.kind
    require(instruction, INTEGERS | {"lo", "hi", "wide", "sat", "cc"})
    if instruction.has("cc"):
        return _mad_carry(instruction, carry_in=False)
    first, left, right, addend = instruction.operands
    if instruction.has("wide"):
        wide = _WIDER[kind]
        dtype = DTYPES[wide]
        return Compute(
            ((first, wide),),
            ((left, kind), (right, kind), (addend, wide)),
            lambda a, b, c: np.multiply(a.astype(dtype), b.astype(dtype)) + c,
        )
    if instruction.has("hi"):
        if instruction.has("sat"):
            return plain(
                instruction, kind, lambda a, b, c: _saturated(multiply_high(a, b).astype(np.int64) + c.astype(np.int64))
            )
        return plain(instruction, kind, lambda a, b, c: multiply_high(a, b) + c)
    return plain(instruction, kind, lambda a, b, c: a * b + c)


@decodes("madc")
def decode_madc(instruction: Instruction) -> Operation:
    """`madc`: multiply, add, and add the carry."""
    require(instruction, INTEGERS | {"lo", "hi", "cc"})
    return _mad_carry(instruction, carry_in=True)


def _mad_carry(instruction: Instruction, *, carry_in: bool) -> Compute:
    kind = instruction.kind
    unsigned = DTYPES["u" + kind[1:]]
    high = instruction.has("hi")

    def function(a: Array, b: Array, c: Array, *carry: Array) -> Any:
        product = (multiply_high(a, b) if high else a * b).astype(unsigned)
        addend = c.astype(unsigned)
        total = product + addend
        out = total < product
        if carry:
            more = total + carry[0].astype(unsigned)
            out, total = out | (more < total), more
        result = total.astype(DTYPES[kind])
        return (result, out) if instruction.has("cc") else result

    first, *rest = instruction.operands
    results = ((first, kind), (CARRY, "pred")) if instruction.has("cc") else ((first, kind),)
    sources = tuple((operand, kind) for operand in rest) + (((CARRY, "pred"),) if carry_in else ())
    return Compute(results, sources, function)


def decode_divide(instruction: Instruction) -> Operation:
    """`div` and `rem` of integers."""
    require(instruction, INTEGERS)
    return plain(instruction, instruction.kind, divide if instruction.name == "div" else remainder)


@decodes("rem")
def decode_remainder(instruction: Instruction) -> Operation:
    """Remainder of integers."""
    return decode_divide(instruction)


@decodes("mul24", "mad24")
def decode_24(instruction: Instruction) -> Operation:
    """Products of the low 24 bits."""
    kind = instruction.kind
    require(instruction, frozenset({"u32", "s32", "lo", "hi", "sat"}))
    high, saturating = instruction.has("hi"), instruction.has("sat")

    def low24(value: Array) -> Array:
        wide = value.astype(np.int64)
        return ((wide << 40) >> 40) if kind == "s32" else (wide & 0xFFFFFF)

    def function(a: Array, b: Array, *addend: Array) -> Array:
        product = low24(a) * low24(b)
        part = (product >> 16 if high else product).astype(DTYPES[kind])
        if not addend:
            return part
        if saturating:
            return _saturated(part.astype(np.int64) + addend[0].astype(np.int64))
        return part + addend[0]

    return plain(instruction, kind, function)


@decodes("sad")
def decode_sad(instruction: Instruction) -> Operation:
    """Sum of absolute difference and addend."""
    require(instruction, INTEGERS)
    kind = instruction.kind
    unsigned = DTYPES["u" + kind[1:]]

    def function(a: Array, b: Array, c: Array) -> Array:
        larger, smaller = np.maximum(a, b).astype(unsigned), np.minimum(a, b).astype(unsigned)
        return np.asarray(larger - smaller + c.astype(unsigned)).astype(DTYPES[kind])

    return plain(instruction, kind, function)


def decode_minmax(instruction: Instruction) -> Operation:
    """`min` and `max` of integers, `.relu` included."""
    # NVRTC writes `max.s32.relu`, the ISA `max.relu.s32`.
    kind = next((part for part in instruction.parts[1:] if part != "relu"), "")
    ufunc = np.minimum if instruction.name == "min" else np.maximum
    if kind in {"u16x2", "s16x2"}:
        require(instruction, frozenset({"u16x2", "s16x2", "relu"}))
        return _halves(instruction, kind[:3], ufunc, relu=instruction.has("relu"))
    require(instruction, INTEGERS | {"relu"})
    if instruction.has("relu"):
        if kind != "s32":
            raise Unsupported(f".relu with .{kind}")
        return plain(instruction, kind, lambda a, b: np.maximum(ufunc(a, b), a.dtype.type(0)))
    return plain(instruction, kind, ufunc, ufunc)


def decode_add_halves(instruction: Instruction) -> Operation:
    """`add` of two 16-bit integers in one register."""
    require(instruction, frozenset({"u16x2", "s16x2"}))
    return _halves(instruction, instruction.kind[:3], np.add, relu=False)


def _halves(instruction: Instruction, kind: str, ufunc: np.ufunc, *, relu: bool) -> Compute:
    dtype = DTYPES[kind]

    def function(a: Array, b: Array) -> Array:
        low = ufunc(a.astype(dtype), b.astype(dtype))
        high = ufunc((a >> np.uint32(16)).astype(dtype), (b >> np.uint32(16)).astype(dtype))
        if relu:
            low, high = np.maximum(low, dtype.type(0)), np.maximum(high, dtype.type(0))
        upper: Array = high.astype(np.uint16).astype(np.uint32) << np.uint32(16)
        return np.asarray(low.astype(np.uint16).astype(np.uint32) | upper)

    return plain(instruction, "b32", function)


def decode_abs_neg(instruction: Instruction) -> Operation:
    """`abs` and `neg` of integers."""
    require(instruction, INTEGERS)
    ufunc = np.abs if instruction.name == "abs" else np.negative
    return plain(instruction, instruction.kind, ufunc, ufunc)


@decodes("dp4a", "dp2a")
def decode_dot(instruction: Instruction) -> Operation:
    """Dot products of two 16-bit integers with two of four 8-bit integers, or of four 8-bit integers, added to a 32-bit integer."""
    require(instruction, frozenset({"u32", "s32", "lo", "hi"}))
    left, right = instruction.parts[-2:]
    four = instruction.name == "dp4a"
    shift = 2 if instruction.has("hi") else 0
    result = "u32" if left == right == "u32" else "s32"

    def part(value: Array, index: int, bits: int, kind: str) -> Array:
        moved = value.astype(np.int64) >> (index * bits)
        return (moved << (64 - bits)) >> (64 - bits) if kind == "s32" else moved & ((1 << bits) - 1)

    def function(a: Array, b: Array, c: Array) -> Array:
        total = c.astype(np.int64)
        for index in range(4 if four else 2):
            total = total + part(a, index, 8 if four else 16, left) * part(b, index + shift, 8, right)
        return total.astype(DTYPES[result])

    first, a, b, c = instruction.operands
    return Compute(((first, result),), ((a, "b32"), (b, "b32"), (c, result)), function)


_FUNCTIONS: dict[str, Callable[[Array, Array], Array]] = {
    "vadd": np.add,
    "vsub": np.subtract,
    "vabsdiff": lambda a, b: np.abs(a - b),
    "vmin": np.minimum,
    "vmax": np.maximum,
}
_WRAPPING = frozenset({"vadd", "vsub"})


@decodes(*(f"{name}{count}" for name in _FUNCTIONS for count in (2, 4)))
def decode_video(instruction: Instruction) -> Operation:
    """Add, subtract, absolute difference, minimum and maximum of two 16-bit or four 8-bit integers, each separate or (`.add`) summed."""
    name, count = instruction.name[:-1], int(instruction.name[-1])
    kinds, extra = instruction.parts[1:4], instruction.parts[4:]
    known = {(), ("sat",)} if name in _WRAPPING else {(), ("sat",), ("add",)}
    if len(kinds) < 3 or not {"u32", "s32"}.issuperset(kinds) or extra not in known:
        raise Unsupported(instruction.opcode)
    bits = 32 // count
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if kinds[0] == "s32" else (0, (1 << bits) - 1)
    function, summed = _FUNCTIONS[name], "add" in extra

    def part(value: Array, index: int, kind: str) -> Array:
        moved = value.astype(np.int64) >> (index * bits)
        return (moved << (64 - bits)) >> (64 - bits) if kind == "s32" else moved & ((1 << bits) - 1)

    def compute(a: Array, b: Array, c: Array) -> Array:
        shape = np.broadcast_shapes(a.shape, b.shape, c.shape)
        total: Array = np.zeros(shape, np.int64) + (c.astype(np.int64) if summed else 0)
        for index in range(count):
            lane = function(part(a, index, kinds[1]), part(b, index, kinds[2]))
            if "sat" in extra:
                lane = np.clip(lane, low, high)
            total = total + lane if summed else total | ((lane & ((1 << bits) - 1)) << (index * bits))
        return total.astype(np.uint32)

    first, a, b, c = instruction.operands
    return Compute(((first, "b32"),), ((a, "b32"), (b, "b32"), (c, "b32")), compute)
