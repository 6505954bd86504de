"""Rows of a sparse matrix in CSR that a loop takes apart: `values[offsets[r] : offsets[r + 1]]`, and what is summed over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from kernelmate.synthesis.arrays import Array, Builder, cast, mapped
from kernelmate.synthesis.index_maps import AxisMap, linear
from kernelmate.synthesis.primitives import row_sums, take, view_of
from kernelmate.synthesis.sizes import Untraceable, text_of

if TYPE_CHECKING:
    from kernelmate.synthesis.loops import TracedLoop

_ELSE = "elements of a row between two offsets, by other than element-wise operations and sums"


class CsrRows(NDArrayOperatorsMixin):
    """The elements of a turn's row, held as those of all rows behind one another.

    Args:
        values: a vector of the elements of all rows.
        offsets: of the rows' beginnings.
        loop: the loop over rows.
    """

    __array_priority__ = 2000

    def __init__(self, values: Array, offsets: Array, loop: TracedLoop) -> None:
        self.values, self.offsets, self.loop = values, offsets, loop

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **keywords: Any) -> Any:
        """Applies an operation to the elements, or to those of several arrays between the same offsets."""
        if ufunc.__name__ == "matmul" and method == "__call__" and not keywords:
            return (inputs[0] * inputs[1]).sum()
        if ufunc.__name__ == "add" and method == "reduce":
            return self.sum(**{key: value for key, value in keywords.items() if key != "axis"})
        alike = all(one.offsets.node == self.offsets.node for one in inputs if isinstance(one, CsrRows))
        if method != "__call__" or keywords or not alike or any(isinstance(one, Array) and (one.ndim or one.loops) for one in inputs):  # fmt: skip
            raise Untraceable(_ELSE)
        several = [one.values if isinstance(one, CsrRows) else one for one in inputs]
        return self._with(mapped(self.values.builder, ufunc, several))

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Sums and products of vectors."""
        if func.__name__ in ("dot", "vdot", "inner") and len(args) == 2:
            return (args[0] * args[1]).sum()
        if func.__name__ not in ("sum", "mean") or len(args) != 1:
            raise Untraceable(_ELSE)
        return getattr(self, func.__name__)(**kwargs)

    def _with(self, values: Array) -> CsrRows:
        return CsrRows(values, self.offsets, self.loop)

    def astype(self, dtype: Any, **_: Any) -> CsrRows:
        """In another dtype."""
        return self._with(cast(self.values, dtype))

    def taken_from(self, a: Array) -> CsrRows:
        """The elements of a vector by these numbers."""
        if a.ndim != 1 or a.loops or self.values.dtype.kind not in "iu":
            raise Untraceable("rows of an array by the numbers between two offsets")
        return self._with(take(a, self.values))

    def dot(self, other: Any) -> Array:
        """The sum of products."""
        found: Array = (self * other).sum()
        return found

    def sum(self, axis: Any = None, dtype: Any = None) -> Array:
        """The sum of each row."""
        if axis not in (None, 0, -1):
            raise Untraceable(_ELSE)
        values = self.values if dtype is None else cast(self.values, dtype)
        rows = self.loop.count
        sums = row_sums(self.offsets, values, rows)
        return view_of(sums.builder, sums.node, [0], (self.loop,))

    def mean(self, axis: Any = None, dtype: Any = None) -> Any:
        """The mean of each row; that of an empty one is not a number, as in NumPy."""
        return self.sum(axis, dtype) / self.size

    @property
    def size(self) -> Array:
        """The number of elements of each row."""
        row = self.loop.index()
        found: Array = self.offsets[row + 1] - self.offsets[row]
        return found


def row_elements(a: Array, keys: Sequence[Any]) -> CsrRows | None:
    """Handles `a[offsets[r] : offsets[r + 1]]` in a loop over all rows; None for other keys.

    Raises:
        Untraceable: the bounds are values of other arrays, or the loop is over some of the rows.
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
    if len(keys) != 1 or a.loops or len(loops) != 1 or a.builder.open != [loops[0]] or not whole:
        raise Untraceable("elements between two offsets, other than of a vector in a loop over all rows")
    return CsrRows(a, offsets, loops[0])


def _is_read(builder: Builder, bound: Any) -> bool:
    return isinstance(bound, Array) and bool(bound.loops) and _offset(builder, bound) is not None


def _offset(builder: Builder, bound: Any) -> tuple[int, int] | None:
    """The vector of which a bound is an element, and how far that lies behind the turn's number."""
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
