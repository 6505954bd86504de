"""Saxpy and tiled matmul in OpenCL on PoCL's CPU device; prints CPU seconds as JSON, or {} without PoCL.

Run by `benchmarks.emulator`. Debian: `apt install pocl-opencl-icd`, then `pip install pyopencl`. PoCL compiles whole work
groups to vector code and checks nothing: it is what a CPU can do with the same source.
"""

from __future__ import annotations

import json
import statistics
import sys

import numpy as np

from benchmarks.machine import cpu_seconds

SOURCE = """
#define TILE 16
__kernel void saxpy(float a, __global const float* x, __global float* y, int n) {
    int i = get_global_id(0);
    if (i < n) y[i] = a * x[i] + y[i];
}
__kernel void matmul(__global const float* left, __global const float* right, __global float* out, int n) {
    __local float tile_left[TILE][TILE], tile_right[TILE][TILE];
    int tx = get_local_id(0), ty = get_local_id(1);
    int row = get_group_id(1) * TILE + ty, column = get_group_id(0) * TILE + tx;
    float total = 0.0f;
    for (int step = 0; step < n / TILE; step++) {
        tile_left[ty][tx] = left[row * n + step * TILE + tx];
        tile_right[ty][tx] = right[(step * TILE + ty) * n + column];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int k = 0; k < TILE; k++) total += tile_left[ty][k] * tile_right[k][tx];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    out[row * n + column] = total;
}
"""


def main() -> None:
    """Argument: JSON with `saxpy` (elements) and a list `matmul` of sides."""
    sizes = json.loads(sys.argv[1])
    try:
        import pyopencl as cl

        platform = next(item for item in cl.get_platforms() if "Portable" in item.name)
    except (ImportError, StopIteration, RuntimeError):
        print("{}")
        return
    context = cl.Context(platform.get_devices())
    queue = cl.CommandQueue(context)
    program = cl.Program(context, SOURCE).build()
    rng = np.random.default_rng(0)

    def seconds(name: str, grid: tuple[int, ...], block: tuple[int, ...], *values: object) -> float:
        """Median of a launch with the copies to the device and back, as the emulator makes them."""
        kernel = cl.Kernel(program, name)

        def launch() -> None:
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR
            taken = [
                cl.Buffer(context, flags, hostbuf=value) if isinstance(value, np.ndarray) else value for value in values
            ]
            kernel(queue, grid, block, *taken)
            back = next(index for index in reversed(range(len(values))) if isinstance(values[index], np.ndarray))
            cl.enqueue_copy(queue, np.empty_like(values[back]), taken[back])
            queue.finish()

        launch()
        return statistics.median(cpu_seconds(launch) for _ in range(5))

    def vector(*shape: int) -> np.ndarray:
        return rng.standard_normal(shape).astype(np.float32)

    n = sizes["saxpy"]
    found = {"saxpy": seconds("saxpy", (n,), (256,), np.float32(2.5), vector(n), vector(n), np.int32(n))}
    for side in sizes["matmul"]:
        arrays = [vector(side, side) for _ in range(3)]
        found[f"matmul {side}"] = seconds("matmul", (side, side), (16, 16), *arrays, np.int32(side))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
