"""Finds subnormal numbers that a candidate flushes to zero and that the baseline and the reference preserve."""

from __future__ import annotations

import re

import numpy as np

from kernelmate.checks.case_launches import LaunchOutcome
from kernelmate.checks.precision import Array, Arrays, is_float, limits, on_device, wide
from kernelmate.records import Contract

LEAST_STEPS = 8
"""Minimum magnitude, in units of the smallest subnormal, of examined numbers; one more rounding can lose smaller ones.
"""

MOST_OFF = 1 / 4
"""Maximum error of the baseline, relative to the number, for a number to count as preserved."""

_FLUSHING = re.compile(r"\b(?:(?:atom|red)\.[\w.]*add[\w.]*\.(?:f|bf)\d|w?g?mma\b)")
"""Atomic sums in global memory and matrix instructions, which may flush regardless of options (PTX ISA, `atom`)."""


def kept(contract: Contract, got: Array, want: Array) -> Array | None:
    """Returns the elements of a baseline's output that a candidate must not flush; None without any.

    Args:
        contract: with a tolerance of its own, or with options that flush, it gives no such elements.
        got: the baseline's output on inputs that are all below the smallest normal number.
        want: the reference's output, in float64.
    """
    allowed = contract.tolerance is not None or any("fast_math" in o or "ftz=true" in o for o in contract.options)
    if allowed or not is_float(got.dtype) or on_device(want):
        return None
    smallest = limits(got.dtype).smallest_normal
    step = 2 * limits(got.dtype).roundoff * smallest
    with np.errstate(all="ignore"):
        size = np.abs(want)
        bound = (size < smallest) & (size >= LEAST_STEPS * step) & (np.abs(wide(got) - want) <= MOST_OFF * size)
    return bound if bound.any() else None


def find(outcome: LaunchOutcome, bound: Arrays, want: Arrays, ptx: str) -> tuple[str, str] | None:
    """Returns the output that was flushed, and a sentence about it; None if there is none.

    Args:
        outcome: the candidate's launch.
        bound: elements to preserve, by output.
        want: the reference's outputs.
        ptx: the candidate's PTX.
    """
    if not bound or _FLUSHING.search(ptx):
        return None
    for name, places in bound.items():
        lost = places & (outcome.result.arrays[name] == 0)
        if lost.any():
            place = tuple(int(one) for one in np.argwhere(lost)[0])
            return name, (
                f"on {outcome.shot}, {name}{list(place)} is 0 and should be {float(want[name][place]):.3g}: the baseline and "
                "the reference keep numbers below the smallest normal one; if flushing is meant, say so with `--ftz=true` "
                "among the options of the contract"
            )
    return None
