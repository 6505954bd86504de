"""Parts of traced arrays: slices that are read and assigned to, padded, joined, flipped, rolled arrays and sliding windows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmate.synthesis.arrays import Array, cast
from kernelmate.synthesis.index_maps import (
    ABOVE,
    EDGE,
    ORDINARY,
    OTHERWISE,
    WRAP,
    AxisMap,
    Linear,
    length_of,
    linear,
    never_negative,
)
from kernelmate.synthesis.sizes import Untraceable, text_of


@dataclass(frozen=True, slots=True)
class _Range:
    """Positions along one axis: `length` of them, `step` apart. A single index drops its axis."""

    start: Linear
    step: int
    length: str
    dropped: bool = False


class ArraySlice(Array):
    """A slice that shares its elements with its array: each sees assignments to the other."""

    def __init__(self, whole: Array, ranges: Sequence[_Range], axes: Sequence[int | None]) -> None:
        self.builder, self._whole, self._ranges, self._axes = whole.builder, whole, ranges, tuple(axes)

    @property
    def node(self) -> int:
        """Returns its node, from the whole array's present state."""
        maps = [AxisMap(one.start.text(), ((axis, one.step),)) for axis, one in enumerate(self._ranges)]
        part = window(self._whole, [one.length for one in self._ranges], maps)
        if self._axes == tuple(range(part.ndim)):
            return part.node
        shape = [1 if axis is None else part.shape[axis] for axis in self._axes]
        return self.builder.add("view", [part], shape, part.dtype, self._axes).node

    @property
    def whole(self) -> Array:
        """The array whose elements these are."""
        return self._whole.whole

    @property
    def shared(self) -> bool:
        """Returns True if other arrays are views of the whole array."""
        return self._whole.shared

    @shared.setter
    def shared(self, value: bool) -> None:
        self._whole.shared = value

    def assign(self, value: Array) -> None:
        """The whole array, with these elements replaced."""
        from kernelmate.synthesis.functions import broadcast_to

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
    """The part that slices, indices and new axes choose; `keys` has one for each axis.

    Raises:
        Untraceable: a key is an array, or a step is a size.
    """
    ranges: list[_Range] = []
    axes: list[int | None] = []
    for one in keys:
        if one is None:
            axes.append(None)
            continue
        ranges.append(_range(one, a.shape[len(ranges)]))
        axes += [] if ranges[-1].dropped else [len(ranges) - 1]
    return ArraySlice(a, ranges, axes)


def _range(key: Any, side: int) -> _Range:
    count = linear(text_of(side))
    if isinstance(key, slice):
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


def assigned(a: Array, key: Any, value: Any) -> None:
    """Assign to a part of an array."""
    from kernelmate.synthesis.functions import subscript
    from kernelmate.synthesis.loops import assign as assign_turns
    from kernelmate.synthesis.loops import depends
    from kernelmate.synthesis.masks import assign_masked, assign_numbered

    keys = list(key) if isinstance(key, tuple) else [key]
    if a.builder.open and depends(keys):
        if any(one is Ellipsis for one in keys):
            place = next(index for index, one in enumerate(keys) if one is Ellipsis)
            keys[place : place + 1] = [slice(None)] * (a.ndim - len(keys) + 1)
        assign_turns(a, [*keys, *[slice(None)] * (a.ndim - len(keys))], value)
        return
    if assign_masked(a, key, value) or (isinstance(key, tuple) and assign_numbered(a, key, value)):
        return
    part = subscript(a, key)
    value = a.builder.lift(value)
    if not isinstance(part, ArraySlice):
        raise Untraceable("an assignment to elements that are chosen by an array")
    part.assign(value)


def pad(array: Array, pad_width: Any, mode: Any = "constant", constant_values: Any = 0) -> Array:
    """Pad with a constant, or with the nearest or opposite elements.

    Raises:
        Untraceable: another mode, or a value for each side.
    """
    if mode in ("reflect", "symmetric"):
        return _mirrored(array, _pairs(pad_width, array.ndim), 1 if mode == "reflect" else 0)
    beyond = {"constant": OTHERWISE, "edge": EDGE, "wrap": WRAP}.get(mode)
    if beyond is None or not isinstance(constant_values, int | float):
        raise Untraceable(f"np.pad with mode {mode}" if beyond is None else "np.pad with several values")
    if isinstance(pad_width, dict):
        pad_width = [pad_width.get(axis, pad_width.get(axis - array.ndim, 0)) for axis in range(array.ndim)]
    maps, shape = [], []
    for axis, (before, after) in enumerate(_pairs(pad_width, array.ndim)):
        kept = text_of(before) == text_of(after) == "0"
        maps.append(AxisMap(linear(text_of(before)).times(-1).text(), ((axis, 1),), ORDINARY if kept else beyond))
        shape.append(_added(text_of(array.shape[axis]), text_of(before), text_of(after)))
    otherwise = array.builder.add("constant", dtype=array.dtype, data=(constant_values,))
    return window(array, shape, maps, otherwise if beyond == OTHERWISE else None)


def _mirrored(array: Array, widths: Sequence[tuple[Any, Any]], gap: int) -> Array:
    """Pads by mirroring at an edge that is `gap` elements from its own image."""
    for axis, (before, after) in enumerate(widths):
        if text_of(before) == text_of(after) == "0":
            continue

        def part(start: Any, stop: Any, axis: int = axis, array: Array = array) -> Array:
            return flip(
                part_of(array, [slice(start, stop) if one == axis else slice(None) for one in range(array.ndim)]), axis
            )

        ends = [part(gap, before + gap)] if text_of(before) != "0" else []
        middle = [Array(array.builder, array.node)]
        tail = [part(-after - gap, -gap or None)] if text_of(after) != "0" else []
        array = concatenate([*ends, *middle, *tail], axis)
    return array


def _pairs(pad_width: Any, rank: int) -> list[tuple[Any, Any]]:
    """Returns the widths before and after each axis, from NumPy's forms."""
    if isinstance(pad_width, int):
        return [(pad_width, pad_width)] * rank
    several = list(pad_width)
    if len(several) == 2 and all(isinstance(one, int) for one in several):
        return [(several[0], several[1])] * rank
    several = several * rank if len(several) == 1 else several
    if len(several) != rank:
        raise Untraceable("np.pad with widths for other axes")
    return [(one, one) if isinstance(one, int) else (one[0], one[-1]) for one in several]


def _added(*texts: str) -> str:
    total = Linear()
    for one in texts:
        total = total.plus(linear(one))
    return total.text()


def concatenate(arrays: Sequence[Any], axis: Any = 0, out: Any = None, *, dtype: Any = None, **_: Any) -> Array:
    """Concatenate along an axis.

    Raises:
        Untraceable: into `out`, or without an axis.
    """
    if out is not None or axis is None:
        raise Untraceable("np.concatenate with out or without an axis")
    from kernelmate.synthesis.functions import reshape
    from kernelmate.synthesis.loops import collected

    builder = next(one for one in arrays if isinstance(one, Array)).builder
    made = collected(arrays)
    if made is not None:
        place = operator.index(axis) % (made.ndim - 1)
        joined = stack(arrays, place)
        sides = joined.shape
        return reshape(joined, (*sides[:place], sides[place] * sides[place + 1], *sides[place + 2 :]))
    several = [builder.lift(one) for one in arrays]
    wanted = dtype or np.result_type(*(one.dtype for one in several))
    several = [cast(one, wanted) for one in several]
    axis = operator.index(axis) % several[0].ndim
    offsets = ["0"]
    for one in several:
        offsets.append(_added(offsets[-1], text_of(one.shape[axis])))
    shape = [text_of(side) for side in several[0].shape]
    shape[axis] = offsets[-1]
    result: Array | None = None
    for one, offset in reversed(list(zip(several, offsets, strict=False))):
        maps = [AxisMap("0", ((place, 1),)) for place in range(one.ndim)]
        start = linear(offset).times(-1).text()
        maps[axis] = AxisMap(start, ((axis, 1),), ORDINARY if result is None else ABOVE)
        result = window(one, shape, maps, result)
    assert result is not None
    return result


def stack(arrays: Sequence[Any], axis: Any = 0, out: Any = None, **keywords: Any) -> Array:
    """Stacks along a new axis."""
    from kernelmate.synthesis.functions import expand_dims, transpose
    from kernelmate.synthesis.loops import collected

    made = collected(arrays)
    if made is not None:
        order = list(range(1, made.ndim))
        order.insert(axis % made.ndim, 0)
        return transpose(made, order)
    return concatenate([expand_dims(one, axis) for one in arrays], axis, out, **keywords)


def hstack(tup: Sequence[Any], **keywords: Any) -> Array:
    """Along the second axis; of vectors, along their only one."""
    return concatenate(tup, min(1, tup[0].ndim - 1), **keywords)


def vstack(tup: Sequence[Any], **keywords: Any) -> Array:
    """Along the first axis; vectors are rows."""
    return (stack if tup[0].ndim == 1 else concatenate)(tup, 0, **keywords)


def flip(m: Array, axis: Any = None) -> Array:
    """Reverses along some axes."""
    from kernelmate.synthesis.functions import axes_of

    turned = axes_of(m, axis)
    return part_of(m, [slice(None, None, -1) if one in turned else slice(None) for one in range(m.ndim)])


def roll(a: Array, shift: Any, axis: Any = None) -> Array:
    """Roll along some axes.

    Raises:
        Untraceable: without an axis, of an array of several.
    """
    if axis is None and a.ndim != 1:
        raise Untraceable("np.roll without an axis")
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
    """Neighbours less one another, `n` times."""
    if prepend is not None or append is not None or a.dtype.kind == "b":
        raise Untraceable("np.diff with prepend or append, or of truth values")
    for _ in range(operator.index(n)):
        keys: list[slice] = [slice(None)] * a.ndim
        above, below = list(keys), list(keys)
        above[axis], below[axis] = slice(1, None), slice(None, -1)
        a = part_of(a, above) - part_of(a, below)
    return a


PARTS: dict[str, Callable[..., Any]] = {
    "pad": pad, "concatenate": concatenate, "stack": stack, "hstack": hstack, "vstack": vstack, "flip": flip, "roll": roll,
    "flipud": lambda m: flip(m, 0), "fliplr": lambda m: flip(m, 1), "sliding_window_view": sliding_window_view, "diff": diff,
}  # fmt: skip
"""Functions of NumPy by name."""
