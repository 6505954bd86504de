"""Finds numbers below the smallest normal one that a candidate flushes to zero, and that baseline and reference keep."""

from __future__ import annotations

import re

import numpy as np

from kernelmate.checks.precision import Array, Arrays, is_float, limits, on_device, wide
from kernelmate.checks.trials import LaunchOutcome
from kernelmate.records import Contract

LEAST_STEPS = 8
"""Minimum size of numbers, in steps of the type, that are examined: smaller ones can be lost by one more rounding."""

MOST_OFF = 1 / 4
"""Maximum error of the baseline, as a fraction of the number, for a number to count as kept."""

_FLUSHING = re.compile(r"\b(?:(?:atom|red)\.[\w.]*add[\w.]*\.(?:f|bf)\d|w?g?mma\b)")
"""Atomic sums in global memory and matrix units, which may flush on hardware (PTX ISA, `atom`) whatever the user wants."""


def kept(contract: Contract, got: Array, want: Array) -> Array | None:
    """Elements of a baseline's output that a candidate must not flush; None where there are none.

    Args:
        contract: one with a tolerance of its own, or options that flush, binds nobody.
        got: the baseline's output on inputs that are all below the smallest normal number.
        want: the reference's, in float64.
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
    """Returns the output that was flushed, and a sentence about it; None without one.

    Args:
        outcome: the outcome of the candidate.
        bound: the elements, by output.
        want: the reference's answer.
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
