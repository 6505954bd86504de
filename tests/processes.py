"""Processes that tests start, and how they end."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Collection, Iterator, Sequence

CORES = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else ()
"""Cores that the tests as a whole may use; read before a worker of pytest-xdist keeps to its own."""


@contextlib.contextmanager
def on_cores(cores: Sequence[int] = CORES) -> Iterator[None]:
    """Let this process, and those that any of its threads starts meanwhile, run on these cores; where the system cannot, on any."""
    if not cores:
        yield
        return
    before = os.sched_getaffinity(0)
    _set_affinity(cores)
    yield
    _set_affinity(before)


def _set_affinity(cores: Collection[int]) -> None:
    for thread in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):  # a thread that has ended since
            os.sched_setaffinity(int(thread), cores)


def end(process: subprocess.Popen[bytes], patience_s: float = 30) -> None:
    """Ask a process to end, and end it where it does not."""
    process.terminate()
    try:
        process.wait(patience_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
