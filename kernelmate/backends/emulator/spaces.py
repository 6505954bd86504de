"""State spaces within the generic address space.

Addresses of global and constant memory are generic addresses. Shared, local and parameter memory have a window each; an
address in one of those spaces is an offset from its window.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelmate.backends.emulator.types import Array

WINDOW_BYTES = 1 << 32
SHARED_WINDOW = 1 << 40
LOCAL_WINDOW = SHARED_WINDOW + WINDOW_BYTES
PARAM_WINDOW = LOCAL_WINDOW + WINDOW_BYTES
FUNCTION_BASE = PARAM_WINDOW + WINDOW_BYTES
CALL_PARAMETERS = 1 << 30
"""First address of a thread's call parameters among parameter addresses; the kernel's own are below."""
GLOBAL_BASE = 1 << 44
BUFFER_SPACING = 1 << 37
"""Bytes from one buffer's start to the next one's: 32-bit index arithmetic cannot reach from one into another."""

_WINDOWS = {"shared": SHARED_WINDOW, "local": LOCAL_WINDOW, "param": PARAM_WINDOW}


def _window(space: str) -> int:
    return _WINDOWS.get(space.split("__")[0], 0)


def to_generic(space: str) -> Callable[[Array], Array]:
    """Adds the window's start."""
    start = np.uint64(_window(space))
    return (lambda value: value + start) if start else (lambda value: value)


def from_generic(space: str) -> Callable[[Array], Array]:
    """Returns a function that subtracts the start of the space's window from generic addresses."""
    start = np.uint64(_window(space))
    return (lambda value: value - start) if start else (lambda value: value)


def in_space(space: str) -> Callable[[Array], Array]:
    """Returns a test for generic addresses in the space."""
    name = space.split("__")[0]
    if name in _WINDOWS:
        start = np.uint64(_WINDOWS[name])
        return lambda value: (value - start) < np.uint64(WINDOW_BYTES)
    if name == "const":
        return lambda value: np.zeros(value.shape, bool)
    return lambda value: value >= np.uint64(GLOBAL_BASE)


def space_of(address: int) -> str:
    """Returns the state space of a generic address; `global` outside all windows."""
    for name, start in _WINDOWS.items():
        if start <= address < start + WINDOW_BYTES:
            return name
    return "global"
