"""Launches with as many blocks as the parity of a step decides, and a factor that follows nothing."""

import cupy as cp
import numpy as np

code = r"""
extern "C" __global__ void decay(float* x, float rate, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] *= rate;
}
"""
decay = cp.RawKernel(code, "decay")
rng = np.random.default_rng(4)
for step in range(8):
    n = (700, 1111)[step % 2]
    x = cp.asarray(rng.random(n, np.float32))
    decay(((3, 7, 7, 3)[step % 4],), (64,), (x, np.float32((0.9, 0.5)[step // 4]), np.int32(n)))
