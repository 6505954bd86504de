"""Comparison of actual with expected outputs: largest error in units of the tolerance, and the first wrong element."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelmate.checks.precision import Array, blocks_of, flat, is_inexact, wide
from kernelmate.records import FirstWrong

GLANCED = 4096
"""Number of leading elements that are compared first if only the overall result matters."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Comparison of one output with its expected values.

    Attributes:
        argument: the output's name.
        error: the largest |got - want| over its tolerance; infinite if only one of the two is NaN or infinite, or if
            integers differ.
        first: the first wrong element; None if all are right.
        not_finite: True if an element is wrongly NaN or infinite, or wrongly finite.
        coarse: True if all wrong elements are finite with errors small enough to be lost precision.
    """

    argument: str
    error: float
    first: FirstWrong | None
    not_finite: bool
    coarse: bool

    @property
    def right(self) -> bool:
        """True if every element is within its tolerance."""
        return self.error <= 1


def compare(argument: str, got: Array, want: Array, allowed: Array, coarse: Array | None = None) -> Difference:
    """Compares one output with the reference.

    Expected values are first converted to the output's dtype: 70000 is infinite in float16.

    Args:
        argument: the output's name.
        got: the kernel's output.
        want: the reference's output, float64 for floating outputs.
        allowed: the tolerance per element; integers must be equal in any case.
        coarse: the largest error per element that counts as lost precision.
    """
    if got.size == 0:
        return Difference(argument, 0.0, None, not_finite=False, coarse=False)
    if not is_inexact(got.dtype):
        return _exact(argument, got, want)
    largest = _largest(got, want, allowed)
    if largest <= 1:
        return Difference(argument, largest, None, not_finite=False, coarse=False)
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype)
        absolute = np.abs(wide(got) - want)
        ratio = _in_tolerances(got, want, got == rounded, absolute, allowed)
        wrong, there = ratio > 1, wide(got)
        finite = np.isfinite(there) & np.isfinite(wide(rounded))
    endless = wrong & ~finite
    not_finite = bool(endless.any())
    return Difference(
        argument,
        largest,
        # The element that is shown is one of those that name the cause.
        _first(argument, endless if not_finite else wrong, want, there),
        not_finite=not_finite,
        coarse=coarse is not None and bool(wrong.any() and (finite & (absolute <= coarse))[wrong].all()),
    )


def _largest(got: Array, want: Array, allowed: Array) -> float:
    """Returns the largest |got - want| in units of the tolerance, computed in blocks."""
    largest, (mine, wanted, most) = 0.0, (flat(array) for array in (got, want, allowed))
    with np.errstate(all="ignore"):
        for part in blocks_of(got):
            here, there = mine[part], wanted[part]
            same = here == there.astype(here.dtype)
            if not bool(same.all()):
                ratio = _in_tolerances(here, there, same, np.abs(wide(here) - there), most[part])
                largest = max(largest, float(ratio.max()))
    return largest


def _in_tolerances(got: Array, want: Array, same: Array, absolute: Array, allowed: Array) -> Array:
    """Returns |got - want| over the tolerance.

    The ratio is 0 where `same` is True or both are NaN, and infinite where it is otherwise not a number.

    `same` marks elements equal to the expected value rounded to the output's dtype; `absolute` is |got - want|.
    """
    ratio: Array = absolute / allowed
    np.copyto(ratio, 0.0, where=same)
    if np.isnan(ratio.max()):
        np.copyto(ratio, 0.0, where=np.isnan(wide(got)) & np.isnan(want))
        np.copyto(ratio, np.inf, where=np.isnan(ratio))
    return ratio


def is_right(argument: str, got: Array, want: Array, allowed: Array) -> bool:
    """Returns True if an output is right; compares its first `GLANCED` elements first, and stops if they are wrong."""
    few = tuple(array.reshape(-1)[:GLANCED] for array in (got, want, allowed))
    if got.size > GLANCED and not compare(argument, *few).right:
        return False
    return compare(argument, got, want, allowed).right


def is_within_tolerance(one: Array, two: Array, allowed: Array) -> bool:
    """Returns True if no two elements of expected outputs differ by more than the tolerance."""
    working = np.complex128 if "c" in (one.dtype.kind, two.dtype.kind) else np.float64
    flat = tuple(array.reshape(-1) for array in (one, two, allowed))
    for some in (slice(GLANCED), slice(None)):
        first, second, most = (array[some] for array in flat)
        with np.errstate(all="ignore"):
            if not bool((np.abs(first.astype(working) - second.astype(working)) <= most).all()):
                return False
    return True


def nan_in(array: Array) -> Array:
    """Returns the mask of NaN elements of a floating array."""
    return np.isnan(wide(array))


def absolute_error(got: Array, want: Array) -> Array:
    """Returns |got - want| per element of a floating output; 0 where it is not finite."""
    with np.errstate(all="ignore"):
        absolute = np.abs(wide(got) - want)
    return np.where(np.isfinite(absolute), absolute, 0.0)


def _exact(argument: str, got: Array, want: Array) -> Difference:
    with np.errstate(all="ignore"):
        want = want.astype(got.dtype) if want.dtype.kind in "iub" else want
        wrong = got != want
    error = float(np.inf) if wrong.any() else 0.0
    return Difference(argument, error, _first(argument, wrong, want, got), not_finite=False, coarse=False)


def _first(argument: str, wrong: Array, want: Array, got: Array) -> FirstWrong | None:
    if not wrong.any():
        return None
    index = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
    return FirstWrong(argument, tuple(int(i) for i in index), _number(want[index]), _number(got[index]))


def _number(value: np.generic) -> float | None:
    """Returns the element as a number for messages; None for complex elements."""
    return None if np.iscomplexobj(value) else float(value)
