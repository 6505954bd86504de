"""Slices that grow or shrink from iteration to iteration (`x[:i]`, `a[i, i + 1 :]`): whole axes under a mask."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from kernelmate.synthesis.arrays import REDUCTIONS, Array
from kernelmate.synthesis.primitives import reduced, where
from kernelmate.synthesis.sizes import Untraceable
from kernelmate.synthesis.ufuncs import mapped

_NEUTRAL = {"sum": 0, "prod": 1, "max": -np.inf, "min": np.inf}

_PRODUCTS = ("dot", "inner", "vdot", "einsum", "tensordot", "matmul")


class Growing(NDArrayOperatorsMixin):
    """Elements of one axis up to, or from, a position that depends on a loop's index.

    Args:
        values: an array with whole axes.
        mask: for each position along the axis, whether the slice has it; its later axes have length 1.
        count: the number of elements.
    """

    __array_priority__ = 2000

    def __init__(self, values: Array, mask: Array, count: Array) -> None:
        self.values, self.mask, self.count = values, mask, count

    def filled(self, neutral: float) -> Array:
        """Returns the whole array with a number in place of the elements that the slice lacks."""
        return where(self.mask, self.values, neutral)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **keywords: Any) -> Any:
        """Applies an operation to slices of equal length and values without their axis, or reduces one."""
        if ufunc is np.matmul and method == "__call__":
            first, second = (one.filled(0) if isinstance(one, Growing) else one for one in inputs)
            return np.matmul(first, second)
        if method == "reduce":
            return self._reduced(REDUCTIONS.get(ufunc.__name__, ufunc.__name__), *inputs[1:], **keywords)
        alike = all(one.mask.node == self.mask.node for one in inputs if isinstance(one, Growing))
        if method != "__call__" or keywords or out is not None or not alike:
            raise Untraceable("slices whose lengths differ between the iterations of a loop, beside others")
        several = [one.values if isinstance(one, Growing) else one for one in inputs]
        return Growing(mapped(self.values.builder, ufunc, several), self.mask, self.count)

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Applies a product of arrays, to which the missing elements add nothing, or a reduction."""
        if func.__name__ in _PRODUCTS:
            return func(*(one.filled(0) if isinstance(one, Growing) else one for one in args), **kwargs)
        if func is np.where and len(args) == 3:
            if any(one.mask.node != self.mask.node for one in args if isinstance(one, Growing)):
                raise Untraceable("slices whose lengths differ between the iterations of a loop, beside others")
            return Growing(
                where(*(one.values if isinstance(one, Growing) else one for one in args)), self.mask, self.count
            )
        if func.__name__ in ("mean", "var", "std") and isinstance(args[0], Growing):
            return getattr(args[0], func.__name__)(*args[1:], **kwargs)
        if func.__name__ in _NEUTRAL and isinstance(args[0], Growing):
            return args[0]._reduced(func.__name__, *args[1:], **kwargs)
        raise Untraceable(
            f"np.{func.__name__} of a slice whose length differs between the iterations of a loop over a size"
        )

    def __array__(self, *_: Any, **__: Any) -> Any:
        """Refuses an operand or a result of varying length."""
        raise Untraceable("an array whose length differs between the iterations of a loop over a size")

    def __getitem__(self, key: Any) -> Any:
        raise Untraceable("a part of a slice whose length differs between the iterations of a loop over a size")

    def dot(self, other: Any) -> Any:
        """Computes the product with another array."""
        return np.dot(self.filled(0), other.filled(0) if isinstance(other, Growing) else other)

    def sum(self, axis: Any = None, **keywords: Any) -> Any:
        """Sums the elements."""
        return self._reduced("sum", axis, **keywords)

    def max(self, axis: Any = None, **keywords: Any) -> Any:
        """Computes the largest element."""
        return self._reduced("max", axis, **keywords)

    def min(self, axis: Any = None, **keywords: Any) -> Any:
        """Computes the smallest element."""
        return self._reduced("min", axis, **keywords)

    def prod(self, axis: Any = None, **keywords: Any) -> Any:
        """Multiplies the elements."""
        return self._reduced("prod", axis, **keywords)

    def mean(self, axis: Any = None, **keywords: Any) -> Any:
        """Computes the mean along the slice's axis."""
        return self._reduced("sum", axis, **keywords) / self._divisor(axis)

    def var(self, axis: Any = None, ddof: int = 0, **keywords: Any) -> Any:
        """Computes the variance along the slice's axis."""
        squares = (self - self.mean(axis, keepdims=True)) ** 2
        return squares._reduced("sum", axis, **keywords) / (self._divisor(axis) - ddof)

    def std(self, axis: Any = None, ddof: int = 0, **keywords: Any) -> Any:
        """Computes the standard deviation along the slice's axis."""
        return np.sqrt(self.var(axis, ddof, **keywords))

    def _divisor(self, axis: Any) -> Any:
        """Returns the number of elements that are reduced along some axes."""
        own = self.values.ndim - self.mask.ndim
        several = range(self.values.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
        return math.prod((self.values.shape[one % self.values.ndim] for one in several if one % self.values.ndim != own), start=self.count)  # fmt: skip

    def _reduced(self, kind: str, axis: Any = None, **keywords: Any) -> Any:
        own = self.values.ndim - self.mask.ndim
        several = range(self.values.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
        if kind not in _NEUTRAL or own not in [one % self.values.ndim for one in several]:
            raise Untraceable("a reduction that keeps an axis whose length differs between the iterations of a loop")
        return reduced(self.filled(_NEUTRAL[kind]), kind, axis, **keywords)


def growing_slice(a: Array, keys: Sequence[Any]) -> Growing | None:
    """Returns the part that keys select if one of them is a slice up to or from a loop's index; None for others."""
    places = [place for place, one in enumerate(keys) if isinstance(one, slice) and _bound(one) is not None]
    if len(places) != 1:
        return None
    (place,) = places
    part = keys[place]
    values = a[(*keys[:place], slice(None), *keys[place + 1 :])]
    after = sum(isinstance(one, slice) for one in keys[place + 1 :])
    position = a.builder.add("iota", (), [a.shape[place]], np.int64).view_of([0, *[None] * after])
    mask = position < part.stop if part.start is None else position >= part.start
    count = part.stop if part.start is None else a.shape[place] - part.start
    return Growing(values, mask, count)


def _bound(part: slice) -> Array | None:
    """Returns the only bound of a slice if it is a value that differs between iterations."""
    if part.step not in (None, 1) or (part.start is None) == (part.stop is None):
        return None
    bound = part.stop if part.start is None else part.start
    return bound if isinstance(bound, Array) and bound.loops and not bound.ndim else None
