"""`kernelmate capture` on a GPU: programs that launch by CuPy, by the driver's own functions, and on PyTorch's memory."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kernelmate
from kernelmate.backends.cuda.driver import missing_for_gpu
from kernelmate.capture.records import read_capture
from kernelmate.compiler import compile_kernel, find_target
from kernelmate.records import CompileOptions
from kernelmate.source import load_kernel

_missing = missing_for_gpu()
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(_missing is not None, reason=f"no GPU can be used: {_missing and _missing[0]}"),
]

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ROOT / "tests" / "data" / "capture"

DRIVER_API = """\
import ctypes
import sys

import numpy as np

cuda = ctypes.CDLL("libcuda.so.1")


def check(status):
    assert status == 0, status


context, module, function, device = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
check(cuda.cuInit(0))
check(cuda.cuDeviceGet(ctypes.byref(device), 0))
check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
check(cuda.cuCtxSetCurrent(context))
check(cuda.cuModuleLoadData(ctypes.byref(module), open(sys.argv[1], "rb").read()))
check(cuda.cuModuleGetFunction(ctypes.byref(function), module, sys.argv[2].encode()))
for step, n in enumerate((100, 333, 100, 333)):
    values = np.random.default_rng(step).random(n, np.float32)
    x, y = ctypes.c_uint64(), ctypes.c_uint64()
    check(cuda.cuMemAlloc_v2(ctypes.byref(x), ctypes.c_size_t(4 * n)))
    check(cuda.cuMemAlloc_v2(ctypes.byref(y), ctypes.c_size_t(4 * n)))
    check(cuda.cuMemcpyHtoD_v2(x, values.ctypes.data_as(ctypes.c_void_p), ctypes.c_size_t(values.nbytes)))
    given = [x, y, ctypes.c_float(3), ctypes.c_int(n)]
    passed = (ctypes.c_void_p * 4)(*(ctypes.addressof(one) for one in given))
    check(cuda.cuLaunchKernel(function, -(-n // 64), 1, 1, 64, 1, 1, 0, None, passed, None))
check(cuda.cuCtxSynchronize())
"""

TORCH = """\
import cupy as cp
import numpy as np
import torch

scale = cp.RawKernel(open("scale.cu").read().replace("__global__", 'extern "C" __global__'), "scale")
for n in (1000, 4096) * 2:
    x, y = torch.rand(n, device="cuda"), torch.empty(n, device="cuda")
    torch.cuda.synchronize()
    scale((-(-n // 64),), (64,), (np.uint64(x.data_ptr()), np.uint64(y.data_ptr()), np.float32(3), np.int32(n)))
    cp.cuda.Device().synchronize()
    torch.testing.assert_close(y, 3 * x)
"""


def captured(folder: Path, kernel: str, source: str, *program: str) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "kernelmate",
        "capture",
        kernel,
        "--backend",
        "cuda",
        "--source",
        source,
        "--write",
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])}  # fmt: skip
    done = subprocess.run([*command, "--json", "--", sys.executable, *program], cwd=folder, env=environment, capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)["captured"]
    assert not document["emulated"]
    assert read_capture(folder / f"{kernel}.captured" / "launches", 4).damaged == ()
    (verdict,) = kernelmate.bench(folder / source, backend="cuda")
    assert verdict.correct is True, "\n".join([document["contract"], *(one.message for one in verdict.findings)])
    return document


@pytest.mark.parametrize("kernel", ["saxpy", "matmul", "histogram"])
def test_a_cupy_program(tmp_path: Path, kernel: str) -> None:
    shutil.copy(PROGRAMS / f"{kernel}.py", tmp_path)
    document = captured(tmp_path, kernel, f"{kernel}.py", f"{kernel}.py")
    assert set(document["outcomes"]) == {"recorded"}


def test_a_program_that_calls_the_driver(tmp_path: Path) -> None:
    shutil.copy(PROGRAMS / "numba_scale.cu", tmp_path / "scale.cu")
    kernel = load_kernel(str(tmp_path / "scale.cu"))
    made = compile_kernel(kernel, (), instance=None, target=find_target("sm_80"), options=CompileOptions())
    (tmp_path / "scale.ptx").write_text(made.ptx + "\0")
    (tmp_path / "program.py").write_text(DRIVER_API)
    document = captured(tmp_path, "scale", "scale.cu", "program.py", "scale.ptx", made.lowered_name)
    assert [one["size"] for one in document["sizes"]] == [{"n": 100}, {"n": 333}]
    assert list((tmp_path / "scale.captured" / "launches").glob("*.cubin"))


def test_arrays_in_allocations_that_hold_more(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch allocates the arrays")
    shutil.copy(PROGRAMS / "numba_scale.cu", tmp_path / "scale.cu")
    (tmp_path / "program.py").write_text(TORCH)
    document = captured(tmp_path, "scale", "scale.cu", "program.py")
    assert '// x = "in float32[n] align 16"' in document["contract"]
    assert any("padding is left out" in one for one in document["notes"])
