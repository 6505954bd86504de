"""What the NVIDIA driver says of this machine, without a context and without CuPy: cheap enough for every command."""

from __future__ import annotations

import ctypes
import functools
import sys
from dataclasses import dataclass

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
"""`CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR` of `cuda.h`."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that CUDA sees, by its number there."""

    name: str
    capability: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver: the newest CUDA it knows, as (major, minor), and its GPUs."""

    cuda: tuple[int, int]
    gpus: tuple[Gpu, ...]


@functools.cache
def read_driver() -> Driver | None:
    """What the driver says; None where there is none."""
    try:
        library = ctypes.CDLL("nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1")
    except OSError:
        return None
    number = ctypes.c_int()
    if library.cuDriverGetVersion(ctypes.byref(number)) != 0:
        return None
    cuda = (number.value // 1000, number.value % 1000 // 10)
    if library.cuInit(0) != 0 or library.cuDeviceGetCount(ctypes.byref(number)) != 0:
        return Driver(cuda, ())
    return Driver(cuda, tuple(_gpu(library, index) for index in range(number.value)))


def _gpu(library: ctypes.CDLL, index: int) -> Gpu:
    name = ctypes.create_string_buffer(256)
    library.cuDeviceGetName(name, 256, index)
    parts = []
    for attribute in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR):
        value = ctypes.c_int()
        library.cuDeviceGetAttribute(ctypes.byref(value), attribute, index)
        parts.append(value.value)
    return Gpu(name.value.decode(errors="replace"), (parts[0], parts[1]))
