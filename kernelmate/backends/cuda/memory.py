"""Limits of a GPU's memory for launches: arrays, device-side allocations, stacks and variables."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

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
    r"^[^/\n]*\.global\s(?:\.align\s+\d+\s+)?\.[a-z](?P<bits>8|16|32|64|128)\s+[\w$]+(?P<extents>(?:\[\d+\])*)",
    re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """The limit of one context, in bytes, and the threads that its GPU runs at once, which each have a stack."""

    limit: int
    resident_threads: int

    def refusal(self, ptx: str, local_bytes: int) -> str | None:
        """Return the reason why a kernel exceeds the memory limit even without arrays; None if it does not.

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
    """Set the current context's limits.

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
