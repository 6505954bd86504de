"""Parts of traced arrays: slices (read or assigned), flipped and rolled arrays, windows, and differences."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmate.synthesis.arrays import Array, cast
from kernelmate.synthesis.index_maps import (
    ORDINARY,
    OTHERWISE,
    WRAP,
    AxisMap,
    Linear,
    length_of,
    linear,
    never_negative,
)
from kernelmate.synthesis.primitives import axes_of, broadcast_to, reshape
from kernelmate.synthesis.sizes import Untraceable, text_of


@dataclass(frozen=True, slots=True)
class _Range:
    """Positions along one axis: `length` of them, `step` apart. A single index drops its axis."""

    start: Linear
    step: int
    length: str
    dropped: bool = False


class ArraySlice(Array):
    """A slice that shares its elements with its array, as in NumPy: an assignment to one changes the other."""

    def __init__(self, whole: Array, ranges: Sequence[_Range], axes: Sequence[int | None]) -> None:
        self.builder, self._whole, self._ranges, self._axes = whole.builder, whole, ranges, tuple(axes)

    @property
    def node(self) -> int:
        """Returns the node of the slice, taken from the current state of the whole array."""
        maps = [AxisMap(one.start.text(), ((axis, one.step),)) for axis, one in enumerate(self._ranges)]
        part = window(self._whole, [one.length for one in self._ranges], maps)
        if self._axes == tuple(range(part.ndim)):
            return part.node
        shape = [1 if axis is None else part.shape[axis] for axis in self._axes]
        return self.builder.add("view", [part], shape, part.dtype, self._axes).node

    @property
    def recorded(self) -> int:
        """The index of the slice's node; -1 if it is not known, or no longer."""
        whole = self.whole
        unknown = any(loop in self.builder.open for loop in whole.adding) or any(loop.finished for loop in whole.loops)
        return -1 if unknown else self.node

    @property
    def whole(self) -> Array:
        """The array to which the slice belongs."""
        return self._whole.whole

    @property
    def shared(self) -> bool:
        """Returns True if other arrays are views of the whole array."""
        return self._whole.shared

    @shared.setter
    def shared(self, value: bool) -> None:
        self._whole.shared = value

    def assign(self, value: Array) -> None:
        """Assigns values to the slice by replacing the whole array."""
        if len(value.shape) > len(self._axes):
            raise Untraceable("an assignment of more axes than the part has")
        if value.node == self.node:  # `a[1:] += b` assigns the part that it has changed to itself
            return
        value = cast(broadcast_to(value, self.shape), self.dtype)
        back = [None if one.dropped else self._axes.index(axis) for axis, one in enumerate(self._ranges)]
        shape = [1 if axis is None else value.shape[axis] for axis in back]
        if list(back) != list(range(value.ndim)):
            value = self.builder.add("view", [value], shape, value.dtype, back)
        maps = []
        for axis, (one, side) in enumerate(zip(self._ranges, self._whole.shape, strict=True)):
            sign = 1 if one.step > 0 else -1
            offset = one.start.times(-sign).text()
            every = abs(one.step)
            whole = every == 1 and linear(one.length) == linear(text_of(side))
            maps.append(AxisMap(offset, ((axis, sign),), ORDINARY if whole else OTHERWISE, every))
        sides = [text_of(side) for side in self._whole.shape]
        otherwise = None if all(one.beyond == ORDINARY for one in maps) else Array(self.builder, self._whole.node)
        self._whole.assign(window(value, sides, maps, otherwise))


def window(source: Array, shape: Sequence[str], maps: Sequence[AxisMap], otherwise: Array | None = None) -> Array:
    """Returns elements of an array by index maps; outside of it, those of another array."""
    same = [text_of(side) for side in source.shape] == list(shape)
    identity = all(one.terms == ((axis, 1),) and one.offset == "0" and one.every == 1 for axis, one in enumerate(maps))
    if same and identity and len(maps) == len(shape):
        return Array(source.builder, source.node)
    builder = source.builder
    args = [source] if otherwise is None else [source, otherwise]
    sides = [builder.dim(text) for text in shape]
    return builder.add("window", args, sides, source.dtype, tuple(one.text() for one in maps))


def part_of(a: Array, keys: Sequence[Any]) -> ArraySlice:
    """Returns the part that slices, indices and new axes select; `keys` has one for each axis.

    Raises:
        Untraceable: a key is an array, or a step is a size.
    """
    ranges: list[_Range] = []
    axes: list[int | None] = []
    for one in keys:
        if one is None:
            axes.append(None)
            continue
        ranges.append(axis_range(one, a.shape[len(ranges)]))
        axes += [] if ranges[-1].dropped else [len(ranges) - 1]
    return ArraySlice(a, ranges, axes)


def axis_range(key: Any, side: int) -> _Range:
    """Returns the positions that a slice or an index chooses along an axis."""
    count = linear(text_of(side))
    if isinstance(key, slice):
        if any(isinstance(one, Array) for one in (key.start, key.stop, key.step)):
            raise Untraceable("a slice whose bound is a value")
        return _sliced(key, count)
    if isinstance(key, Array | np.ndarray | list):
        raise Untraceable("indexing by an array")
    if not hasattr(key, "__index__") or isinstance(key, bool):
        raise Untraceable(f"indexing by {key!r:.40}")
    at = linear(text_of(key))
    if not -int(side) <= int(key) < int(side):
        raise Untraceable(f"the index {text_of(key)} of an axis of {text_of(side)} elements")
    return _Range(count.plus(at) if int(key) < 0 else at, 1, "1", dropped=True)


def _sliced(key: slice, count: Linear) -> _Range:
    step = 1 if key.step is None else operator.index(key.step)
    if text_of(key.step or 1) != str(step) or step == 0:
        raise Untraceable("a slice whose step is a size")
    first = Linear() if step > 0 else count.plus(-1)
    last = count if step > 0 else Linear((), -1)
    start = first if key.start is None else _bound(key.start, count)
    stop = last if key.stop is None else _bound(key.stop, count)
    if step == 1 and stop == start.plus(1) and start in (Linear(), count.plus(-1)):
        return _Range(start, 1, "1")  # the first or the last one, of an axis that has any
    if step > 0 and key.start is not None and int(key.start) < 0 and not never_negative(start):
        start = linear(f"max({start.bare()}, 0)")
    highest = count if step > 0 else count.plus(-1)
    if step > 0 and not _negative(key.stop) and not never_negative(highest.plus(stop, -1)):
        stop = linear(f"min({stop.bare()}, {highest.bare()})")
    if step < 0 and key.start is not None and not never_negative(highest.plus(start, -1)):
        start = linear(f"min({start.bare()}, {highest.bare()})")
    if step < 0 and _negative(key.stop) and not never_negative(stop):
        stop = linear(f"max({stop.bare()}, -1)")
    return _Range(start, step, length_of(start, stop, step))


def _bound(value: Any, count: Linear) -> Linear:
    at = linear(text_of(value))
    return count.plus(at) if int(value) < 0 else at


def _negative(value: Any) -> bool:
    return value is not None and int(value) < 0


def flip(m: Array, axis: Any = None) -> Array:
    """Reverses an array along some axes."""
    turned = axes_of(m, axis)
    return part_of(m, [slice(None, None, -1) if one in turned else slice(None) for one in range(m.ndim)])


def roll(a: Array, shift: Any, axis: Any = None) -> Array:
    """Roll along some axes.

    Raises:
        Untraceable: by a value, or twice along an axis.
    """
    if axis is None and a.ndim != 1:
        return reshape(roll(reshape(a, -1), shift), a.shape)
    axes = [0] if axis is None else [one % a.ndim for one in (axis if isinstance(axis, tuple | list) else (axis,))]
    shifts = list(shift) if isinstance(shift, tuple | list) else [shift] * len(axes)
    if any(isinstance(one, Array) for one in shifts) or len(set(axes)) != len(axes) or len(shifts) != len(axes):
        raise Untraceable("np.roll by a value, or twice along an axis")
    maps = [AxisMap("0", ((place, 1),)) for place in range(a.ndim)]
    for one, by in zip(axes, shifts, strict=True):
        maps[one] = AxisMap(linear(text_of(by)).times(-1).text(), ((one, 1),), WRAP)
    return window(a, [text_of(side) for side in a.shape], maps)


def sliding_window_view(x: Array, window_shape: Any, axis: Any = None, **_: Any) -> Array:
    """Returns all windows of a shape, their elements along new last axes."""
    sides = list(window_shape) if isinstance(window_shape, tuple | list) else [window_shape]
    several = axis if isinstance(axis, tuple | list) else [axis]
    axes = list(range(x.ndim)) if axis is None else [operator.index(one) % x.ndim for one in several]
    if len(axes) != len(sides) or len(set(axes)) != len(axes):
        raise Untraceable("sliding windows of other axes, or twice along one")
    maps = [AxisMap("0", ((place, 1),)) for place in range(x.ndim)]
    shape = [linear(text_of(side)) for side in x.shape]
    for place, (one, side) in enumerate(zip(axes, sides, strict=True)):
        maps[one] = AxisMap("0", ((one, 1), (x.ndim + place, 1)))
        shape[one] = shape[one].plus(linear(text_of(side)), -1).plus(1)
    return window(x, [*(one.text() for one in shape), *map(text_of, sides)], maps)


def diff(a: Array, n: Any = 1, axis: Any = -1, prepend: Any = None, append: Any = None) -> Any:
    """Computes differences of adjacent elements, `n` times."""
    if prepend is not None or append is not None or a.dtype.kind == "b":
        raise Untraceable("np.diff with prepend or append, or of truth values")
    for _ in range(operator.index(n)):
        keys: list[slice] = [slice(None)] * a.ndim
        above, below = list(keys), list(keys)
        above[axis], below[axis] = slice(1, None), slice(None, -1)
        a = part_of(a, above) - part_of(a, below)
    return a
