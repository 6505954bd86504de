"""Facts from the NVIDIA driver: its GPUs, and the reason and remedy if kernels cannot run. Loads neither CuPy nor a context."""

from __future__ import annotations

import ctypes
import functools
import sys
import uuid
from dataclasses import dataclass

from kernelmate.errors import BackendUnavailable

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76
"""`CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR` and `_MINOR` of `cuda.h`."""

_MPS_ENABLED = 133
"""`CU_DEVICE_ATTRIBUTE_MPS_ENABLED` of `cuda.h`; drivers before CUDA 12.5 refuse the question."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU, identified by CUDA's device number.

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


WHEELS = {12: "cupy-cuda12x", 13: "cupy-cuda13x"}
"""CuPy's distribution for each CUDA."""

_EMULATE = "Or use --backend emulator, which needs no GPU."


def require_gpu(device: int = 0) -> None:
    """Raises BackendUnavailable if CuPy cannot use the GPU of this number; the message gives the reason and the remedy."""
    missing = missing_for_gpu(device)
    if missing is not None:
        what, hint = missing
        raise BackendUnavailable(f"The cuda backend cannot run here: {what}.", hint=f"{hint} {_EMULATE}")


def missing_for_gpu(device: int = 0) -> tuple[str, str] | None:
    """Returns the missing requirement of the GPU of this number, and the remedy; None if it can be used."""
    driver = read_driver()
    if driver is None:
        return "there is no NVIDIA driver", "Install the driver of an NVIDIA GPU."
    if not driver.gpus:
        return "the driver sees no GPU", "Look at what nvidia-smi says, and at CUDA_VISIBLE_DEVICES."
    if device >= len(driver.gpus):
        seen = ", ".join(f"{number} ({gpu.name})" for number, gpu in enumerate(driver.gpus))
        return (
            f"there is no GPU {device}; CUDA sees {seen}",
            "Choose one of these with --device, or see CUDA_VISIBLE_DEVICES.",
        )
    known, wanted = driver.cuda
    installed = [major for major, name in WHEELS.items() if _is_installed(name)]
    fitting = WHEELS.get(min(known, max(WHEELS)))
    if not installed:
        if fitting is None:
            return f"the driver knows CUDA {known}.{wanted} only", "Install a driver for CUDA 12 or newer."
        return "CuPy is not installed", f"Run: {sys.executable} -m pip install {fitting}."
    if len(installed) > 1:
        others = [WHEELS[major] for major in installed if WHEELS[major] != fitting]
        both = " and ".join(WHEELS[major] for major in installed)
        return f"{both} are both installed", f"Run: {sys.executable} -m pip uninstall {' '.join(others)}."
    if known < installed[0]:
        wheel = "" if fitting is None else f", or the CuPy for this one: {sys.executable} -m pip install {fitting}"
        return (
            f"the driver is for CUDA {known}.{wanted}, and {WHEELS[installed[0]]} needs CUDA {installed[0]}",
            f"Install a newer driver{wheel}.",
        )
    return None


def _is_installed(name: str) -> bool:
    import importlib.metadata  # slow to load, and needed only before the first launch

    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
