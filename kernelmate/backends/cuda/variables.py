"""Module variables that survive a launch, in which a kernel could store state."""

from __future__ import annotations

import ctypes
import sys
from dataclasses import dataclass
from typing import Any

from kernelmate.compiler.ptx_text import used_names_of


@dataclass(frozen=True, slots=True)
class DeviceVariable:
    """One variable on the device: its name in PTX, its address, and its bytes."""

    name: str
    address: int
    size: int


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
