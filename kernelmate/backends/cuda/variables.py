"""Module variables that survive a launch, in which a kernel could store state."""

from __future__ import annotations

import ctypes
import re
import sys
from dataclasses import dataclass
from typing import Any

_GLOBAL = re.compile(
    r"^\s*(?:\.(?:visible|weak|common)\s+)*\.global\b(?P<words>(?:\s+\.\w+(?:\([^)]*\))?(?:\s+\d+(?=\s))?)*)"
    r"\s+(?P<name>[\w$.%]+)\s*(?:\[[^\]]*\]\s*)*(?:=|;)",
    re.MULTILINE,
)
"""A definition at module scope (PTX ISA, Variable Declarations); `.extern` variables are defined elsewhere."""


@dataclass(frozen=True, slots=True)
class DeviceVariable:
    """One variable on the device: its name in PTX, its address, and its bytes."""

    name: str
    address: int
    size: int


def names_of(ptx: str) -> tuple[str, ...]:
    """Returns the global-memory variables that a PTX text defines: `__device__` ones, and static ones of functions."""
    return tuple(match["name"] for match in _GLOBAL.finditer(ptx))


def used_names_of(ptx: str) -> tuple[str, ...]:
    """Returns those of `names_of` that the text uses: C++ constants are often defined and never used."""
    return tuple(
        name for name in names_of(ptx) if len(re.findall(rf"(?<![\w$.%]){re.escape(name)}(?![\w$.%])", ptx)) > 1
    )


def variables_of(function: Any, ptx: str) -> tuple[DeviceVariable, ...]:
    """Return device addresses of the variables that a loaded module uses.

    Headers define dozens of unused constants, each of which would cost a copy at every reset.

    Args:
        function: a compiled cupy.RawKernel of the module.
        ptx: the module's PTX.
    """
    library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    found = []
    for name in used_names_of(ptx):
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        status = library.cuModuleGetGlobal_v2(
            ctypes.byref(address), ctypes.byref(size), ctypes.c_void_p(function.kernel.module.ptr), name.encode()
        )
        if status == 0 and size.value:
            found.append(DeviceVariable(name, address.value, size.value))
    return tuple(found)
