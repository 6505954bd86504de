"""First steps of every process that the worker forks off."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1
"""Linux, `<linux/prctl.h>`: the signal this process gets when its parent ends."""


def die_with_parent() -> None:
    """Ask the system to end this process with its parent.

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
