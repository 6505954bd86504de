"""Sorting along an axis: `np.sort`, `np.partition`, `np.argsort`, `np.median`, `np.quantile`.

A few values are sorted by exchanges without a loop. Of more values, only the first or last few in order are traced, each
as the smallest or largest of those that are left.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy as np

from kernelmate.synthesis.arrays import Array, cast, is_whole, line_of
from kernelmate.synthesis.joining import stack
from kernelmate.synthesis.primitives import expand_dims, reduced_along, where
from kernelmate.synthesis.sizes import Untraceable, text_of

MOST_RANKS = 16
"""Maximum number of values at either end of an order that are found one after the other."""

_LONGER = 1 << 30
"""A length that no axis has, which distinguishes positions counted from the start from those counted from the end."""

MOST_SORTED = 25
"""Maximum number of values that are sorted by exchanges without a loop."""


def exchanges(count: int) -> list[tuple[int, int]]:
    """Returns the pairs of positions that Batcher's odd-even merge sort exchanges, in order.

    Knuth, The Art of Computer Programming, volume 3, algorithm 5.2.2M.
    """
    pairs: list[tuple[int, int]] = []
    top = 1 << max(count - 1, 0).bit_length() >> 1
    step = top
    while step:
        quotient, remainder, distance = top, 0, step
        while True:
            pairs += [(at, at + distance) for at in range(count - distance) if at & step == remainder]
            if quotient == step:
                break
            distance, quotient, remainder = quotient - step, quotient >> 1, step
        step >>= 1
    return pairs


MOST_PLACES = 8
"""Maximum number of values whose positions are sorted, by exchanges of adjacent values only: equal values keep their order."""


def median(a: Array, axis: Any = None, out: Any = None, keepdims: Any = False) -> Any:
    """The middle of a few values along one axis; NaN if one of them is."""
    return _quantile(a, 0.5, axis, "median" if out is None else "median with out", keepdims=keepdims)


def quantile(a: Array, q: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    """A quantile of a few values along one axis, between two of them by linear interpolation; NaN if one of them is."""
    if not isinstance(q, int | float) or not 0 <= q <= 1:
        raise Untraceable("np.quantile of other than a number from 0 to 1")
    return _quantile(a, q, axis, "quantile", keepdims=keepdims)


def percentile(a: Array, q: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    """Returns the quantile at `q` per cent along an axis, as `np.percentile`."""
    if not isinstance(q, int | float) or not 0 <= q <= 100:
        raise Untraceable("np.percentile of other than a number from 0 to 100")
    return _quantile(a, q / 100, axis, "percentile", keepdims=keepdims)


def _quantile(a: Array, share: float, axis: Any, name: str, *, keepdims: Any) -> Any:
    values, place = _values(a, axis, MOST_SORTED, name)
    unordered = [one for one in values if one.dtype.kind == "f"]
    values = _sorted([one if one.dtype.kind == "f" else cast(one, np.float64) for one in values])
    low, between = divmod(share * (len(values) - 1), 1)
    found = values[int(low)]
    if between:
        above = values[int(low) + 1]
        found = 0.5 * (found + above) if between == 0.5 else found + between * (above - found)
    for one in reversed(unordered):
        found = where(np.isnan(one), one, found)
    return expand_dims(found, place) if keepdims else found


def sort(a: Array, axis: Any = -1, **_: Any) -> Array:
    """Returns the values in ascending order; NaN is not supported: a copy of another value would replace it."""
    if _is_long(a, axis, MOST_SORTED):
        return Ordered(a, operator.index(axis) % a.ndim, places=False)
    values, place = _values(a, axis, MOST_SORTED, "sort")
    return stack(_sorted(values), place)


def partition(a: Array, kth: Any, axis: Any = -1, **_: Any) -> Array:  # noqa: ARG001
    """Returns all values in ascending order, which meets the order that `np.partition` promises for any `kth`."""
    return sort(a, axis)


def argpartition(a: Array, kth: Any, axis: Any = -1, **_: Any) -> Array:  # noqa: ARG001
    """Returns the indices of all values in ascending order, which meets what `np.argpartition` promises for any `kth`."""
    return argsort(a, axis)


def argsort(a: Array, axis: Any = -1, **keywords: Any) -> Array:
    """Returns the indices of the values in ascending order; of equal values, the first comes first."""
    if _is_long(a, axis, MOST_PLACES):
        stable = bool(keywords.get("stable")) or keywords.get("kind") in ("stable", "mergesort")
        return Ordered(a, operator.index(axis) % a.ndim, places=True, stable=stable)
    values, place = _values(a, axis, MOST_PLACES, "argsort")
    places: list[Any] = list(range(len(values)))
    for turn in range(len(values)):
        for low in range(turn % 2, len(values) - 1, 2):
            exchanged = values[low + 1] < values[low]
            for pair in (values, places):
                first, second = pair[low], pair[low + 1]
                pair[low], pair[low + 1] = where(exchanged, second, first), where(exchanged, first, second)
    return stack(places, place)


class Ordered(Array):
    """The values along an axis in ascending order, or their indices; only the first or the last few are computed.

    Args:
        source: the values.
        axis: the axis along which they are ordered.
        places: True for the indices of the values.
        stable: True if the first of equal values must come first.
        of_negated: True for the order of the values with the other sign, which are the values then.
        reverse: True for the opposite order.
        negated: True if the result has the other sign.
        wanted: the dtype of the result; None for that of the values, or of indices.
    """

    def __init__(
        self,
        source: Array,
        axis: int,
        *,
        places: bool,
        stable: bool = False,
        of_negated: bool = False,
        reverse: bool = False,
        negated: bool = False,
        wanted: Any = None,
    ) -> None:
        node = source.builder.nodes[source.node]
        if node.op == "map" and node.data[0] == "negative" and not source.loops:
            source, of_negated = Array(source.builder, node.args[0]), not of_negated
        super().__init__(source.builder, source.node)
        self._source, self._axis, self._places, self._stable = source, axis, places, stable
        self._line = line_of(source.builder.file)
        self._of_negated, self._reverse, self._negated = of_negated, reverse, negated
        self._wanted = np.dtype(wanted or (np.int64 if places else source.dtype))

    @property
    def node(self) -> int:
        """Never a node of the graph.

        Raises:
            Untraceable: always, because all ranks are needed.
        """
        raise self._refusal()

    def _refusal(self) -> Untraceable:
        name, most = ("argsort", MOST_PLACES) if self._places else ("sort", MOST_SORTED)
        error = Untraceable(f"np.{name} of more than {most} values, of which not only the first or last {MOST_RANKS} are taken")  # fmt: skip
        error.line = self._line
        return error

    @property
    def recorded(self) -> int:
        """No node has its name."""
        return -1

    @property
    def loops(self) -> tuple[Any, ...]:
        """The loops of the values."""
        return self._source.loops

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the values."""
        return self._source.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values or of their indices."""
        return self._wanted

    def astype(self, dtype: Any, *_: Any, **__: Any) -> Ordered:
        """Returns the order with results of another dtype."""
        return self._like(wanted=np.dtype(dtype))

    def __neg__(self) -> Any:
        if self._places:
            return super().__neg__()
        return self._like(negated=not self._negated)

    def __getitem__(self, key: Any) -> Any:
        keys = list(key) if isinstance(key, tuple) else [key]
        if Ellipsis in keys:
            at = keys.index(Ellipsis)
            keys[at : at + 1] = [slice(None)] * (self.ndim - len(keys) + 1)
        keys += [slice(None)] * (self.ndim - len(keys))
        if len(keys) != self.ndim or any(not is_whole(one) for at, one in enumerate(keys) if at != self._axis):
            raise Untraceable("an element of a sorted array by other than its rank")
        wanted = keys[self._axis]
        if isinstance(wanted, slice):
            ranks = range(*wanted.indices(_LONGER))
            if len(ranks) >= _LONGER - 1:
                return self._like(reverse=self._reverse != (ranks.step < 0))
            if len(ranks) > MOST_RANKS:
                raise self._refusal()
            return stack([self._ranked(one) for one in ranks], self._axis)
        return self._ranked(operator.index(wanted) % _LONGER)

    def _like(self, **changed: Any) -> Ordered:
        given = {"reverse": self._reverse, "negated": self._negated, "wanted": self._wanted, **changed}
        given |= {"of_negated": self._of_negated, "stable": self._stable}
        return Ordered(self._source, self._axis, places=self._places, **given)

    def _ranked(self, rank: int) -> Array:
        """Returns the values (or indices) of one rank along the axis; the result lacks this axis."""
        from_end = rank > _LONGER // 2
        number = _LONGER - 1 - rank if from_end else rank
        if number >= MOST_RANKS:
            raise Untraceable(f"np.sort, of which a rank beyond the first or last {MOST_RANKS} is taken")
        at_end = from_end != self._reverse
        if at_end and self._places and self._stable:
            raise Untraceable("the end of np.argsort(x, kind='stable'), where the last of equal values comes first: sort -x instead")  # fmt: skip
        largest = at_end != self._of_negated
        value, place = _extremes(self._source, self._axis, number + 1, largest=largest, numbers=not at_end)[number]
        if self._places:
            return cast(place, self._wanted)
        return cast(-value if self._negated != self._of_negated else value, self._wanted)


def _extremes(a: Array, axis: int, count: int, *, largest: bool, numbers: bool) -> list[tuple[Array, Array]]:
    """Returns the `count` largest or smallest values along an axis, each with its index, in order.

    Of infinite values that would come last, the index of an earlier one may be returned again.

    Args:
        a: the values.
        axis: the axis.
        count: how many.
        largest: True for the largest ones.
        numbers: True to leave NaN out, which NumPy puts at the end of an order.
    """
    side = a.builder.add("iota", (), [a.shape[axis]], np.int64)
    positions = side.view_of([None] * axis + [0] + [None] * (a.ndim - axis - 1))
    limits = (-np.inf, np.inf) if a.dtype.kind == "f" else (np.iinfo(a.dtype).min, np.iinfo(a.dtype).max)
    last = a.dtype.type(limits[0] if largest else limits[1])
    found: list[tuple[Array, Array]] = []
    if numbers and a.dtype.kind == "f":
        a = where(np.isnan(a), last, a)
    left, taken = a, None
    for _ in range(count):
        place = reduced_along(left, "argmax" if largest else "argmin", axis, np.int64)
        found.append((reduced_along(left, "max" if largest else "min", axis), place))
        here = positions == expand_dims(place, axis)
        taken = here if taken is None else np.logical_or(taken, here)
        left = where(taken, last, a)
    return found


def _is_long(a: Array, axis: Any, most: int) -> bool:
    """Returns True if an axis is longer than `most`, or its length is a contract size."""
    if axis is None or isinstance(axis, tuple) or a.dtype.kind not in "fiu":
        return False
    side = a.shape[operator.index(axis) % a.ndim]
    return text_of(side) != str(int(side)) or int(side) > most


def _values(a: Array, axis: Any, most: int, name: str) -> tuple[list[Any], int]:
    """Returns the values along an axis, and the axis.

    Raises:
        Untraceable: they are more, or of a number that differs.
    """
    place = None if axis is None or isinstance(axis, tuple) else operator.index(axis) % a.ndim
    count = 0 if place is None else int(a.shape[place])
    if place is None or text_of(a.shape[place]) != str(count) or not 0 < count <= most or "out" in name:
        raise Untraceable(f"np.{name} of other than up to {most} values along an axis")
    return [a[(*[slice(None)] * place, at)] for at in range(count)], place


def _sorted(values: list[Any]) -> list[Any]:
    """Returns values of an axis in ascending order."""
    floating = values[0].dtype.kind == "f"
    smaller, larger = (np.fmin, np.fmax) if floating else (np.minimum, np.maximum)
    for low, high in exchanges(len(values)):
        first, second = values[low], values[high]
        values[low], values[high] = smaller(first, second), larger(first, second)
    return values
