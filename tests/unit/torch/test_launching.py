"""Operators of kernels' files, launched in the emulator: results, and launches that are kept by the inputs' shapes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="operators need torch: make train-tools")
pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="there is no NVRTC for macOS")

from kernelmate_torch import launching  # noqa: E402

SCALE = """\
// /// kernelmate
// sizes = [{ rows = 8, cols = 33 }]
// grid = "cdiv(rows * cols, block)"
// block = 64
// reference = "2 * x"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// n = "int32 = rows * cols"
// ///
__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
"""

TOTAL = """\
// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "min(cdiv(n, block), 4)"
// block = 64
// reference = "x.sum()"
// [args]
// x = "in float32[n]"
// y = "out float32[1]"
// parts = "scratch float32[4]"
// ended = "scratch int32[1] ~ zeros"
// n = "int32"
// ///
__global__ void total(const float* x, float* y, float* parts, int* ended, int n) {
  __shared__ float sums[64];
  float sum = 0.0f;
  for (int i = blockIdx.x * 64 + threadIdx.x; i < n; i += gridDim.x * 64) sum += x[i];
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x) return;
  for (int i = 1; i < 64; ++i) sum += sums[i];
  parts[blockIdx.x] = sum;
  __threadfence();
  if (atomicAdd(ended, 1) != gridDim.x - 1) return;
  __threadfence();
  sum = 0.0f;
  for (int b = 0; b < gridDim.x; ++b) sum += parts[b];
  y[0] = sum;
}
"""


def test_scratch_arrays_are_made_for_each_launch(tmp_path: Path) -> None:
    (tmp_path / "total.cu").write_text(TOTAL)
    operator = launching.operator(tmp_path / "total.cu")
    for n in (1000, 3, 1000):
        x = torch.arange(float(n))
        assert operator(x).tolist() == [n * (n - 1) / 2]


def test_a_launch_is_worked_out_once_for_equal_shapes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "twice.cu").write_text(SCALE)
    operator = launching.operator(tmp_path / "twice.cu")
    worked_out = []
    original = launching.launch_shape
    monkeypatch.setattr(launching, "launch_shape", lambda *given: worked_out.append(given[1]) or original(*given))
    for rows, cols in ((4, 7), (4, 7), (5, 9), (4, 7)):
        x = torch.randn(rows, cols)
        assert torch.equal(operator(x), 2 * x)
    assert worked_out == [{"rows": 4, "cols": 7}, {"rows": 5, "cols": 9}]
    with pytest.raises(ValueError, match=r"x has to be float32\[rows, cols\].*float64"):
        operator(torch.randn(4, 7, dtype=torch.float64))


def test_kept_launches_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "thrice.cu").write_text(SCALE.replace("twice", "thrice").replace("2 * x", "3 * x"))
    monkeypatch.setattr(launching, "MOST_PLANS", 2)
    kernel = launching.KernelOperator(tmp_path / "thrice.cu")
    for rows in range(1, 6):
        assert kernel.plan([torch.empty(rows, 3)]).results == (((rows, 3), torch.float32),)
    assert len(kernel._plans) <= 2
