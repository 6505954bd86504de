"""A kernel's memory on a GPU: limits of arrays, device-side allocations, stacks and variables; module variables.

Module variables survive a launch, so that a kernel could store state in them.
"""

from __future__ import annotations

import ctypes
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmate.backends.base import ArrayArgument
from kernelmate.backends.cuda.launching import content_of
from kernelmate.compiler.ptx_text import used_names_of

PART_OF_FREE = 0.8
"""Default limit as a fraction of the memory that is free when the worker opens the GPU."""

HEAP_BYTES = 8 << 20
STACK_BYTES = 1 << 10
PRINTF_BYTES = 1 << 20
"""CUDA's default limits (CUDA C++ Programming Guide: heap of `malloc`, stack per thread, buffer of `printf`).

They are set explicitly, so that a verdict does not depend on the machine's environment.
"""

_STACK_LIMIT, _PRINTF_LIMIT, _HEAP_LIMIT = 0, 1, 2
"""`cudaLimitStackSize`, `cudaLimitPrintfFifoSize` and `cudaLimitMallocHeapSize` of `driver_types.h`."""

_VARIABLE = re.compile(
    r"^[^/\n]*\.global\s(?:\.attribute\([^)]*\)\s+)?(?:\.align\s+\d+\s+)?\.[a-z](?P<bits>8|16|32|64|128)\s+[\w$]+(?P<extents>(?:\[\d+\])*)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The limit of one context, in bytes, and the threads that its GPU runs at once, which each have a stack."""

    limit: int
    resident_threads: int

    def refusal(self, ptx: str, local_bytes: int) -> str | None:
        """Returns the reason why a kernel exceeds the memory limit even without arrays; None if it does not.

        Args:
            ptx: its PTX, for the `__device__` variables.
            local_bytes: local memory per thread.
        """
        stacks = local_bytes * self.resident_threads
        if stacks > self.limit:
            return (
                f"{local_bytes} bytes of local memory for each of {self.resident_threads} resident threads are "
                f"{stacks >> 20} MB; {self.limit >> 20} MB may be taken (device_memory_mb)"
            )
        variables = variable_bytes(ptx)
        if variables > self.limit:
            return f"its __device__ variables take {variables >> 20} MB; {self.limit >> 20} MB may be taken (device_memory_mb)"
        return None


def variable_bytes(ptx: str) -> int:
    """Returns the bytes of all `__device__` variables of a PTX module."""
    total = 0
    for match in _VARIABLE.finditer(ptx):
        size = int(match["bits"]) // 8
        for extent in re.findall(r"\d+", match["extents"]):
            size *= int(extent)
        total += size
    return total


def bound_memory(device: Any, limit: int | None) -> DeviceMemory:
    """Sets the current context's limits.

    Args:
        device: a cupy.cuda.Device, in use.
        limit: bytes; None for `PART_OF_FREE` of the free memory.
    """
    import cupy

    runtime = cupy.cuda.runtime
    for name, size in ((_STACK_LIMIT, STACK_BYTES), (_PRINTF_LIMIT, PRINTF_BYTES), (_HEAP_LIMIT, HEAP_BYTES)):
        # The heap's cannot be set any more once a kernel of this process has allocated from it.
        if runtime.deviceGetLimit(name) != size:
            runtime.deviceSetLimit(name, size)
    free, _ = runtime.memGetInfo()
    allowed = int(free * PART_OF_FREE) if limit is None else limit
    cupy.get_default_memory_pool().set_limit(size=allowed)
    facts = device.attributes
    return DeviceMemory(allowed, int(facts["MultiProcessorCount"]) * int(facts["MaxThreadsPerMultiProcessor"]))


_TO_DEVICE = 1
"""`cudaMemcpyHostToDevice`."""


@dataclass(frozen=True, slots=True)
class DeviceVariable:
    """One variable on the device: its name in PTX, its address, and its bytes."""

    name: str
    address: int
    size: int


def variables_of(function: Any, ptx: str) -> tuple[DeviceVariable, ...]:
    """Returns device addresses of the variables that a loaded module uses.

    Headers define dozens of unused constants, each of which would cost a copy at every reset.

    Args:
        function: a compiled cupy.RawKernel of the module.
        ptx: the module's PTX.
    """
    found = (variable_of(function, name) for name in used_names_of(ptx))
    return tuple(one for one in found if one is not None)


def variable_of(function: Any, name: str) -> DeviceVariable | None:
    """Returns a variable of a loaded module, also a constant; None if it has none of this name.

    Args:
        function: a compiled cupy.RawKernel of the module.
        name: in PTX.
    """
    library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    address, size = ctypes.c_uint64(), ctypes.c_size_t()
    status = library.cuModuleGetGlobal_v2(
        ctypes.byref(address), ctypes.byref(size), ctypes.c_void_p(function.kernel.module.ptr), name.encode()
    )
    return DeviceVariable(name, address.value, size.value) if status == 0 and size.value else None


def fill_variables(function: Any, arguments: Iterable[Any], places: Mapping[str, int], stream: Any) -> dict[str, int]:
    """Copies the contents of a launch's variables to a loaded module, and returns their addresses by argument.

    Args:
        function: a compiled cupy.RawKernel of the module.
        arguments: the arguments of the launch; those that are not variables are left out.
        places: the device address of each array.
        stream: the cupy stream, which is awaited.

    Raises:
        cupy.cuda.runtime.CUDARuntimeError: the GPU has failed.
    """
    import cupy

    found = {}
    for item in arguments:
        variable = variable_of(function, item.variable) if isinstance(item, ArrayArgument) and item.variable else None
        if variable is not None:
            content = content_of(item, places)
            host = np.ascontiguousarray(content if isinstance(content, np.ndarray) else content.get())
            cupy.cuda.runtime.memcpyAsync(variable.address, host.ctypes.data, host.nbytes, _TO_DEVICE, stream.ptr)
            stream.synchronize()
            found[item.name] = variable.address
    return found
