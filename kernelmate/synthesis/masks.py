"""Elements selected by a mask, read and assigned, elements assigned by index, and NumPy's functions with masks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from kernelmate.synthesis.arrays import Array, cast
from kernelmate.synthesis.indexed import joint_numbers
from kernelmate.synthesis.primitives import broadcast_to, expand_dims, reduced, reshape, take, where
from kernelmate.synthesis.primitives import where as chosen
from kernelmate.synthesis.sizes import Untraceable, product, text_of
from kernelmate.synthesis.ufuncs import mapped


class Masked(NDArrayOperatorsMixin):
    """The elements of an array that a mask selects, kept at their positions.

    Args:
        values: an array with the elements; its elements where `mask` is False are meaningless.
        mask: booleans in the array's shape.
    """

    __array_priority__ = 2000

    def __init__(self, values: Array, mask: Array) -> None:
        self.values, self.mask = values, mask

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **keywords: Any) -> Any:
        """Applies an operation to masked elements and numbers, or to elements under the same mask."""
        alike = all(one.mask.node == self.mask.node for one in inputs if isinstance(one, Masked))
        others = [one for one in inputs if isinstance(one, Array)]
        if method != "__call__" or keywords or not alike or any(one.ndim for one in others):
            raise Untraceable("elements that a mask chooses, beside arrays or elements that another one chooses")
        several = [one.values if isinstance(one, Masked) else one for one in inputs]
        return Masked(mapped(self.values.builder, ufunc, several), self.mask)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        raise Untraceable(f"np.{func.__name__} of elements that a mask chooses")

    def __array__(self, *_: Any, **__: Any) -> Any:
        """Refuses a result, or an operand, of which the number of elements depends on values."""
        raise Untraceable("an array of the elements that a mask chooses, of which the number depends on values")

    def astype(self, dtype: Any, **_: Any) -> Masked:
        """Returns the elements in another dtype."""
        return Masked(cast(self.values, dtype), self.mask)

    def sum(self) -> Any:
        """Returns the sum of the selected elements."""
        return reduced(where(self.mask, self.values, 0), "sum", None)

    def mean(self) -> Any:
        """Returns the mean of the selected elements."""
        return self.sum() / self.size

    @property
    def size(self) -> Any:
        """The number of selected elements."""
        return reduced(cast(self.mask, np.int64), "sum", None)


def masked(a: Array, key: Any) -> Masked | None:
    """Implements `a[mask]` and `a[:, mask]`; None for other keys."""
    mask = _mask(a, key)
    return None if mask is None else Masked(a, mask)


def _mask(a: Array, key: Any) -> Array | None:
    """Returns the mask among the keys, broadcast to the array's shape; None if there is none."""
    keys = list(key) if isinstance(key, tuple) else [key]
    if sum(isinstance(one, Array) and one.dtype.kind == "b" for one in keys) != 1:
        return None
    place = next(i for i, one in enumerate(keys) if isinstance(one, Array) and one.dtype.kind == "b")
    rest = [one for i, one in enumerate(keys) if i != place]
    if not all(one is Ellipsis or (isinstance(one, slice) and one == slice(None)) for one in rest):
        raise Untraceable("a mask beside indices or slices")
    mask: Array = keys[place]
    before = a.ndim - mask.ndim - (len(keys) - place - 1) if Ellipsis in keys[:place] else place
    if before + mask.ndim > a.ndim:
        raise Untraceable("a mask of more axes than the array has")
    axes: Sequence[int | None] = [*[None] * before, *range(mask.ndim), *[None] * (a.ndim - before - mask.ndim)]
    return broadcast_to(mask.view_of(axes), a.shape)


def assign_masked(a: Array, key: Any, value: Any) -> bool:
    """Assigns to masked elements; returns False if the keys have no mask."""
    mask = _mask(a, key)
    if mask is None:
        return False
    if isinstance(value, Masked):
        if value.mask.node != mask.node:
            raise Untraceable("an assignment of elements that another mask chooses")
        value = value.values
    elif isinstance(value, Array) and value.ndim:
        raise Untraceable("an assignment of an array to elements that a mask chooses")
    a.assign(where(mask, value, Array(a.builder, a.node)))
    return True


def assign_numbered(a: Array, keys: Sequence[Any], value: Any) -> bool:
    """Implements `a[np.arange(rows), index] = value`, one element per row; returns False for other keys."""
    if len(keys) != 2 or a.ndim != 2 or not all(isinstance(one, Array) and one.ndim == 1 for one in keys):
        return False
    row, index = keys
    if a.builder.nodes[row.node].op != "iota" or int(row.shape[0]) != int(a.shape[0]) or index.dtype.kind not in "iu":
        return False
    made = a.builder.lift(value)
    chosen = a.builder.add("iota", (), [a.shape[1]], np.int64) == expand_dims(index, 1)
    a.assign(where(chosen, expand_dims(made, 1) if made.ndim else made, Array(a.builder, a.node)))
    return True


def assign_by_index(a: Array, keys: Sequence[Any], value: Any) -> bool:
    """Implements `a[index] = value`, `a[rows, columns] = value` and `a[rows, :, columns] = value`; returns False for other keys."""
    keys = list(keys)
    while len(keys) > 1 and (keys[-1] is Ellipsis or _is_whole(keys[-1])):
        keys.pop()
    numbered = [place for place, one in enumerate(keys) if isinstance(one, Array | np.ndarray)]
    if not numbered or any(not _is_whole(one) for place, one in enumerate(keys) if place not in numbered):
        return False
    several = {place: a.builder.lift(keys[place]) for place in numbered}
    if (
        any(one.dtype.kind not in "iu" or one.loops or not one.ndim for one in several.values())
        or a.loops
        or len(keys) > a.ndim
    ):
        return False
    made = a.builder.lift(value)
    first, count = numbered[0], max(one.ndim for one in several.values())
    index = np.broadcast_shapes(*(tuple(map(int, one.shape)) for one in several.values()))
    sides = _named_sides(several.values(), len(index))
    if made.ndim and numbered[-1] - first + 1 == len(numbered):  # NumPy puts axes before adjacent indices first
        made = broadcast_to(made, (*a.shape[:first], *sides, *a.shape[first + len(numbered) :]))
        order = [*range(first, first + count), *range(first), *range(first + count, made.ndim)]
        made = made.view_of(order)
    assign_numbers(a, [several.get(place) for place in range(len(keys))], sides, made)
    return True


def _is_whole(key: Any) -> bool:
    return isinstance(key, slice) and key == slice(None)


def _named_sides(several: Iterable[Array], rank: int) -> list[int]:
    """Returns the common shape of some arrays, which has `rank` axes."""
    sides = [1] * rank
    for one in several:
        for axis, side in enumerate(one.shape, rank - one.ndim):
            sides[axis] = sides[axis] if text_of(side) == "1" else side
    return sides


def assign_numbers(a: Array, keys: Sequence[Array | None], sides: Sequence[int], value: Array) -> None:
    """Assigns at whole numbers along the first axes of an array.

    Of several values for one element, the last one is assigned, as in NumPy.

    Args:
        a: the array.
        keys: for each of its first axes the numbers, or None for all positions.
        sides: the common shape of the numbers.
        value: its axes are those of the numbers, then those of the array without numbers.
    """
    inner = tuple(a.shape[axis] for axis, one in enumerate(keys) if one is None)
    rest = a.shape[len(keys) :]
    whole = (*sides, *inner)
    count = product(whole, a.builder.scalar)
    flat = a.builder.add("iota", (), [count], np.int64)
    positions = iter(_positions(flat, whole)[len(sides) :])
    groups = flat // product(inner, a.builder.scalar) if inner else None
    numbers = [next(positions) if one is None else _numbered_by(one, sides, groups) for one in keys]
    index = joint_numbers(numbers, a.shape[: len(keys)])
    before = reshape(Array(a.builder, a.node), (-1, *rest)) if len(keys) > 1 else Array(a.builder, a.node)
    before = reshape(before, (before.shape[0], -1)) if len(rest) > 1 else before
    new: tuple[None, ...] = (None,) * bool(rest)
    places = cast(flat, np.int32)
    last = a.builder.add("scatter", [index, places], [before.shape[0]], np.int32, ("max",))
    made = cast(value, a.dtype)
    if made.ndim:
        made = broadcast_to(made, (*whole, *rest))
        place = a.builder.lift(np.maximum(last, 0))
        made = _rows_at(made, place, _positions(place, whole))
    a.assign(reshape(where(last.view_of([0, *new]) >= 0, made, before), a.shape))


def _positions(flat: Array, sides: Sequence[int]) -> list[Array]:
    """Returns the positions along each axis of elements that are numbered in memory's order."""
    found: list[Array] = []
    for axis, side in enumerate(sides):
        after = tuple(sides[axis + 1 :])
        one = flat // product(after, flat.builder.scalar) if after else flat
        found.append(one % side if axis else one)
    return found


def _numbered_by(key: Array, sides: Sequence[int], groups: Array | None) -> Array:
    """Returns the index array `key` broadcast to `sides` and flattened; `groups` has each element's index into it, if not None."""
    wide = broadcast_to(key, sides)
    wide = reshape(wide, -1) if wide.ndim > 1 else wide
    if groups is None:
        return wide
    return groups if wide.builder.nodes[wide.node].op == "iota" else take(wide, groups, 0)


def _rows_at(value: Array, flat: Array, positions: Sequence[Array]) -> Array:
    """Returns the rows of a value at given positions along its first axes; `flat` numbers the same rows in one index.

    An array whose axes are permuted is read where its rows are.
    """
    axes: list[int | None] = [*range(value.ndim)]
    source = value
    while (node := value.builder.nodes[source.node]).op == "view":
        kept = [None if one is None else int(one) for one in node.data]
        axes = [None if one is None else kept[one] for one in axes]
        source = Array(value.builder, node.args[0])
    first = [(own, number) for number, own in enumerate(axes[: len(positions)]) if own is not None]
    permuted = axes[len(positions) :] == [*range(len(first), source.ndim)]
    if not permuted or sorted(own for own, _ in first) != [*range(len(first))]:
        source, leading, number = value, len(positions), flat
    else:
        leading, number = (
            len(first),
            joint_numbers([positions[place] for _, place in sorted(first)], source.shape[: len(first)]),
        )
    rest = source.shape[leading:]
    few = leading < 2 and len(rest) < 2
    count = product(source.shape[:leading], source.builder.scalar)
    return take(source if few else _reshaped(source, (count, -1) if rest else (-1,)), number, 0)


def _reshaped(a: Array, shape: Sequence[int]) -> Array:
    """Returns a reshaped array, for element-wise operations the result of reshaped operands."""
    node = a.builder.nodes[a.node]
    if node.op == "view" and node.data == (*range(len(a.builder.nodes[node.args[0]].shape)),):
        return _reshaped(Array(a.builder, node.args[0]), shape)
    operands = [Array(a.builder, one) for one in node.args]
    if node.op not in ("map", "cast") or any(
        one.ndim and a.builder.nodes[one.node].shape != node.shape for one in operands
    ):
        return reshape(a, shape)
    several = [_reshaped(one, shape) if one.ndim else one for one in operands]
    sides = next(one.shape for one in several if one.ndim)
    return a.builder.add(node.op, several, sides, node.dtype, node.data)


def select(condlist: Sequence[Any], choicelist: Sequence[Any], default: Any = 0) -> Any:
    """Computes `np.select`: for each element, the choice of the first condition that holds."""
    result = default
    for condition, choice in reversed(list(zip(condlist, choicelist, strict=True))):
        result = where(condition, choice, result)
    return result


def copyto(dst: Any, src: Any, *, where: Any = True, **_: Any) -> None:
    """Computes `np.copyto`: assigns an array, optionally under a mask."""
    _target(dst, "copyto")
    if where is True:
        dst.assign(dst.builder.lift(src))
    else:
        dst.assign(chosen(where, src, Array(dst.builder, dst.node)))


def putmask(a: Any, mask: Any, values: Any) -> None:
    """Computes `np.putmask` with a number."""
    _target(a, "putmask")
    if isinstance(values, Array) and values.ndim:
        raise Untraceable("np.putmask with an array")
    copyto(a, values, where=mask)


def _target(a: Any, name: str) -> None:
    if not isinstance(a, Array):
        raise Untraceable(f"np.{name} into an array that was not made by the reference's own np")


def nan_to_num(x: Array, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None) -> Any:
    """Computes `np.nan_to_num`: replaces NaN and infinities by given numbers."""
    if posinf is None or neginf is None or not copy:
        raise Untraceable("np.nan_to_num without posinf and neginf")
    found = where(np.isnan(x), nan, x)
    return where(x == np.inf, posinf, where(x == -np.inf, neginf, found))


def linspace(builder: Any, start: Any, stop: Any, num: Any = 50, endpoint: bool = True, **more: Any) -> Any:
    """Computes `linspace`: evenly spaced numbers."""
    if more:
        raise Untraceable(f"np.linspace with {', '.join(more)}")
    count = operator.index(num)
    if count == 1 and endpoint:
        raise Untraceable("np.linspace of one number")
    positions = cast(builder.add("iota", (), [num], np.int64), np.float64)
    return start + positions * ((stop - start) / (num - 1 if endpoint else num))


MASKS: dict[str, Callable[..., Any]] = {
    "select": select,
    "copyto": copyto,
    "putmask": putmask,
    "nan_to_num": nan_to_num,
}
"""Implementations of NumPy functions, by name."""
