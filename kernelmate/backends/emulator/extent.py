"""How much memory a launch takes, and whether there is that much: refusing beats swapping."""

from __future__ import annotations

from pathlib import Path

from kernelmate.backends.base import ArrayArgument, EmulationTooLarge, Run

_PER_BYTE = 1.25
"""Bytes of memory for each byte of an array: its copy, and a mark per four bytes of where the kernel has stored."""
_FIXED = 512 << 20
"""Bytes that registers, shadows, counters and native code take at most, besides the arrays."""


def needed_bytes(run: Run) -> int:
    """Bytes that a launch takes beyond the arguments themselves."""
    arrays = sum(argument.data.nbytes for argument in run.arguments if isinstance(argument, ArrayArgument))
    return int(_PER_BYTE * arrays) + min(_FIXED, (16 << 20) + 16 * arrays)


def available_bytes() -> int | None:
    """Bytes of memory that can be had without swapping; None where the system does not tell (only Linux does)."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    free = None if found is None else int(found) * 1024
    group = _room_in_group()
    return free if group is None else group if free is None else min(free, group)


def _room_in_group() -> int | None:
    """What the control group leaves (cgroup v2); None where there is none or it sets no limit."""
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(limit) - int(used) if limit.isdigit() and used.isdigit() else None


def check_memory(run: Run) -> None:
    """Refuse a launch that there is no memory for.

    Raises:
        EmulationTooLarge: it needs more than is free.
    """
    needed, free = needed_bytes(run), available_bytes()
    if free is not None and needed > free:
        raise EmulationTooLarge(
            f"the launch needs about {needed >> 20} MiB of memory to be emulated, and {free >> 20} MiB are free.", free
        )


def out_of_memory(run: Run) -> EmulationTooLarge:
    """The refusal where memory ran out all the same: a limit of the process that /proc does not show."""
    needed = needed_bytes(run)
    return EmulationTooLarge(
        f"the launch needs about {needed >> 20} MiB of memory to be emulated, more than this process may take "
        "(memory_limit_mb in the settings).",
        needed,
    )
