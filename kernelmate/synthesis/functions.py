"""NumPy functions and methods on traced arrays."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import numpy as np

from kernelmate.synthesis.arrays import Array, broadcast, cast
from kernelmate.synthesis.index_maps import AxisMap
from kernelmate.synthesis.indexed import INDEXED, along, turned
from kernelmate.synthesis.joining import PARTS
from kernelmate.synthesis.masks import MASKS
from kernelmate.synthesis.primitives import (
    axes_of,
    broadcast_to,
    expand_dims,
    gathered,
    reduced,
    reduced_along,
    reshape,
    take,
    traced_of,
    transpose,
    where,
    with_axes_kept,
)
from kernelmate.synthesis.sizes import Dim, Untraceable, product, text_of
from kernelmate.synthesis.slices import diff
from kernelmate.synthesis.sorting import argpartition, argsort, median, partition, percentile, quantile, sort
from kernelmate.synthesis.ufuncs import mapped


def _count(a: Array, axis: Any) -> int:
    return product(tuple(a.shape[one] for one in axes_of(a, axis)), a.builder.scalar)


def mean(a: Array, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False) -> Array:
    """Computes the mean. Kept axes are added last, so that means with and without them share nodes."""
    found: Array = reduced(a, "sum", axis, dtype, out) / _count(a, axis)
    return with_axes_kept(found, a, axis) if keepdims else found


def var(a: Array, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False) -> Array:
    """Computes the variance in two passes."""
    centred = a - mean(a, axis, keepdims=True)
    found: Array = reduced(centred * centred, "sum", axis, dtype, out) / (_count(a, axis) - ddof)
    return with_axes_kept(found, a, axis) if keepdims else found


def _reduction(kind: str) -> Callable[..., Array]:
    def function(a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False, **rest: Any) -> Array:  # fmt: skip
        return reduced(a, kind, axis, dtype, out, keepdims, **rest)

    return function


def _position(kind: str) -> Callable[..., Array]:
    def function(a: Array, axis: Any = None, out: Any = None, keepdims: Any = False) -> Array:
        if out is not None:
            raise Untraceable(f"np.{kind} with out")
        flat = ravel(a) if axis is None else a
        place = 0 if axis is None else operator.index(axis) % a.ndim
        whole = cast(flat, np.int64) if flat.dtype.kind in "bu" else flat
        found = reduced_along(whole, kind, place, np.dtype(np.int64))
        return with_axes_kept(found, a, axis) if keepdims else found

    return function


def _any(a: Array, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    return reduced(cast(_truth(a), np.int64), "sum", axis, None, out, keepdims) > 0


def _all(a: Array, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    return reduced(cast(np.logical_not(_truth(a)), np.int64), "sum", axis, None, out, keepdims) == 0


def _counted(a: Array, axis: Any = None, *, keepdims: Any = False) -> Array:
    """Counts the elements that are not zero."""
    return reduced(cast(_truth(a), np.int64), "sum", axis, keepdims=keepdims)


def _truth(a: Array) -> Any:
    return a if a.dtype.kind == "b" else a != 0


def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:  # noqa: A002
    """Limits values to a lower and an upper bound."""
    low, high = (min if a_min is None else a_min), (max if a_max is None else a_max)
    a = a if low is None else np.maximum(a, low)
    return a if high is None else np.minimum(a, high)


def swapaxes(a: Array, axis1: int, axis2: int) -> Array:
    """Exchanges two axes."""
    order = list(range(a.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return a.view_of(order)


def rot90(m: Array, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Array:
    """Rotates an array by right angles in the plane of two axes."""
    turns = operator.index(k) % 4
    first, second = (operator.index(one) % m.ndim for one in axes)
    if turns % 2 == 0:
        return turned(m, (first, second)) if turns else m
    return turned(swapaxes(m, first, second), first if turns == 1 else second)


def fill_diagonal(a: Array, val: Any, wrap: Any = False) -> None:
    """Assigns a number to the diagonal of a matrix."""
    if a.ndim != 2 or wrap or (isinstance(val, Array) and val.ndim):
        raise Untraceable("np.fill_diagonal of other than a matrix by a number")
    rows, columns = (a.builder.add("iota", (), [side], np.int64) for side in a.shape)
    a.assign(where(expand_dims(rows, 1) == columns, val, Array(a.builder, a.node)))


def diagonal(a: Array, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Array:
    """Returns the diagonal of a square matrix."""
    if a.ndim != 2 or offset or (axis1 % 2, axis2 % 2) != (0, 1) or text_of(a.shape[0]) != text_of(a.shape[1]):
        raise Untraceable("another diagonal than the main one of a square matrix")
    entry = AxisMap("0", ((0, 1),)).text()
    return a.builder.add("window", [a], a.shape[:1], a.dtype, (entry, entry))


def _diag(v: Array, k: int = 0) -> Array:
    """Computes `np.diag`: the diagonal of a matrix, or a matrix with a vector on its diagonal."""
    if v.ndim != 1 or k:
        return diagonal(v, k)
    place = v.builder.add("iota", (), v.shape, np.int64)
    return where(expand_dims(place, 1) == place, v, cast(v.builder.lift(0), v.dtype))


def _covariance(m: Any, y: Any = None, rowvar: Any = True, bias: Any = False, ddof: Any = None) -> tuple[Array, Array]:
    """Returns the rows of observations less their means, and by what their products' sums are divided."""
    if y is not None or m.ndim != 2:
        raise Untraceable("np.cov of other than one matrix")
    rows = m if rowvar else m.view_of([1, 0])
    return rows - mean(rows, 1, keepdims=True), rows.shape[1] - ((0 if bias else 1) if ddof is None else ddof)


def cov(m: Array, *args: Any, **keywords: Any) -> Array:
    """Computes the covariances of rows, or of columns."""
    centred, count = _covariance(m, *args, **keywords)
    found: Array = matmul(centred, swapaxes(centred, 0, 1)) / count
    return found


def corrcoef(x: Array, y: Any = None, rowvar: Any = True) -> Any:
    """Computes the correlations of rows, or of columns, which rounding keeps within -1 and 1."""
    centred, _ = _covariance(x, y, rowvar)
    norm: Any = np.sqrt(reduced(centred * centred, "sum", 1))
    return clip(matmul(centred, swapaxes(centred, 0, 1)) / expand_dims(norm, 1) / norm, -1, 1)


def squeeze(a: Array, axis: Any = None) -> Array:
    """Removes axes of length 1."""
    gone = axes_of(a, axis) if axis is not None else [i for i, side in enumerate(a.shape) if text_of(side) == "1"]
    if any(text_of(a.shape[one]) != "1" for one in gone):
        raise Untraceable("np.squeeze of an axis that is not always of length 1")
    return a.view_of([one for one in range(a.ndim) if one not in gone])


def take_along_axis(arr: Array, indices: Array, axis: Any = -1) -> Array:
    """Takes elements of an axis by index; a single index per row becomes a `gather` operation."""
    if axis is None or indices.ndim != arr.ndim:
        raise Untraceable("np.take_along_axis of an array whose axes it merges")
    if axis not in (-1, arr.ndim - 1) or text_of(indices.shape[-1]) != "1":
        return along(arr, indices, int(axis) % arr.ndim)
    return expand_dims(gathered(arr, squeeze(indices, -1)), -1)


def matmul(a: Array, b: Array) -> Array:
    """Computes a matrix product in the product's type: integers keep their width."""
    if b.ndim == 1:
        return _summed(a * b, -1)
    if a.ndim == 1:
        return _summed(expand_dims(a, -1) * b, -2)
    right = expand_dims(swapaxes(b, -1, -2), -3)
    return _summed(expand_dims(a, -2) * right, -1)


def _summed(product_: Array, *axes: int) -> Array:
    for axis in sorted((one % product_.ndim for one in axes), reverse=True):
        product_ = reduced_along(product_, "sum", axis)
    return product_


def einsum(subscripts: Any, *operands: Any, **_: Any) -> Array:
    """Computes `np.einsum`: products over all letters, summed over those that the result lacks."""
    if not isinstance(subscripts, str):
        raise Untraceable("np.einsum with lists of axes")
    given, arrow, result = subscripts.replace(" ", "").partition("->")
    terms = given.split(",")
    if "." in given:
        terms = [_spelled_out(term, np.ndim(one)) for term, one in zip(terms, operands, strict=True)]
        rest = max((re.sub("[a-zA-Z]", "", term) for term in terms), key=len)
        given, result = ",".join(terms), result.replace("...", rest)
    if not arrow:
        result = "".join(sorted(x for x in set(given) - {","} if given.count(x) == 1))
    if any(len(set(term)) != len(term) for term in terms):
        raise Untraceable("np.einsum with a letter twice in one operand")
    longest = max(terms, key=lambda term: len(set(term) - set(result)))  # whose order of the sums suits its memory
    letters = result + "".join(dict.fromkeys(one for one in longest + given if one not in result + ","))
    if all(set(term) <= set(terms[0]) for term in terms):
        letters = terms[0]  # in the order of the operand that has them all
    builder = traced_of(*operands).builder
    views = []
    for term, one in zip(terms, operands, strict=True):
        views.append(builder.lift(one).view_of([term.index(x) if x in term else None for x in letters]))
    product_ = views[0]
    for view in views[1:]:
        product_ = product_ * view
    summed = tuple(place for place, one in enumerate(letters) if one not in result)
    kept = [one for one in letters if one in result]
    found = _summed(product_, *summed)
    return found.view_of([kept.index(one) for one in result])


def _spelled_out(term: str, rank: int) -> str:
    """Returns a term of `einsum` with a digit for each axis of its ellipsis, the last axis first."""
    axes = rank - (len(term) - 3 if "..." in term else len(term))
    return term.replace("...", "".join(str(place) for place in reversed(range(axes))))


def filled(like: Array, value: Any, dtype: Any = None, shape: Any = None) -> Array:
    """Returns an array filled with a value, in another array's shape or a given one."""
    sides = like.shape if shape is None else tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if isinstance(value, Array | Dim):
        return broadcast_to(cast(like.builder.lift(value), dtype or like.dtype), sides)
    return like.builder.add("constant", (), sides, dtype or like.dtype, (value,))


def _broadcast_arrays(*several: Any, **_: Any) -> tuple[Array, ...]:
    """Returns arrays in the shape to which they broadcast."""
    builder = next(one.builder for one in several if isinstance(one, Array))
    arrays = [builder.lift(one) for one in several]
    shape = broadcast([one.shape for one in arrays])
    return tuple(broadcast_to(one, shape) for one in arrays)


def copied(a: Array, *_: Any, **__: Any) -> Array:
    """Returns a copy."""
    return Array(a.builder, a.node)


def astype(a: Array, dtype: Any, *_: Any, copy: bool = True, **__: Any) -> Array:
    """Converts an array to another dtype."""
    return copied(cast(a, dtype)) if copy else cast(a, dtype)


def ravel(a: Array, *_: Any, **__: Any) -> Array:
    """Flattens an array."""
    return reshape(a, -1)


def _dot(a: Any, b: Any) -> Any:
    if not isinstance(a, Array) or not isinstance(b, Array) or not a.ndim or not b.ndim:
        return a * b
    return matmul(a, b)


def trapezoid(y: Array, x: Any = None, dx: Any = 1.0, axis: Any = -1) -> Any:
    """Computes the integral along an axis by the trapezoidal rule."""
    place = operator.index(axis) % y.ndim
    above, below = ([slice(None)] * place + [part] for part in (slice(1, None), slice(None, -1)))
    if isinstance(x, Array):
        dx = diff(x, axis=0 if x.ndim == 1 else place)
        dx = dx[(slice(None), *[None] * (y.ndim - place - 1))] if dx.ndim == 1 else dx
    elif x is not None:
        raise Untraceable("np.trapezoid along positions that are not an array")
    return reduced(dx * (y[tuple(above)] + y[tuple(below)]) / 2.0, "sum", place)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": _reduction("sum"), "prod": _reduction("prod"), "max": _reduction("max"), "amax": _reduction("max"),
    "min": _reduction("min"), "amin": _reduction("min"), "argmax": _position("argmax"), "argmin": _position("argmin"),
    "any": _any, "all": _all, "count_nonzero": _counted,
    "ptp": lambda a, axis=None: reduced(a, "max", axis) - reduced(a, "min", axis), "mean": mean, "var": var, "where": where, "clip": clip,
    "std": lambda a, *args, **keywords: np.sqrt(var(a, *args, **keywords)),
    "reshape": lambda a, shape=None, order="C", **more: reshape(a, more.get("newshape", shape), order=order),
    "transpose": lambda a, axes=None: transpose(a, axes), "swapaxes": swapaxes, "expand_dims": expand_dims,
    "squeeze": squeeze, "ravel": ravel, "take_along_axis": take_along_axis, "take": take, "einsum": einsum, "dot": _dot, "vdot": _dot,
    "broadcast_to": lambda array, shape, **_: broadcast_to(array, shape), "broadcast_arrays": _broadcast_arrays, "copy": copied, "astype": astype, "shape": lambda a: a.shape,
    "diag": _diag, "diagonal": diagonal, "trace": lambda a: reduced(diagonal(a), "sum", None), "cov": cov, "corrcoef": corrcoef,
    "rot90": rot90, "fill_diagonal": fill_diagonal, "median": median, "quantile": quantile, "percentile": percentile, "sort": sort, "argsort": argsort, "argpartition": argpartition, "partition": partition,
    "ndim": lambda a: a.ndim, "size": lambda a: a.size, "round": lambda a, decimals=0, out=None: _round(a, decimals),
    "zeros_like": lambda a, dtype=None, **_: filled(a, 0, dtype), "ones_like": lambda a, dtype=None, **_: filled(a, 1, dtype),
    "empty_like": lambda a, dtype=None, **_: filled(a, 0, dtype),
    "full_like": lambda a, value, dtype=None, **_: filled(a, value, dtype),
    "trapezoid": trapezoid, "trapz": trapezoid,
    **PARTS, **INDEXED, **MASKS,
}  # fmt: skip
"""Implementations of NumPy functions, by name."""


def _round(a: Array, decimals: Any) -> Any:
    if decimals:
        raise Untraceable("np.round to decimals")
    return mapped(a.builder, np.rint, (a,))


METHODS: dict[str, Callable[..., Any]] = {
    **{name: FUNCTIONS[name] for name in ("diagonal", "trace", "sum", "prod", "max", "min", "argmax", "argmin", "any", "all", "mean", "var", "std", "swapaxes", "squeeze", "ravel", "copy", "dot", "astype", "clip", "round", "take", "cumsum", "cumprod", "repeat")},
    "reshape": reshape, "transpose": transpose, "flatten": lambda a, *_: copied(ravel(a)),
}  # fmt: skip
"""Implementations of array methods, by name."""
