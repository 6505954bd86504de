"""The device memory of launches that are timed: one for all versions, so that they see the same bytes at the same addresses."""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from kernelmate.backends.base import ArrayArgument, Run, ScalarArgument
from kernelmate.backends.cuda.arena import SCRUB
from kernelmate.backends.cuda.exchange import fill_byte
from kernelmate.backends.cuda.helpers import helper_launch, helpers
from kernelmate.backends.cuda.launching import content_of, launch_in_clusters, launched_arguments
from kernelmate.backends.cuda.memory import fill_variables
from kernelmate.backends.cuda.textures import TextureObjects
from kernelmate.backends.timed import TimedFault
from kernelmate.records import Finding, FindingCode, LaunchShape

ALIGNMENT = 512
"""Alignment of arrays in bytes; cudaMalloc gives 256."""

LEAST_APART, MOST_APART = 64 << 10, 8 << 20
"""Bounds of the distance between arrays in bytes; within them, up to the array's own size."""

COPY_BLOCKS_PER_SM, COPY_THREADS = 8, 256

POISON = 0xA5
"""Fill byte of arrays that are only written."""

TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3
"""`cudaMemcpyHostToDevice`, `cudaMemcpyDeviceToHost`, `cudaMemcpyDeviceToDevice`."""

Launch = Callable[[int], None]
"""Function that makes one launch on a stream given by its handle."""


class TimingArena:
    """The arguments of one launch on the device.

    Args:
        run: the launch; its arrays are copied.
        restored: arrays that are read and written, whose initial contents are kept.
        stream: the current cupy stream.
        place: number of the placement; distances between arrays differ by it.
        twin: an unused arena of the same launch, whose arrays are copied, which is faster.

    Raises:
        cupy.cuda.memory.OutOfMemoryError: the device has too little memory.
        TimedFault: as `refuse_lasting`.
    """

    def __init__(
        self, run: Run, restored: frozenset[str], stream: Any, place: int = 0, twin: TimingArena | None = None
    ) -> None:
        import cupy
        from cupy.cuda import runtime

        self._stream, self.arguments = stream, run.arguments
        refuse_lasting(run, restored)
        arrays = [item for item in run.arguments if isinstance(item, ArrayArgument) and item.variable is None]
        self._written = [item for item in arrays if item.written]
        self._only_written = [item for item in self._written if item.name not in restored]
        kept = [item for item in self._written if item.name in restored and item.data.nbytes]
        offsets, size = laid_out([item.data.nbytes for item in (*arrays, *kept)], place)
        self._memory, self._size = cupy.cuda.alloc(size), size
        self._places = {item.name: self._memory.ptr + at for item, at in zip(arrays, offsets, strict=False)}
        firsts = offsets[len(arrays) :]
        self._first = {
            item.name: (self._memory.ptr + at, item.data.nbytes) for item, at in zip(kept, firsts, strict=True)
        }
        for item in arrays:
            byte = None if item.addresses else fill_byte(item.data)
            if byte is not None:
                runtime.memsetAsync(self._places[item.name], byte, item.data.nbytes, stream.ptr)
                continue
            data = np.ascontiguousarray(content_of(item, self._places))
            source, kind = data.ctypes.data, TO_DEVICE
            if twin is not None and not item.addresses:
                source, kind = twin._places[item.name], ON_DEVICE
            runtime.memcpyAsync(self._places[item.name], source, data.nbytes, kind, stream.ptr)
            if data is not item.data:
                stream.synchronize()
        self._objects = TextureObjects(run.arguments, self._places)
        self._objects.fill(stream)
        for name, (first, count) in self._first.items():
            runtime.memcpyAsync(first, self._places[name], count, ON_DEVICE, stream.ptr)
        self._restoring = [self._copying(self._places[name], *first) for name, first in self._first.items()]
        stream.synchronize()

    @staticmethod
    def bytes_of(run: Run, restored: frozenset[str]) -> int:
        """Returns the bytes of a launch's arrays, without the distances between them."""
        arrays = [item for item in run.arguments if isinstance(item, ArrayArgument)]
        return sum(item.data.nbytes * (2 if item.name in restored else 1) for item in arrays)

    @property
    def places(self) -> Mapping[str, int]:
        """Returns the device address of each array."""
        return self._places

    def launcher(self, function: Any, shape: LaunchShape) -> Launch:
        """Returns a low-overhead launcher of a version on this memory, for graphs and long sequences.

        Args:
            function: the version as a cupy.RawKernel, prepared for the launch's shared memory.
            shape: its launch.
        """
        return launcher(function, shape, self.arguments, self._objects.places, self._stream)

    @property
    def restoring(self) -> int:
        """Returns the number of launches that `restore` makes."""
        return len(self._restoring)

    def restore(self, stream: int) -> None:
        """Resets arrays that are read and written.

        A kernel does it, like the usual producer of the data: the driver's copies leave different L2 states in
        different processes.
        """
        for copy in self._restoring:
            copy(stream)

    @staticmethod
    def _copying(to: int, first: int, count: int) -> Launch:
        """Returns a launcher that copies `count` bytes, rounded up to 16; the excess is in the gap between arrays."""
        import cupy

        device = cupy.cuda.Device()
        sixteens = -(-count // 16)
        most = COPY_BLOCKS_PER_SM * int(device.attributes["MultiProcessorCount"])
        shape = LaunchShape((min(-(-sixteens // COPY_THREADS), most), 1, 1), (COPY_THREADS, 1, 1))
        return helper_launch(helpers(int(device.id)).copy, shape, to, first, sixteens)

    def poison(self, stream: int) -> None:
        """Overwrites arrays that are only written."""
        import cupy
        from cupy.cuda import runtime

        for item in self._only_written:
            if item.data.nbytes:
                runtime.memsetAsync(self._places[item.name], POISON, item.data.nbytes, stream)
        if self._objects:
            self._objects.fill(cupy.cuda.ExternalStream(stream))

    def scrub(self) -> None:
        """Overwrites the whole arena, so that later launches find no data of earlier ones."""
        from cupy.cuda import runtime

        runtime.memsetAsync(self._memory.ptr, SCRUB, self._size, self._stream.ptr)

    def changed(self, name: str) -> bool:
        """Returns True if an array does not hold the bytes that it was filled with."""
        from cupy.cuda import runtime

        item = next(one for one in self.arguments if isinstance(one, ArrayArgument) and one.name == name)
        now = np.empty(item.data.nbytes, np.uint8)
        if now.nbytes:
            runtime.memcpyAsync(now.ctypes.data, self._places[name], now.nbytes, TO_HOST, self._stream.ptr)
            self._stream.synchronize()
        return not np.array_equal(now, np.ascontiguousarray(item.data).reshape(-1).view(np.uint8))

    def outputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """Returns writable arrays, copied to the host."""
        from cupy.cuda import runtime

        self._objects.collect(self._stream)
        found = {item.name: np.empty(item.data.shape, item.data.dtype) for item in self._written}
        for name, array in found.items():
            if array.nbytes:
                source = self._places[name]
                runtime.memcpyAsync(array.ctypes.data, source, array.nbytes, TO_HOST, self._stream.ptr)
        self._stream.synchronize()
        return found


def launcher(
    function: Any,
    shape: LaunchShape,
    arguments: Sequence[ArrayArgument | ScalarArgument],
    places: Mapping[str, int],
    current: Any,
) -> Launch:
    """Returns a low-overhead launcher of a kernel.

    Args:
        function: a cupy.RawKernel, prepared for the launch's shared memory.
        shape: its launch.
        arguments: its arguments, in order.
        places: the device address of each array.
        current: the stream on which variables are filled.
    """
    from cupy.cuda import driver

    values = launched_arguments(arguments, places)
    fill_variables(function, arguments, places, current)
    if shape.cluster is not None:
        return lambda stream: launch_in_clusters(function, shape, values, stream)
    held = [np.atleast_1d(value) for value in values]
    pointers = (ctypes.c_void_p * max(len(held), 1))(*(value.ctypes.data for value in held))
    handle, address, keep = function.kernel.ptr, ctypes.addressof(pointers), (held, pointers, function)
    grid, block, shared = shape.grid, shape.block, shape.shared_bytes

    def launch(stream: int) -> None:
        assert keep  # the driver reads the values through their addresses
        driver.launchKernel(handle, *grid, *block, shared, stream, address, 0)

    def launch_together(stream: int) -> None:
        assert keep
        driver.launchCooperativeKernel(handle, *grid, *block, shared, stream, address)

    return launch_together if shape.cooperative else launch


def refuse_lasting(run: Run, restored: frozenset[str]) -> None:
    """Refuses a launch that needs first contents of a variable or a surface, which would take a copy before every timed launch.

    Raises:
        TimedFault: with the name of the variable or the surface.
    """
    for item in run.arguments:
        if isinstance(item, ArrayArgument) and item.variable is not None and item.name in restored:
            said = f"not timed: the variable {item.name} is read and written, and would need its contents before each launch"
            raise TimedFault(Finding(FindingCode.LAUNCH_FAILURE, "note", said))
        shown = None if isinstance(item, ArrayArgument) else item.texture
        if shown is not None and shown.view.surface and shown.array in restored:
            said = f"not timed: the surface {item.name} is read and written, and would need its contents before each launch"
            raise TimedFault(Finding(FindingCode.LAUNCH_FAILURE, "note", said))


def laid_out(sizes: Sequence[int], place: int) -> tuple[list[int], int]:
    """Returns offsets for arrays of these sizes, in bytes, and the total size; `place` is the seed of the distances."""
    draw, at, offsets = random.Random(place), 0, []  # noqa: S311 -- places, no secrets
    for size in sizes:
        apart = max(LEAST_APART, min(size, MOST_APART))
        at += ALIGNMENT * draw.randrange(apart // ALIGNMENT)
        offsets.append(at)
        at += -(-size // ALIGNMENT) * ALIGNMENT
    return offsets, max(at, 1)
