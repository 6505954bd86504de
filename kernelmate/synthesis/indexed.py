"""NumPy's scans, counts, sums by index, and gathers on traced arrays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernelmate.synthesis.arrays import REDUCTIONS, Array, cast
from kernelmate.synthesis.elements import may_be_negative
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.index_maps import AxisMap, linear
from kernelmate.synthesis.primitives import broadcast_to, picked, reshape, segmented, take, where
from kernelmate.synthesis.row_values import RowValues
from kernelmate.synthesis.sizes import Untraceable, product, text_of
from kernelmate.synthesis.slices import diff, flip


def scanned(a: Array, kind: str, axis: Any = None, dtype: Any = None, out: Any = None) -> Array:
    """Computes a scan (`sum`, `prod`, `max`, `min` or `logaddexp`) along an axis."""
    another = dtype is not None and (np.dtype(dtype).kind == "f") != (a.dtype.kind == "f")
    if out is not None or another or kind not in ("sum", "prod", "max", "min", "logaddexp"):
        raise Untraceable(f"a scan ({kind}) with out or another kind of dtype, or of another operation")
    if axis is None and a.ndim != 1:
        raise Untraceable(f"a scan ({kind}) of an array whose axes it merges")
    place = 0 if axis is None else int(axis) % a.ndim
    if kind == "logaddexp" and a.dtype.kind != "f":
        a = cast(a, np.float64)
    if a.dtype.kind in "bu" or (a.dtype.kind == "i" and kind in ("sum", "prod")):
        a = cast(a, np.int64)
    if text_of(a.shape[place]) == "1":
        return a
    return _scan(a, kind, place, backwards=False)


def _scan(a: Array, kind: str, axis: int, *, backwards: bool) -> Array:
    return a.builder.add("scan", [a], a.shape, a.dtype, (kind, axis, backwards))


def turned(a: Array, axis: Any = None) -> Array:
    """Returns the array with some axes reversed; reversing a scan gives a scan from the end."""
    axes = range(a.ndim) if axis is None else axis if isinstance(axis, tuple | list) else (axis,)
    for one in axes:
        a = _turned(a, int(one) % a.ndim)
    return a


def _turned(a: Array, axis: int) -> Array:
    node = a.builder.nodes[a.node]
    if node.op != "scan" or node.data[1] != axis:
        return flip(a, axis)
    operand = _turned_back(Array(a.builder, node.args[0]), axis)
    return _scan(operand, str(node.data[0]), axis, backwards=not node.data[2])


def _turned_back(a: Array, axis: int) -> Array:
    """Reverses an array; a map's operands are reversed instead, so that double reversals cancel."""
    node = a.builder.nodes[a.node]
    if text_of(a.shape[axis]) == "1":
        return a
    if node.op in ("map", "cast"):
        args = [Array(a.builder, one) for one in node.args]
        several = [_turned_back(one, one.ndim - a.ndim + axis) if one.ndim >= a.ndim - axis else one for one in args]
        return a.builder.add(node.op, several, a.shape, a.dtype, node.data)
    source = Array(a.builder, node.args[0]) if node.op == "window" else a
    return source if source.ndim == a.ndim and flip(source, axis).node == a.node else flip(a, axis)


def along(a: Array, index: Array, axis: int) -> Array:
    """Takes elements of an axis by an index array, as `np.take_along_axis` does."""
    same = [int(x) == int(y) for place, (x, y) in enumerate(zip(a.shape, index.shape, strict=True)) if place != axis]
    if index.dtype.kind not in "iu" or not all(same):
        raise Untraceable("np.take_along_axis with an index of another shape than the array's")
    return a.builder.add("along", [a, index], index.shape, a.dtype, (axis,))


def counted(x: Any, weights: Any = None, minlength: Any = 0) -> Array:
    """Counts occurrences of each index, or sums its weights (`np.bincount`).

    Indices are assumed to be below `minlength`, as the contract's shapes imply.
    """
    if isinstance(x, Segments):
        return x.summed(weights, minlength)
    if text_of(minlength) == "0":
        raise Untraceable("np.bincount without minlength, whose result has a length that depends on values")
    if not isinstance(x, Array) or x.dtype.kind not in "iu" or x.ndim != 1:
        raise Untraceable("np.bincount of other than a vector of whole numbers")
    if weights is None:
        return x.builder.add("scatter", [x], [minlength], np.int64)
    values = cast(x.builder.lift(weights), np.float64)
    if tuple(map(int, values.shape)) != tuple(map(int, x.shape)):
        raise Untraceable("np.bincount with weights of another shape")
    return x.builder.add("scatter", [x, values], [minlength], values.dtype)


def added_at(ufunc: np.ufunc, target: Any, index: Any, values: Any) -> None:
    """Implements `np.add.at`, `np.subtract.at`, `np.maximum.at` and `np.minimum.at` on a traced target."""
    if ufunc.__name__ in ("maximum", "minimum") and isinstance(target, Array):
        found = _extremes(ufunc.__name__[:3], target, index, values)
        neutral = -np.inf if ufunc.__name__ == "maximum" else np.inf
        target.assign(found if _filling(target) == neutral else ufunc(target, found))
        return
    if ufunc.__name__ not in ("add", "subtract"):
        raise Untraceable(f"np.{ufunc.__name__}.at")
    if not isinstance(target, Array):
        raise Untraceable(f"np.{ufunc.__name__}.at into an array that was not made by the reference's own np")
    values = -target.builder.lift(values) if ufunc.__name__ == "subtract" else values
    if isinstance(index, tuple) and index and all(_is_slice(one, None) or one is Ellipsis for one in index[1:]):
        index = index[0]  # whole rows: `(numbers, slice(None))`
    if isinstance(index, tuple) and len(index) > 1:
        several = [target.builder.lift(one) for one in index]
        if len(index) > target.ndim or not all(one.ndim for one in several):
            raise Untraceable(f"np.{ufunc.__name__}.at by other than whole numbers along each axis")
        numbers = joint_numbers(several, target.shape[: len(index)])
        count = product(target.shape[: len(index)], target.builder.scalar)
        rows = Array(target.builder, target.node)
        if _filling(target) != 0:
            rows = reshape(rows, (count, *target.shape[len(index) :]))
        else:
            rows = target.builder.add("constant", (), [count, *target.shape[len(index) :]], target.dtype, (0,))
        sums = _sums_by_number(rows, numbers, target.builder.lift(values))
        target.assign(reshape(_added(rows, sums), target.shape))
        return
    if isinstance(index, Segments):
        target.assign(_added(target, index.summed(values, target.shape[0])))
        return
    index, values = target.builder.lift(index), target.builder.lift(values)
    if not target.ndim or index.dtype.kind not in "iu" or not index.ndim:
        raise Untraceable(f"np.{ufunc.__name__}.at of other than elements or rows of an array by whole numbers")
    if values.dtype.kind == "f" and target.dtype.kind != "f":
        raise Untraceable(f"np.{ufunc.__name__}.at that rounds its values")
    target.assign(_added(target, _sums_by_number(target, index, values)))


def _extremes(kind: str, target: Array, index: Any, values: Any) -> Array:
    """Returns the maximum or minimum of the values of each index, in the target's shape."""
    if isinstance(index, Segments):
        return index.reduced(values, target.shape[0], kind)
    index, values = target.builder.lift(index), target.builder.lift(values)
    if target.ndim != 1 or index.ndim != 1 or index.dtype.kind not in "iu" or values.dtype != target.dtype:
        raise Untraceable(
            f"np.{kind}imum.at of other than elements of a vector, of its dtype, by a vector of whole numbers"
        )
    values = broadcast_to(values, index.shape)
    return target.builder.add("scatter", [index, values], target.shape, target.dtype, (kind,))


def _filling(a: Array) -> Any:
    """Returns the value of a constant array, such as that of `np.full`; None for other arrays."""
    nodes = a.builder.nodes
    node = nodes[a.node]
    if node.op == "map" and node.data[0] == "add" and nodes[node.args[1]].data[:1] == (0,):
        node = nodes[node.args[0]]
    return node.data[0] if node.op == "constant" else None


def _sums_by_number(target: Array, index: Array, values: Array) -> Array:
    """Sums elements, or rows, by index, in the target's shape."""
    rest = target.shape[1:]
    if index.ndim > 1 or (target.ndim > 1 and values.ndim != index.ndim + len(rest)):
        values = broadcast_to(values, (*index.shape, *rest))
    if index.ndim > 1:
        index = reshape(index, -1)
    if target.ndim == 1:
        values = reshape(values, -1) if values.ndim > 1 else values
        return target.builder.add("scatter", [index, values], target.shape, target.dtype)
    wide = target if target.ndim == 2 else reshape(target, (target.shape[0], -1))
    values = reshape(values, (index.shape[0], wide.shape[1]))
    sums = target.builder.add("scatter", [index, values], wide.shape, target.dtype)
    return sums if target.ndim == 2 else reshape(sums, target.shape)


def _added(target: Array, sums: Array) -> Array:
    """Adds sums to an array's earlier contents; for an array of zeros, returns only the sums."""
    node = target.builder.nodes[target.node]
    return sums if node.op == "constant" and node.data[0] == 0 else target + sums


class Segments:
    """The row of each element of a CSR matrix: `np.repeat(np.arange(rows), np.diff(offsets))`."""

    def __init__(self, offsets: Array, rows: int) -> None:
        self.offsets, self.rows = offsets, rows

    def summed(self, values: Any, rows: Any) -> Array:
        """Returns the sum of each row's values; without values, the number of elements."""
        if values is None and int(rows) == int(self.rows):
            lengths: Array = difference(self.offsets)
            return lengths
        return self.reduced(values, rows, "sum")

    def reduced(self, values: Any, rows: Any, kind: str) -> Array:
        """Returns the sum, the maximum or the minimum of each row's values."""
        if int(rows) != int(self.rows):
            raise Untraceable("sums by row with another number of rows than the offsets have")
        return segmented(self.offsets, values, self.rows, kind)

    def of(self, values: Array) -> RowValues:
        """Returns `values[self]`: for each element, the value of its row."""
        if not values.ndim or int(values.shape[0]) != int(self.rows) or values.loops:
            raise Untraceable("indexing by the row of each element, of an array with another number of rows")
        return RowValues(values, self.offsets)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **_: Any) -> Any:
        if method == "at":
            return added_at(ufunc, *inputs)
        raise Untraceable("the row of each element by other than np.bincount or np.add.at")

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if func.__name__ != "bincount":
            raise Untraceable("the row of each element by other than np.bincount or np.add.at")
        return counted(*args, **kwargs)


def difference(a: Array, n: Any = 1, axis: Any = -1, **more: Any) -> Any:
    """Computes `np.diff`; for integer vectors, which may be row offsets, as a difference of picked elements."""
    if a.ndim != 1 or n != 1 or a.dtype.kind not in "iu" or more:
        return diff(a, n, axis, **more)
    front = a.builder.add("iota", (), [a.shape[0] - 1], np.int64)
    return picked(a, front + 1, 0) - picked(a, front, 0)


def repeated(a: Any, repeats: Any, axis: Any = None) -> Any:
    """Computes `np.repeat` with a number, or with the row lengths of a CSR matrix."""
    if isinstance(repeats, Array) and isinstance(a, Array) and axis in (None, 0):
        offsets = _offsets(repeats)
        if offsets is not None and int(a.shape[0]) == int(repeats.shape[0]) and (a.ndim == 1 or axis == 0):
            of_rows = a.builder.nodes[a.node].op == "iota"
            return Segments(offsets, repeats.shape[0]) if of_rows else RowValues(a, offsets)
    place = 0 if axis is None else int(axis) % a.ndim
    if not isinstance(a, Array) or not isinstance(repeats, int) or (axis is None and a.ndim != 1):
        raise Untraceable("np.repeat by other than a number, or the lengths of rows")
    return picked(a, a.builder.add("iota", (), [a.shape[place] * repeats], np.int64) // repeats, place)


def _offsets(lengths: Array) -> Array | None:
    """Returns the vector of row offsets whose differences are the given lengths; None if there is none."""
    nodes = lengths.builder.nodes
    node = nodes[lengths.node]
    while node.op == "cast":
        lengths = Array(lengths.builder, node.args[0])
        node = nodes[lengths.node]
    if node.op != "map" or node.data[0] != "subtract" or nodes[node.args[0]].op != "pick":
        return None
    offsets = Array(lengths.builder, nodes[node.args[0]].args[0])
    same = offsets.ndim == 1 and difference(offsets).node == lengths.node
    return offsets if same else None


def accumulated(ufunc: np.ufunc, array: Array, axis: Any = 0, dtype: Any = None, out: Any = None) -> Array:
    """Computes a ufunc's `accumulate`."""
    return scanned(array, REDUCTIONS.get(ufunc.__name__, ufunc.__name__), axis, dtype, out)


def reduced_at(ufunc: np.ufunc, array: Any, indices: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Array:
    """Computes a ufunc's `reduceat` for ascending offsets along the first axis.

    As in NumPy, an empty segment gives one element.
    """
    kind = REDUCTIONS.get(ufunc.__name__, ufunc.__name__)
    if kind not in ("sum", "max", "min") or dtype is not None or out is not None:
        raise Untraceable(f"np.{ufunc.__name__}.reduceat" + " with dtype or out" * (kind in ("sum", "max", "min")))
    if not isinstance(indices, Array) or indices.ndim != 1 or indices.dtype.kind not in "iu":
        raise Untraceable(f"np.{ufunc.__name__}.reduceat at other than a vector of offsets")
    if not isinstance(array, Array) or int(axis) % array.ndim:
        raise Untraceable(f"np.{ufunc.__name__}.reduceat along another axis than the first")
    return segmented(_all_offsets(indices), array, indices.shape[0], kind, fewest=1)


def _all_offsets(indices: Array) -> Array:
    """Returns the vector `p` for offsets `p[:-1]`; other offsets are returned unchanged."""
    nodes = indices.builder.nodes
    node = nodes[indices.node]
    while node.op == "cast":
        node = nodes[node.args[0]]
    source = nodes[node.args[0]] if node.op == "window" and len(node.args) == 1 else node
    if source is node or len(source.shape) != 1 or AxisMap.of(node.data[0]) != AxisMap("0", ((0, 1),)):
        return indices
    whole = linear(source.shape[0]) == linear(text_of(indices.shape[0])).plus(1)
    return Array(indices.builder, node.args[0]) if whole else indices


def by_numbers(a: Array, keys: Sequence[Any]) -> Array | None:
    """Implements `image[:, rows, columns]`: index arrays for adjacent axes, and `:` for all others.

    The indexed axes become a single axis. The result is None for other keys.
    """
    places = [place for place, one in enumerate(keys) if isinstance(one, Array) and one.ndim]
    whole = all(_is_slice(one, None) for place, one in enumerate(keys) if place not in places)
    if len(places) < 2 or len(keys) != a.ndim or not whole or places[-1] - places[0] != len(places) - 1:
        return None
    numbers = joint_numbers([keys[place] for place in places], a.shape[places[0] : places[-1] + 1])
    if len(places) == a.ndim:
        return take(reshape(a, -1), numbers, 0)
    return picked(reshape(a, (*a.shape[: places[0]], -1, *a.shape[places[-1] + 1 :])), numbers, places[0])


def joint_numbers(several: Sequence[Array], shape: Sequence[int]) -> Array:
    """Returns indices along the merged axis of adjacent axes, from index arrays along each of them."""
    if any(one.dtype.kind not in "iu" for one in several):
        raise Untraceable("indexing by other than whole numbers")
    whole = _divided(several, shape)
    if whole is not None:
        return whole
    joint: Any = None
    for one, side in zip(several, shape, strict=True):
        one = cast(one, np.int64)
        if may_be_negative(Graph(tuple(one.builder.nodes), ()), one.node):
            one = where(one < 0, one + side, one)
        joint = one if joint is None else joint * side + one
    assert isinstance(joint, Array)
    return joint


def _divided(several: Sequence[Array], shape: Sequence[int]) -> Array | None:
    """Returns x for the pair of indices `x // side, x % side`; None for others."""
    if len(several) != 2:
        return None
    nodes = several[0].builder.nodes
    row, column = (nodes[one.node] for one in several)
    if (row.data, column.data) != (("floor_divide",), ("remainder",)) or row.args != column.args:
        return None
    source, divisor = (nodes[one] for one in row.args)
    same = divisor.op == "size" and linear(str(divisor.data[0])) == linear(text_of(shape[1]))
    same |= divisor.op == "constant" and str(divisor.data[0]) == text_of(shape[1])
    return Array(several[0].builder, row.args[0]) if same and source.op == "input" else None


def by_number(a: Array, keys: Sequence[Any]) -> Array | None:
    """Implements `x[:, index]`: one index or array of them, and `:` for all other axes; None for other keys."""
    places = [place for place, one in enumerate(keys) if isinstance(one, Array)]
    whole = all(_is_slice(one, None) for place, one in enumerate(keys) if place not in places)
    return picked(a, keys[places[0]], places[0]) if len(places) == 1 and whole and len(keys) == a.ndim else None


def backwards(a: Array, keys: Sequence[Any]) -> Array | None:
    """Implements `[:, ::-1]` on a scan; None for other keys and arrays."""
    axes = [place for place, one in enumerate(keys) if _is_slice(one, -1)]
    whole = all(_is_slice(one, None) for place, one in enumerate(keys) if place not in axes)
    scans = a.builder.nodes[a.node].op == "scan"
    return turned(a, tuple(axes)) if scans and axes and whole and len(keys) == a.ndim else None


def _is_slice(key: Any, step: int | None) -> bool:
    """Returns True if a key is a slice without bounds and with this step."""
    plain = isinstance(key, slice) and key.start is None and key.stop is None
    return plain and type(key.step) is type(step) and key.step == step


def _scans(kind: str) -> Callable[..., Array]:
    def function(a: Array, axis: Any = None, dtype: Any = None, out: Any = None) -> Array:
        return scanned(a, kind, axis, dtype, out)

    return function


INDEXED: dict[str, Callable[..., Any]] = {
    "cumsum": _scans("sum"), "cumprod": _scans("prod"), "bincount": counted, "repeat": repeated,
    "flip": lambda m, axis=None: turned(m, axis), "fliplr": lambda m: turned(m, 1), "flipud": lambda m: turned(m, 0),
}  # fmt: skip
"""Implementations of NumPy functions, by name."""
