"""NumPy functions and methods on traced arrays."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernelmate.synthesis.arrays import Array, broadcast, cast, mapped, weak_type
from kernelmate.synthesis.indexed import INDEXED, along, backwards, by_number, picked
from kernelmate.synthesis.loops import chosen as loop_chosen
from kernelmate.synthesis.loops import depends
from kernelmate.synthesis.masks import MASKS, masked
from kernelmate.synthesis.sizes import Dim, Untraceable, product, text_of
from kernelmate.synthesis.slices import PARTS, part_of


def traced_of(*values: Any) -> Array:
    """Returns the first traced array among arguments, which knows the graph."""
    return next(value for value in values if isinstance(value, Array))


def broadcast_to(array: Array, shape: Sequence[int]) -> Array:
    """The array in a larger shape."""
    wide = broadcast([array.shape, tuple(shape)])
    if [text_of(side) for side in wide] == [text_of(side) for side in array.shape]:
        return array
    truth = array.dtype.kind == "b"
    zero = array.builder.add("constant", (), wide, array.dtype, (False if truth else 0,))
    return array.builder.add("map", [array, zero], wide, array.dtype, ("logical_or" if truth else "add",))


def axes_of(array: Array, axis: Any) -> list[int]:
    """The axes that an argument names, as positions from the front."""
    if axis is None:
        return list(range(array.ndim))
    several = axis if isinstance(axis, tuple | list) else (axis,)
    return sorted(operator.index(one) % array.ndim for one in several)


def reduced(a: Any, kind: str, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None, where: Any = True) -> Array:  # fmt: skip
    """A reduction over one or more axes, the last one first."""
    another = dtype is not None and (np.dtype(dtype).kind == "f") != (a.dtype.kind == "f")
    if kind not in ("sum", "prod", "max", "min") or out is not None or where is not True or another:
        raise Untraceable(
            f"the reduction {kind}"
            + (" with where, out or another kind of dtype" if kind in ("sum", "max", "min") else "")
        )
    neutral = {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf}[kind]
    if isinstance(initial, int | float) and initial != neutral:
        raise Untraceable(f"the reduction {kind} with an initial value")
    result: Array = a
    wanted = axes_of(a, axis)
    if a.dtype.kind in "bu" or (a.dtype.kind == "i" and a.dtype.itemsize < 8 and kind in ("sum", "prod")):
        result = cast(a, np.int64)
    for one in reversed(wanted):
        result = _reduced_along(result, kind, one)
    return _kept(result, a, axis) if keepdims else result


def _kept(result: Array, a: Array, axis: Any) -> Array:
    """Returns a reduction's result with an axis of length 1 for each reduced one (`keepdims`)."""
    gone, rest = axes_of(a, axis), iter(range(result.ndim))
    return result.view_of([None if one in gone else next(rest) for one in range(a.ndim)])


def _reduced_along(a: Array, kind: str, axis: int, dtype: Any = None) -> Array:
    """Reduces over one axis, to its own dtype or a given one; for a transposed array, transposes its reduction."""
    node = a.builder.nodes[a.node]
    if (
        node.op == "view"
        and not a.loops
        and not a.builder.batches.get(node.args[0])
        and None not in node.data
        and len(node.data) == len(a.builder.nodes[node.args[0]].shape)
    ):
        order = [int(one) for one in node.data if one is not None]
        gone = order.pop(axis)
        rest = _reduced_along(Array(a.builder, node.args[0]), kind, gone, dtype)
        return rest.view_of([one - (one > gone) for one in order])
    shape = a.shape
    return a.builder.add("reduce", [a], shape[:axis] + shape[axis + 1 :], dtype or a.dtype, (kind, axis))


def _count(a: Array, axis: Any) -> int:
    return product(tuple(a.shape[one] for one in axes_of(a, axis)), a.builder.scalar)


def mean(a: Array, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = False) -> Array:
    """The sum over the number of elements; axes are kept last, so that a mean with them is the same node as one without."""
    found: Array = reduced(a, "sum", axis, dtype, out) / _count(a, axis)
    return _kept(found, a, axis) if keepdims else found


def var(a: Array, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = False) -> Array:
    """The variance in two passes."""
    centred = a - mean(a, axis, keepdims=True)
    found: Array = reduced(centred * centred, "sum", axis, dtype, out) / (_count(a, axis) - ddof)
    return _kept(found, a, axis) if keepdims else found


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
        found = _reduced_along(whole, kind, place, np.dtype(np.int64))
        return _kept(found, a, axis) if keepdims else found

    return function


def _any(a: Array, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    return reduced(cast(_truth(a), np.int64), "sum", axis, None, out, keepdims) > 0


def _all(a: Array, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    return reduced(cast(np.logical_not(_truth(a)), np.int64), "sum", axis, None, out, keepdims) == 0


def _counted(a: Array, axis: Any = None, *, keepdims: Any = False) -> Array:
    """Number of elements that are not zero."""
    return reduced(cast(_truth(a), np.int64), "sum", axis, keepdims=keepdims)


def _truth(a: Array) -> Any:
    return a if a.dtype.kind == "b" else a != 0


def where(condition: Any, x: Any = None, y: Any = None) -> Array:
    """Selects from two arrays element by element."""
    if x is None or y is None:
        raise Untraceable("np.where with a condition alone")
    builder = traced_of(condition, x, y).builder
    args = [builder.lift(one) for one in (condition, x, y)]
    kinds = [one if weak_type(one) in (int, float) else arg.dtype for one, arg in zip((x, y), args[1:], strict=True)]
    return builder.add("map", args, broadcast([one.shape for one in args]), np.result_type(*kinds), ("where",))


def clip(a: Any, a_min: Any = None, a_max: Any = None, *, min: Any = None, max: Any = None) -> Any:  # noqa: A002
    """Between two bounds."""
    low, high = (min if a_min is None else a_min), (max if a_max is None else a_max)
    a = a if low is None else np.maximum(a, low)
    return a if high is None else np.minimum(a, high)


def reshape(a: Array, *shape: Any, order: str = "C", **_: Any) -> Array:
    """Reshapes; a view if only axes of length 1 are added or removed."""
    wanted = list(shape[0]) if len(shape) == 1 and isinstance(shape[0], tuple | list) else list(shape)
    if order != "C":
        raise Untraceable("np.reshape in another order than C")
    if any(int(one) == -1 for one in wanted):
        place = [int(one) for one in wanted].index(-1)
        rest = [one for index, one in enumerate(wanted) if index != place]
        wanted[place] = _left_over(a, rest)
    before = [axis for axis, side in enumerate(a.shape) if text_of(side) != "1"]
    after = [text_of(one) for one in wanted if text_of(one) != "1"]
    if [text_of(a.shape[axis]) for axis in before] == after:
        kept = iter(before)
        return a.view_of([None if text_of(one) == "1" else next(kept) for one in wanted])
    a.shared = True
    made = a.builder.add("reshape", [a], wanted, a.dtype)
    made.shared = True
    return made


def _left_over(a: Array, rest: list[Any]) -> int:
    """Returns the extent that -1 denotes."""
    mine, theirs = [text_of(one) for one in a.shape], [text_of(one) for one in rest]
    for one in theirs:
        if one in mine:
            mine.remove(one)
        elif one != "1":
            return product(a.shape, a.builder.scalar) // product(tuple(rest), a.builder.scalar)
    return product(tuple(a.builder.dim(one) for one in mine), a.builder.scalar)


def transpose(a: Array, *axes: Any) -> Array:
    """The axes in another order."""
    order = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes
    if not order or order == (None,):
        return a.T
    return a.view_of([int(one) % a.ndim for one in order])


def swapaxes(a: Array, axis1: int, axis2: int) -> Array:
    """Two axes exchanged."""
    order = list(range(a.ndim))
    order[axis1], order[axis2] = order[axis2], order[axis1]
    return a.view_of(order)


def expand_dims(a: Array, axis: Any) -> Array:
    """With new axes of length 1."""
    several = axis if isinstance(axis, tuple | list) else (axis,)
    rank = a.ndim + len(several)
    new, rest = {one % rank for one in several}, iter(range(a.ndim))
    return a.view_of([None if one in new else next(rest) for one in range(rank)])


def squeeze(a: Array, axis: Any = None) -> Array:
    """Without axes of length 1."""
    gone = axes_of(a, axis) if axis is not None else [i for i, side in enumerate(a.shape) if text_of(side) == "1"]
    if any(text_of(a.shape[one]) != "1" for one in gone):
        raise Untraceable("np.squeeze of an axis that is not always of length 1")
    return a.view_of([one for one in range(a.ndim) if one not in gone])


def take(a: Array, indices: Any, axis: Any = None, **_: Any) -> Array:
    """Rows of an array, by their numbers."""
    index = a.builder.lift(indices)
    if index.dtype.kind not in "iu" or (axis is None and a.ndim > 1):
        raise Untraceable("np.take from an array whose axes it merges")
    if axis not in (None, 0, -a.ndim):
        return picked(a, index, int(axis) % a.ndim)
    return a.builder.add("take", [a, index], index.shape + a.shape[1:], a.dtype)


def subscript(a: Array, key: Any) -> Any:
    """Whole axes, new axes, parts, elements of an axis by number, one of each row by `x[np.arange(rows), index]`."""
    chosen = masked(a, key)
    if chosen is not None:
        return chosen
    keys = list(key) if isinstance(key, tuple) else [key]
    named = sum(one is not None and one is not Ellipsis for one in keys)
    if any(one is Ellipsis for one in keys):
        place = next(index for index, one in enumerate(keys) if one is Ellipsis)
        keys[place : place + 1] = [slice(None)] * (a.ndim - named)
    if a.builder.open and depends(keys):
        keys += [slice(None)] * (a.ndim - len(keys))
        return loop_chosen(a, keys)
    if len(keys) == a.ndim == 2 and all(isinstance(one, Array) for one in keys) and _is_iota(keys[0]):
        return gathered(a, keys[1])
    keys += [slice(None)] * (a.ndim - sum(one is not None for one in keys))
    if isinstance(keys[0], Array) and len(keys) == a.ndim and _all_whole(keys[1:], a.shape[1:]):
        return take(a, keys[0], 0)
    for known in (by_number, backwards):
        found = known(a, keys)
        if found is not None:
            return found
    if sum(one is not None for one in keys) > a.ndim:
        raise Untraceable("more indices than axes")
    sides = iter(a.shape)
    if not all(one is None or _keeps(one, next(sides)) for one in keys):
        return part_of(a, keys)
    axes: list[int | None] = []
    axis = 0
    for one in keys:
        if one is None:
            axes.append(None)
            continue
        axes += [axis] if isinstance(one, slice) else []
        axis += 1
    return a.view_of(axes)


def _keeps(key: Any, side: int) -> bool:
    """Returns True if a key takes a whole axis, or the only element of one."""
    single = isinstance(key, int) and text_of(side) == "1" and int(key) in (0, -1)
    return single or (isinstance(key, slice) and _whole(key, side))


def _all_whole(keys: Sequence[Any], sides: Sequence[int]) -> bool:
    return all(isinstance(one, slice) and _whole(one, side) for one, side in zip(keys, sides, strict=True))


def _whole(part: slice, side: int) -> bool:
    if any(isinstance(one, Array) for one in (part.start, part.stop, part.step)):
        raise Untraceable("a slice whose bound is a value")
    start, stop = part.start in (None, 0), part.stop is None or text_of(part.stop) == text_of(side)
    return start and stop and part.step in (None, 1)


def _is_iota(a: Array) -> bool:
    return a.builder.nodes[a.node].op == "iota" and not a.loops


def gathered(a: Array, index: Array) -> Array:
    """One element of each row."""
    if index.dtype.kind not in "iu" or index.ndim != a.ndim - 1:
        raise Untraceable("indexing of this shape")
    return a.builder.add("gather", [a, index], index.shape, a.dtype)


def take_along_axis(arr: Array, indices: Array, axis: Any = -1) -> Array:
    """Takes elements of an axis by index; one per row is a separate gather operation."""
    if axis is None or indices.ndim != arr.ndim:
        raise Untraceable("np.take_along_axis of an array whose axes it merges")
    if axis not in (-1, arr.ndim - 1) or text_of(indices.shape[-1]) != "1":
        return along(arr, indices, int(axis) % arr.ndim)
    return expand_dims(gathered(arr, squeeze(indices, -1)), -1)


def matmul(a: Array, b: Array) -> Array:
    """A product and a sum over the shared axis, in the type of the product: whole numbers keep their width."""
    if b.ndim == 1:
        return _summed(a * b, -1)
    if a.ndim == 1:
        return _summed(expand_dims(a, -1) * b, -2)
    right = expand_dims(swapaxes(b, -1, -2), -3)
    return _summed(expand_dims(a, -2) * right, -1)


def _summed(product_: Array, *axes: int) -> Array:
    for axis in sorted((one % product_.ndim for one in axes), reverse=True):
        product_ = _reduced_along(product_, "sum", axis)
    return product_


def einsum(subscripts: Any, *operands: Any, **_: Any) -> Array:
    """Multiplies over all letters, and sums over those that the result lacks."""
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
    letters = result + "".join(sorted(set(given) - set(result) - {","}))
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
    """A term of `einsum` with a digit for each axis of its ellipsis, the last axis first."""
    axes = rank - (len(term) - 3 if "..." in term else len(term))
    return term.replace("...", "".join(str(place) for place in reversed(range(axes))))


def filled(like: Array, value: Any, dtype: Any = None, shape: Any = None) -> Array:
    """Returns an array of one value, in the shape of another one or a given one."""
    sides = like.shape if shape is None else tuple(shape) if isinstance(shape, tuple | list) else (shape,)
    if isinstance(value, Array | Dim):
        return broadcast_to(cast(like.builder.lift(value), dtype or like.dtype), sides)
    return like.builder.add("constant", (), sides, dtype or like.dtype, (value,))


def copied(a: Array, *_: Any, **__: Any) -> Array:
    """Returns a copy."""
    return Array(a.builder, a.node)


def astype(a: Array, dtype: Any, *_: Any, copy: bool = True, **__: Any) -> Array:
    """In another dtype."""
    return copied(cast(a, dtype)) if copy else cast(a, dtype)


def ravel(a: Array, *_: Any, **__: Any) -> Array:
    """Flattens an array of one axis."""
    return reshape(a, -1)


def _dot(a: Any, b: Any) -> Any:
    if not isinstance(a, Array) or not isinstance(b, Array) or not a.ndim or not b.ndim:
        return a * b
    return matmul(a, b)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sum": _reduction("sum"), "prod": _reduction("prod"), "max": _reduction("max"), "amax": _reduction("max"),
    "min": _reduction("min"), "amin": _reduction("min"), "argmax": _position("argmax"), "argmin": _position("argmin"),
    "any": _any, "all": _all, "count_nonzero": _counted,
    "ptp": lambda a, axis=None: reduced(a, "max", axis) - reduced(a, "min", axis), "mean": mean, "var": var, "where": where, "clip": clip,
    "std": lambda a, *args, **keywords: np.sqrt(var(a, *args, **keywords)),
    "reshape": lambda a, shape=None, order="C", **more: reshape(a, more.get("newshape", shape), order=order),
    "transpose": lambda a, axes=None: transpose(a, axes), "swapaxes": swapaxes, "expand_dims": expand_dims,
    "squeeze": squeeze, "ravel": ravel, "take_along_axis": take_along_axis, "take": take, "einsum": einsum, "dot": _dot, "vdot": _dot,
    "broadcast_to": lambda array, shape, **_: broadcast_to(array, shape), "copy": copied, "astype": astype, "shape": lambda a: a.shape,
    "ndim": lambda a: a.ndim, "size": lambda a: a.size, "round": lambda a, decimals=0, out=None: _round(a, decimals),
    "zeros_like": lambda a, dtype=None, **_: filled(a, 0, dtype), "ones_like": lambda a, dtype=None, **_: filled(a, 1, dtype),
    "empty_like": lambda a, dtype=None, **_: filled(a, 0, dtype),
    "full_like": lambda a, value, dtype=None, **_: filled(a, value, dtype),
    **PARTS, **INDEXED, **MASKS,
}  # fmt: skip
"""Functions of NumPy by name."""


def _round(a: Array, decimals: Any) -> Any:
    if decimals:
        raise Untraceable("np.round to decimals")
    return mapped(a.builder, np.rint, (a,))


METHODS: dict[str, Callable[..., Any]] = {
    **{name: FUNCTIONS[name] for name in ("sum", "prod", "max", "min", "argmax", "argmin", "any", "all", "mean", "var", "std", "swapaxes", "squeeze", "ravel", "copy", "dot", "astype", "clip", "round", "take", "cumsum", "cumprod", "repeat")},
    "reshape": reshape, "transpose": transpose, "flatten": lambda a, *_: copied(ravel(a)),
}  # fmt: skip
"""Methods of arrays by name."""
