"""Theoretical occupancy: blocks resident on an SM, the limiter, and changes that would raise it. Shapes of clusters.

The arithmetic is that of the CUDA Occupancy Calculator. Registers are allocated per warp in units and per
sub-partition; shared memory is allocated per block in units and includes the system's reserve; blocks and threads have
fixed limits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace

from kernelmate.compiler.targets import SmLimits, sm_limits
from kernelmate.records import Compiled, LaunchShape, Occupancy, Resources, Target
from kernelmate.records.compiled import Limiter

WARP = 32
_UNLIMITED = 1 << 30
_BLOCK_SIZES = (32, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


def occupancy(target: Target, resources: Resources, shape: LaunchShape) -> Occupancy:
    """Computes the theoretical occupancy of a launch on a target.

    Dynamic shared bytes are taken from `shape.shared_bytes`, not from `resources`.
    A block that cannot be launched at all has occupancy 0 and the limiter `launch`.
    """
    limits = sm_limits(target.capability)
    blocks = _blocks_by_limit(limits, resources, shape)
    if blocks is None:
        return Occupancy(0.0, "launch", 0, None)
    limiter = min(blocks, key=lambda name: blocks[name])
    count = blocks[limiter]
    active = count * _up(shape.threads, WARP) // WARP / limits.warps_per_sm
    return Occupancy(active, limiter, count, shape.blocks / (count * target.sms) if count else None)


def last_wave(shown: Occupancy) -> float | None:
    """Returns the fill of the last wave of blocks, in (0, 1]; None if the block cannot be launched.

    A grid of 1.1 waves takes about as long as one of 2: its last wave is 10% full.
    """
    if shown.waves is None:
        return None
    rest = shown.waves % 1.0
    return rest if rest > 1e-9 else 1.0


def _up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def _blocks_by_limit(limits: SmLimits, resources: Resources, shape: LaunchShape) -> dict[Limiter, int] | None:
    """Returns the number of blocks per SM by each limit alone; None if a block cannot be launched."""
    shared = resources.shared_bytes + shape.shared_bytes
    warps = _up(shape.threads, WARP) // WARP
    if shape.threads > limits.threads_per_block or shape.threads > resources.max_threads or shape.threads < 1:
        return None
    if shared > limits.shared_per_block_optin:
        return None
    by_registers = _by_registers(limits, resources.registers, warps)
    if by_registers == 0:
        return None
    taken = _up(shared + limits.shared_reserved, limits.shared_unit)
    return {
        "threads": limits.warps_per_sm // warps,
        "blocks": limits.blocks_per_sm,
        "registers": by_registers,
        "shared": limits.shared_per_sm // taken if taken else _UNLIMITED,
    }


def _by_registers(limits: SmLimits, registers: int, warps: int) -> int:
    if registers == 0:
        return _UNLIMITED
    each = _up(registers * WARP, limits.register_unit)
    if each * _up(warps, limits.partitions) > limits.registers_per_sm:
        return 0
    per_partition = limits.registers_per_sm // limits.partitions // each
    return per_partition * limits.partitions // warps


def what_would_lift(target: Target, resources: Resources, shape: LaunchShape) -> tuple[str, ...]:
    """Describe the smallest single changes that would raise occupancy, with the result of each.

    The result has phrases such as "2 registers fewer per thread (62): 50% -> 62.5%". It is empty if occupancy is full
    or no single change helps.
    """
    now = occupancy(target, resources, shape).theoretical
    if now >= 1:
        return ()
    return tuple(
        f"{change}: {_percent(now)} -> {_percent(then)}"
        for change, then in (*_fewer_registers(target, resources, shape, now), *_less_shared(target, resources, shape, now),
                             *_other_blocks(target, resources, shape, now))
    )  # fmt: skip


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.4g}%"


def _fewer_registers(
    target: Target, resources: Resources, shape: LaunchShape, now: float
) -> Iterator[tuple[str, float]]:
    for registers in range(resources.registers - 1, 15, -1):
        then = occupancy(target, replace(resources, registers=registers), shape).theoretical
        if then > now:
            fewer = resources.registers - registers
            yield f"{fewer} register{'s' * (fewer > 1)} fewer per thread ({registers})", then
            return


def _less_shared(target: Target, resources: Resources, shape: LaunchShape, now: float) -> Iterator[tuple[str, float]]:
    limits = sm_limits(target.capability)
    total = resources.shared_bytes + shape.shared_bytes
    for less in range(total // limits.shared_unit * limits.shared_unit, -1, -limits.shared_unit):
        if less >= total:
            continue
        changed = replace(resources, shared_bytes=less)
        then = occupancy(target, changed, replace(shape, shared_bytes=0)).theoretical
        if then > now:
            yield f"{total - less} bytes less shared memory per block ({less})", then
            return


def _other_blocks(target: Target, resources: Resources, shape: LaunchShape, now: float) -> Iterator[tuple[str, float]]:
    """Yields the nearest smaller and larger block sizes that raise occupancy, with shared memory unchanged."""
    sizes = [size for size in _BLOCK_SIZES if size <= resources.max_threads]
    below = [size for size in reversed(sizes) if size < shape.threads]
    above = [size for size in sizes if size > shape.threads]
    for side in (below, above):
        for size in side:
            then = occupancy(target, resources, replace(shape, block=(size, 1, 1))).theoretical
            if then > now:
                yield f"a block of {size} threads", then
                break


_REQUIRED = re.compile(r"\.reqnctapercluster\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")


def required_cluster(compiled: Compiled) -> tuple[int, int, int] | None:
    """Returns the shape that `__cluster_dims__` gives a kernel, read from its PTX; None if there is none."""
    entry = re.search(rf"\.entry\s+{re.escape(compiled.lowered_name)}(?![\w$])[^{{]*", compiled.ptx or "")
    found = _REQUIRED.search(entry[0]) if entry is not None else None
    if found is None:
        return None
    x, y, z = (int(side or 1) for side in found.groups())
    return x, y, z


def cluster_refusal(target: Target, shape: LaunchShape, required: tuple[int, int, int] | None) -> str | None:
    """Returns the reason why a GPU would refuse the clusters of a launch; None if it would not.

    Args:
        target: the GPU.
        shape: the launch; its cluster has one to three sides, or is None for the kernel's own.
        required: the kernel's own cluster, as of `required_cluster`.
    """
    cluster = _three(shape.cluster) if shape.cluster is not None else required
    if cluster is None:
        return None
    most = sm_limits(target.capability).cluster_blocks
    blocks = math.prod(cluster)
    if not most:
        return f"clusters need compute capability 9.0, and {target.name} has {target.arch}"
    if required is not None and cluster != required:
        return f"a cluster of {_sides(cluster)} blocks is launched, and __cluster_dims__ of the kernel says {_sides(required)}"
    if blocks > most:
        return f"a cluster of {_sides(cluster)} has {blocks} blocks, and {target.arch} allows {most}"
    for axis, side, of in zip("xyz", shape.grid, cluster, strict=True):
        if side % of:
            return f"grid.{axis} is {side}, which is not a multiple of the cluster's {of}"
    return None


def _three(sides: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*sides, 1, 1)[:3]
    return x, y, z


def _sides(cluster: tuple[int, int, int]) -> str:
    return " x ".join(map(str, cluster))
