"""Launches a product of matrices with a grid of tiles, on columns of a larger result."""

import cupy as cp
import numpy as np

code = r"""
extern "C" __global__ void matmul(const float* a, const float* b, float* c, int m, int n, int k) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= m || col >= n) return;
  float sum = 0;
  for (int i = 0; i < k; ++i) sum += a[row * k + i] * b[i * n + col];
  c[row * n + col] = sum;
}
"""
matmul = cp.RawKernel(code, "matmul")
rng = np.random.default_rng(1)
for m, n, k in ((33, 17, 8), (16, 48, 20)) * 2:
    a, b = cp.asarray(rng.random((m, k), np.float32)), cp.asarray(rng.random((k, n), np.float32))
    c = cp.zeros((m, n), cp.float32)
    matmul(((n + 15) // 16, (m + 7) // 8), (16, 8), (a, b, c, m, n, k))
    assert np.allclose(c.get(), a.get() @ b.get())
