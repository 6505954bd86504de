"""Locations of CUDA's headers and tools, and the compiler's version."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import os
import re
import shutil
import sys
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
"""Packages with the headers that device code includes, by CUDA's major version."""

_FURTHER_HEADERS = ("nvidia-cuda-crt", "cupy-cuda12x")
_HINT = "Run: pip install cuda-bindings nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl"


def require_platform() -> None:
    """Raises CompilerUnavailable on a system for which NVIDIA ships no compiler."""
    if sys.platform == "darwin":
        raise CompilerUnavailable(
            "Compiling CUDA is not available on macOS: NVIDIA ships no compiler for it.",
            hint="Use a Linux or Windows machine.",
        )


@functools.lru_cache
def cuda_major() -> int:
    """Returns the CUDA major version to compile with: 12 with CuPy's CUDA 12 wheel, whose driver loads nothing newer.

    Else 13.
    """
    return 12 if _version("cupy-cuda12x") is not None and _version("cupy-cuda13x") is None else 13


@functools.lru_cache
def compiler_version() -> str:
    """Return NVRTC's version, from its wheel, else from a toolkit's library.

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
    """Return the version of the NVRTC that `cuda.bindings` finds without a wheel (of a toolkit or conda).

    None without one.

    The library is loaded by the same search as in the compiler process, so that the version belongs to the file in use.
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


@functools.lru_cache
def header_versions() -> tuple[str, ...]:
    """Returns versions of the headers that a kernel may include: of wheels, and of a toolkit for missing wheels."""
    own = HEADERS[cuda_major()]
    found = tuple(f"{name} {version}" for name in (*own, *_FURTHER_HEADERS) if (version := _version(name)) is not None)
    toolkit = toolkit_root()
    if toolkit is None or all(_version(name) is not None for name in own):
        return found
    stated = re.search(r"#define CUDART_VERSION\s+(\d+)", _text(toolkit / "include" / "cuda_runtime_api.h"))
    return (*found, f"toolkit {stated[1] if stated else toolkit}")


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
    """Return folders with CUDA's headers: those of the wheels, then those of an installed toolkit.

    The wheels lack the `crt` headers that `mma.h` needs; a toolkit has them.
    """
    places = []
    for site in _sites():
        if cuda_major() == 13:
            places.append(site / "nvidia" / "cu13" / "include")
        else:
            places += [site / "nvidia" / part / "include" for part in ("cuda_runtime", "cuda_cccl")]
            places += [
                site / "cupy" / "_core" / "include" / "cupy" / "_cccl" / p for p in ("libcudacxx", "cub", "thrust")
            ]
    toolkit = toolkit_root()
    if toolkit is not None:
        places.append(toolkit / "include")
    found = [path for place in places for path in (place, place / "cccl") if path.is_dir()]
    return tuple(dict.fromkeys(str(path) for path in found))


def toolkit_root() -> Path | None:
    """Returns the folder of an installed CUDA toolkit.

    `CUDA_HOME`, `CUDA_PATH`, that of nvcc on PATH, or the usual place.
    """
    nvcc = shutil.which("nvcc")
    named = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    beside = str(Path(nvcc).resolve().parents[1]) if nvcc else None
    for place in (*named, beside, "/usr/local/cuda"):
        if place and (Path(place) / "include" / "cuda_runtime.h").is_file():
            return Path(place)
    return None


def find_tool(name: str) -> Path | None:
    """Returns the path of a tool, from the wheels, a toolkit or PATH; None without one."""
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
