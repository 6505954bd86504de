"""Running sums of traced arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmate.synthesis.arrays import Array, cast
from kernelmate.synthesis.sizes import Untraceable


def cumsum(a: Array, axis: Any = None, dtype: Any = None, out: Any = None) -> Array:
    """Running sums along an axis.

    Raises:
        Untraceable: they go into a given array, or run over several axes.
    """
    if out is not None or (axis is None and a.ndim != 1):
        raise Untraceable("np.cumsum with out" if out is not None else "np.cumsum over several axes")
    if dtype is not None:
        a = cast(a, dtype)
    elif a.dtype.kind in "biu" and a.dtype.itemsize < 8:
        a = cast(a, np.uint64 if a.dtype.kind == "u" else np.int64)
    return a.builder.add("scan", [a], a.shape, a.dtype, (int(axis or 0) % a.ndim,))
