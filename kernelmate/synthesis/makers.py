"""NumPy functions that make arrays, with symbolic lengths: `zeros`, `full`, `arange`, `tri`, `eye`, `linspace`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from kernelmate.synthesis.arrays import Array, Builder, cast
from kernelmate.synthesis.composed import indices, shifted
from kernelmate.synthesis.functions import filled
from kernelmate.synthesis.index_maps import length_of, linear
from kernelmate.synthesis.masks import linspace
from kernelmate.synthesis.primitives import broadcast_to, expand_dims
from kernelmate.synthesis.sizes import Untraceable, text_of


def _maker(value: float) -> Callable[..., Array]:
    def make(builder: Builder, shape: Any, dtype: Any = float, *_: Any, **__: Any) -> Array:
        return filled(builder.lift(0), value, dtype, shape)

    return make


def _full(builder: Builder, shape: Any, fill_value: Any, dtype: Any = None, **_: Any) -> Array:
    value = builder.lift(fill_value)
    return broadcast_to(cast(value, dtype or value.dtype), shape if isinstance(shape, tuple | list) else (shape,))


def _arange(builder: Builder, start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Array:
    first, last = (0, start) if stop is None else (start, stop)
    floating = any(isinstance(one, float) for one in (first, last, step))
    first, last, step = (
        int(one) if isinstance(one, float) and one.is_integer() else one for one in (first, last, step)
    )
    if not all(isinstance(one, int) for one in (first, last, step)) or text_of(step) != str(int(step)) or step < 1:
        raise Untraceable("np.arange with a step that is not a positive whole number, or between fractions")
    count = length_of(linear(text_of(first)), linear(text_of(last)), int(step))
    made = builder.add("iota", (), [builder.dim(count)], np.int64)
    made = made if step == 1 else made * int(step)
    made = made if text_of(first) == "0" else made + first
    wanted = dtype or (np.float64 if floating else None)
    return made if wanted is None else cast(made, wanted)


def _tri(builder: Builder, N: Any, M: Any = None, k: Any = 0, dtype: Any = float) -> Array:  # noqa: N803 -- NumPy's names
    """Computes `tri`: ones at and below a diagonal."""
    below = shifted(expand_dims(_arange(builder, N), 1), k) >= _arange(builder, N if M is None else M)
    return cast(below, dtype)


def _eye(builder: Builder, N: Any, M: Any = None, k: Any = 0, dtype: Any = float) -> Array:  # noqa: N803 -- NumPy's names
    """Computes `eye`: ones on a diagonal."""
    return cast(shifted(expand_dims(_arange(builder, N), 1), k) == _arange(builder, N if M is None else M), dtype)


MAKERS: Mapping[str, Callable[..., Any]] = {
    "zeros": _maker(0), "ones": _maker(1), "empty": _maker(0), "full": _full, "arange": _arange, "tri": _tri, "eye": _eye,
    "identity": _eye, "linspace": linspace, "indices": indices,
}  # fmt: skip
