"""Facts read from PTX as text: module variables, and calls by which a kernel launches work itself."""

from __future__ import annotations

import re

_GLOBAL = re.compile(
    r"^\s*(?:\.(?:visible|weak|common)\s+)*\.global\b(?P<words>(?:\s+\.\w+(?:\([^)]*\))?(?:\s+\d+(?=\s))?)*)"
    r"\s+(?P<name>[\w$.%]+)\s*(?:\[[^\]]*\]\s*)*(?:=|;)",
    re.MULTILINE,
)
"""A definition at module scope (PTX ISA, Variable Declarations); `.extern` variables are defined elsewhere."""

_CALLED = re.compile(r"^\s*(?:\.weak\s+)?\.extern\s+\.func\b[^;]*?\b(cuda\w+)\s*[(;]", re.MULTILINE)

LAUNCHING = re.compile(
    r"cuda(?:Graph\w*Launch\w*|CGLaunch\w*|LaunchDevice\w*|DeviceSynchronize|Memcpy\w*|Memset\w*|Stream\w*|Event\w*)"
)
"""Functions of the runtime for device code (CUDA C++ Programming Guide, "Device-Side Kernel Launch" and "Device Graph
Launch") that start work, or wait for it."""


def names_of(ptx: str) -> tuple[str, ...]:
    """Returns the global-memory variables that a PTX text defines: `__device__` ones, and static ones of functions."""
    return tuple(match["name"] for match in _GLOBAL.finditer(ptx))


def used_names_of(ptx: str) -> tuple[str, ...]:
    """Returns those of `names_of` that the text uses: C++ constants are often defined and never used."""
    return tuple(
        name for name in names_of(ptx) if len(re.findall(rf"(?<![\w$.%]){re.escape(name)}(?![\w$.%])", ptx)) > 1
    )


def own_launches(ptx: str) -> str | None:
    """Returns a sentence that names the functions by which a kernel launches work itself; None without any.

    Such work can be neither awaited nor timed, and may still run when outputs are read.
    """
    names = sorted({match[1] for match in _CALLED.finditer(ptx) if LAUNCHING.fullmatch(match[1])})
    if not names:
        return None
    return f"it calls {', '.join(names)}: work that a kernel starts by itself can be neither waited for nor timed"
