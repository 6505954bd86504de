"""Finds 16-bit results that are a unit in the last place off while all others are rounded to nearest.

The tolerance of a stored result lets conversions truncate, so an error of one unit passes. A version that rounds
differently, or computes in lower precision, has errors of all fractions of a unit. A version that is wrong for a few
bit patterns is exact at all others.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmate.checks.case_launches import LaunchOutcome
from kernelmate.checks.precision import Array, Arrays, is_float, limits, on_device, wide
from kernelmate.checks.tolerances import STORE_UNITS, MaximumErrors

MOST_TERMS = 4.0
"""Maximum number of inputs per element: sums of more terms may be off by any fraction of a unit at few elements."""

LEAST_OFF, MOST_ELSEWHERE = 0.2, 1 / 32
"""Minimum error of the few elements, and maximum error of all others, in units in the last place beyond rounding to
nearest.
"""

MOST_SHARE, FEWEST = 1 / 32, 256
"""Maximum share of wrong elements in an output, and minimum number of elements of an output."""


def exact(got: Array, want: Array, allowed: MaximumErrors, name: str) -> Array | None:
    """Returns the error per element that arithmetic may add to rounding; None if the baseline rounds otherwise.

    The baseline's output must be of 16 bits, and rounded to nearest at every element.

    Args:
        got: the baseline's output.
        want: the reference's output, in float64.
        allowed: the derived tolerance.
        name: the output's name.
    """
    if got.dtype.itemsize != 2 or got.size < FEWEST or allowed.terms > MOST_TERMS:
        return None
    return nearest(got, want, allowed, name)


def nearest(got: Array, want: Array, allowed: MaximumErrors, name: str) -> Array | None:
    """Returns as `exact`, for an output of at most 16 bits, of any length and number of terms."""
    if got.dtype.itemsize > 2 or not is_float(got.dtype) or on_device(want):
        return None
    computed = computing_error(got.dtype, want, allowed.error[name])
    return computed if not bool((beyond_nearest(got, want, computed) > MOST_ELSEWHERE).any()) else None


def find(outcome: LaunchOutcome, computed: Arrays, want: Arrays) -> tuple[str, str] | None:
    """Returns the output with a few elements that are off, and a sentence about it; None if there is none.

    Args:
        outcome: the candidate's launch.
        computed: results of `exact`, by output.
        want: the reference's outputs.
    """
    for name, some in computed.items():
        got = outcome.result.arrays[name]
        beyond = beyond_nearest(got, want[name], some)
        off = beyond > MOST_ELSEWHERE
        count = int(off.sum())
        if 0 < count <= MOST_SHARE * got.size and bool((beyond[off] >= LEAST_OFF).all()):
            place = tuple(int(one) for one in np.argwhere(off)[0])
            return name, (
                f"on {outcome.shot}, {name}{list(place)} is {float(got[place]):.6g} and should be {float(want[name][place]):.6g}: "
                f"{count} of {got.size} elements are a unit in the last place off, and all others are rounded to nearest"
            )
    return None


def computing_error(dtype: np.dtype[Any], want: Array, allowed: Array) -> Array:
    """Returns the part of a derived tolerance that is not for storing the result in a type."""
    kind = limits(dtype)
    with np.errstate(all="ignore"):
        computed = allowed - STORE_UNITS * kind.roundoff * (np.abs(want) + kind.smallest_normal)
    return np.maximum(computed, 0.0)


def half_unit(dtype: np.dtype[Any], want: Array) -> Array:
    """Returns half a unit in the last place of each element in a type: the largest error of rounding to nearest."""
    kind = limits(dtype)
    half: Array = np.ldexp(kind.roundoff, np.frexp(np.abs(want))[1] - 1)
    return np.maximum(half, kind.roundoff * kind.smallest_normal)


def beyond_nearest(got: Array, want: Array, computed: Array) -> Array:
    """Returns the error in units in the last place, without that of rounding to nearest and of the computation."""
    with np.errstate(all="ignore"):
        half = half_unit(got.dtype, want)
        beyond = (np.abs(wide(got) - want) - half - computed) / (2 * half)
        same = (got == want.astype(got.dtype)) | ~np.isfinite(beyond)
    return np.where(same, 0.0, beyond)
