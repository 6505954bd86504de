"""Memory that a launch needs, compared with the memory available."""

from __future__ import annotations

from kernelmate.backends.available_memory import room
from kernelmate.backends.base import ArrayArgument, EmulationTooLarge, Run

_PER_BYTE = 1.25
"""Bytes of memory per byte of an array: its copy, and a written mark for each four bytes."""
_FIXED = 512 << 20
"""Maximum bytes of registers, shadows, counters and native code, besides the arrays."""


def needed_bytes(run: Run) -> int:
    """Returns the bytes that a launch takes beyond its arguments."""
    arrays = sum(argument.data.nbytes for argument in run.arguments if isinstance(argument, ArrayArgument))
    return int(_PER_BYTE * arrays) + min(_FIXED, (16 << 20) + 16 * arrays)


def check_memory(run: Run) -> None:
    """Refuse a launch for which memory does not suffice.

    Raises:
        EmulationTooLarge: it needs more memory than is available.
    """
    needed, left = needed_bytes(run), room()
    if left is not None and needed > left.size:
        raise EmulationTooLarge(
            f"the launch needs about {needed >> 20} MiB of memory to be emulated, and {left.size >> 20} MiB {left.limit}.",
            left.size,
            left.advice,
        )


def out_of_memory(run: Run) -> EmulationTooLarge:
    """Returns the error for a launch that ran out of memory anyway."""
    needed = needed_bytes(run)
    return EmulationTooLarge(
        f"the launch needs about {needed >> 20} MiB of memory to be emulated, more than could be had.",
        needed,
        "raise memory_limit_mb in the settings",
    )
