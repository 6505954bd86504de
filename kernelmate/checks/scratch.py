"""Sizes that exceed the capacity of `__device__` scratch arrays sized for the listed sizes alone."""

from __future__ import annotations

import math
import re

from kernelmate.errors import ContractError
from kernelmate.records import Size, Version
from kernelmate.source import argument_shapes, launch_shape, size_allowed

MOST_THREADS = 1 << 21
MOST_ELEMENTS = 1 << 22
"""Maximum number of threads of the launch, and value of a size name, at such a size."""

_ARRAY = re.compile(r"^\s*(?:\.visible\s+)?\.global\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d+)\];", re.MULTILINE)
"""Pattern of a `__device__` array without initialiser in NVRTC's PTX: alignment, name, bytes."""


def scratch_sizes(version: Version, baseline: Version | None, listed: tuple[Size, ...]) -> tuple[Size, ...]:
    """Returns the smallest sizes with more threads, or more blocks, than a version's new device array has elements."""
    known = set() if baseline is None else set(_ARRAY.findall(baseline.compiled.ptx))
    lengths = {int(size) // int(align) for align, name, size in _ARRAY.findall(version.compiled.ptx)
               if (align, name, size) not in known and int(size) > int(align)}  # fmt: skip
    # Starts from the cheapest size, so that loops over other dimensions stay short.
    bases = sorted(listed, key=lambda size: math.prod(max(value, 1) for value in size.values()))
    found: list[Size] = []
    for length in sorted(lengths):
        for per_block in (False, True):
            tried = (*listed, *found)
            if any(_workers(version, size, per_block=per_block) > length for size in tried):
                continue
            size = next((one for base in bases if (one := _grown(version, base, length, per_block=per_block))), None)
            if size is not None:
                found.append(size)
    return tuple(found)


def _grown(version: Version, base: Size, length: int, *, per_block: bool) -> Size | None:
    """Returns a listed size with one name enlarged until there are more threads or blocks than elements."""
    for name in base:
        size = {**base, name: max(base[name], 1)}
        # A name that only lengthens a loop never increases threads or elements.
        while (
            size[name] <= MOST_ELEMENTS
            and _fits(version, size)
            and _workers(version, size, per_block=per_block) <= length
        ):
            size = {**size, name: 2 * size[name]}
        if size[name] <= MOST_ELEMENTS and _fits(version, size):
            return size
    return None


def _workers(version: Version, size: Size, *, per_block: bool) -> int:
    try:
        shape = launch_shape(version.contract, size)
    except ContractError:
        return 0
    return shape.blocks if per_block else shape.blocks * shape.threads


def _fits(version: Version, size: Size) -> bool:
    contract = version.contract
    try:
        allowed = size_allowed(contract, size)
        elements = sum(math.prod(extents) for extents in argument_shapes(contract, size).values())
    except ContractError:
        return False
    return allowed and elements <= MOST_ELEMENTS and _workers(version, size, per_block=False) <= MOST_THREADS
