"""Shapes of thread block clusters: the one that a kernel is compiled for, and the ones that a GPU launches."""

from __future__ import annotations

import math
import re

from kernelmate.compiler.targets import sm_limits
from kernelmate.records import Compiled, LaunchShape, Target

_REQUIRED = re.compile(r"\.reqnctapercluster\s+(\d+)(?:\s*,\s*(\d+))?(?:\s*,\s*(\d+))?")


def required_cluster(compiled: Compiled) -> tuple[int, int, int] | None:
    """Returns the shape that `__cluster_dims__` gives a kernel, read from its PTX; None without one."""
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
