"""Functions of NumPy that look up values in ascending tables: `searchsorted`, `digitize`, `interp` and `histogram`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelmate.synthesis.arrays import Array, cast
from kernelmate.synthesis.indexed import counted
from kernelmate.synthesis.masks import linspace
from kernelmate.synthesis.primitives import picked, reduced, where
from kernelmate.synthesis.sizes import Untraceable, text_of
from kernelmate.synthesis.ufuncs import mapped

MOST_BOUNDS = 64
"""Maximum number of bounds that an element is compared with one after the other."""

_SEARCHED = ("float32", "float64", "int32", "int64", "uint32", "uint64")


def searchsorted(a: Any, v: Any, side: str = "left", sorter: Any = None) -> Any:
    """Computes `np.searchsorted` for an ascending vector, which is not checked to be one.

    A vector that is an argument is searched by bisection; elements are compared with up to 64 other bounds one by one.
    """
    if sorter is not None or side not in ("left", "right"):
        raise Untraceable("np.searchsorted with a sorter")
    v = (a if isinstance(a, Array) else v).builder.lift(v)
    table = _table(a)
    if table is not None:
        if v.dtype.kind != table.dtype.kind:
            raise Untraceable(f"a search for {v.dtype} among {table.dtype}")
        name = str(table.builder.nodes[table.node].data[0])
        data = ("searchsorted", name, side, text_of(_length(a)))
        return cast(table.builder.add("map", [v], v.shape, np.int32, data), np.int64)
    count = _length(a)
    if isinstance(a, Array) and (text_of(count) != str(int(count)) or int(count) > MOST_BOUNDS):
        above = _is_after(a, v.view_of([*range(v.ndim), None]), side)
        return reduced(cast(above, np.int64), "sum", v.ndim)
    bounds = [a[place] for place in range(int(count))]
    if int(count) > MOST_BOUNDS or (not isinstance(a, Array) and list(bounds) != sorted(bounds)):
        raise Untraceable(f"np.searchsorted in a table of more than {MOST_BOUNDS} bounds, or not ascending ones")
    return sum(cast(_is_after(bound, v, side), np.int64) for bound in bounds)


def _length(a: Any) -> Any:
    """Returns the length of a traced vector or of a sequence."""
    return a.shape[0] if isinstance(a, Array) else len(a)


def _is_after(bound: Any, x: Array, side: str) -> Array:
    """Returns whether values come after a bound; NaN comes after all."""
    return mapped(x.builder, np.logical_not, (x < bound if side == "right" else x <= bound,))


def _table(a: Any) -> Array | None:
    """Returns the argument that a vector is (below casts that keep its values); None otherwise."""
    if not isinstance(a, Array) or a.ndim != 1:
        return None
    node = a.builder.nodes[a.node]
    while node.op == "cast" and np.can_cast(a.builder.nodes[node.args[0]].dtype, node.dtype):
        a = Array(a.builder, node.args[0])
        node = a.builder.nodes[a.node]
    return a if node.op == "input" and node.dtype in _SEARCHED else None


def digitize(x: Any, bins: Any, *, right: bool = False) -> Any:
    """Computes `np.digitize` for ascending bounds."""
    return searchsorted(bins, x, "left" if right else "right")


def interp(x: Any, xp: Any, fp: Any, left: Any = None, right: Any = None, period: Any = None) -> Any:
    """Computes `np.interp` for ascending positions."""
    if period is not None:
        raise Untraceable("np.interp with a period")
    builder = next(one for one in (x, xp, fp) if isinstance(one, Array)).builder
    x, xp, fp = (builder.lift(one) for one in (x, xp, fp))
    count = xp.shape[0]
    above = searchsorted(xp, x, "right")
    low, high = np.maximum(above - 1, 0), np.minimum(above, count - 1)
    start, value = picked(xp, low, 0), picked(fp, low, 0)
    between = value + (x - start) * ((picked(fp, high, 0) - value) / (picked(xp, high, 0) - start))
    first, last, ending = _element(xp, 0), _element(xp, count - 1), _element(fp, count - 1)
    before = _element(fp, 0) if left is None else left
    behind = ending if right is None else where(x > last, right, ending)
    # NaN compares false with both ends, and stays NaN between any two values.
    return where(x < first, before, where(x >= last, behind, between))


def _element(a: Any, place: Any) -> Any:
    """Returns one element of a vector, selected by an index that may be a traced value."""
    return picked(a, a.builder.lift(place), 0) if isinstance(a, Array) else a[place]


def histogram(a: Array, bins: Any = 10, range: Any = None, weights: Any = None, density: Any = None) -> Any:  # noqa: A002
    """Computes `np.histogram` with a range, or with bounds: the counts, and the bounds."""
    if density:
        raise Untraceable("np.histogram of densities")
    a = a.reshape(-1)
    if isinstance(bins, int):
        if range is None:
            raise Untraceable("np.histogram without a range, which values decide")
        (low, high), count = range, bins
        bounds = linspace(a.builder, low, high, bins + 1)
        number = cast(np.floor((a - low) * (bins / (high - low))), np.int64)
    else:
        bounds, count = bins, _length(bins) - 1
        low, high = _element(bounds, 0), _element(bounds, count)
        number = searchsorted(bounds, a, "right") - 1
    inside = np.logical_and(a >= low, a <= high)
    number = where(inside, np.minimum(number, count - 1), 0)
    one = cast(inside, np.int64) if weights is None else where(inside, weights, 0.0)
    return _counts(number, one, count), bounds


def _counts(number: Array, summands: Array, count: Any) -> Array:
    if summands.dtype.kind == "f":
        return counted(number, summands, count)
    return number.builder.add("scatter", [number, summands], [count], np.int64)


TABLES: dict[str, Callable[..., Any]] = {
    "searchsorted": searchsorted, "digitize": digitize, "interp": interp, "histogram": histogram,
}  # fmt: skip
"""Implementations of NumPy functions, by name."""
