"""Basic operations of traced arrays, from which all others are composed."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelmate.synthesis.arrays import Array, Builder, broadcast, cast
from kernelmate.synthesis.graph import BITWISE
from kernelmate.synthesis.sizes import Untraceable, product, text_of
from kernelmate.synthesis.ufuncs import weak_type

if TYPE_CHECKING:
    from kernelmate.synthesis.loops import TracedLoop


def traced_of(*values: Any) -> Array:
    """Returns the first traced array among the arguments, whose builder records operations."""
    return next(value for value in values if isinstance(value, Array))


def broadcast_to(array: Array, shape: Sequence[int]) -> Array:
    """Broadcasts the array to a larger shape."""
    wide = broadcast([array.shape, tuple(shape)])
    if [text_of(side) for side in wide] == [text_of(side) for side in array.shape]:
        return array
    truth = array.dtype.kind == "b"
    zero = array.builder.add("constant", (), wide, array.dtype, (False if truth else 0,))
    return array.builder.add("map", [array, zero], wide, array.dtype, ("logical_or" if truth else "add",))


def where(condition: Any, x: Any = None, y: Any = None) -> Array:
    """Selects from two arrays element by element."""
    if x is None or y is None:
        raise Untraceable("np.where with a condition alone")
    builder = traced_of(condition, x, y).builder
    args = [builder.lift(one) for one in (condition, x, y)]
    kinds = [one if weak_type(one) in (int, float) else arg.dtype for one, arg in zip((x, y), args[1:], strict=True)]
    return builder.add("map", args, broadcast([one.shape for one in args]), np.result_type(*kinds), ("where",))


def axes_of(array: Array, axis: Any) -> list[int]:
    """Returns the axes that an `axis` argument names, counted from the front."""
    if axis is None:
        return list(range(array.ndim))
    several = axis if isinstance(axis, tuple | list) else (axis,)
    return sorted(operator.index(one) % array.ndim for one in several)


def reduced(a: Any, kind: str, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: Any = False, initial: Any = None, where: Any = True) -> Array:  # fmt: skip
    """Reduces an array over one or more axes, the last axis first."""
    if kind in BITWISE and out is None and where is True and dtype is None and initial in (None, np._NoValue):
        return _bits_reduced(a, kind, axis, keepdims=bool(keepdims))
    another = dtype is not None and (np.dtype(dtype).kind == "f") != (a.dtype.kind == "f")
    if kind not in ("sum", "prod", "max", "min") or out is not None or where is not True or another:
        raise Untraceable(
            f"the reduction {kind}"
            + (" with where, out or another kind of dtype" if kind in ("sum", "max", "min") else "")
        )
    result: Array = a
    wanted = axes_of(a, axis)
    if a.dtype.kind in "bu" or (a.dtype.kind == "i" and a.dtype.itemsize < 8 and kind in ("sum", "prod")):
        result = cast(a, np.int64)
    for one in reversed(wanted):
        result = reduced_along(result, kind, one)
    result = with_axes_kept(result, a, axis) if keepdims else result
    if _is_neutral(kind, initial):
        return result
    largest = float(np.finfo(np.float32).max)  # a bound beyond it would be infinite in a kernel's float
    bound = min(max(initial, -largest), largest) if abs(initial) < np.inf else initial
    combined: Array = COMBINATIONS[kind](result, bound)
    return combined


def _bits_reduced(a: Array, kind: str, axis: Any, *, keepdims: bool) -> Array:
    """Reduces integers by a bitwise operation, in at least 32 bits."""
    if a.dtype.kind not in "biu":
        raise Untraceable(f"the reduction {BITWISE[kind].__name__} of {a.dtype}")
    result = a if a.dtype.itemsize >= np.dtype(np.int32).itemsize else cast(a, np.int32)
    for one in reversed(axes_of(a, axis)):
        result = reduced_along(result, kind, one)
    return cast(with_axes_kept(result, a, axis) if keepdims else result, a.dtype)


COMBINATIONS: dict[str, np.ufunc] = {"sum": np.add, "prod": np.multiply, "max": np.maximum, "min": np.minimum}
"""Ufuncs that combine two elements, by reduction."""


_NEUTRAL = {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf}


def _is_neutral(kind: str, initial: Any) -> bool:
    """Returns True if a reduction has no initial value, or the neutral one."""
    if initial is None or initial is np._NoValue:
        return True
    return isinstance(initial, int | float) and initial == _NEUTRAL[kind]


def with_axes_kept(result: Array, a: Array, axis: Any) -> Array:
    """Returns a reduction's result with an axis of length 1 for each reduced one (`keepdims`)."""
    gone, rest = axes_of(a, axis), iter(range(result.ndim))
    return result.view_of([None if one in gone else next(rest) for one in range(a.ndim)])


def reduced_along(a: Array, kind: str, axis: int, dtype: Any = None) -> Array:
    """Reduces over one axis; the reduction of a transposed array is the transposed reduction."""
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
        rest = reduced_along(Array(a.builder, node.args[0]), kind, gone, dtype)
        return rest.view_of([one - (one > gone) for one in order])
    shape = a.shape
    if (
        text_of(shape[axis]) == "0" and kind in ("sum", "prod") and not a.loops
    ):  # as before the first of `l[i, :i] @ x[:i]`
        return a.builder.add("constant", (), shape[:axis] + shape[axis + 1 :], dtype or a.dtype, (int(kind == "prod"),))
    if text_of(shape[axis]) == "1" and kind in COMBINATIONS and not a.loops:
        return cast(a.view_of([one for one in range(a.ndim) if one != axis]), dtype or a.dtype)
    return a.builder.add("reduce", [a], shape[:axis] + shape[axis + 1 :], dtype or a.dtype, (kind, axis))


def reshape(a: Array, *shape: Any, order: str = "C", **_: Any) -> Array:
    """Reshapes an array; the result is a view if only axes of length 1 are added or removed."""
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
    """Returns the extent that -1 stands for."""
    mine, theirs = [text_of(one) for one in a.shape], [text_of(one) for one in rest]
    for one in theirs:
        if one in mine:
            mine.remove(one)
        elif one != "1":
            return product(a.shape, a.builder.scalar) // product(tuple(rest), a.builder.scalar)
    return product(tuple(a.builder.dim(one) for one in mine), a.builder.scalar)


def transpose(a: Array, *axes: Any) -> Array:
    """Permutes the axes."""
    order = axes[0] if len(axes) == 1 and isinstance(axes[0], tuple | list) else axes
    if not order or order == (None,):
        return a.T
    return a.view_of([int(one) % a.ndim for one in order])


def expand_dims(a: Array, axis: Any) -> Array:
    """Adds axes of length 1."""
    several = axis if isinstance(axis, tuple | list) else (axis,)
    rank = a.ndim + len(several)
    new, rest = {one % rank for one in several}, iter(range(a.ndim))
    return a.view_of([None if one in new else next(rest) for one in range(rank)])


def picked(a: Array, index: Any, axis: int) -> Array:
    """Takes elements of an axis by index; the axes of the index replace the axis."""
    index = a.builder.lift(index)
    if index.dtype.kind not in "iu":
        raise Untraceable("indexing by other than whole numbers")
    a.shared = True
    return a.builder.add("pick", [a, index], [*a.shape[:axis], *index.shape, *a.shape[axis + 1 :]], a.dtype, (axis,))


def take(a: Array, indices: Any, axis: Any = None, **_: Any) -> Array:
    """Takes rows of an array by index."""
    index = a.builder.lift(indices)
    if index.dtype.kind not in "iu" or (axis is None and a.ndim > 1):
        raise Untraceable("np.take from an array whose axes it merges")
    if axis not in (None, 0, -a.ndim):
        return picked(a, index, int(axis) % a.ndim)
    return a.builder.add("take", [a, index], index.shape + a.shape[1:], a.dtype)


def gathered(a: Array, index: Array) -> Array:
    """Takes one element of each row by index."""
    if index.dtype.kind not in "iu" or index.ndim != a.ndim - 1:
        raise Untraceable("indexing of this shape")
    return a.builder.add("gather", [a, index], index.shape, a.dtype)


def segmented(offsets: Array, values: Any, rows: Any, kind: str = "sum", fewest: int = 0) -> Array:
    """Reduces an array's elements, or its rows, between consecutive offsets.

    Args:
        offsets: a vector of rows + 1 integers; or of `rows` integers, in which case the last segment extends to the
            end.
        values: an array whose first axis is reduced.
        rows: the number of results along that axis.
        kind: `sum`, `max` or `min`.
        fewest: the minimum number of elements of a segment, whatever the next offset.
    """
    made = offsets.builder.lift(values)
    if not made.ndim or (kind != "sum" and made.dtype.kind != "f"):
        raise Untraceable(f"the {kind} between offsets of other than an array{' of floats' * (kind != 'sum')}")
    made = made if made.dtype.kind == "f" else cast(made, np.int64)
    return made.builder.add("segment", [offsets, made], [rows, *made.shape[1:]], made.dtype, (kind, fewest))


def spread(arg: Array, loops: tuple[TracedLoop, ...], rank: int) -> int:
    """Returns the node of an array with an axis for each loop, and `rank` axes of its own.

    New axes of length 1 precede its own axes.
    """
    if not arg.loops:
        return arg.node
    front: list[int | None] = [arg.loops.index(loop) if loop in arg.loops else None for loop in loops]
    own = [len(arg.loops) + place for place in range(arg.ndim)]
    return view_of(arg.builder, arg.node, [*front, *[None] * (rank - arg.ndim), *own], loops).node


def view_of(builder: Builder, node: int, axes: Sequence[int | None], loops: tuple[TracedLoop, ...]) -> Array:
    """Returns a view of a node, whose first axes are those of loops."""
    source = builder.nodes[node]
    if builder.batches.get(node, ()) == loops and list(axes) == list(range(len(source.shape))):
        return Array(builder, node)
    if source.op == "view":
        axes, node = [None if one is None else source.data[one] for one in axes], source.args[0]  # type: ignore[misc]
        source = builder.nodes[node]
    sides = [1 if one is None else builder.dim(source.shape[one]) for one in axes]
    return builder.put("view", [node], sides, source.dtype, axes, loops)
