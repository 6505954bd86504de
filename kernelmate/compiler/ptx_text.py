"""Facts read from PTX text: module variables, and calls by which a kernel launches other work."""

from __future__ import annotations

import math
import re
from collections import Counter

_NAME = re.compile(r"[\w$.%]+")
_GLOBAL = re.compile(
    r"^\s*(?:\.(?:visible|weak|common)\s+)*\.global\b(?P<words>(?:\s+\.\w+(?:\([^)]*\))?(?:\s+\d+(?=\s))?)*)"
    r"\s+(?P<name>[\w$.%]+)\s*(?:\[[^\]]*\]\s*)*(?:=|;)",
    re.MULTILINE,
)
"""A definition at module scope (PTX ISA, Variable Declarations); `.extern` variables are defined elsewhere."""

_SIZED = re.compile(
    r"^\s*(?:\.(?:visible|weak|common|extern)\s+)*\.(?:global|const)\b(?:\s+\.(?!b\d|u\d|s\d|f\d)\w+(?:\([^)]*\)|\s+\d+)?)*"
    r"\s+\.[busf](?P<bits>\d+)\s+(?P<name>[\w$.%]+)\s*(?P<extents>(?:\[\d*\]\s*)*)(?:=|;)",
    re.MULTILINE,
)
"""A variable of known size in global or constant memory."""

_CALLED = re.compile(r"^\s*(?:\.weak\s+)?\.extern\s+\.func\b[^;]*?\b(cuda\w+)\s*[(;]", re.MULTILINE)

LAUNCHING = re.compile(
    r"cuda(?:Graph\w*Launch\w*|CGLaunch\w*|LaunchDevice\w*|DeviceSynchronize|Memcpy\w*|Memset\w*|Stream\w*|Event\w*)"
)
"""Functions of the runtime for device code (CUDA C++ Programming Guide, "Device-Side Kernel Launch" and "Device Graph
Launch") that start other work, or wait for it.
"""


def names_of(ptx: str) -> tuple[str, ...]:
    """Returns the names of global-memory variables that a PTX text defines, static variables of functions included."""
    return tuple(match["name"] for match in _GLOBAL.finditer(ptx))


def used_names_of(ptx: str) -> tuple[str, ...]:
    """Returns the names of `names_of` that the text uses; C++ constants are often defined and not used."""
    # One pass for all names: the header of cooperative groups defines a thousand.
    times = Counter(_NAME.findall(ptx))
    return tuple(name for name in names_of(ptx) if times[name] > 1)


def variable_bytes(ptx: str) -> dict[str, int]:
    """Returns the bytes of each variable in global and constant memory, by its name in the text."""
    found = {}
    for match in _SIZED.finditer(ptx):
        wide = int(match["bits"]) // 8
        found[match["name"]] = wide * math.prod(int(extent) for extent in re.findall(r"\d+", match["extents"]))
    return found


def parameter_bytes(ptx: str, entry: str) -> tuple[int, ...]:
    """Returns the size in bytes of each parameter of a kernel, in order; empty if there is no such kernel."""
    head = re.search(rf"\.entry\s+{re.escape(entry)}\s*\(([^)]*)\)", ptx)
    found = []
    for part in head[1].split(",") if head is not None else ():
        match = re.search(
            r"\.[bsuf](\d+)(?:\s+\.(?!align)\w+)*(?:\s+\.align\s+\d+)?\s+[\w$%]+\s*(?:\[(\d+)\])?\s*$", part.strip()
        )
        if match is not None:
            found.append(int(match[1]) // 8 * int(match[2] or 1))
    return tuple(found)


def own_launches(ptx: str) -> str | None:
    """Returns a sentence that names the functions by which a kernel launches other work; None without any.

    Such work can be neither awaited nor timed, and may still run when outputs are read.
    """
    names = sorted({match[1] for match in _CALLED.finditer(ptx) if LAUNCHING.fullmatch(match[1])})
    if not names:
        return None
    return f"it calls {', '.join(names)}: work that a kernel starts by itself can be neither waited for nor timed"
