"""Facts from the NVIDIA driver, without a context and without CuPy: cheap enough for every command."""

from __future__ import annotations

import ctypes
import functools
import sys
import uuid
from dataclasses import dataclass

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
"""`CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR` of `cuda.h`."""

_MPS_ENABLED = 133
"""`CU_DEVICE_ATTRIBUTE_MPS_ENABLED` of `cuda.h`; drivers before CUDA 12.5 refuse the question."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that CUDA sees, by its number there.

    Attributes:
        uuid: as NVML and nvidia-smi write it, the same in every process. It comes from the driver, since CuPy cuts
            `cudaDeviceProp::uuid` at the first zero byte.
        mps: True if contexts use NVIDIA's Multi-Process Service, with which a fault in one process affects others.
    """

    name: str
    capability: tuple[int, int]
    mps: bool = False
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class Driver:
    """The driver: the newest CUDA version it supports, as (major, minor), and its GPUs."""

    cuda: tuple[int, int]
    gpus: tuple[Gpu, ...]


@functools.cache
def read_driver() -> Driver | None:
    """Reads the driver's facts; None if there is no driver."""
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
    capability = (_attribute(library, index, _CAPABILITY_MAJOR), _attribute(library, index, _CAPABILITY_MINOR))
    mps = _attribute(library, index, _MPS_ENABLED) == 1
    return Gpu(name.value.decode(errors="replace"), capability, mps, _uuid(library, index))


def _uuid(library: ctypes.CDLL, index: int) -> str:
    raw = (ctypes.c_ubyte * 16)()
    ask = getattr(library, "cuDeviceGetUuid_v2", getattr(library, "cuDeviceGetUuid", None))
    if ask is None or ask(ctypes.byref(raw), index) != 0:
        return f"GPU-{index}"
    return f"GPU-{uuid.UUID(bytes=bytes(raw))}"


def _attribute(library: ctypes.CDLL, index: int, attribute: int) -> int:
    """Returns an attribute's value; 0 if the driver does not know it."""
    value = ctypes.c_int()
    return value.value if library.cuDeviceGetAttribute(ctypes.byref(value), attribute, index) == 0 else 0
