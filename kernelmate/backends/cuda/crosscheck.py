"""Compares a kernel's resources and occupancy, as computed from its CUBIN, with the driver's values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kernelmate.compiler import occupancy
from kernelmate.records import Compiled, LaunchShape, Resources, Target


def resource_disagreements(compiled: Compiled, target: Target, function: Any) -> Iterator[str]:
    """Returns differences of registers, memory or largest block from the attributes of a loaded cupy.RawKernel.

    The driver's largest block is one whose registers fit, so ours is computed with the target's register file.
    """
    ours = compiled.resources
    if ours is None:
        return
    pairs = (
        ("registers", ours.registers, function.num_regs),
        ("static shared bytes", ours.shared_bytes, function.shared_size_bytes),
        ("local bytes per thread", ours.local_bytes, function.local_size_bytes),
        ("largest block", _largest_block(target, ours), function.max_threads_per_block),
    )
    for name, read, told in pairs:
        if read != told:
            yield f"{name}: {read} by the compiled code, {told} by the driver"


def _largest_block(target: Target, resources: Resources) -> int:
    """Returns the maximum threads, in whole warps, of a block that a multiprocessor can hold.

    If the occupancy of no block is known, it is the maximum that the kernel's launch bounds allow.
    """
    sizes = range(resources.max_threads, 0, -32)
    fitting = (
        size for size in sizes if occupancy(target, resources, LaunchShape((1, 1, 1), (size, 1, 1))).blocks_per_sm
    )
    return next(fitting, resources.max_threads)


def occupancy_disagreement(
    compiled: Compiled, target: Target, function: Any, shape: LaunchShape, sms: int
) -> str | None:
    """Return the difference of the blocks per SM from the driver's count.

    The result is None if both counts are equal, or if the target is another GPU.

    Args:
        compiled: the kernel.
        target: the target of the computed occupancy.
        function: the loaded cupy.RawKernel, with leave to take the launch's shared memory.
        shape: the launch.
        sms: multiprocessors of this GPU.
    """
    import cupy

    if compiled.resources is None or target.sms != sms:
        return None
    ours = occupancy(target, compiled.resources, shape).blocks_per_sm
    told = int(
        cupy.cuda.driver.occupancyMaxActiveBlocksPerMultiprocessor(
            function.kernel.ptr, shape.threads, shape.shared_bytes
        )
    )
    if ours == told:
        return None
    return f"blocks on an SM at {shape.threads} threads: {ours} by our arithmetic, {told} by the driver"
