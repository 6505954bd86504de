"""First steps of every process that the worker forks off, and the memory that a launch may take without swapping."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

_PR_SET_PDEATHSIG = 1
"""Linux, `<linux/prctl.h>`: the signal this process gets when its parent ends."""


def die_with_parent() -> None:
    """Asks the system to end this process with its parent.

    Only Linux supports this; elsewhere, and behind a remote launcher, the end of the input has the same effect as long
    as Python code runs.
    """
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX = -1, -3, -4
"""Parameters of `mallopt` in glibc's `<malloc.h>`."""

_KEPT, _RETURNED = (2**31 - 1, 2**31 - 1, 0), (128 << 10, 128 << 10, 1 << 16)
"""Their values for memory that is kept, and glibc's own."""

IDLE_S = 1.0
"""Seconds without work after which a process returns the memory that it kept."""


def keep_freed_memory(*, kept: bool = True) -> None:
    """Lets the C library keep up to 2 GiB of freed memory, if it is glibc, in this process and those that it forks.

    By itself it returns every large array to the system, whose kernel clears the pages of the next one again
    (benchmarks/results/cpu_large.txt).

    Args:
        kept: False restores glibc's default.
    """
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            library = ctypes.CDLL(None)
            for parameter, value in zip((_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_MMAP_MAX), _KEPT if kept else _RETURNED, strict=True):  # fmt: skip
                library.mallopt(parameter, value)


def return_freed_memory() -> None:
    """Returns kept memory to the system."""
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


@dataclass(frozen=True, slots=True)
class AvailableMemory:
    """Available memory.

    Attributes:
        size: bytes.
        limit: the limiting factor, as the end of a sentence.
        advice: the remedy if it is too little.
    """

    size: int
    limit: str
    advice: str


def available_memory() -> AvailableMemory | None:
    """Returns the memory available without swapping; None if the system does not report it (only Linux does)."""
    found = [
        AvailableMemory(size, limit, advice)
        for size, limit, advice in (
            (_of_process(), "this process may take", "raise memory_limit_mb in the settings"),
            (_of_group(), "its control group leaves", "give the container more memory"),
            (_of_system(), "are free", "close other programs"),
        )
        if size is not None
    ]
    return min(found, key=lambda one: one.size, default=None)


def _of_system() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = next((line.split()[1] for line in lines if line.startswith("MemAvailable:")), None)
    return None if found is None else int(found) * 1024


def _of_group() -> int | None:
    """Returns the bytes left in the control group (cgroup v2); None without a group or a limit."""
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii").strip()
        used = Path("/sys/fs/cgroup/memory.current").read_text(encoding="ascii").strip()
    except OSError:
        return None
    return int(limit) - int(used) if limit.isdigit() and used.isdigit() else None


def _of_process() -> int | None:
    """Returns the bytes left of the process's address space limit; None without a limit."""
    if sys.platform == "win32":
        return None
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    try:
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        return None
    return None if limit == resource.RLIM_INFINITY else max(0, limit - pages * resource.getpagesize())
