"""Arithmetic on arrays, rounded once into a type and a direction; fused multiply-add among it.

A sum or product computed in float64 is at most one rounding away from the exact value. With the sign of that rounding's
error, the value is made "round to odd" (its last bit says that something was cut off), and a second rounding of such a
value to a format of at most 51 bits equals one rounding of the exact value (Boldo and Melquiond, "Emulation of a
FMA and correctly rounded sums: proved algorithms using rounding to odd", IEEE Transactions on Computers 57(4), 2008).
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isqrt
from typing import Any

import ml_dtypes
import numpy as np

from kernelmate.backends.emulator.types import Array

NEAREST, ZERO, DOWN, UP = "rn", "rz", "rm", "rp"
DIRECTIONS = frozenset({NEAREST, ZERO, DOWN, UP})

_SMALLEST_NORMAL = {
    np.dtype(np.float32): np.float32(2.0**-126),
    np.dtype(np.float64): np.float64(2.0**-1022),
    np.dtype(np.float16): np.float16(2.0**-14),
    np.dtype(ml_dtypes.bfloat16): ml_dtypes.bfloat16(2.0**-126),
}


def two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Returns the sum and its exact error (Knuth)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


def to_odd(value: Array, error: Array) -> Array:
    """Returns `value` + `error` rounded to odd, where `value` is that sum rounded to nearest."""
    bits = value.view(np.int64)
    inexact = (error != 0) & ((bits & 1) == 0) & np.isfinite(value)
    if not inexact.any():
        return value
    # An even last bit of an inexact value: the odd neighbour lies on the side of the error.
    away = (error > 0) == (value > 0)
    step = np.where(away, 1, -1)
    at_zero = value == 0
    moved = (bits + np.where(inexact & ~at_zero, step, 0)).view(np.float64)
    tiny = np.copysign(np.float64(5e-324), error)
    return np.where(inexact & at_zero, tiny, moved)


def narrow(value: Array, dtype: np.dtype[Any], mode: str = NEAREST) -> Array:
    """Rounds float64 values, which are exact or rounded to odd, once to float32, float16 or bfloat16."""
    if dtype == np.float64:
        return value
    if dtype == ml_dtypes.bfloat16:
        return _to_bfloat16(value, mode)
    rounded = value.astype(dtype)
    return rounded if mode == NEAREST else directed(rounded, value, mode)


def directed(rounded: Array, exact: Array, mode: str) -> Array:
    """Moves a value rounded to nearest to the other side if the direction requires it; `exact` may be wider."""
    wide = rounded.astype(np.float64)
    if mode == DOWN:
        step, towards = wide > exact, -np.inf
    elif mode == UP:
        step, towards = wide < exact, np.inf
    else:
        step, towards = np.abs(wide) > np.abs(exact), 0.0
    if mode != ZERO:
        return np.where(step, np.nextafter(rounded, rounded.dtype.type(towards)), rounded)
    return np.where(step, np.nextafter(rounded, rounded.dtype.type(0)), rounded)


def _to_bfloat16(value: Array, mode: str) -> Array:
    """Converts to bfloat16 through float32 rounded to odd, so that the second rounding decides."""
    near = value.astype(np.float32)
    wide = near.astype(np.float64)
    bits = near.view(np.int32)
    inexact = (wide != value) & np.isfinite(value)
    # Towards zero first (an overflow to infinity becomes the largest float32 again), then set the last bit.
    cut = bits - (inexact & (np.abs(wide) > np.abs(value))).astype(np.int32)
    odd = np.where(inexact, cut | 1, bits)
    return round_bits_bfloat16(odd.view(np.float32), mode)


def round_bits_bfloat16(value: Array, mode: str) -> Array:
    """Converts float32 to bfloat16, rounding the sixteen low bits in the direction of `mode`."""
    bits = value.view(np.uint32)
    low = bits & np.uint32(0xFFFF)
    high = bits >> np.uint32(16)
    negative = (bits >> np.uint32(31)).astype(bool)
    if mode == NEAREST:
        up = (low > 0x8000) | ((low == 0x8000) & ((high & np.uint32(1)) == 1))
    elif mode == ZERO:
        up = np.zeros(low.shape, bool)
    else:
        up = (low != 0) & (negative if mode == DOWN else ~negative)
    up = up & np.isfinite(value)
    result = (high + up).astype(np.uint16)
    canonical: Array = np.where(np.isnan(value), np.uint16(0x7FFF), result)
    return canonical.view(ml_dtypes.bfloat16)


def flush(value: Array) -> Array:
    """Replaces subnormals by zero of the same sign (`.ftz`)."""
    small = np.abs(value) < _SMALLEST_NORMAL[value.dtype]
    if not np.any(small):
        return value
    return np.where(small, np.copysign(value.dtype.type(0), value), value)


def saturate(value: Array) -> Array:
    """Clamp to [0, 1]; NaN becomes +0 (`.sat`)."""
    one = value.dtype.type(1)
    zero = value.dtype.type(0)
    clamped = np.minimum(np.maximum(value, zero), one)
    return np.asarray(np.where(np.isnan(value), zero, clamped) + zero)


def rectified(value: Array) -> Array:
    """Replaces non-positive values by +0; a NaN stays (`.relu`)."""
    keep = (value > value.dtype.type(0)) | np.isnan(value)
    return np.where(keep, value, value.dtype.type(0))


def minimum_or_maximum(largest: bool, nan_wins: bool) -> Callable[[Array, Array], Array]:
    """Returns a two-operand minimum or maximum in which -0 is less than +0."""
    ufunc = {(True, True): np.maximum, (True, False): np.fmax, (False, True): np.minimum, (False, False): np.fmin}[
        largest, nan_wins
    ]
    other = np.signbit

    def pick(a: Array, b: Array) -> Array:
        result = np.asarray(ufunc(a, b))
        zero = result == 0
        if zero.any():
            sign = other(a) & other(b) if largest else other(a) | other(b)
            both = zero & (a == 0) & (b == 0)
            result = np.where(both, np.where(sign, result.dtype.type(-0.0), result.dtype.type(0.0)), result)
        return result

    return pick


def xor_signed(pick: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    """Picks a magnitude and gives it the product's sign (`.xorsign.abs`)."""

    def function(a: Array, b: Array) -> Array:
        magnitude = pick(np.abs(a), np.abs(b))
        negative = np.signbit(a) ^ np.signbit(b)
        return np.where(negative, -magnitude, magnitude)

    return function


_SPLITTER = np.float64(134217729.0)  # 2**27 + 1, Veltkamp's constant for 53 bits
_SAFE_LARGE = 2.0**500
_SAFE_SMALL = 2.0**-400
_LOW = np.uint64(0x1FFFFFFF)
_TIE = np.uint64(0x10000000)


def fma32(a: Array, b: Array, c: Array, mode: str = NEAREST) -> Array:
    """Computes a * b + c of float32 arrays or scalars, rounded once.

    The product is exact in float64 (48 of 53 bits). Rounding to nearest twice is wrong only if the first rounding gives
    a midpoint of two float32, or if the result is subnormal: those lanes are recomputed.
    """
    product = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    addend = np.asarray(c, np.float64)
    total = np.asarray(product + addend)
    if mode != NEAREST:
        _, error = two_sum(product, addend)
        return _signed_zero(narrow(to_odd(total, error), np.dtype(np.float32), mode), product, addend, mode)
    result = total.astype(np.float32)
    doubtful = (total.view(np.uint64) & _LOW) == _TIE
    small = np.abs(result) < np.float32(1.1754945e-38)
    if small.any():
        doubtful |= small & (total != 0)
    if doubtful.any():
        product, addend = np.broadcast_arrays(product, addend)
        total, error = two_sum(product[doubtful], addend[doubtful])
        result[doubtful] = to_odd(total, error).astype(np.float32)
    return result


def _signed_zero(result: Array, product: Array, addend: Array, mode: str) -> Array:
    """Sets the sign of an exact zero sum of opposite values: -0 if rounding is downward, +0 otherwise."""
    if mode != "rm":
        return result
    cancelled = (product == -addend) & (product != 0)
    opposite = (product == 0) & (addend == 0) & (np.signbit(product) != np.signbit(addend))
    return np.where(cancelled | opposite, np.float32(-0.0), result).astype(result.dtype)


def fma_narrow(a: Array, b: Array, c: Array, dtype: np.dtype[np.generic], mode: str = NEAREST) -> Array:
    """Returns `a * b + c` of float16 or bfloat16, rounded once; the product is exact in float64."""
    product = a.astype(np.float64) * b.astype(np.float64)
    total, error = two_sum(product, c.astype(np.float64))
    return narrow(to_odd(np.asarray(total), np.asarray(error)), dtype, mode)


def two_product(a: Array, b: Array) -> tuple[Array, Array]:
    """Returns the product and its exact error (Dekker), if neither splitting nor the error overflows or underflows."""
    product = a * b
    scaled = a * _SPLITTER
    a_high = scaled - (scaled - a)
    a_low = a - a_high
    scaled = b * _SPLITTER
    b_high = scaled - (scaled - b)
    b_low = b - b_high
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def fma64(a: Array, b: Array, c: Array, mode: str = NEAREST) -> Array:
    """Computes a * b + c of float64, rounded once.

    Uses Boldo and Melquiond's algorithm for terms in a safe range, and rational arithmetic for the other lanes.
    """
    a, b, c = np.broadcast_arrays(np.asarray(a, np.float64), np.asarray(b, np.float64), np.asarray(c, np.float64))
    high, low = two_product(a, b)
    top, rest = two_sum(c, low)
    value, tail = two_sum(high, top)
    result = value + to_odd(*two_sum(rest, tail))
    size = np.abs(high)
    safe = (size < _SAFE_LARGE) & (size > _SAFE_SMALL) & (np.abs(c) < _SAFE_LARGE)
    safe &= (np.abs(a) < _SAFE_LARGE) & (np.abs(b) < _SAFE_LARGE)
    safe &= (np.abs(c) > _SAFE_SMALL) | (c == 0)
    if mode != NEAREST:
        safe[...] = False
    if not safe.all():
        unsafe = ~safe
        result = np.array(result)
        result[unsafe] = _fma64_slow(a[unsafe], b[unsafe], c[unsafe], mode)
    return result


def _fma64_slow(a: Array, b: Array, c: Array, mode: str) -> Array:
    plain = a * b + c
    finite = np.isfinite(a) & np.isfinite(b) & np.isfinite(c)
    # If a product or an addend is zero or not finite, the plain expression is exact or has the right special value.
    special = ~finite | (a == 0) | (b == 0)
    if (~finite & np.isfinite(plain)).any() or special.all():
        return plain
    infinite_addend = np.isinf(c)
    out = np.where(infinite_addend & np.isfinite(a) & np.isfinite(b), c, plain)
    for index in np.flatnonzero(~special):
        exact = Fraction(float(a[index])) * Fraction(float(b[index])) + Fraction(float(c[index]))
        out[index] = round_fraction(exact, mode, negative_zero=mode == "rm")
    return np.asarray(out)


def round_fraction(exact: Fraction, mode: str = NEAREST, *, negative_zero: bool = False) -> float:
    """Rounds a rational number to float64 once, in the direction of `mode`; overflow as in IEEE 754."""
    if exact == 0:
        return -0.0 if negative_zero else 0.0
    try:
        near = exact.numerator / exact.denominator
    except OverflowError:
        near = float("inf") if exact > 0 else float("-inf")
    if mode == NEAREST:
        return near
    if near in (float("inf"), float("-inf")):
        largest = float(np.finfo(np.float64).max)
        if near > 0:
            return near if mode == "rp" else largest
        return near if mode == "rm" else -largest
    return _step(near, exact, mode)


def _step(near: float, exact: Fraction, mode: str) -> float:
    off = Fraction(near) - exact
    if mode == "rm" or (mode == "rz" and exact > 0):
        return float(np.nextafter(near, -np.inf)) if off > 0 else near
    return float(np.nextafter(near, np.inf)) if off < 0 else near


_FLOAT32 = np.dtype(np.float32)


def add_directed(a: Array, b: Array, mode: str) -> Array:
    """Returns a + b of float32 or float64, rounded in the direction `mode`."""
    a, b = np.broadcast_arrays(np.asarray(a), np.asarray(b))
    if a.dtype == np.float32:
        total, error = two_sum(a.astype(np.float64), b.astype(np.float64))
        result = narrow(to_odd(total, error), _FLOAT32, mode)
    else:
        result = fma64(np.ones_like(a), a, b, mode)
    if mode == "rm":
        result = np.where((a == -b) & ((a != 0) | (np.signbit(a) != np.signbit(b))), a.dtype.type(-0.0), result)
    return result


def multiply_directed(a: Array, b: Array, mode: str) -> Array:
    """Returns a * b of float32 or float64, rounded in the direction `mode`."""
    a, b = np.broadcast_arrays(np.asarray(a), np.asarray(b))
    if a.dtype == np.float32:
        return narrow(a.astype(np.float64) * b.astype(np.float64), _FLOAT32, mode)
    result = fma64(a, b, np.zeros_like(a), mode)
    return np.where((a == 0) | (b == 0), a * b, result)


def divide_directed(a: Array, b: Array, mode: str) -> Array:
    """Returns a / b of float32 or float64, rounded in the direction `mode`."""
    a, b = np.broadcast_arrays(np.asarray(a), np.asarray(b))
    quotient = np.array(a / b)
    for index in np.flatnonzero(np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)):
        exact = Fraction(float(a.flat[index])) / Fraction(float(b.flat[index]))
        quotient.flat[index] = _rounded(exact, mode, a.dtype == np.float32)
    return quotient


def root_directed(a: Array, mode: str) -> Array:
    """Returns the square root of float32 or float64, rounded in the direction `mode`."""
    a = np.asarray(a)
    root = np.array(np.sqrt(a))
    for index in np.flatnonzero(np.isfinite(a) & (a > 0)):
        root.flat[index] = _rounded(_root_to_odd(Fraction(float(a.flat[index]))), mode, a.dtype == np.float32)
    return root


def _root_to_odd(value: Fraction) -> Fraction:
    """Returns a square root to 120 bits, whose last bit is sticky."""
    shift = 2 * max(0, 130 - (value.numerator.bit_length() - value.denominator.bit_length()) // 2)
    scaled = (value.numerator << shift) // value.denominator
    root = isqrt(scaled)
    exact = root * root * value.denominator == value.numerator << shift
    return Fraction(2 * root + (0 if exact else 1), 2 << (shift // 2))


def _rounded(exact: Fraction, mode: str, single: bool) -> float:
    if not single:
        return round_fraction(exact, mode)
    near = round_fraction(exact)
    error = exact - Fraction(near) if np.isfinite(near) else Fraction(0)
    odd = to_odd(np.array([near]), np.array([float((error > 0) - (error < 0))]))
    return float(narrow(odd, _FLOAT32, mode)[0])
