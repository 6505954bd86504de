"""What numbers of variants mean: a hash over what the installed rewrites make of a few fixed kernels.

A model that was taught to choose by number chooses well only where the numbers mean what they meant then.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache

from kernelmate.records import MetricName
from kernelmate.source import contract_for, find_kernels, text_unit
from kernelmate.suggest.codec.base import Question
from kernelmate.suggest.codec.offers import REWRITES, candidates
from kernelmate.suggest.codec.requests import launch_of

SAMPLES: tuple[tuple[MetricName, str], ...] = (
    ("time", """\
// /// kernelmate
// sizes = [{ rows = 64, cols = 300 }]
// grid = "cdiv(rows, 64)"
// block = 64
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void softmax_rows(const float* x, float* y, int rows, int cols) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float top = -1e30f;
  for (int c = 0; c < cols; c++) top = fmaxf(top, x[row * cols + c]);
  float sum = 0.0f;
  for (int c = 0; c < cols; c++) sum += expf(x[row * cols + c] - top);
  for (int c = 0; c < cols; c++) y[row * cols + c] = expf(x[row * cols + c] - top) / sum * 0.5;
}
"""),
    ("global_bytes", """\
// /// kernelmate
// sizes = [{ m = 96, n = 80, k = 64 }]
// grid = ["cdiv(m, 16)", "cdiv(n, 16)"]
// block = [16, 16]
// [args]
// a = "in float32[m, k]"
// b = "in float32[k, n]"
// c = "out float32[m, n]"
// m = "int32"
// n = "int32"
// k = "int32"
// ///
__global__ void multiply(const float* a, const float* b, float* c, int m, int n, int k) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  int j = blockIdx.y * blockDim.y + threadIdx.y;
  if (i < m && j < n) {
    c[i * n + j] = 0.0f;
    for (int t = 0; t < k; t++) c[i * n + j] += a[i * k + t] * b[t * n + j];
  }
}
"""),
    ("time", """\
// /// kernelmate
// sizes = [{ n = 5000 }]
// grid = "cdiv(n, 256)"
// block = 256
// [args]
// x = "in float32[n]"
// total = "inout float32[1]"
// n = "int32"
// ///
__global__ void sum_squares(const float* x, float* total, int n) {
  __shared__ float part[256];
  int t = threadIdx.x;
  int i = blockIdx.x * blockDim.x + t;
  part[t] = i < n ? powf(x[i], 2.0f) : 0.0f;
  __syncthreads();
  for (int s = 1; s < blockDim.x; s *= 2) {
    if (t % (2 * s) == 0) part[t] += part[t + s];
    __syncthreads();
  }
  if (t == 0) atomicAdd(total, part[0]);
}
"""),
    ("shared_bytes", """\
// /// kernelmate
// sizes = [{ h = 96, w = 64 }]
// grid = ["cdiv(w, 32)", "cdiv(h, 32)"]
// block = [32, 32]
// [args]
// x = "in float32[h, w]"
// y = "out float32[w, h]"
// h = "int32"
// w = "int32"
// ///
__global__ void transpose(const float* x, float* y, int h, int w) {
  __shared__ float tile[64][32];
  __shared__ float other[32][32];
  int i = blockIdx.x * 32 + threadIdx.x;
  int j = blockIdx.y * 32 + threadIdx.y;
  if (i < w && j < h) tile[threadIdx.y][threadIdx.x] = x[j * w + i];
  __syncthreads();
  other[threadIdx.y][threadIdx.x] = tile[threadIdx.y][threadIdx.x];
  __syncthreads();
  if (i < w && j < h) y[i * h + j] = other[threadIdx.y][threadIdx.x];
}
"""),
    ("accuracy", """\
// /// kernelmate
// sizes = [{ rows = 64, cols = 300 }]
// grid = "cdiv(rows, 128)"
// block = 128
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void variance(const float* x, float* y, int rows, int cols) {
  int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < rows) {
    float sum = 0.0f, squares = 0.0f;
    for (int c = 0; c < cols; ++c) {
      sum += x[row * cols + c];
      squares += x[row * cols + c] * x[row * cols + c];
    }
    float mean = sum / cols;
    y[row] = __fdividef(squares, cols) - mean * mean;
  }
}
"""),
)  # fmt: skip
"""Kernels, and what is asked of each."""
BROKEN = """\
__global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  y[i] = 2.0f * x[i];
}
"""
SAID = (
    "out-of-bounds-write: line 3: writes 4 bytes at byte 4000 of y, which has 4000 bytes",
    'compile-error: line 3: identifier "i" is undefined',
)
"""What is said of `BROKEN`, true or not: the repairs that answer it."""


@lru_cache(maxsize=1)
def fingerprint() -> str:
    """The hash: of the names, their order, and everything that is made of the kernels."""
    digest = hashlib.sha256(" ".join(REWRITES).encode())
    for question in _questions():
        for name, found in candidates(question):
            for number, candidate in enumerate(found):
                launch = launch_of(candidate.contract)
                digest.update(repr((name, number, candidate.kernel.unit.text, launch)).encode())
    return digest.hexdigest()[:16]


def differing(model: str, taught: str | None) -> str | None:
    """One line where a model was taught with other rewrites than those installed; None where it was not, or chooses none.

    Args:
        model: its name.
        taught: the fingerprint that its file tells.
    """
    if taught is None or taught == fingerprint():
        return None
    return (
        f"{model} was taught to choose among other recipes than those installed (fingerprint {taught}, here {fingerprint()}): "
        "it is asked all the same, but chooses worse. Take the model that this version comes with, or train it anew."
    )


def _questions() -> list[Question]:
    found = []
    for metric, text in SAMPLES:
        kernel = find_kernels(text_unit(text))[0]
        contract = contract_for(kernel)
        found.append(Question(text, kernel.name, launch_of(contract), metric, contract=contract))
    kernel = find_kernels(text_unit(BROKEN))[0]
    launch = launch_of(contract_for(kernel))
    return found + [Question(BROKEN, "scale", launch, "correct", task="debug", broken=words) for words in SAID]
