"""Locations of CUDA's headers and tools, and the compiler's version."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from kernelmate.errors import CompilerUnavailable

_LIBRARIES = {
    12: ("nvidia-cuda-nvrtc-cu12", "cupy-cuda12x"),
    13: ("nvidia-cuda-nvrtc", "nvidia-cuda-nvrtc-cu13", "cupy-cuda13x"),
}
HEADERS = {
    12: ("nvidia-cuda-runtime-cu12", "nvidia-cuda-cccl-cu12"),
    13: ("nvidia-cuda-runtime", "nvidia-cuda-cccl"),
}
"""Packages with the headers that device code includes, by CUDA major version."""

_FURTHER_HEADERS = ("nvidia-cuda-crt", "cupy-cuda12x")
_HINT = "Run: pip install cuda-bindings nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl"


def require_platform() -> None:
    """Checks that NVIDIA ships a compiler for this system.

    Raises:
        CompilerUnavailable: the system is macOS.
    """
    if sys.platform == "darwin":
        raise CompilerUnavailable(
            "Compiling CUDA is not available on macOS: NVIDIA ships no compiler for it.",
            hint="Use a Linux or Windows machine.",
        )


@functools.lru_cache
def cuda_major() -> int:
    """Returns the CUDA major version to compile with: 12 if only CuPy's CUDA 12 wheel is installed, else 13.

    The driver of such a machine loads no newer code.
    """
    return 12 if _version("cupy-cuda12x") is not None and _version("cupy-cuda13x") is None else 13


@functools.lru_cache
def compiler_version() -> str:
    """Returns NVRTC's version: its wheel's, else that of a toolkit's library.

    Raises:
        CompilerUnavailable: NVRTC is not installed.
    """
    require_platform()
    for name in _LIBRARIES[cuda_major()]:
        version = _version(name)
        if version is not None:
            return version if name.startswith("nvidia") else f"of {name} {version}"
    elsewhere = library_version()
    if elsewhere is not None:
        return elsewhere
    raise CompilerUnavailable("NVRTC is not installed.", hint=_HINT)


def library_version() -> str | None:
    """Returns the version of an NVRTC that `cuda.bindings` finds outside wheels (in a toolkit or conda).

    The result is None if there is no such library.

    The library is loaded by the same search as in the compiler process, so that the version is that of the library in
    use.
    """
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        path = str(load_nvidia_dynamic_lib("nvrtc").abs_path)
    except (ImportError, RuntimeError):
        return None
    named = re.search(r"\d+\.\d+\.\d+", Path(path).resolve().name)
    if named:
        return named[0]
    major, minor = ctypes.c_int(), ctypes.c_int()
    ctypes.CDLL(path).nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


@dataclass(frozen=True, slots=True)
class HeaderRoot:
    """Location of CUDA's headers: an installed toolkit, or wheels (`toolkit` is None). The two are never mixed.

    `reason` is the reason for the choice.
    """

    toolkit: Path | None
    version: str
    reason: str


@functools.lru_cache
def header_root() -> HeaderRoot:
    """Returns the location of CUDA's headers.

    It is the folder in `KERNELMATE_CUDA_ROOT`, or the wheels if that is `wheels`; else a complete toolkit of NVRTC's
    major version; else the wheels.
    """
    wheels = ", ".join(f"{name} {version}" for name in HEADERS[cuda_major()] if (version := _version(name)) is not None)
    named = os.environ.get(ROOT_VARIABLE)
    if named == "wheels":
        return HeaderRoot(None, wheels, f"{ROOT_VARIABLE} names them")
    toolkit = Path(named) if named else toolkit_root()
    if toolkit is None:
        return HeaderRoot(None, wheels, "there is no toolkit")
    stated = re.search(r"#define CUDART_VERSION\s+(\d+)", _text(toolkit / "include" / "cuda_runtime_api.h"))
    version = f"{int(stated[1]) // 1000}.{int(stated[1]) % 1000 // 10}" if stated else "of unknown version"
    if named:
        return HeaderRoot(toolkit, version, f"{ROOT_VARIABLE} names it")
    lacking = next((name for name in _WHOLE if not any((part / name).exists() for part in _folders(toolkit))), None)
    same = stated is not None and int(stated[1]) // 1000 == cuda_major()
    if wheels and (lacking or not same):
        why = f"it lacks {lacking}" if lacking else f"NVRTC here is of CUDA {cuda_major()}"
        return HeaderRoot(None, wheels, f"the toolkit {version} in {toolkit} is not used: {why}")
    return HeaderRoot(toolkit, version, "it is installed")


ROOT_VARIABLE = "KERNELMATE_CUDA_ROOT"
_WHOLE = ("cuda_fp16.h", "cooperative_groups.h", "cuda/std/cstdint", "cub/cub.cuh", "crt/mma.h")
"""Headers that a complete toolkit must have: those that device code includes most."""


def _folders(toolkit: Path) -> tuple[Path, ...]:
    return (toolkit / "include", toolkit / "include" / "cccl")


@functools.lru_cache
def header_versions() -> tuple[str, ...]:
    """Returns the versions of the headers that a kernel may include."""
    root = header_root()
    if root.toolkit is not None:
        return (f"toolkit {root.version} {root.toolkit}",)
    own = (*HEADERS[cuda_major()], *_FURTHER_HEADERS)
    return tuple(f"{name} {version}" for name in own if (version := _version(name)) is not None)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


@functools.lru_cache
def system_includes() -> tuple[str, ...]:
    """Returns the folders with CUDA's headers, from the location that `header_root` selects."""
    root = header_root()
    if root.toolkit is not None:
        return tuple(str(path) for path in _folders(root.toolkit) if path.is_dir())
    places = []
    for site in _sites():
        if cuda_major() == 13:
            places.append(site / "nvidia" / "cu13" / "include")
        else:
            places += [site / "nvidia" / part / "include" for part in ("cuda_runtime", "cuda_cccl")]
            places += [
                site / "cupy" / "_core" / "include" / "cupy" / "_cccl" / p for p in ("libcudacxx", "cub", "thrust")
            ]
    found = [path for place in places for path in (place, place / "cccl") if path.is_dir()]
    return tuple(dict.fromkeys(str(path) for path in found))


def toolkit_root() -> Path | None:
    """Returns the folder of an installed CUDA toolkit.

    It is the first that exists of `CUDA_HOME`, `CUDA_PATH`, the toolkit of nvcc on PATH, and `/usr/local/cuda`.
    """
    nvcc = shutil.which("nvcc")
    named = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    beside = str(Path(nvcc).resolve().parents[1]) if nvcc else None
    for place in (*named, beside, "/usr/local/cuda"):
        if place and (Path(place) / "include" / "cuda_runtime.h").is_file():
            return Path(place)
    return None


def find_tool(name: str) -> Path | None:
    """Returns the path of a tool, from the wheels, a toolkit or PATH; None if there is none."""
    file = f"{name}.exe" if sys.platform == "win32" else name
    toolkit = toolkit_root()
    places = [site / "nvidia" / "cu13" / "bin" / file for site in _sites()]
    places += [toolkit / "bin" / file] if toolkit is not None else []
    found = next((place for place in places if place.is_file()), None)
    on_path = shutil.which(name) if found is None else None
    return Path(on_path) if on_path else found


@functools.lru_cache
def _sites() -> tuple[Path, ...]:
    return tuple(dict.fromkeys(Path(entry) for entry in sys.path if entry.endswith(("site-packages", "dist-packages"))))
