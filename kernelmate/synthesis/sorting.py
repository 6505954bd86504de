"""Sorting of a few values along an axis, by exchanges without a loop: `np.sort`, `np.partition`, `np.argsort`, `np.median`."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from kernelmate.synthesis.arrays import Array, cast
from kernelmate.synthesis.joining import stack
from kernelmate.synthesis.primitives import expand_dims, where
from kernelmate.synthesis.sizes import Untraceable, text_of

MOST_SORTED = 25
"""Values that are sorted by exchanges without a loop."""


def exchanges(count: int) -> list[tuple[int, int]]:
    """Returns the pairs of places that Batcher's odd-even merge sort exchanges, in order.

    Knuth, The Art of Computer Programming, volume 3, algorithm 5.2.2M.
    """
    pairs: list[tuple[int, int]] = []
    top = 1 << max(count - 1, 0).bit_length() >> 1
    step = top
    while step:
        quotient, remainder, distance = top, 0, step
        while True:
            pairs += [(at, at + distance) for at in range(count - distance) if at & step == remainder]
            if quotient == step:
                break
            distance, quotient, remainder = quotient - step, quotient >> 1, step
        step >>= 1
    return pairs


MOST_PLACES = 8
"""Values whose places are sorted, by exchanges of neighbours alone: equal values keep their order."""


def median(a: Array, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    """The middle of a few values along one axis. It leaves NaN out."""
    values, place = _values(a, axis, MOST_SORTED, "median" if out is None else "median with out")
    values = _sorted([one if one.dtype.kind == "f" else cast(one, np.float64) for one in values])
    count = len(values)
    middle = values[count // 2]
    middle = middle if count % 2 else 0.5 * (values[count // 2 - 1] + middle)
    return expand_dims(middle, place) if keepdims else middle


def sort(a: Array, axis: Any = -1, **_: Any) -> Array:
    """Returns a few values in ascending order; NaN is not supported: a copy of another value would replace it."""
    values, place = _values(a, axis, MOST_SORTED, "sort")
    return stack(_sorted(values), place)


def partition(a: Array, kth: Any, axis: Any = -1, **_: Any) -> Array:  # noqa: ARG001
    """As `sort`, which puts the values of any places where `np.partition` would."""
    values, place = _values(a, axis, MOST_SORTED, "partition")
    return stack(_sorted(values), place)


def argsort(a: Array, axis: Any = -1, **_: Any) -> Array:
    """The places of a few values in ascending order; of equal ones the first comes first."""
    values, place = _values(a, axis, MOST_PLACES, "argsort")
    places: list[Any] = list(range(len(values)))
    for turn in range(len(values)):
        for low in range(turn % 2, len(values) - 1, 2):
            exchanged = values[low + 1] < values[low]
            for pair in (values, places):
                first, second = pair[low], pair[low + 1]
                pair[low], pair[low + 1] = where(exchanged, second, first), where(exchanged, first, second)
    return stack(places, place)


def _values(a: Array, axis: Any, most: int, name: str) -> tuple[list[Any], int]:
    """Returns the values along an axis, and the axis.

    Raises:
        Untraceable: they are more, or of a number that differs.
    """
    place = None if axis is None or isinstance(axis, tuple) else operator.index(axis) % a.ndim
    count = 0 if place is None else int(a.shape[place])
    if place is None or text_of(a.shape[place]) != str(count) or not 0 < count <= most or "out" in name:
        raise Untraceable(f"np.{name} of other than up to {most} values along an axis")
    return [a[(*[slice(None)] * place, at)] for at in range(count)], place


def _sorted(values: list[Any]) -> list[Any]:
    """Returns values of an axis in ascending order."""
    floating = values[0].dtype.kind == "f"
    smaller, larger = (np.fmin, np.fmax) if floating else (np.minimum, np.maximum)
    for low, high in exchanges(len(values)):
        first, second = values[low], values[high]
        values[low], values[high] = smaller(first, second), larger(first, second)
    return values
