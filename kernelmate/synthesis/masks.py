"""Elements selected by a mask, read and assigned, elements assigned by index, and NumPy's functions with masks."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from kernelmate.synthesis.arrays import Array, cast, mapped
from kernelmate.synthesis.indexed import joint_numbers
from kernelmate.synthesis.primitives import broadcast_to, expand_dims, reduced, reshape, take, where
from kernelmate.synthesis.primitives import where as chosen
from kernelmate.synthesis.sizes import Untraceable


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
    """Returns the mask among the keys, broadcast to the array's shape; None without one."""
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
    """Implements `a[index] = value` and `a[rows, columns] = value`; returns False for other keys.

    Of several values for one element, the last one is assigned, as in NumPy.
    """
    keys = list(keys)
    while len(keys) > 1 and (keys[-1] is Ellipsis or (isinstance(keys[-1], slice) and keys[-1] == slice(None))):
        keys.pop()
    if not keys or not all(isinstance(one, Array | np.ndarray) for one in keys) or len(keys) > a.ndim:
        return False
    numbers = [a.builder.lift(one) for one in keys]
    if any(one.dtype.kind not in "iu" or one.loops or not one.ndim for one in numbers) or a.loops:
        return False
    index = joint_numbers(numbers, a.shape[: len(numbers)])
    rest = a.shape[len(numbers) :]
    made = cast(a.builder.lift(value), a.dtype)
    before = reshape(Array(a.builder, a.node), (-1, *rest)) if len(numbers) > 1 else Array(a.builder, a.node)
    new: tuple[None, ...] = (None,) * bool(rest)
    if made.ndim:
        made = broadcast_to(made, (*index.shape, *rest))
    if index.ndim > 1:
        made = reshape(made, (-1, *rest)) if made.ndim else made
        index = reshape(index, -1)
    if len(rest) > 1:
        before, made = (reshape(one, (one.shape[0], -1)) if one.ndim else one for one in (before, made))
    places = cast(a.builder.add("iota", (), [index.shape[0]], np.int64), np.int32)
    last = a.builder.add("scatter", [index, places], [before.shape[0]], np.int32, ("max",)).view_of([0, *new])
    if made.ndim:
        last_place = a.builder.add("scatter", [index, places], [before.shape[0]], np.int32, ("max",))
        made = take(made, np.maximum(last_place, 0), 0)
    a.assign(reshape(where(last >= 0, made, before), a.shape))
    return True


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
