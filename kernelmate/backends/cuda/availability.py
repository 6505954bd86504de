"""Checks whether kernels can run on a GPU, with the reason and remedy if not. Loads neither CuPy nor a context."""

from __future__ import annotations

import importlib.metadata
import sys

from kernelmate.backends.cuda.driver import read_driver
from kernelmate.errors import BackendUnavailable

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
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
