"""A kernel of rows and a launch of it in another file, for tests of launches that follow a candidate."""

from __future__ import annotations

ROWS = """\
// /// kernelmate
// sizes = [{ rows = 512, cols = 256 }, { rows = 5, cols = 131 }]
// grid = "cdiv(rows, block)"
// block = 128
// reference = "x.sum(axis=1)"
// [args]
// x = "in float32[rows, cols] ~ normal"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void row_sum(const float* x, float* y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    float sum = 0.0f;
    for (int c = 0; c < cols; ++c) sum += x[r * cols + c];
    y[r] = sum;
}
"""
LAUNCHER = "void run(const float* x, float* y, int n, int m) {\n    row_sum<<<(n + 127) / 128, 128>>>(x, y, n, m);\n}\n"
