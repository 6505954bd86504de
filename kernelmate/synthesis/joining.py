"""Padded, concatenated and stacked arrays, and the table of functions that split and join arrays."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernelmate.synthesis.arrays import Array, cast
from kernelmate.synthesis.index_maps import (
    ABOVE,
    EDGE,
    ORDINARY,
    OTHERWISE,
    REFLECT,
    SYMMETRIC,
    WRAP,
    AxisMap,
    Linear,
    linear,
)
from kernelmate.synthesis.loop_subscripts import collected
from kernelmate.synthesis.primitives import expand_dims, reshape, transpose
from kernelmate.synthesis.sizes import Untraceable, text_of
from kernelmate.synthesis.slices import flip, roll, sliding_window_view, window


def pad(array: Array, pad_width: Any, mode: Any = "constant", constant_values: Any = 0) -> Array:
    """Pad an array with a constant, or with the nearest, wrapped or mirrored elements.

    Raises:
        Untraceable: the mode is another one, or each side has its own value.
    """
    beyond = {"constant": OTHERWISE, "edge": EDGE, "wrap": WRAP, "reflect": REFLECT, "symmetric": SYMMETRIC}.get(mode)
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


def _pairs(pad_width: Any, rank: int) -> list[tuple[Any, Any]]:
    """Returns the widths before and after each axis, from any of NumPy's forms of `pad_width`."""
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
    """Concatenate arrays along an axis.

    Raises:
        Untraceable: `out` is given, or `axis` is None.
    """
    if out is not None or axis is None:
        raise Untraceable("np.concatenate with out or without an axis")
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
    """Stacks arrays along a new axis."""
    made = collected(arrays)
    if made is not None:
        order = list(range(1, made.ndim))
        order.insert(axis % made.ndim, 0)
        return transpose(made, order)
    return concatenate([expand_dims(one, axis) for one in arrays], axis, out, **keywords)


def hstack(tup: Sequence[Any], **keywords: Any) -> Array:
    """Joins arrays along the second axis; vectors along their only axis."""
    return concatenate(tup, min(1, tup[0].ndim - 1), **keywords)


def vstack(tup: Sequence[Any], **keywords: Any) -> Array:
    """Joins arrays along the first axis; vectors become rows."""
    return (stack if tup[0].ndim == 1 else concatenate)(tup, 0, **keywords)


PARTS: dict[str, Callable[..., Any]] = {
    "pad": pad, "concatenate": concatenate, "stack": stack, "hstack": hstack, "vstack": vstack, "flip": flip, "roll": roll,
    "flipud": lambda m: flip(m, 0), "fliplr": lambda m: flip(m, 1), "sliding_window_view": sliding_window_view,
}  # fmt: skip
"""Implementations of NumPy functions, by name."""
