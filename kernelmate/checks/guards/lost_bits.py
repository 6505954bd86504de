"""Detects lost signs of zero and NaN payloads where baseline and reference, which only move values, preserve them."""

from __future__ import annotations

import re

import numpy as np

from kernelmate.checks.case_launches import LaunchOutcome
from kernelmate.checks.precision import Array, Arrays, flat, is_float, limits, on_device, words
from kernelmate.records import FindingCode

_TYPED = r"\.(?:[\w.]*\.)?(?:bf16x?2?|f16x?2?|f32|f64|tf32)\b"
_SIGN = re.compile(r"\b(?:neg|abs|copysign)" + _TYPED)
_ABS = re.compile(r"\babs" + _TYPED)
_CHOICE = re.compile(r"\b(?:setp|set|selp|slct)" + _TYPED)
_WHOLE = re.compile(r"\bcvt\.r[nzmp]i(?:\.ftz|\.sat)*\.(f16|f32|f64)\.\1\b")
"""Conversion that rounds to an integer in the same type and keeps the sign of zero, as functions of C and NumPy do."""
_ARITHMETIC = re.compile(
    r"\b(?:add|sub|mul|fma|mad|div|min|max|sqrt|rsqrt|rcp|ex2|lg2|sin|cos|tanh|cvt|mma|wmma|wgmma|red|atom)" + _TYPED
)


def has_arithmetic(ptx: str) -> bool:
    """Returns True if code computes floating numbers, other than by rounding to integers or changing a sign."""
    return _ARITHMETIC.search(_WHOLE.sub("", ptx)) is not None


def kept(ptx: str, got: Array, want: Array) -> Array | None:
    """Returns elements of a baseline's output whose bits a candidate must preserve; None without any.

    Arithmetic may change zeros and NaNs, so a baseline with arithmetic requires nothing. A baseline that only changes
    signs, or rounds to integers, requires the bits of zeros and subnormals; one that only moves values requires those
    of NaNs as well. Each class is required only if the baseline preserves all its elements. Positive zeros are required
    only from a kernel that takes absolute values and selects nothing by comparison.

    Args:
        ptx: the baseline's PTX.
        got: the baseline's output.
        want: the reference's output, in float64.
    """
    if not is_float(got.dtype) or on_device(want) or not ptx or has_arithmetic(ptx):
        return None
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
    same = (words(got) == words(rounded)).all(axis=-1)
    bound = np.zeros(want.shape, bool)
    # A positive zero is a magnitude only where nothing is chosen by comparisons, which give zeros of no sign in particular.
    magnitudes = bool(_ABS.search(ptx)) and _CHOICE.search(ptx) is None
    zeros, nans = (want == 0) & (np.signbit(want) | magnitudes), np.isnan(want)
    small = (want != 0) & (np.abs(want) < limits(got.dtype).smallest_normal)
    for places in (zeros, small) if _SIGN.search(ptx) or _WHOLE.search(ptx) else (zeros, small, nans):
        if same[places].all():
            bound |= places
    return bound if bound.any() else None


def find(outcome: LaunchOutcome, bound: Arrays, want: Arrays) -> tuple[FindingCode, tuple[str, str]] | None:
    """Returns the finding's code, the output that lost bits, and a sentence about it; None if there is none.

    Args:
        outcome: the candidate's launch.
        bound: elements to preserve, by output.
        want: the expected outputs.
    """
    for name, places in bound.items():
        got = outcome.result.arrays[name]
        with np.errstate(all="ignore"):
            rounded = want[name].astype(got.dtype)
        lost = places & (words(got) != words(rounded)).any(axis=-1)
        if lost.any():
            # A GPU's arithmetic changes NaN payloads too, so lost signs of zero are the stronger evidence.
            zeros = lost & (want[name] == 0)
            lost = zeros if zeros.any() else lost
            place = tuple(int(one) for one in np.argwhere(lost)[0])
            bits = [f"0x{int.from_bytes(flat(one[place]).tobytes(), 'little'):x}" for one in (got, rounded)]
            nan = bool(np.isnan(want[name][place]))
            kind = "NaN" if nan else "zero" if want[name][place] == 0 else "subnormal numbers"
            return FindingCode.NAN_HANDLING if nan else FindingCode.WRONG_VALUES, (
                name,
                f"on {outcome.shot}, {name}{list(place)} has the bits {bits[0]} and should have {bits[1]}: the baseline and "
                f"the reference keep the bits of {kind}",
            )
    return None
