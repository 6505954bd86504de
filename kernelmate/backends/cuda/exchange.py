"""Shared memory of the worker, its runner and its emulators, for arrays that are too large to send.

It is mapped before the processes fork, and only written pages take memory. It holds only inputs and the last launch's
outputs; the reader of outputs overwrites them before the next launch.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelmate.backends.base import ArrayArgument, Run

EXCHANGE_BYTES = 16 << 30
"""Bytes of address space; larger launches are refused."""

LARGE_BYTES = 8 << 20
"""Bytes of arrays from which a launch uses shared memory; smaller ones are sent as messages."""

ALIGNMENT = 4096

_MAP_NORESERVE = 0x4000
"""Linux, `<bits/mman.h>`: reserves no memory for unwritten pages."""


@dataclass(frozen=True, slots=True)
class ArrayPlace:
    """An array in the exchange; `offset` is in bytes from its start."""

    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class FilledArray:
    """An array of which every byte is the same."""

    byte: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


class Exchange:
    """The shared memory of one worker.

    Raises:
        OSError: the system refuses the mapping.
    """

    def __init__(self, size: int = EXCHANGE_BYTES) -> None:
        if not sys.platform.startswith("linux"):
            raise OSError("memory is shared between processes on Linux only")
        flags = mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | _MAP_NORESERVE
        self._bytes = np.frombuffer(mmap.mmap(-1, size, flags=flags), np.uint8)
        self._pinned = 0

    def view(self, place: ArrayPlace) -> np.ndarray[Any, Any]:
        """Returns the array at a location; writing to it writes to the exchange."""
        stretch: np.ndarray[Any, Any] = self._bytes[place.offset : place.offset + place.nbytes]
        return stretch.view(place.dtype).reshape(place.shape)

    def clear(self, start: int, end: int) -> None:
        """Overwrites a range of bytes."""
        self._bytes[start:end] = 0

    def pin(self, end: int) -> None:
        """Registers the memory up to `end` with CUDA for fast copies in this process; copies are slower if that fails."""
        if end <= self._pinned:
            return
        import cupy

        runtime, start = cupy.cuda.runtime, self._bytes.ctypes.data
        size = min(1 << (end - 1).bit_length(), self._bytes.size)
        try:
            if self._pinned > 0:
                runtime.hostUnregister(start)
            runtime.hostRegister(start, size, 0)
            self._pinned = size
        except runtime.CUDARuntimeError:
            self._pinned = self._bytes.size  # not tried again

    def resolved(self, run: Run, *, whole: bool = False) -> Run:
        """Returns a launch with the arrays that its references name; `whole` makes contiguous arrays of repeated bytes."""
        arguments = (
            replace(item, data=self._array(item.data, whole=whole)) if isinstance(item, ArrayArgument) else item
            for item in run.arguments
        )
        return replace(run, arguments=tuple(arguments))

    def _array(self, data: Any, *, whole: bool) -> np.ndarray[Any, Any]:
        if isinstance(data, ArrayPlace):
            return self.view(data)
        made: np.ndarray[Any, Any] = (
            filled_array(data.byte, data.dtype, data.shape) if isinstance(data, FilledArray) else data
        )
        return np.ascontiguousarray(made) if whole else made


def filled_array(byte: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Returns a read-only array of equal bytes that takes the memory of one element."""
    return np.broadcast_to(np.full(dtype.itemsize, byte, np.uint8).view(dtype), shape)


def fill_byte(array: Any) -> int | None:
    """Returns the byte of an array made by `filled_array`; None for any other array."""
    if not isinstance(array, np.ndarray) or array.size < 2 or any(array.strides):
        return None
    return int(array.reshape(-1)[:1].view(np.uint8)[0])


def is_large(run: Run) -> bool:
    """Returns True for a launch whose arrays use shared memory."""
    arrays = [item.data for item in run.arguments if isinstance(item, ArrayArgument)]
    return sum(array.nbytes for array in arrays) > LARGE_BYTES or any(not isinstance(one, np.ndarray) for one in arrays)


@dataclass(frozen=True, slots=True)
class LaunchLayout:
    """Offsets of a launch's arrays in shared memory: `inputs` and `outputs` by argument, and the end of each part."""

    inputs: Mapping[str, ArrayPlace]
    outputs: Mapping[str, ArrayPlace]
    middle: int
    end: int


def layout_of(run: Run, copies: int = 1) -> LaunchLayout:
    """Lays out the arrays of a launch: inputs first, then copies of the arrays that it may write."""
    arrays = [item for item in run.arguments if isinstance(item, ArrayArgument)]
    at, inputs, outputs = 0, {}, {}

    def placed(data: Any) -> ArrayPlace:
        nonlocal at
        place = ArrayPlace(at, np.dtype(data.dtype), tuple(data.shape))
        at += -(-max(place.nbytes, 1) // ALIGNMENT) * ALIGNMENT
        return place

    for item in arrays:
        if fill_byte(item.data) is None:
            inputs[item.name] = placed(item.data)
    middle = at
    for copy in range(copies):
        for item in arrays:
            # A kernel that writes its inputs is detected by their changed contents.
            outputs[f"{item.name}/{copy}"] = placed(item.data)
    return LaunchLayout(inputs, outputs, middle, at)


def with_shared_arrays(run: Run, layout: LaunchLayout) -> Run:
    """Returns a launch whose arrays are replaced by their locations in shared memory."""

    def stand_in(item: ArrayArgument) -> Any:
        byte = fill_byte(item.data)
        return layout.inputs[item.name] if byte is None else FilledArray(byte, item.data.dtype, item.data.shape)

    arguments = (
        replace(item, data=stand_in(item)) if isinstance(item, ArrayArgument) else item for item in run.arguments
    )
    return replace(run, arguments=tuple(arguments), key=None)
