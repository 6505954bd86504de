"""Changes of arrays that a contract's `inputs` function made, within what their contents show of their structure.

Such a function makes indices, offsets and other bound integers, and draws most floating numbers at will. Integers, and
floating numbers that a structure binds, stay as they were made; others are scaled, rearranged, or replaced by values
with which code compares them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmate.checks.perturbation import is_ascending
from kernelmate.checks.precision import Array, Arrays, is_float
from kernelmate.checks.styles import InputStyle, is_free
from kernelmate.checks.values import close, plant_constants, repeated, strided
from kernelmate.records import Contract, Size
from kernelmate.source import numpy_dtype

FEWEST = 4
"""Minimum number of elements of an array whose structure can be judged."""

MOST_REPEATED = 0.25
"""Maximum share of an array's elements that equal another one: masks, padding and triangles have more."""

EXACT_SUM = 1e-3
"""Relative deviation of the sums, or the norms, of all rows from 1 up to which they count as normalised."""


def adapted(contract: Contract, size: Size, made: Arrays, style: InputStyle, rng: Any) -> Arrays:
    """Returns the arrays of an `inputs` function as a style of inputs changes them.

    Floating arrays without a visible structure change: their scale, their order within rows, equal elements and zeros by
    the style's name, and planted constants. Only constants within the drawn range are planted in integer arrays. Arrays
    with a declared distribution do not change.

    Args:
        contract: the directions and dtypes of the arrays.
        size: the size at which they were made.
        made: the arrays by argument.
        style: the style of the launch.
        rng: a NumPy generator.
    """
    constants = dict(style.constants)
    found = dict(made)
    for argument in contract.args:
        if argument.name not in made or not is_free(argument):
            continue
        array, values = made[argument.name], constants.get(argument.name, ())
        if not array.size:
            continue
        if not is_float(numpy_dtype(argument.dtype)):
            values = tuple(value for value in values if array.min() <= value <= array.max())
        elif not is_open(array):
            continue
        else:
            values = tuple(value for value in values if _allows(array, value))
            array = _restyled(array, style, rng)
        if values:
            planted = plant_constants(argument, array.copy(), size, values, rng, alone=style.alone)
            array = np.clip(planted, made[argument.name].min(), None) if _has_one_sign(array) else planted
        found[argument.name] = array
    return found


def is_open(array: Array) -> bool:
    """Returns True if nothing shows that a floating array's values are bound.

    They are bound in sorted rows, symmetric matrices, rows with a sum or a norm of 1, and if many elements are equal.
    """
    with np.errstate(all="ignore"):
        values = np.asarray(array, np.float64)
    if values.size < FEWEST or not np.isfinite(values).all() or is_ascending(values) or is_ascending(-values):
        return False
    if values.size - np.unique(values).size > MOST_REPEATED * values.size:
        return False
    if (
        values.ndim >= 2
        and values.shape[-1] == values.shape[-2] > 1
        and np.array_equal(values, values.swapaxes(-1, -2))
    ):
        return False
    rows = values.reshape(-1, values.shape[-1]) if values.ndim and values.shape[-1] > 1 else values.reshape(1, -1)
    sums = rows.sum(axis=1), np.linalg.norm(rows, axis=1), values.reshape(len(values), -1).sum(axis=-1)
    return not any(bool((np.abs(one - 1) <= EXACT_SUM).all()) for one in sums)


def _has_one_sign(array: Array) -> bool:
    """Returns True if no element is negative, as in probabilities, variances, weights and lengths."""
    return bool((array >= 0).all())


def _allows(array: Array, value: float) -> bool:
    """Returns True if an array may hold a value: of its sign, and at most 1 if all its elements are fractions."""
    return not _has_one_sign(array) or 0 <= value <= (1 if bool((array <= 1).all()) else np.inf)


def _restyled(array: Array, style: InputStyle, rng: Any) -> Array:
    """Returns an array of which the style changes the scale, or the order or equality of elements."""
    if style.name == "zeros":
        return array if bool((array > 0).all()) else np.zeros_like(array)
    if style.name == "strided":
        return strided(array, style.strides)
    if style.name == "repeated":
        return repeated(array.copy(), rng)
    if style.name == "close" and array.dtype.kind == "f" and array.dtype.itemsize > 2:
        return close(array.copy(), rng)
    if style.name != "normal" or style.scale == 1 or _has_one_sign(array):
        return array
    with np.errstate(all="ignore"):
        scaled = (array * style.scale).astype(array.dtype)
    return scaled if np.isfinite(np.asarray(scaled, np.float64)).all() else array
