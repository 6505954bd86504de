"""Kinds of numbers: which dtypes round, how finely, and what they are compared in."""

from __future__ import annotations

import functools
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Arrays = dict[str, Array]


def on_device(array: object) -> bool:
    """True for CuPy's arrays, which lie in a GPU's memory."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(array, cupy.ndarray)


def module_of(array: object) -> Any:
    """The array module of an array: CuPy for those on a GPU, else NumPy."""
    return sys.modules["cupy"] if on_device(array) else np


def on_host(array: Any) -> Array:
    """The array in the host's memory; itself where it is there."""
    return np.asarray(array.get() if on_device(array) else array)


BLOCK_ELEMENTS = 1 << 15
"""Elements that are worked on together: several arrays of so many stay in a core's cache."""


def blocks_of(array: Any) -> Iterator[slice]:
    """Stretches of an array's elements in memory order, to work on one after the other: the whole where it is on a GPU."""
    step = max(array.size, 1) if on_device(array) else BLOCK_ELEMENTS
    return (slice(start, min(start + step, array.size)) for start in range(0, array.size, step))


def flat(array: Array) -> Array:
    """The elements in memory order, one after the other; a view where they lie so."""
    return module_of(array).ascontiguousarray(array).reshape(-1)  # type: ignore[no-any-return]


def generator(seed: tuple[int, ...], beside: object) -> Any:
    """A generator of random numbers in the module of an array; equal seeds and modules give equal numbers."""
    sequence = np.random.SeedSequence(seed)
    if not on_device(beside):
        return np.random.default_rng(sequence)
    random = module_of(beside).random
    return random.Generator(random.Philox4x3210(int(sequence.generate_state(1, np.uint64)[0])))


def is_float(dtype: np.dtype[Any]) -> bool:
    """Real floating point, the types of ml_dtypes included."""
    return dtype.kind == "f" or (dtype.kind == "V" and dtype.names is None)


def is_inexact(dtype: np.dtype[Any]) -> bool:
    """True if results of this dtype are rounded: floating point and complex ones are, integers are exact."""
    return is_float(dtype) or dtype.kind == "c"


def wide(array: Array, working: np.dtype[Any] | None = None) -> Array:
    """The same values in float64, or in `working`; complex ones in its complex pair, integers as they are. A copy."""
    real = np.dtype(np.float64) if working is None else working
    with np.errstate(all="ignore"):
        if array.dtype.kind == "c":
            return array.astype(np.result_type(real, np.complex64))
        return array.astype(real) if is_float(array.dtype) else array.copy()


def words(array: Array) -> Array:
    """An array's bytes as the widest unsigned integers that its elements divide into, along one more axis at its end."""
    bytes_of_each = array.dtype.itemsize
    width = next(size for size in (8, 4, 2, 1) if bytes_of_each % size == 0)
    return flat(array).view(f"u{width}").reshape(*array.shape, bytes_of_each // width)


def same_bits(one: Array, two: Array) -> bool:
    """True if two arrays of a kind hold the same bytes."""
    return one is two or (one.dtype == two.dtype and bool(np.array_equal(words(one), words(two))))


@dataclass(frozen=True, slots=True)
class FloatLimits:
    """Of a floating dtype, or of the parts of a complex one.

    Attributes:
        top: the largest finite number. smallest_normal: the smallest number that has all digits.
        roundoff: half the distance from 1 to the next larger number.
    """

    top: float
    smallest_normal: float
    roundoff: float


@functools.lru_cache
def limits(dtype: np.dtype[Any]) -> FloatLimits:
    """The limits of a floating or complex dtype, those of ml_dtypes included."""
    import ml_dtypes

    part = np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
    info = ml_dtypes.finfo(part)  # type: ignore[no-untyped-call]
    return FloatLimits(float(info.max), float(info.smallest_normal), float(info.eps) / 2)


def unit_roundoff(dtype: np.dtype[Any]) -> float:
    """Half the distance from 1 to the next larger number of a floating dtype; 0 for integers."""
    return limits(dtype).roundoff if is_inexact(dtype) else 0.0
