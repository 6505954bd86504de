"""Module variables that survive a launch, in which a kernel could store state."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmate.backends.base import ArrayArgument
from kernelmate.backends.cuda.launching import content_of
from kernelmate.compiler.ptx_text import used_names_of

_TO_DEVICE = 1
"""`cudaMemcpyHostToDevice`."""


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
    found = (variable_of(function, name) for name in used_names_of(ptx))
    return tuple(one for one in found if one is not None)


def variable_of(function: Any, name: str) -> DeviceVariable | None:
    """Return a variable of a loaded module, also a constant; None if it has none of this name.

    Args:
        function: a compiled cupy.RawKernel of the module.
        name: in PTX.
    """
    library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    address, size = ctypes.c_uint64(), ctypes.c_size_t()
    status = library.cuModuleGetGlobal_v2(
        ctypes.byref(address), ctypes.byref(size), ctypes.c_void_p(function.kernel.module.ptr), name.encode()
    )
    return DeviceVariable(name, address.value, size.value) if status == 0 and size.value else None


def fill_variables(function: Any, arguments: Iterable[Any], places: Mapping[str, int], stream: Any) -> dict[str, int]:
    """Copy the contents of a launch's variables to a loaded module, and return their addresses by argument.

    Args:
        function: a compiled cupy.RawKernel of the module.
        arguments: the arguments of the launch; those that are no variables are left out.
        places: the device address of each array.
        stream: the cupy stream, which is awaited.

    Raises:
        cupy.cuda.runtime.CUDARuntimeError: the GPU has failed.
    """
    import cupy

    found = {}
    for item in arguments:
        variable = variable_of(function, item.variable) if isinstance(item, ArrayArgument) and item.variable else None
        if variable is not None:
            content = content_of(item, places)
            host = np.ascontiguousarray(content if isinstance(content, np.ndarray) else content.get())
            cupy.cuda.runtime.memcpyAsync(variable.address, host.ctypes.data, host.nbytes, _TO_DEVICE, stream.ptr)
            stream.synchronize()
            found[item.name] = variable.address
    return found
