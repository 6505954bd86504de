"""The device memory of launches that are timed: one for all versions, so that each sees the same bytes at the same places."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelmate.backends.base import ArrayArgument, Run
from kernelmate.backends.cuda.clusters import launch_in_clusters
from kernelmate.records import LaunchShape

if TYPE_CHECKING:
    from kernelmate.backends.cuda.backend import CudaModule

POISON = 0xA5
"""The byte that arrays are filled with which are only written."""

TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3
"""`cudaMemcpyHostToDevice`, `cudaMemcpyDeviceToHost`, `cudaMemcpyDeviceToDevice`."""

Launch = Callable[[int], None]
"""Makes one launch on a stream, given by its handle."""


class Stage:
    """The arguments of one launch on the device.

    Args:
        run: the launch; arrays are copied here.
        restored: arrays that are read and written, whose first contents are kept to be restored.
        stream: a cupy stream that is current.

    Raises:
        cupy.cuda.memory.OutOfMemoryError: the device has too little memory.
    """

    def __init__(self, run: Run, restored: frozenset[str], stream: Any) -> None:
        import cupy
        from cupy.cuda import runtime

        self._stream = stream
        self.arguments = run.arguments
        arrays = [item for item in run.arguments if isinstance(item, ArrayArgument)]
        self._memory = {item.name: cupy.cuda.alloc(max(item.data.nbytes, 1)) for item in arrays}
        self._written = [item for item in arrays if item.written]
        self._only_written = [item for item in self._written if item.name not in restored]
        self._first: Mapping[str, Any] = {
            item.name: cupy.cuda.alloc(item.data.nbytes)
            for item in self._written
            if item.name in restored and item.data.nbytes
        }
        held = [np.ascontiguousarray(item.data) for item in arrays]
        for item, data in zip(arrays, held, strict=True):
            runtime.memcpyAsync(self._memory[item.name].ptr, data.ctypes.data, data.nbytes, TO_DEVICE, stream.ptr)
        for name, first in self._first.items():
            runtime.memcpyAsync(first.ptr, self._memory[name].ptr, self._bytes(name), ON_DEVICE, stream.ptr)
        stream.synchronize()

    @property
    def in_place(self) -> bool:
        """There are contents to restore before each launch."""
        return bool(self._first)

    def launcher(self, module: CudaModule, shape: LaunchShape) -> Launch:
        """A cheap way to launch a version on this memory, for graphs and for many launches in a row."""
        from cupy.cuda import driver

        from kernelmate.backends.cuda.backend import plain

        function = module.ready(shape)
        values = [
            np.uint64(self._memory[item.name].ptr) if isinstance(item, ArrayArgument) else plain(item)
            for item in self.arguments
        ]
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

    def restore(self, stream: int) -> None:
        """Give arrays that are read and written their first contents back."""
        from cupy.cuda import runtime

        for name, first in self._first.items():
            runtime.memcpyAsync(self._memory[name].ptr, first.ptr, self._bytes(name), ON_DEVICE, stream)

    def poison(self, stream: int) -> None:
        """Overwrite what is only written."""
        from cupy.cuda import runtime

        for item in self._only_written:
            if item.data.nbytes:
                runtime.memsetAsync(self._memory[item.name].ptr, POISON, item.data.nbytes, stream)

    def outputs(self) -> dict[str, np.ndarray[Any, Any]]:
        """What may be written, copied to the host."""
        from cupy.cuda import runtime

        found = {item.name: np.empty(item.data.shape, item.data.dtype) for item in self._written}
        for name, array in found.items():
            if array.nbytes:
                source = self._memory[name].ptr
                runtime.memcpyAsync(array.ctypes.data, source, array.nbytes, TO_HOST, self._stream.ptr)
        self._stream.synchronize()
        return found

    def _bytes(self, name: str) -> int:
        return int(next(item.data.nbytes for item in self._written if item.name == name))
