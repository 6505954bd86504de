"""Fails after two launches, with an index out of bounds."""

import cupy as cp
import numpy as np

code = r"""
extern "C" __global__ void fill(float* x, int n) { x[blockIdx.x * blockDim.x + threadIdx.x] = n; }
"""
fill = cp.RawKernel(code, "fill")
for elements in (64, 128, 100):
    fill((2,), (64,), (cp.zeros(max(elements, 128) if elements < 100 else elements, cp.float32), np.int32(elements)))
