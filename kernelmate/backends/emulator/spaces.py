"""State spaces within the generic address space.

Addresses of global and constant memory are generic addresses. Shared, local and parameter memory have a window each; an
address in one of those spaces is an offset from its window.

The window of shared memory starts with the part of the block itself (`shared::cta`), which is followed by a part for each
block of its cluster in the order of ranks (`shared::cluster`). `mapa` gives the block's own variables their own
addresses, so that a location has one address in each block.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from kernelmate.backends.emulator.types import Array

WINDOW_BYTES = 1 << 32
SHARED_WINDOW = 1 << 40
PART_SHIFT = 24
"""A block's part of the window of shared memory has 2 to this power bytes."""
PART_MASK = (1 << PART_SHIFT) - 1
CLUSTER_SHARED = "shared::cluster"
"""State space of the shared memory of all blocks of a cluster; a block's own is `shared`."""
_MOST_PARTS = 0x80
"""Number of parts that are distinguished; a larger number is a negative offset from the block's own part."""
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
    """Returns a function that adds the start of the space's window."""
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
        size = np.uint64(1 << PART_SHIFT if space in {"shared", "shared__cta"} else WINDOW_BYTES)
        return lambda value: (value - start) < size
    if name == "const":
        return lambda value: np.zeros(value.shape, bool)
    return lambda value: value >= np.uint64(GLOBAL_BASE)


def cluster_addresses(addresses: Array, ranks: Array, own: Array) -> Array:
    """Returns addresses of shared memory moved into the ranges of the cluster's blocks `ranks`; `own` is each lane's block."""
    kind = addresses.dtype.type
    part = np.where(ranks == own, 0, np.minimum(ranks, _MOST_PARTS - 2) + 1).astype(addresses.dtype)
    return np.asarray((addresses & ~kind(0xFF << PART_SHIFT)) | (part << kind(PART_SHIFT)))


def parts_of(addresses: Array) -> Array:
    """Returns 0 for addresses of the block's own shared memory, 1 + rank for those of a block of its cluster."""
    part = addresses.astype(np.int64) >> PART_SHIFT
    return np.where((part > 0) & (part < _MOST_PARTS), part, 0)


def ranks_of(addresses: Array, own: Array) -> Array:
    """Returns the ranks of the blocks whose shared memory addresses point to, generic or not."""
    part = parts_of(addresses.astype(np.uint64) & np.uint64(WINDOW_BYTES - 1))
    return np.where(part > 0, part - 1, own).astype(np.uint32)


def space_of(address: int) -> str:
    """Returns the state space of a generic address; `global` outside all windows."""
    for name, start in _WINDOWS.items():
        if start <= address < start + WINDOW_BYTES:
            return name
    return "global"
