"""Properties of dtypes: rounding, precision, and the type in which values are compared."""

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
    """Returns True for CuPy arrays, which lie in GPU memory."""
    cupy = sys.modules.get("cupy")
    return cupy is not None and isinstance(array, cupy.ndarray)


def module_of(array: object) -> Any:
    """Returns the module of an array: CuPy for arrays on a GPU, else NumPy."""
    return sys.modules["cupy"] if on_device(array) else np


def on_host(array: Any) -> Array:
    """Returns the array in host memory; the same object if it is there already."""
    return np.asarray(array.get() if on_device(array) else array)


FUSED = np.dtype(np.float32, metadata={"fused": True})
"""float32 arithmetic in which a sum with a product is one fused multiply-add, rounded once, as GPU compilers emit."""


def is_fused(working: np.dtype[Any] | None) -> bool:
    """Returns True for `FUSED`, which compares equal to float32."""
    return working is not None and bool(working.metadata) and "fused" in (working.metadata or {})


BLOCK_ELEMENTS = 1 << 15
"""Elements per block, such that several arrays of that length fit into a core's cache."""


def blocks_of(array: Any) -> Iterator[slice]:
    """Yields slices over an array's elements in memory order, to be processed one by one; one slice for GPU arrays."""
    step = max(array.size, 1) if on_device(array) else BLOCK_ELEMENTS
    return (slice(start, min(start + step, array.size)) for start in range(0, array.size, step))


def flat(array: Array) -> Array:
    """Returns the elements in memory order as one dimension; a view if they are contiguous."""
    return module_of(array).ascontiguousarray(array).reshape(-1)  # type: ignore[no-any-return]


def generator(seed: tuple[int, ...], beside: object) -> Any:
    """Creates a random generator in the module of an array; equal seeds and modules give equal numbers."""
    sequence = np.random.SeedSequence(seed)
    if not on_device(beside):
        return np.random.default_rng(sequence)
    random = module_of(beside).random
    return random.Generator(random.Philox4x3210(int(sequence.generate_state(1, np.uint64)[0])))


def is_float(dtype: np.dtype[Any]) -> bool:
    """Returns True for real floating types, those of ml_dtypes included."""
    return dtype.kind == "f" or (dtype.kind == "V" and dtype.names is None)


def is_inexact(dtype: np.dtype[Any]) -> bool:
    """Returns True for floating and complex dtypes, whose results are rounded; integers are exact."""
    return is_float(dtype) or dtype.kind == "c"


def wide(array: Array, working: np.dtype[Any] | None = None) -> Array:
    """Returns a copy in float64, or in `working`; complex arrays in the corresponding complex type, integers unchanged."""
    real = np.dtype(np.float64) if working is None else working
    with np.errstate(all="ignore"):
        if array.dtype.kind == "c":
            return array.astype(np.result_type(real, np.complex64))
        return array.astype(real) if is_float(array.dtype) else array.copy()


def words(array: Array) -> Array:
    """Returns an array's bytes as the widest unsigned integers that divide its item size, along a new last axis."""
    bytes_of_each = array.dtype.itemsize
    width = next(size for size in (8, 4, 2, 1) if bytes_of_each % size == 0)
    return flat(array).view(f"u{width}").reshape(*array.shape, bytes_of_each // width)


def same_bits(one: Array, two: Array) -> bool:
    """Returns True if two arrays of one dtype hold the same bytes."""
    return one is two or (one.dtype == two.dtype and bool(np.array_equal(words(one), words(two))))


@dataclass(frozen=True, slots=True)
class FloatLimits:
    """Limits of a floating dtype, or of the components of a complex one.

    Attributes:
        top: the largest finite number.
        smallest_normal: the smallest normal number.
        roundoff: half the distance from 1 to the next larger number.
    """

    top: float
    smallest_normal: float
    roundoff: float


@functools.lru_cache
def limits(dtype: np.dtype[Any]) -> FloatLimits:
    """Returns the limits of a floating or complex dtype, those of ml_dtypes included."""
    import ml_dtypes

    part = np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype
    info = ml_dtypes.finfo(part)  # type: ignore[no-untyped-call]
    return FloatLimits(float(info.max), float(info.smallest_normal), float(info.eps) / 2)


def unit_roundoff(dtype: np.dtype[Any]) -> float:
    """Returns half the distance from 1 to the next larger number of a floating dtype; 0 for integers."""
    return limits(dtype).roundoff if is_inexact(dtype) else 0.0
