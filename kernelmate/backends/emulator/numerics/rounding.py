"""Rounding float64 results into a type and a direction, with the exact remainder known.

A sum or product computed in float64 is at most one rounding away from the exact value. With the sign of that rounding's
error, the value is made "round to odd" (its last bit says that something was cut off), and a second rounding of such a
value to a format of at most 51 bits is as good as one rounding of the exact value (Boldo and Melquiond, "Emulation of a
FMA and correctly rounded sums: proved algorithms using rounding to odd", IEEE Transactions on Computers 57(4), 2008).
"""

from __future__ import annotations

from collections.abc import Callable
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
