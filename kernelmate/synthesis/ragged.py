"""Rows of a CSR matrix that a loop accesses by slices or an inner loop, and reductions over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from kernelmate.synthesis.arrays import REDUCTIONS, Array, Builder, cast, is_whole
from kernelmate.synthesis.index_maps import AxisMap, linear
from kernelmate.synthesis.primitives import reduced, segmented, take, view_of, where
from kernelmate.synthesis.row_values import repeated_for
from kernelmate.synthesis.sizes import Untraceable, text_of
from kernelmate.synthesis.ufuncs import mapped

if TYPE_CHECKING:
    from kernelmate.synthesis.loops import TracedLoop

_ELSE = "elements of a row between two offsets, by other than element-wise operations and reductions"


class CsrRows(NDArrayOperatorsMixin):
    """The elements of an iteration's row, represented by the elements of all rows.

    Args:
        values: an array whose first axis has the elements of all rows.
        offsets: offsets at which the rows begin.
        loop: the loop over rows.
        whole: the array that these are elements of; None for copies.
    """

    __array_priority__ = 2000

    def __init__(self, values: Array, offsets: Array, loop: TracedLoop, whole: Array | None = None) -> None:
        self._values, self.offsets, self.loop, self._whole = values, offsets, loop, whole
        self._seen = None if whole is None else whole.node

    @property
    def values(self) -> Array:
        """The elements of all rows.

        Raises:
            Untraceable: they are elements of an array that has been changed since.
        """
        if self._whole is not None and self._whole.node != self._seen:
            raise Untraceable("a row's elements of an array that was changed after they were taken")
        return self._values

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        """Applies an operation to the elements, or to those of several arrays between the same offsets."""
        if ufunc.__name__ == "matmul" and method == "__call__" and not keywords:
            return _product(*inputs)
        out = keywords.pop("out", None)
        if out is not None:
            return out[0].changed(self.__array_ufunc__(ufunc, method, *inputs, **keywords))
        kind = REDUCTIONS.get(ufunc.__name__)
        if method == "reduce" and kind is not None:
            return self._reduced(kind, **{"axis": 0, **keywords})
        rows = [one for one in inputs if isinstance(one, CsrRows)]
        inputs = tuple(self._repeated(one) if isinstance(one, Array) and one.loops else one for one in inputs)
        others = [one for one in inputs if isinstance(one, Array)]
        alike = all(one.offsets.node == self.offsets.node and one.ndim == self.ndim for one in rows)
        if method != "__call__" or keywords or not alike or any(one.loops or not _below(one, self) for one in others):
            raise Untraceable(_ELSE)
        several = [one.values if isinstance(one, CsrRows) else one for one in inputs]
        return self._with(mapped(self.values.builder, ufunc, several))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Applies a reduction or a product."""
        name = {"amax": "max", "amin": "min"}.get(func.__name__, func.__name__)
        if name in ("dot", "vdot", "inner") and len(args) == 2:
            return _product(*args)
        if name == "where" and len(args) == 3 and not kwargs:
            several = [self._repeated(one) if isinstance(one, Array) and one.loops else one for one in args]
            if any(isinstance(one, CsrRows) and one.offsets.node != self.offsets.node for one in several):
                raise Untraceable(_ELSE)
            return self._with(where(*(one.values if isinstance(one, CsrRows) else one for one in several)))
        if name not in ("sum", "mean", "max", "min"):
            raise Untraceable(_ELSE)
        return getattr(self, name)(*args[1:], **kwargs)

    def _repeated(self, value: Array) -> CsrRows:
        """Returns a value of the iteration's row for each element of the row."""
        if value.loops != (self.loop,) or value.ndim not in (0, self.ndim - 1):
            raise Untraceable(_ELSE)
        rows = view_of(value.builder, value.node, range(value.ndim + 1), ())
        wide = rows[(slice(None), *[None] * (self.ndim - 1 - value.ndim))]
        return self._with(repeated_for(self.offsets, wide, self.values.shape[0]))

    def changed(self, other: Any) -> CsrRows:
        """Replaces the elements by those of another row, as an in-place operation does."""
        if not isinstance(other, CsrRows) or other.ndim != self.ndim:
            raise Untraceable(_ELSE)
        self._values = cast(other.values, self.values.dtype)
        if self._whole is not None:
            note_row(self._whole, self.offsets, self.loop, self.loop.writes)
            self._whole.assign(self._values)
            self._seen = self._whole.node
        return self

    def written_to(self, a: Array, value: Any) -> None:
        """Assigns values to this row of an array."""
        if isinstance(value, Array) and value.loops:
            value = self._repeated(value)
        if isinstance(value, CsrRows) and value.offsets.node != self.offsets.node:
            raise Untraceable(_ELSE)
        if isinstance(value, Array) and value.ndim:
            raise Untraceable(_ELSE)
        note_row(a, self.offsets, self.loop, self.loop.writes)
        a.assign(value.values if isinstance(value, CsrRows) else a.builder.lift(value))

    def __getitem__(self, key: Any) -> CsrRows:
        """Indexes the further axes of each element."""
        keys = key if isinstance(key, tuple) else (key,)
        if not is_whole(keys[0]):
            raise Untraceable("some of a row's elements between two offsets")
        return self._with(self.values[keys])

    def _with(self, values: Array) -> CsrRows:
        return CsrRows(values, self.offsets, self.loop)

    @property
    def ndim(self) -> int:
        """The number of axes, as in NumPy."""
        return self.values.ndim

    def astype(self, dtype: Any, **_: Any) -> CsrRows:
        """Returns the elements in another dtype."""
        return self._with(cast(self.values, dtype))

    def taken_from(self, a: Array) -> CsrRows:
        """Returns the elements of an array at these indices, along its first axis."""
        if not a.ndim or a.loops or self.values.dtype.kind not in "iu" or self.ndim != 1:
            raise Untraceable("rows of an array by the numbers between two offsets")
        return self._with(take(a, self.values, 0))

    def dot(self, other: Any) -> Any:
        """Computes the sum of products."""
        return _product(self, other)

    def sum(self, axis: Any = None, dtype: Any = None, initial: Any = None) -> Any:
        """Computes the sum of each row."""
        return self._reduced("sum", axis, dtype, initial=initial)

    def max(self, axis: Any = None, initial: Any = None) -> Any:
        """Computes the maximum of each row."""
        return self._reduced("max", axis, initial=initial)

    def min(self, axis: Any = None, initial: Any = None) -> Any:
        """Computes the minimum of each row."""
        return self._reduced("min", axis, initial=initial)

    def _reduced(self, kind: str, axis: Any = None, dtype: Any = None, initial: Any = None, **more: Any) -> Any:
        """Reduces each row, or the further axes of each element."""
        if any(one not in (None, False, np._NoValue) for one in more.values()) or isinstance(axis, tuple):
            raise Untraceable(_ELSE)
        values = self.values if dtype is None else cast(self.values, dtype)
        if axis is not None and int(axis) % self.ndim:
            return self._with(reduced(values, kind, axis))
        if axis is None and self.ndim > 1:
            values = reduced(values, kind, tuple(range(1, self.ndim)))
        made = segmented(self.offsets, values, self.loop.count, kind)
        result = view_of(made.builder, made.node, range(made.ndim), (self.loop,))
        if initial is None or initial is np._NoValue:
            return result
        return {"sum": np.add, "max": np.maximum, "min": np.minimum}[kind](result, initial)

    def mean(self, axis: Any = None, dtype: Any = None) -> Any:
        """Computes the mean of each row; NaN for an empty one, as in NumPy."""
        if axis not in (None, 0) or (axis is None and self.ndim > 1):
            raise Untraceable(_ELSE)
        return self.sum(axis, dtype) / self.size

    @property
    def size(self) -> Array:
        """The number of elements of each row."""
        row = self.loop.index()
        found: Array = self.offsets[row + 1] - self.offsets[row]
        return found


def note_row(a: Array, offsets: Array, loop: TracedLoop, places: list[tuple[Array, object]]) -> None:
    """Adds a row to the reads or writes of an iteration.

    Raises:
        Untraceable: iterations also access elements of the array by other indices.
    """
    signature = ((0, f"rows at {offsets.node}"),)
    if any(one is a and said != signature for one, said in (*loop.reads * (places is loop.writes), *loop.writes)):
        raise Untraceable("a loop over a size in which an iteration needs a value of another one")
    places.append((a, signature))
    if places is loop.reads:
        loop.others.append(())


def _below(a: Array, rows: CsrRows) -> bool:
    """Returns True if an array broadcasts along the axis of a row's elements."""
    return a.ndim < rows.ndim or (a.ndim == rows.ndim and text_of(a.shape[0]) == "1")


def _product(first: Any, second: Any) -> Any:
    """Computes sums of products along a row's elements, of two vectors or of a vector and a matrix."""
    if not isinstance(first, CsrRows) or not isinstance(second, CsrRows) or first.ndim != 1:
        raise Untraceable(_ELSE)
    wide = first[(slice(None), *[None] * (second.ndim - 1))]
    return (wide * second).sum(axis=0)


def row_bounds(builder: Builder, start: Any, stop: Any) -> tuple[Array, TracedLoop] | None:
    """Returns offsets and the loop over rows for `range(offsets[r], offsets[r + 1])`; None for other bounds."""
    first, last = _offset(builder, start), _offset(builder, stop)
    if first is None or last is None or first[0] != last[0] or (first[1], last[1]) != (0, 1) or len(start.loops) != 1:
        return None
    offsets, loop = Array(builder, first[0]), start.loops[0]
    whole = linear(text_of(offsets.shape[0])) == linear(text_of(loop.count)).plus(1)
    return (offsets, loop) if whole and loop in builder.open else None


def reduced_rows(inner: TracedLoop, value: Array, kind: str) -> Array:
    """Returns, for each row, the reduction `kind` of a value over all iterations of a loop over the row's elements.

    Raises:
        Untraceable: an iteration's value differs between rows other than by its element.
    """
    assert inner.rows is not None
    offsets, outer = inner.rows
    builder = value.builder
    sides = builder.nodes[value.node].shape  # of length 1 along loops of which the value does not depend on the turn
    kept = tuple(loop for loop, side in zip(value.loops, sides, strict=False) if loop is not inner and side != "1")
    if inner not in value.loops or outer in kept or kind not in ("sum", "max", "min"):
        raise Untraceable("a loop over a row's elements that sums other than values of these elements")
    places = [value.loops.index(loop) for loop in (inner, *kept)]
    behind = range(len(value.loops), len(value.loops) + value.ndim)
    made = segmented(offsets, view_of(builder, value.node, [*places, *behind], ()), outer.count, kind)
    loops = tuple(sorted((outer, *kept), key=lambda loop: loop.number))
    order = [(outer, *kept).index(loop) for loop in loops]
    return view_of(builder, made.node, [*order, *range(len(loops), made.ndim)], loops)


def row_elements(a: Array, keys: Sequence[Any], *, assigned: bool = False) -> CsrRows | None:
    """Implements `a[offsets[r] : offsets[r + 1]]` in a loop over all rows `r`; None for other keys.

    Raises:
        Untraceable: the bounds are other values, or the loop does not cover all rows.
    """
    bounded = [one for one in keys if isinstance(one, slice) and _is_read(a.builder, one.start)]
    if not bounded:
        return None
    start, stop = (_offset(a.builder, bound) for bound in (bounded[0].start, bounded[0].stop))
    loops = bounded[0].start.loops
    if start is None or stop is None or start[0] != stop[0] or (start[1], stop[1]) != (0, 1):
        raise Untraceable("a slice whose bounds are values, other than two neighbouring offsets of rows")
    offsets = Array(a.builder, start[0])
    whole = linear(text_of(offsets.shape[0])) == linear(text_of(loops[0].count)).plus(1)
    if keys[0] is not bounded[0] or a.loops or len(loops) != 1 or loops[0] not in a.builder.open or not whole:
        raise Untraceable("elements between two offsets, other than along the first axis in a loop over all rows")
    if not assigned:
        note_row(a, offsets, loops[0], loops[0].reads)
    row = CsrRows(Array(a.builder, a.node), offsets, loops[0], a)
    return row if all(is_whole(one) for one in keys[1:]) else row[(slice(None), *keys[1:])]


def _is_read(builder: Builder, bound: Any) -> bool:
    return isinstance(bound, Array) and bool(bound.loops) and _offset(builder, bound) is not None


def _offset(builder: Builder, bound: Any) -> tuple[int, int] | None:
    """Returns the vector that a bound is an element of, and the bound's offset from the loop's index; else None."""
    if not isinstance(bound, Array):
        return None
    node = builder.nodes[bound.node]
    while node.op == "cast":
        node = builder.nodes[node.args[0]]
    source = builder.nodes[node.args[0]] if node.args else node
    if node.op != "window" or len(node.args) != 1 or len(source.shape) != 1 or source.dtype[:3] not in ("int", "uin"):
        return None
    (at,) = (AxisMap.of(one) for one in node.data)
    place = linear(at.offset)
    return (node.args[0], place.constant) if at.terms == ((0, 1),) and not place.terms else None
