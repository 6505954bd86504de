"""Per-row values of a CSR matrix, repeated for each element of a row: `sums[row_of]`, `np.repeat(sums, lengths)`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from kernelmate.synthesis.arrays import Array, cast, is_whole
from kernelmate.synthesis.sizes import Untraceable, text_of
from kernelmate.synthesis.ufuncs import mapped


def repeated_for(offsets: Array, values: Array, elements: int) -> Array:
    """Repeats the values of rows for each element of a row.

    Args:
        offsets: a vector of rows + 1 integers, or of one integer per row, in which case the last row extends to the end.
        values: an array whose first axis has the rows.
        elements: the number of elements of all rows.
    """
    return offsets.builder.add("repeat", [offsets, values], [elements, *values.shape[1:]], values.dtype)


class RowValues(NDArrayOperatorsMixin):
    """Values of rows, which operations with arrays of row elements repeat for each element.

    Args:
        values: an array whose first axis has the rows.
        offsets: the first element of each row.
    """

    __array_priority__ = 2000

    def __init__(self, values: Array, offsets: Array) -> None:
        # Copies, as NumPy makes them: an assignment to the array changes nothing here.
        self.values, self.offsets = Array(values.builder, values.node), Array(offsets.builder, offsets.node)

    @property
    def ndim(self) -> int:
        """The number of axes, as in NumPy."""
        return self.values.ndim

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype, as in NumPy."""
        return self.values.dtype

    def along(self, elements: Array) -> Array:
        """Returns, for each element, the value of its row; elements run along the first axis or along a separate axis."""
        return repeated_for(self.offsets, self.values, elements.shape[0])

    def astype(self, dtype: Any, **_: Any) -> RowValues:
        """Returns the values converted to another dtype."""
        return RowValues(cast(self.values, dtype), self.offsets)

    def __getitem__(self, key: Any) -> RowValues:
        keys = key if isinstance(key, tuple) else (key,)
        if not (keys[0] is Ellipsis or is_whole(keys[0])):
            raise Untraceable("some of the elements of rows between offsets")
        return RowValues(self.values[keys], self.offsets)

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise Untraceable("a value for each element of rows between offsets, without an array that has these elements")

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **keywords: Any) -> Any:
        """Applies an operation row by row or, if an operand is an array of elements, element by element."""
        elements = [one for one in inputs if isinstance(one, Array) and one.ndim]
        if method != "__call__" or (keywords.keys() - {"where"}):
            raise Untraceable(f"np.{ufunc.__name__}.{method} of values of rows between offsets")
        if elements or out is not None or keywords:
            target = elements or [one for one in (out if isinstance(out, tuple) else (out,)) if isinstance(one, Array)]
            return ufunc(*_met(inputs, target), **({} if out is None else {"out": out}), **keywords)
        if any(isinstance(one, RowValues) and one.offsets.node != self.offsets.node for one in inputs):
            raise Untraceable("values of rows between different offsets")
        rows = [one.values if isinstance(one, RowValues) else one for one in inputs]
        return RowValues(mapped(self.values.builder, ufunc, rows), self.offsets)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Applies NumPy functions, such as `np.where`, to arrays of elements and values of their rows."""
        elements = [one for one in (*args, *kwargs.values()) if isinstance(one, Array) and one.ndim]
        given = _met([*args, *kwargs.values()], elements)
        return func(*given[: len(args)], **dict(zip(kwargs, given[len(args) :], strict=True)))


def _met(values: Sequence[Any], elements: Sequence[Array]) -> list[Any]:
    """Returns the operands, with the values of rows repeated for each element of an array.

    Raises:
        Untraceable: no operand is an array of elements.
    """
    rank = max((one.ndim for one in (*elements, *values) if isinstance(one, Array | RowValues)), default=0)
    wide = next((one for one in elements if one.ndim == rank and text_of(one.shape[0]) != "1"), None)
    if wide is None:
        raise Untraceable("a value for each element of rows between offsets, without an array that has these elements")
    return [one.along(wide) if isinstance(one, RowValues) else one for one in values]
