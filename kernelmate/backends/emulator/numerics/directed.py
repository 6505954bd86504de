"""Add, subtract, multiply, divide and square root in a given rounding direction."""

from __future__ import annotations

from fractions import Fraction
from math import isqrt

import numpy as np

from kernelmate.backends.emulator.numerics.fused import fma64, round_fraction
from kernelmate.backends.emulator.numerics.rounding import narrow, to_odd, two_sum
from kernelmate.backends.emulator.types import Array

_FLOAT32 = np.dtype(np.float32)


def add(a: Array, b: Array, mode: str) -> Array:
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


def multiply(a: Array, b: Array, mode: str) -> Array:
    """Returns a * b of float32 or float64, rounded in the direction `mode`."""
    a, b = np.broadcast_arrays(np.asarray(a), np.asarray(b))
    if a.dtype == np.float32:
        return narrow(a.astype(np.float64) * b.astype(np.float64), _FLOAT32, mode)
    result = fma64(a, b, np.zeros_like(a), mode)
    return np.where((a == 0) | (b == 0), a * b, result)


def divide(a: Array, b: Array, mode: str) -> Array:
    """Returns a / b of float32 or float64, rounded in the direction `mode`."""
    a, b = np.broadcast_arrays(np.asarray(a), np.asarray(b))
    quotient = np.array(a / b)
    for index in np.flatnonzero(np.isfinite(a) & np.isfinite(b) & (a != 0) & (b != 0)):
        exact = Fraction(float(a.flat[index])) / Fraction(float(b.flat[index]))
        quotient.flat[index] = _rounded(exact, mode, a.dtype == np.float32)
    return quotient


def square_root(a: Array, mode: str) -> Array:
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
