"""Detects handling of NaN that differs from what the baseline and the reference agree on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from kernelmate.checks import perturbation
from kernelmate.checks.answers import ExpectedOutputs
from kernelmate.checks.case_launches import LaunchOutcome
from kernelmate.checks.compare import Difference, nan_in
from kernelmate.checks.precision import Array, Arrays, is_inexact, wide

LEAST_BYTES = 4
"""Minimum size in bytes of the types of positions and counts."""

LARGE = 1000.0
"""Finite value that replaces NaN, positive and negative, to find the elements that depend on it."""

ROUNDING = 1e-6
"""Relative difference between elements that does not show a dependence."""

Closer = Callable[[Mapping[str, Difference], Arrays], ExpectedOutputs | None]
"""Function that measures near ties of integers that differ, and returns the new expected outputs; None if it cannot."""


def agreed(given: Arrays, got: Array, want: Array) -> Array:
    """Returns the elements of a baseline's output that a candidate must match on inputs with NaN.

    At these elements the baseline and the reference are both NaN, or the same position or count. An integer for each
    input element is taken for a conversion, whose result for NaN depends on the machine.
    """
    if is_inexact(got.dtype):
        return nan_in(got) & nan_in(want)
    floating = max((array.size for array in given.values() if is_inexact(array.dtype)), default=0)
    if got.dtype.itemsize < LEAST_BYTES or got.size * 2 > floating:
        return np.zeros(got.shape, bool)
    return np.asarray(got == want)


def find(
    outcome: LaunchOutcome, bound: Arrays, answer: ExpectedOutputs | None, closer: Closer
) -> tuple[str, str] | None:
    """Returns the output that differs where baseline and reference agree, and a sentence; None if there is none.

    Args:
        outcome: the candidate's launch.
        bound: by output, the elements at which the baseline and the reference agree, as `agreed` returns them.
        answer: the reference's outputs.
        closer: measures near ties where integers differ.
    """
    for name, both in bound.items():
        got = outcome.result.arrays[name]
        if is_inexact(got.dtype):
            lost = np.argwhere(both & ~nan_in(got))
            place, wanted = (None if not lost.size else tuple(int(one) for one in lost[0])), "NaN"
        else:
            place, wanted = _differs(name, got, both, answer, closer), "another one"
        if place is not None:
            said = f"{name}{list(place)} is a number where the baseline and the reference give {wanted}"
            return name, f"on {outcome.shot}, {said}"
    return None


def find_of_reference(
    outcome: LaunchOutcome, answer: ExpectedOutputs, evaluated: Callable[[Arrays], Arrays]
) -> tuple[str, str] | None:
    """Returns the output that has a number where the reference has NaN, and a sentence; None if there is none.

    It is for a version that was written from the reference and has no baseline. An element counts only if it depends on
    the inputs that are NaN: a reference that takes differences of running sums has NaN in all later elements.

    Args:
        outcome: the version's launch.
        answer: the reference's outputs.
        evaluated: evaluates the reference for other inputs of the same shapes.
    """
    lost = {}
    for name, want in answer.want.items():
        got = outcome.result.arrays[name]
        if is_inexact(got.dtype) and (there := nan_in(want) & ~nan_in(got)).any():
            lost[name] = there
    if not lost:
        return None
    low, high = (evaluated(_without_nan(outcome.given, sign * LARGE)) for sign in (-1.0, 1.0))
    for name, there in lost.items():
        places = np.argwhere(there & _apart(low[name], high[name]))
        if places.size:
            place = [int(one) for one in places[0]]
            return name, f"on {outcome.shot}, {name}{place} is a number where the reference gives NaN"
    return None


def _without_nan(given: Arrays, value: float) -> dict[str, Array]:
    """Returns inputs in which a value replaces NaN."""
    replaced = dict(given)
    for name, array in given.items():
        if is_inexact(array.dtype) and (there := nan_in(array)).any():
            replaced[name] = array.copy()
            replaced[name][there] = value
    return replaced


def _apart(low: Array, high: Array) -> Array:
    """Returns the elements that differ by more than the rounding errors of sums with large terms."""
    low, high = wide(low), wide(high)
    with np.errstate(all="ignore"):
        near: Array = np.abs(high - low) <= ROUNDING * np.maximum(np.abs(low), np.abs(high))
    return ~near & ~(np.isnan(low) & np.isnan(high))


def _differs(
    name: str, got: Array, both: Array, answer: ExpectedOutputs | None, closer: Closer
) -> tuple[int, ...] | None:
    """Returns the first integer that is wrong where the baseline and the reference agree."""
    if answer is None:
        return None
    want = answer.want[name]
    if not (both & (got != want)).any():
        return None
    there = np.where(both, got, want).astype(got.dtype)
    closer_answer = closer({name: answer.difference(name, there)}, {name: there}) or answer
    lost = np.argwhere(both & (got != perturbation.wanted_of_ties(got, want, closer_answer.ties.get(name))))
    return tuple(int(one) for one in lost[0]) if lost.size else None
