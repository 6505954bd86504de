"""The command line where a GPU's software does not fit together: a driver's library of our own, and CuPy by name alone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
DRIVER = """
#include <string.h>
int cuDriverGetVersion(int *v) { *v = VERSION; return 0; }
int cuInit(unsigned flags) { return INIT; }
int cuDeviceGetCount(int *n) { *n = COUNT; return 0; }
int cuDeviceGetName(char *name, int size, int device) { strncpy(name, "NVIDIA L4", size); return 0; }
int cuDeviceGetAttribute(int *v, int attribute, int device) { *v = attribute == 75 ? 8 : attribute == 133 ? MPS : 9; return 0; }
int cuDeviceGetUuid(unsigned char *bytes, int device) { for (int i = 0; i < 16; i++) bytes[i] = i; return 0; }
"""
KERNEL = """// /// kernelmate
// sizes = [{ n = 100 }]
// grid = 1
// block = 128
// reference = "2 * x"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void twice(const float* x, float* y, int n) { if (threadIdx.x < n) y[threadIdx.x] = 2 * x[threadIdx.x]; }
"""
Program = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def program(tmp_path: Path) -> Program:
    """Run `kernelmate` beside a driver of a version, that sees so many GPUs, and installed distributions of CuPy."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("needs a C compiler on Linux to make a driver's library")
    (tmp_path / "twice.cu").write_text(KERNEL)

    def run(
        *arguments: str,
        version: int,
        wheels: tuple[str, ...],
        count: int = 1,
        status: int = 0,
        mps: int = 0,
        module: tuple[str, ...] = ("-m", "kernelmate"),
    ):
        source, library = tmp_path / "driver.c", tmp_path / "libcuda.so.1"
        source.write_text(DRIVER)
        defines = [f"-DVERSION={version}", f"-DCOUNT={count}", f"-DINIT={status}", f"-DMPS={mps}"]
        subprocess.run([compiler, "-shared", "-fPIC", *defines, "-o", str(library), str(source)], check=True)
        packages = tmp_path / "packages"
        for wheel in wheels:
            folder = packages / f"{wheel.replace('-', '_')}-14.2.0.dist-info"
            folder.mkdir(parents=True)
            (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {wheel}\nVersion: 14.2.0\n")
        environment = {
            **os.environ, "LD_LIBRARY_PATH": str(tmp_path), "PYTHONPATH": f"{ROOT}:{packages}", "COLUMNS": "400",
        }  # fmt: skip
        command = [sys.executable, *module, *arguments]
        return subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)

    return run


CASES = {
    "no CuPy": ({"version": 13000, "wheels": ()}, "CuPy is not installed", "pip install cupy-cuda13x"),
    "no CuPy, older driver": ({"version": 12040, "wheels": ()}, "CuPy is not installed", "pip install cupy-cuda12x"),
    "driver too old": (
        {"version": 12040, "wheels": ("cupy-cuda13x",)},
        "the driver is for CUDA 12.4, and cupy-cuda13x needs CUDA 13",
        "pip install cupy-cuda12x",
    ),
    "two CuPys": (
        {"version": 13000, "wheels": ("cupy-cuda12x", "cupy-cuda13x")},
        "are both installed",
        "pip uninstall cupy-cuda12x",
    ),
    "no GPU": ({"version": 13000, "wheels": ("cupy-cuda13x",), "count": 0}, "sees no GPU", "CUDA_VISIBLE_DEVICES"),
    "driver does not start": (
        {"version": 13000, "wheels": ("cupy-cuda13x",), "status": 100},
        "sees no GPU",
        "nvidia-smi",
    ),
}


@pytest.mark.parametrize(("machine", "what", "todo"), CASES.values(), ids=CASES)
def test_what_keeps_kernels_from_the_gpu_is_said_with_what_to_do(program: Program, machine, what, todo) -> None:
    if "cupy-cuda13x" not in machine["wheels"] and _has_cupy():
        pytest.skip("a CuPy is installed here")
    done = program("bench", "twice.cu", "--backend", "cuda", **machine)
    assert done.returncode == 3, done.stdout + done.stderr
    said = " ".join(done.stderr.split())
    assert what in said
    assert todo in said
    assert "--backend emulator" in said


def _has_cupy() -> bool:
    import importlib.metadata

    return any(str(one.metadata["Name"]).startswith("cupy-cuda") for one in importlib.metadata.distributions())


def test_doctor_says_the_same_and_that_all_else_works(program: Program) -> None:
    done = program("doctor", version=12040, wheels=("cupy-cuda13x",))
    said = " ".join(done.stdout.split())
    assert "--backend cuda cannot run here: the driver is for CUDA 12.4" in said
    assert "pip install cupy-cuda12x" in said
    assert done.returncode == 0


def test_auto_takes_the_emulator_then(program: Program) -> None:
    asked = (
        "from kernelmate.config import load_settings; from kernelmate.session import Session; "
        "print(Session(load_settings(backend='auto')).backend)"
    )
    done = program("-c", asked, version=12040, wheels=("cupy-cuda13x",), module=())
    assert done.stdout.strip() == "emulator", done.stderr


@pytest.mark.parametrize("backend", ["cuda", "auto"])
def test_a_gpu_that_is_not_there_is_told_with_those_that_are(program: Program, backend: str) -> None:
    wheels = () if _has_cupy() else ("cupy-cuda13x",)
    done = program("bench", "twice.cu", "--backend", backend, "--device", "3", version=13000, wheels=wheels)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "there is no GPU 3; CUDA sees 0 (NVIDIA L4)" in " ".join(done.stderr.split())


@pytest.mark.parametrize("mps", [0, 1])
def test_the_multi_process_service_is_seen(program: Program, mps: int) -> None:
    asked = "from kernelmate.backends.cuda.driver import read_driver; print(read_driver().gpus[0].mps)"
    done = program("-c", asked, version=13000, wheels=(), mps=mps, module=())
    assert done.stdout.strip() == str(bool(mps)), done.stderr


def test_a_uuid_with_a_zero_byte_is_named_as_nvidia_smi_names_it(program: Program) -> None:
    asked = "from kernelmate.backends.cuda.driver import read_driver; print(read_driver().gpus[0].uuid)"
    done = program("-c", asked, version=13000, wheels=(), module=())
    assert done.stdout.strip() == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f", done.stderr
