"""Integer operations that NumPy has not, on arrays of any width."""

from __future__ import annotations

import numpy as np

from kernelmate.backends.emulator.types import SIGNED, UNSIGNED, Array


def multiply_high(a: Array, b: Array) -> Array:
    """Returns the upper half of the full product, signed or unsigned by dtype."""
    size = a.dtype.itemsize
    if size < 8:
        wide = (SIGNED if a.dtype.kind == "i" else UNSIGNED)[2 * size]
        product = np.asarray(a).astype(wide) * np.asarray(b).astype(wide)
        return np.asarray(product >> wide.type(8 * size)).astype(a.dtype)
    high = _high64(np.asarray(a).astype(np.uint64), np.asarray(b).astype(np.uint64))
    if a.dtype.kind == "i":
        # Signed from unsigned high product: subtract b if a is negative, and a if b is negative.
        high = (
            high
            - np.where(a < 0, b.astype(np.uint64), np.uint64(0))
            - np.where(b < 0, a.astype(np.uint64), np.uint64(0))
        )
    return np.asarray(high).astype(a.dtype)


def _high64(a: Array, b: Array) -> Array:
    half, mask = np.uint64(32), np.uint64(0xFFFFFFFF)
    a_high, a_low, b_high, b_low = a >> half, a & mask, b >> half, b & mask
    middle = a_high * b_low + ((a_low * b_low) >> half)
    other = a_low * b_high + (middle & mask)
    return np.asarray(a_high * b_high + (middle >> half) + (other >> half))


def divide(a: Array, b: Array) -> Array:
    """Returns the quotient truncated towards zero; division by zero gives all ones, as on GPUs."""
    a, b = np.broadcast_arrays(np.asarray(a), np.asarray(b))
    zero = b == 0
    safe = np.where(zero, b.dtype.type(1), b)
    quotient = a // safe
    if a.dtype.kind == "i":
        quotient = quotient + ((quotient * safe != a) & ((a < 0) != (safe < 0))).astype(a.dtype)
    return np.asarray(np.where(zero, a.dtype.type(-1) if a.dtype.kind == "i" else ~a.dtype.type(0), quotient))


def remainder(a: Array, b: Array) -> Array:
    """Remainder with the sign of the dividend; that of zero is the dividend."""
    a, b = np.broadcast_arrays(np.asarray(a), np.asarray(b))
    safe = np.where(b == 0, b.dtype.type(1), b)
    return np.where(b == 0, a, np.fmod(a, safe))


def leading_zeros(value: Array) -> Array:
    """Returns the number of zero bits above the highest one, as uint32; the width for zero."""
    bits = 8 * value.dtype.itemsize
    filled = np.asarray(value).copy()
    shift = 1
    while shift < bits:
        filled |= filled >> filled.dtype.type(shift)
        shift *= 2
    return np.asarray(bits - np.bitwise_count(filled)).astype(np.uint32)


def reverse_bits(value: Array) -> Array:
    """Reverses the order of the bits."""
    kind = value.dtype.type
    bits = 8 * value.dtype.itemsize
    result = np.asarray(value)
    width = bits // 2
    while width:
        mask = kind(sum(((1 << width) - 1) << start for start in range(0, bits, 2 * width)))
        result = ((result >> kind(width)) & mask) | ((result & mask) << kind(width))
        width //= 2
    return result


def shift_left(value: Array, count: Array) -> Array:
    """Shifts left; counts of at least the width give zero."""
    bits = 8 * value.dtype.itemsize
    clamped = np.minimum(count, bits - 1).astype(value.dtype)
    return np.asarray(np.where(count >= bits, value.dtype.type(0), value << clamped))


def shift_right(value: Array, count: Array) -> Array:
    """Shifts right; counts of at least the width give zero, or the sign for signed values."""
    bits = 8 * value.dtype.itemsize
    clamped = np.minimum(count, bits - 1).astype(value.dtype)
    shifted: Array = value >> clamped
    return shifted if value.dtype.kind == "i" else np.asarray(np.where(count >= bits, value.dtype.type(0), shifted))
