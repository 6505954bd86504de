from __future__ import annotations

import pytest

from kernelmate.suggest.repairs.neutral_start import REPAIR

PEAK = """\
// /// kernelmate
// sizes = [{ rows = 5, cols = 300 }, { rows = 2, cols = 7 }]
// grid = "rows"
// block = 64
// require = ["cols > 0"]
// reference = "x.max(axis=1)"
// [args]
// x = "in float32[rows, cols] ~ uniform(-9, -1)"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void peak(const float *x, float *y, int rows, int cols) {
    __shared__ float part[64];
    const float *row = x + blockIdx.x * cols;
    float best = START;
    for (int c = threadIdx.x; c < cols; c += 64) best = fmaxf(best, row[c]);
    part[threadIdx.x] = FILL;
    __syncthreads();
    for (int k = 32; k > 0; k /= 2) {
        if (threadIdx.x < k) part[threadIdx.x] = fmaxf(part[threadIdx.x], part[threadIdx.x + k]);
        __syncthreads();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = part[0];
}
"""


@pytest.mark.parametrize(
    ("start", "fill"),
    [("0.0f", "best"), ("-INFINITY", "threadIdx.x < cols ? best : 0.f"), ("0", "threadIdx.x < cols ? best : 0.f")],
)
def test_a_maximum_begins_with_minus_infinity(mended, start: str, fill: str) -> None:
    best = mended(PEAK.replace("START", start).replace("FILL", fill), REPAIR)
    assert "float best = -INFINITY;" in best.candidate.kernel.source
    assert "gathers a maximum" in best.candidate.why or "Every start" in best.candidate.why


def test_a_smallest_whole_number_found_by_comparing(mended, texts) -> None:
    source = """\
// /// kernelmate
// sizes = [{ rows = 40, cols = 9 }]
// grid = "cdiv(rows, 32)"
// block = 32
// require = ["cols > 0"]
// reference = "x.min(axis=1)"
// [args]
// x = "in int32[rows, cols] ~ integers(5, 90)"
// y = "out int32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void least(const int *x, int *y, int rows, int cols) {
    int r = blockIdx.x * blockDim.x + threadIdx.x;
    if (r >= rows) return;
    int low = 0;
    for (int c = 0; c < cols; ++c)
        if (x[r * cols + c] < low) low = x[r * cols + c];
    y[r] = low;
}
"""
    assert "int low = 2147483647;" in mended(source, REPAIR).candidate.kernel.source


def test_sums_keep_their_start(texts, search) -> None:
    assert search(texts["row"].replace("k > 0", "k > 1"), REPAIR).candidates == ()
