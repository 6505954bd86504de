"""Logic, shifts, bit fields, permutes."""

from __future__ import annotations

import numpy as np

from kernelmate.backends.emulator.instructions.integer import plain
from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes, require
from kernelmate.backends.emulator.numerics.integers import leading_zeros, reverse_bits, shift_left, shift_right
from kernelmate.backends.emulator.operations import Compute, Operation
from kernelmate.backends.emulator.program import Immediate, Instruction, RegisterPair
from kernelmate.backends.emulator.types import DTYPES, SIZES, Array, is_signed

_LOGIC = frozenset({"pred", "b16", "b32", "b64"})
_SHIFTS = frozenset({"b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"})
_UFUNCS: dict[str, np.ufunc] = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.invert}


@decodes("and", "or", "xor", "not")
def decode_logic(instruction: Instruction) -> Operation:
    """Bitwise logic, on predicates too."""
    require(instruction, _LOGIC)
    ufunc = _UFUNCS[instruction.name]
    return plain(instruction, instruction.kind, ufunc, ufunc)


@decodes("cnot")
def decode_cnot(instruction: Instruction) -> Operation:
    """Computes one for an operand of zero, and zero for any other."""
    require(instruction, _LOGIC)
    return plain(instruction, instruction.kind, lambda a: (a == 0).astype(a.dtype))


@decodes("shl", "shr")
def decode_shift(instruction: Instruction) -> Operation:
    """Shifts. A count of the width or more gives 0, or copies of the sign bit for a signed right shift."""
    require(instruction, _SHIFTS)
    kind = instruction.kind
    first, value, count = instruction.operands
    function = shift_left if instruction.name == "shl" else shift_right
    if isinstance(count, Immediate) and 0 <= count.bits < 8 * SIZES[kind]:
        ufunc = np.left_shift if instruction.name == "shl" else np.right_shift
        return Compute(((first, kind),), ((value, kind), (count, kind)), ufunc, ufunc)
    return Compute(((first, kind),), ((value, kind), (count, "u32")), function)


@decodes("shf")
def decode_funnel(instruction: Instruction) -> Operation:
    """Funnel shift: shifts a 64-bit pair and keeps one half."""
    require(instruction, frozenset({"l", "r", "clamp", "wrap", "b32"}))
    left, clamp = instruction.has("l"), instruction.has("clamp")

    def function(low: Array, high: Array, count: Array) -> Array:
        n = np.minimum(count, np.uint32(32)) if clamp else count & np.uint32(31)
        pair = (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
        wide = n.astype(np.uint64)
        moved = (pair << wide) >> np.uint64(32) if left else pair >> wide
        return moved.astype(np.uint32)

    return plain(instruction, "u32", function)


@decodes("popc", "clz", "bfind")
def decode_count(instruction: Instruction) -> Operation:
    """Position of the most significant bit, number of leading zeros, and population count."""
    kind = instruction.kind
    require(instruction, _SHIFTS | {"shiftamt"})
    bits = 8 * SIZES[kind]
    name, amount = instruction.name, instruction.has("shiftamt")
    first, value = instruction.operands

    def find(a: Array) -> Array:
        # A negative number's first bit that differs from its sign is its complement's highest one.
        significant = np.where(a < 0, ~a, a) if is_signed(kind) else a
        zeros = leading_zeros(significant.view(DTYPES["u" + kind[1:]]))
        found = zeros if amount else (bits - 1 - zeros.astype(np.int64)).astype(np.uint32)
        return np.where(zeros == bits, np.uint32(0xFFFFFFFF), found)

    if name == "popc":
        return Compute(((first, "u32"),), ((value, kind),), lambda a: np.bitwise_count(a).astype(np.uint32))
    if name == "clz":
        return Compute(((first, "u32"),), ((value, kind),), leading_zeros)
    return Compute(((first, "u32"),), ((value, kind),), find)


@decodes("brev")
def decode_reverse(instruction: Instruction) -> Operation:
    """Bits in reverse order."""
    require(instruction, frozenset({"b32", "b64"}))
    return plain(instruction, instruction.kind, reverse_bits)


@decodes("bfe")
def decode_extract(instruction: Instruction) -> Operation:
    """Bit field extract, sign-extended for signed types."""
    kind = instruction.kind
    require(instruction, frozenset({"u32", "u64", "s32", "s64"}))
    bits, signed = 8 * SIZES[kind], is_signed(kind)
    unsigned = DTYPES["u" + kind[1:]]

    def function(a: Array, position: Array, length: Array) -> Array:
        start = (position & np.uint32(255)).astype(np.int64)
        size = (length & np.uint32(255)).astype(np.int64)
        raw = a.view(unsigned) if a.dtype != unsigned else a
        field = shift_right(raw, start) & _mask(size, unsigned, bits)
        if not signed:
            return field
        # The sign is the field's top bit, or the register's own if the field extends beyond it.
        top = np.minimum(start + size - 1, bits - 1)
        sign = (shift_right(raw, top) & unsigned.type(1)).astype(bool) & (size > 0)
        extended = np.where(sign, field | ~_mask(np.minimum(size, np.maximum(bits - start, 0)), unsigned, bits), field)
        return extended.astype(unsigned).view(DTYPES[kind])

    first, a, position, length = instruction.operands
    return Compute(((first, kind),), ((a, kind), (position, "u32"), (length, "u32")), function)


def _mask(size: Array, dtype: np.dtype[np.generic], bits: int) -> Array:
    ones = dtype.type(-1 & ((1 << bits) - 1))
    return shift_right(np.asarray(ones), np.maximum(bits - size, 0)).astype(dtype)


@decodes("bfi")
def decode_insert(instruction: Instruction) -> Operation:
    """Bit field insert: the first source's low bits into the second."""
    kind = instruction.kind
    require(instruction, frozenset({"b32", "b64"}))
    bits, dtype = 8 * SIZES[kind], DTYPES[kind]

    def function(a: Array, b: Array, position: Array, length: Array) -> Array:
        start = (position & np.uint32(255)).astype(np.int64)
        field = shift_left(_mask((length & np.uint32(255)).astype(np.int64), dtype, bits), start)
        return (b & ~field) | (shift_left(a, start) & field)

    first, a, b, position, length = instruction.operands
    return Compute(((first, kind),), ((a, kind), (b, kind), (position, "u32"), (length, "u32")), function)


@decodes("bmsk")
def decode_bitmask(instruction: Instruction) -> Operation:
    """Computes a bit mask from its start and its length."""
    require(instruction, frozenset({"clamp", "wrap", "b32"}))
    clamp = instruction.has("clamp")

    def function(start: Array, size: Array) -> Array:
        first = start.astype(np.int64) if clamp else (start & np.uint32(31)).astype(np.int64)
        length = np.minimum(size, np.uint32(32)).astype(np.int64) if clamp else (size & np.uint32(31)).astype(np.int64)
        ones = shift_right(np.asarray(np.uint64(0xFFFFFFFFFFFFFFFF)), 64 - length)
        ones = np.where(length == 0, np.uint64(0), ones)
        return shift_left(ones, first).astype(np.uint32)

    return plain(instruction, "u32", function)


@decodes("szext")
def decode_extend(instruction: Instruction) -> Operation:
    """Sign- or zero-extension from any bit."""
    require(instruction, frozenset({"clamp", "wrap", "u32", "s32"}))
    kind, clamp = instruction.kind, instruction.has("clamp")

    def function(a: Array, count: Array) -> Array:
        n = np.minimum(count, np.uint32(32)) if clamp else count & np.uint32(31)
        up = (32 - n.astype(np.int64)).astype(np.int64)
        moved = a.astype(np.int64) << up << 32 if kind == "s32" else (a.astype(np.int64) << up) & 0xFFFFFFFF
        result = (moved >> 32) >> up if kind == "s32" else moved >> up
        return np.where(n == 0, 0, result).astype(DTYPES[kind])

    first, value, count = instruction.operands
    return Compute(((first, kind),), ((value, kind), (count, "u32")), function)


@decodes("fns")
def decode_nth_set(instruction: Instruction) -> Operation:
    """Finds the n-th set bit from a base, upwards or downwards."""
    require(instruction, frozenset({"b32"}))

    def function(mask: Array, base: Array, offset: Array) -> Array:
        mask, base, offset = np.broadcast_arrays(mask, base, offset)
        result = np.full(mask.shape, 0xFFFFFFFF, np.uint32)
        seen = np.zeros(mask.shape, np.int64)
        upwards, want = offset >= 0, np.where(offset == 0, 1, np.abs(offset.astype(np.int64)))
        for step in range(32):
            position = np.where(upwards, base.astype(np.int64) + step, base.astype(np.int64) - step)
            inside = (position >= 0) & (position < 32) & ((offset != 0) | (step == 0))
            bit = (mask >> np.where(inside, position, 0).astype(np.uint32)) & np.uint32(1)
            seen = seen + (inside & (bit == 1))
            hit = inside & (bit == 1) & (seen == want)
            result = np.where(hit, position, result).astype(np.uint32)
        return result

    first, mask, base, offset = instruction.operands
    return Compute(((first, "b32"),), ((mask, "b32"), (base, "b32"), (offset, "s32")), function)


@decodes("prmt")
def decode_permute(instruction: Instruction) -> Operation:
    """Bytes picked from two registers."""
    require(instruction, frozenset({"b32", "f4e", "b4e", "rc8", "ecl", "ecr", "rc16"}))
    mode = instruction.parts[-1] if instruction.parts[-1] != "b32" else "idx"

    def function(a: Array, b: Array, control: Array) -> Array:
        pair = (b.astype(np.uint64) << np.uint64(32)) | a.astype(np.uint64)
        result: Array = np.zeros(np.broadcast_shapes(a.shape, b.shape, control.shape), np.uint32)
        for index in range(4):
            if mode == "idx":
                nibble = (control >> np.uint32(4 * index)) & np.uint32(15)
                picked = (pair >> ((nibble & np.uint32(7)).astype(np.uint64) * np.uint64(8))) & np.uint64(255)
                sign = np.where((picked & np.uint64(128)) != 0, np.uint64(255), np.uint64(0))
                byte = np.where((nibble & np.uint32(8)) != 0, sign, picked)
            else:
                selected = (control & np.uint32(3)).astype(np.int64)
                byte = (pair >> (_permuted(mode, index, selected) * 8).astype(np.uint64)) & np.uint64(255)
            result = result | (byte.astype(np.uint32) << np.uint32(8 * index))
        return result

    return plain(instruction, "b32", function)


def _permuted(mode: str, index: int, selected: Array) -> Array:
    """Returns the source byte for result byte `index` (PTX ISA, prmt, table of modes)."""
    if mode == "f4e":
        return (selected + index) & 7
    if mode == "b4e":
        return (selected - index) & 7
    if mode == "rc8":
        return selected
    if mode == "ecl":
        return np.maximum(selected, index)
    if mode == "ecr":
        return np.minimum(selected, index)
    return (selected & 1) * 2 + (index & 1)


@decodes("lop3")
def decode_lop3(instruction: Instruction) -> Operation:
    """Any bitwise function of three operands, given by its truth table."""
    require(instruction, frozenset({"b32", "or", "and"}))
    first, a, b, c, table, *rest = instruction.operands
    if not isinstance(table, Immediate):
        raise Unsupported("lop3 with a table that is not constant")
    value = table.bits & 255

    def function(x: Array, y: Array, z: Array) -> Array:
        result = x ^ x
        for index in range(8):
            if value >> index & 1:
                result = result | ((x if index & 4 else ~x) & (y if index & 2 else ~y) & (z if index & 1 else ~z))
        return result + np.zeros(np.broadcast_shapes(x.shape, y.shape, z.shape), np.uint32)

    sources = ((a, "b32"), (b, "b32"), (c, "b32"))
    if not rest:
        return Compute(((first, "b32"),), sources, function)

    def with_predicate(x: Array, y: Array, z: Array, q: Array) -> tuple[Array, Array]:
        result = function(x, y, z)
        return result, ((result != 0) | q) if instruction.has("or") else ((result != 0) & q)

    if not isinstance(first, RegisterPair):
        raise Unsupported("lop3 with a predicate source and no predicate result")
    return Compute(((first.first, "b32"), (first.second, "pred")), (*sources, (rest[0], "pred")), with_predicate)
