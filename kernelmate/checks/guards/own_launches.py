"""Refuses kernels that launch work themselves.

It can be neither awaited nor timed, and may still run when outputs are read.
"""

from __future__ import annotations

import re

_CALLED = re.compile(r"^\s*(?:\.weak\s+)?\.extern\s+\.func\b[^;]*?\b(cuda\w+)\s*[(;]", re.MULTILINE)

LAUNCHING = re.compile(
    r"cuda(?:Graph\w*Launch\w*|CGLaunch\w*|LaunchDevice\w*|DeviceSynchronize|Memcpy\w*|Memset\w*|Stream\w*|Event\w*)"
)
"""Functions of the runtime for device code (CUDA C++ Programming Guide, "Device-Side Kernel Launch" and "Device Graph
Launch") that start work, or wait for it."""


def find(ptx: str) -> str | None:
    """Returns a sentence that names the functions; None without any."""
    names = sorted({match[1] for match in _CALLED.finditer(ptx) if LAUNCHING.fullmatch(match[1])})
    if not names:
        return None
    return f"it calls {', '.join(names)}: work that a kernel starts by itself can be neither waited for nor timed"
