"""Fused multiply-add, rounded once, in every format and direction."""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from kernelmate.backends.emulator.numerics.rounding import NEAREST, narrow, to_odd, two_sum
from kernelmate.backends.emulator.types import Array

_SPLITTER = np.float64(134217729.0)  # 2**27 + 1, Veltkamp's constant for 53 bits
_SAFE_LARGE = 2.0**500
_SAFE_SMALL = 2.0**-400
_LOW = np.uint64(0x1FFFFFFF)
_TIE = np.uint64(0x10000000)


def fma32(a: Array, b: Array, c: Array, mode: str = NEAREST) -> Array:
    """Compute a * b + c of float32 arrays or scalars, rounded once.

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
    """Compute a * b + c of float64, rounded once.

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
