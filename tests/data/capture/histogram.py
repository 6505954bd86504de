"""Launches atomics on an array of a fixed length, with a grid that strides over its bytes."""

import cupy as cp
import numpy as np

code = r"""
extern "C" __global__ void histogram(const unsigned char* data, unsigned int* bins, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&bins[data[i]], 1u);
}
"""
histogram = cp.RawKernel(code, "histogram")
rng = np.random.default_rng(2)
for n in (500, 3000, 9000) * 2:
    data, bins = cp.asarray(rng.integers(0, 256, n, np.uint8)), cp.zeros(256, cp.uint32)
    histogram((min((n + 127) // 128, 16),), (128,), (data, bins, np.int32(n)))
    assert int(bins.sum()) == n
