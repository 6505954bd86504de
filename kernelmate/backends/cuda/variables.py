"""The variables of a module that outlive a launch: what a kernel could remember in."""

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
"""A definition at module scope (PTX ISA, Variable Declarations); `.extern` ones are defined elsewhere."""


@dataclass(frozen=True, slots=True)
class DeviceVariable:
    """One variable on the device: its name in PTX, its address, and its bytes."""

    name: str
    address: int
    size: int


def names_of(ptx: str) -> tuple[str, ...]:
    """Names of the variables in global memory that a PTX text defines: `__device__` ones, and static ones of functions."""
    return tuple(match["name"] for match in _GLOBAL.finditer(ptx))


def used_names_of(ptx: str) -> tuple[str, ...]:
    """Those of `names_of` that stand anywhere else in the text: a constant of C++ is defined there, and mostly only that."""
    return tuple(
        name for name in names_of(ptx) if len(re.findall(rf"(?<![\w$.%]){re.escape(name)}(?![\w$.%])", ptx)) > 1
    )


def variables_of(function: Any, ptx: str) -> tuple[DeviceVariable, ...]:
    """Device addresses of the variables that a loaded module uses.

    Headers define constants by the dozen that nothing reads, and each would cost a copy where a launch's memory is reset.

    Args:
        function: a compiled cupy.RawKernel of the module.
        ptx: what the module was made from.
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
