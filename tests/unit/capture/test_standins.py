"""Stand-ins for GPU libraries, in a process as `kernelmate capture` starts it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernelmate.capture.library_wrappers import STANDINS
from kernelmate.capture.records import CaptureSettings

ROOT = Path(__file__).resolve().parents[3]

SCALE = """
import cupy as cp, numpy as np
scale = cp.RawKernel(r'''
extern "C" __global__ void scale(const float* x, float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i];
}
''', "scale")
x, y = cp.arange(100, dtype=cp.float32), cp.zeros(100, cp.float32)
"""


def run(text: str, folder: Path, *interpreter: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(STANDINS), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": path, **CaptureSettings(folder, "scale").environment(), **variables}
    return subprocess.run([*(interpreter or [sys.executable]), "-c", text], env=environment, cwd=STANDINS, capture_output=True, text=True)  # fmt: skip


def test_arrays_are_those_of_numpy_with_the_methods_of_cupy(tmp_path: Path) -> None:
    done = run(
        SCALE
        + """
assert isinstance(x, cp.ndarray) and isinstance(x + 1, cp.ndarray) and isinstance(x.sum(), cp.ndarray)
assert float(x.sum()) == 4950 and x[3].get() == 3 and type(x.get()) is np.ndarray and type(cp.asnumpy(x)) is np.ndarray
assert cp.linalg.norm(x).shape == () and cp.random.default_rng(1).random(5, dtype=np.float32).dtype == cp.float32
with cp.cuda.Device(0), cp.cuda.Stream() as stream:
    start, end = stream.record(), stream.record()
    assert cp.cuda.get_elapsed_time(start, end) >= 0
assert cp.cuda.runtime.getDeviceCount() == 1 and x.data.ptr == x.ctypes.data
import cupy.cuda, cupy.random
""",
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cp.ElementwiseKernel('float32 x', 'float32 y', 'y = x', 'copy')", "has no ElementwiseKernel: capture this program on a GPU"),
        ("scale((1,), (128,), (x, y, np.float32(2)))", "scale takes 4 arguments (x, y, a, n), and 3 were passed"),
        ("scale((1,), (128,), (x, y[::2], np.float32(2), 100))", "argument 2 is a view with gaps"),
        ("scale((2,), (128,), (x, y[:50], np.float32(2), 100))", "writes 4 bytes at byte 200 of y, which has 200 bytes"),
        ("cp.RawKernel('__global__ void f(int* x) { x = 1.5; }', 'f')((1,), (1,), (x,))", "(line 1)"),
        ("cp.RawKernel('', 'f')((1,), (1,), (x,))", "there is no kernel f in the text"),
        ("cp.RawModule(path='kernels.cubin')", "stand-in of CuPy that kernelmate capture uses without a GPU has no RawModule of a compiled file, kernels.cubin"),
    ],
)  # fmt: skip
def test_what_the_standin_cannot_do_raises_in_the_program(tmp_path: Path, text: str, said: str) -> None:
    done = run(SCALE + text, tmp_path)
    assert done.returncode == 1
    assert said in done.stderr


def test_records_that_cannot_be_written_leave_the_program_alone(tmp_path: Path) -> None:
    done = run(
        SCALE + "scale((1,), (128,), (x, y, np.float32(2), 100))\nassert float(y[9]) == 18", tmp_path / "missing"
    )
    assert done.returncode == 0
    assert done.stderr.startswith("kernelmate capture: nothing more is recorded in this process: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_program_whose_python_lacks_kernelmate_is_told_so(tmp_path: Path) -> None:
    done = run("import cupy", tmp_path, sys.executable, "-S", PYTHONPATH=str(STANDINS))
    assert done.returncode == 1
    assert "lacks KernelMate or a part of it" in done.stderr
    assert "-m pip install kernelmate" in done.stderr


def test_tensors_for_a_gpu_live_in_host_memory(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="PyTorch is not installed: make train-tools")
    done = run(
        """
import torch
x = torch.ones(3, device="cuda:0").to("cuda").cuda()
assert torch.cuda.is_available() and x.is_cuda and x.device.type == "cpu"
assert torch.nn.Linear(3, 2).to(torch.device("cuda"))(x).shape == (2,)
torch.cuda.synchronize()
""",
        tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
