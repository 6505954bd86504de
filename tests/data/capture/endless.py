"""Launches until it is ended."""

import cupy as cp
import numpy as np

code = r"""
extern "C" __global__ void ramp(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] = i + n;
}
"""
ramp = cp.RawKernel(code, "ramp")
n = 1000
while True:
    ramp(((n + 255) // 256,), (256,), (cp.zeros(n, cp.float32), np.int32(n)))
    print(n, flush=True)
    n += 1
