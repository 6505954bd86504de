"""Saxpy, tiled matmul and softmax on Numba's CUDA simulator; prints CPU seconds as JSON. Run by `benchmarks.emulator`.

A process of its own, because NUMBA_ENABLE_CUDASIM has to be set before Numba is imported.
"""

from __future__ import annotations

import json
import math
import os
import sys

os.environ["NUMBA_ENABLE_CUDASIM"] = "1"

import numpy as np
from numba import cuda, float32

from benchmarks.machine import cpu_seconds

TILE = 16
THREADS = 128


@cuda.jit
def saxpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] = a * x[i] + y[i]


@cuda.jit
def matmul(left, right, out, n):
    tile_left = cuda.shared.array((TILE, TILE), float32)
    tile_right = cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.blockIdx.y * TILE + ty, cuda.blockIdx.x * TILE + tx
    total = 0.0
    for step in range(n // TILE):
        tile_left[ty, tx] = left[row, step * TILE + tx]
        tile_right[ty, tx] = right[step * TILE + ty, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += tile_left[ty, k] * tile_right[k, tx]
        cuda.syncthreads()
    out[row, column] = total


@cuda.jit
def softmax(x, y, columns):
    shared = cuda.shared.array(THREADS, float32)
    t, row = cuda.threadIdx.x, cuda.blockIdx.x
    top = -math.inf
    for i in range(t, columns, THREADS):
        top = max(top, x[row, i])
    shared[t] = top
    cuda.syncthreads()
    step = THREADS // 2
    while step > 0:
        if t < step:
            shared[t] = max(shared[t], shared[t + step])
        cuda.syncthreads()
        step //= 2
    top = shared[0]
    cuda.syncthreads()
    total = 0.0
    for i in range(t, columns, THREADS):
        total += math.exp(x[row, i] - top)
    shared[t] = total
    cuda.syncthreads()
    step = THREADS // 2
    while step > 0:
        if t < step:
            shared[t] += shared[t + step]
        cuda.syncthreads()
        step //= 2
    total = shared[0]
    for i in range(t, columns, THREADS):
        y[row, i] = math.exp(x[row, i] - top) / total


def main() -> None:
    """Argument: JSON with `saxpy` (elements), `matmul` (side), `softmax` ([rows, columns])."""
    sizes = json.loads(sys.argv[1])
    rng = np.random.default_rng(0)

    def vector(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    n = sizes["saxpy"]
    x, y = vector(n), vector(n)
    before = y.copy()
    seconds = {"saxpy": cpu_seconds(lambda: saxpy[(n + 255) // 256, 256](np.float32(2.5), x, y))}
    np.testing.assert_allclose(y, 2.5 * x + before, rtol=1e-5, atol=1e-6)

    side = sizes["matmul"]
    left, right, out = vector(side, side), vector(side, side), vector(side, side)
    grid = (side // TILE, side // TILE)
    seconds["matmul"] = cpu_seconds(lambda: matmul[grid, (TILE, TILE)](left, right, out, side))
    np.testing.assert_allclose(out, left @ right, rtol=1e-3, atol=1e-3)

    rows, columns = sizes["softmax"]
    x, y = vector(rows, columns), vector(rows, columns)
    seconds["softmax"] = cpu_seconds(lambda: softmax[rows, THREADS](x, y, columns))
    np.testing.assert_allclose(y.sum(axis=1), 1, rtol=1e-4)
    print(json.dumps(seconds))


main()
