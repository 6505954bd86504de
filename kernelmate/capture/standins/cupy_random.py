"""Stand-in for `cupy.random`: NumPy's generators, which draw other numbers than CuPy's from equal seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np


class HostGenerator:
    """A generator of NumPy's that gives stand-in arrays."""

    def __init__(self, generator: Any) -> None:
        self._generator = generator

    def __getattr__(self, name: str) -> Any:
        return _drawing(getattr(self._generator, name))


def default_rng(seed: Any = None) -> HostGenerator:
    """Returns a generator."""
    return HostGenerator(np.random.default_rng(seed))


def _drawing(function: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that draws, with CuPy's parameter `dtype` for those of NumPy that have none."""

    def draw(*args: Any, **named: Any) -> Any:
        try:
            return cupy._taken(function(*args, **named))
        except TypeError:
            dtype = named.pop("dtype", None)
            if dtype is None:
                raise
            return cupy._taken(np.asarray(function(*args, **named)).astype(dtype))

    return draw


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    value = getattr(np.random, name)
    return value if isinstance(value, type) else _drawing(value)
