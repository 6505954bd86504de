"""Builds the library that records launches on a GPU, with the user's C compiler and the headers of CUDA and CUPTI."""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from kernelmate.backends.cuda.driver import read_driver
from kernelmate.compiler.cache import default_directory, key_of
from kernelmate.compiler.cuda_toolkit import cuda_major, system_includes, toolkit_root
from kernelmate.errors import EnvironmentFailed

SOURCE = Path(__file__).with_name("injection.c")
LIBRARY_VARIABLE = "CUDA_INJECTION64_PATH"
"""Variable that names the library that the driver loads into a process (CUPTI's documentation, "Usage", injection)."""

CUPTI_VARIABLE = "KERNELMATE_CAPTURE_CUPTI"
HEADERS = ("cuda.h", "cupti.h", "generated_cuda_meta.h")
COMPILERS = ("cc", "gcc", "clang")
BUILD_S = 120.0
_FLAGS = ("-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden")
_LIBRARIES = ("-ldl", "-lpthread")


def has_gpu() -> bool:
    """Returns True if this machine's driver has a GPU."""
    driver = read_driver()
    return driver is not None and bool(driver.gpus)


def injection_environment() -> dict[str, str]:
    """Returns the variables by which the driver loads the library into a program.

    Raises:
        EnvironmentFailed: the library cannot be built, or CUPTI's library is missing.
    """
    return {LIBRARY_VARIABLE: str(built_library()), CUPTI_VARIABLE: _cupti()}


def built_library() -> Path:
    """Returns the library, built on first use and kept in the user's cache folder.

    Raises:
        EnvironmentFailed: there is no C compiler, a header is missing, or the compiler fails.
    """
    compiler, folders = _compiler(), header_folders()
    versions = [re.findall(r"#define CUDA_VERSION (\d+)", (folder / "cuda.h").read_text(errors="replace")) for folder in folders if (folder / "cuda.h").is_file()]  # fmt: skip
    key = key_of(SOURCE.read_text("utf-8"), compiler, list(map(str, folders)), versions, platform.machine())
    library = default_directory() / f"capture-{key[:32]}.so"
    if not library.is_file():
        _build(compiler, folders, library)
    return library


def _build(compiler: list[str], folders: tuple[Path, ...], library: Path) -> None:
    """Compiles into a temporary file and renames it, so that two processes may build at once."""
    library.parent.mkdir(parents=True, exist_ok=True)
    handle, part = tempfile.mkstemp(dir=library.parent, prefix="capture-", suffix=".part")
    os.close(handle)
    command = [*compiler, *_FLAGS, *(f"-I{folder}" for folder in folders), str(SOURCE), "-o", part, *_LIBRARIES]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=BUILD_S)
        if done.returncode:
            said = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[-200:])
            raise EnvironmentFailed(
                f"The library that records launches does not compile: {said}", hint=f"Run: {shlex.join(command)}"
            )
        os.replace(part, library)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EnvironmentFailed(
            f"The library that records launches cannot be built: {error}.",
            hint="Set CC to a C compiler that works here.",
        ) from None
    finally:
        Path(part).unlink(missing_ok=True)


def _compiler() -> list[str]:
    named = shlex.split(os.environ.get("CC", ""))
    if named and shutil.which(named[0]):
        return named
    found = next((path for name in COMPILERS if (path := shutil.which(name)) is not None), None)
    if found is None:
        raise EnvironmentFailed(
            "The library that records launches on a GPU needs a C compiler, and there is none here.",
            hint="Install gcc or clang, or set CC. Python programs can also be captured with --backend emulator.",
        )
    return [found]


def header_folders() -> tuple[Path, ...]:
    """Returns the folders with the headers, each header from the first folder that has it.

    Raises:
        EnvironmentFailed: a header was not found.
    """
    found = {name: next((one for one in _places() if (one / name).is_file()), None) for name in HEADERS}
    missing = [name for name, folder in found.items() if folder is None]
    if missing:
        wheel = "nvidia-cuda-cupti" if cuda_major() == 13 else "nvidia-cuda-cupti-cu12"
        runtime = "nvidia-cuda-runtime" if cuda_major() == 13 else "nvidia-cuda-runtime-cu12"
        raise EnvironmentFailed(
            f"The library that records launches on a GPU needs {', '.join(missing)}, and there is no such header.",
            hint=f"Run: {sys.executable} -m pip install {runtime} {wheel}. Or set CUDA_HOME to a toolkit.",
        )
    return tuple(dict.fromkeys(folder for folder in found.values() if folder is not None))


def _places() -> Iterator[Path]:
    """Yields the folders that may hold the headers: the toolkit's first, whose parts belong together, then the wheels'."""
    toolkit = toolkit_root()
    if toolkit is not None:
        yield toolkit / "include"
        yield toolkit / "extras" / "CUPTI" / "include"
    for entry in map(Path, sys.path):
        yield entry / "nvidia" / "cu13" / "include"
        yield entry / "nvidia" / "cuda_cupti" / "include"
    yield from map(Path, system_includes())


def _cupti() -> str:
    """Returns the file of CUPTI's library.

    Raises:
        EnvironmentFailed: it is not installed.
    """
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib

        return str(load_nvidia_dynamic_lib("cupti").abs_path)
    except (ImportError, RuntimeError):
        raise EnvironmentFailed(
            "CUPTI, which reports launches on a GPU, is not installed.",
            hint=f"Run: {sys.executable} -m pip install nvidia-cuda-cupti (of the driver's CUDA).",
        ) from None
