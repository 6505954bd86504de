"""Launches a RawKernel in place, with a scalar."""

import cupy as cp
import numpy as np

saxpy = cp.RawKernel(
    r"""
extern "C" __global__ void saxpy(const float* x, float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
""",
    "saxpy",
)

for step in range(9):
    n = (1000, 4096, 333)[step % 3]
    x, y = cp.random.standard_normal(n, dtype=cp.float32), cp.arange(n, dtype=cp.float32)
    wanted = 2 * x.get() + y.get()
    saxpy(((n + 255) // 256,), (256,), (x, y, np.float32(2), np.int32(n)))
    assert np.allclose(cp.asnumpy(y), wanted)
print("done")
