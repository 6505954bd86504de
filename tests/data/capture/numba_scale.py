"""Launches a kernel of Numba; numba_scale.cu is the same kernel in CUDA."""

import numpy as np
from numba import cuda


@cuda.jit
def scale(x, y, a, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = a * x[i]


for step in range(4):
    n = (100, 77)[step % 2]
    x = cuda.to_device(np.random.default_rng(step).random(n, np.float32))
    y = cuda.device_array(n, np.float32)
    scale[(n + 31) // 32, 32](x, y, 3.0, n)
    assert np.allclose(y.copy_to_host(), 3 * x.copy_to_host())
