from __future__ import annotations

from kernelmate.suggest.repairs.missing_guard import REPAIR

UNGUARDED = """\
__global__ void twice(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = x[i] * 2.0f;
}
"""
TABLE = """\
// /// kernelmate
// sizes = [{ rows = 30, cols = 50 }, { rows = 7, cols = 3 }]
// grid = ["cdiv(cols, 16)", "cdiv(rows, 16)"]
// block = [16, 16]
// reference = "x * 2"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// cols = "int32"
// rows = "int32"
// ///
__global__ void twice(const float *x, float *y, int cols, int rows) {
    int c = blockIdx.x * blockDim.x + threadIdx.x;
    int r = blockIdx.y * blockDim.y + threadIdx.y;
    y[r * cols + c] = x[r * cols + c] * 2.0f;
}
"""
REVERSED = """\
// /// kernelmate
// sizes = [{ n = 1000 }, { n = 100 }]
// grid = "cdiv(n, 128)"
// block = 128
// reference = "x * 2"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void twice(const float *x, float *y, int n) {
    __shared__ float tile[128];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = x[i];
    __syncthreads();
    y[i] = tile[threadIdx.x] * 2.0f;
}
"""
NEIGHBOURS = """\
// /// kernelmate
// sizes = [{ n = 1000 }, { n = 1 }]
// grid = "cdiv(n, 128)"
// block = 128
// reference = "right"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void with_left(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + x[i - 1];
}
"""


def test_threads_past_the_end_leave(texts, mended, lines) -> None:
    source = texts["map contract"] + UNGUARDED
    assert lines(mended(source, REPAIR), source) == ["if (i >= n) return;"]


def test_two_axes_get_a_bound_each_whatever_the_order_of_the_parameters(mended, lines) -> None:
    assert lines(mended(TABLE, REPAIR), TABLE) == ["if (r >= rows || c >= cols) return;"]


def test_where_all_must_reach_a_barrier_only_the_accesses_are_guarded(mended) -> None:
    text = mended(REVERSED, REPAIR).candidate.kernel.source
    assert "return" not in text
    assert "tile[threadIdx.x] = (i < n ? x[i] : (float)0);" in text
    assert "if (i < n) y[i] = tile[threadIdx.x] * 2.0f;" in text


def test_an_element_beside_the_first_is_zero_where_the_reference_says_so(mended) -> None:
    both = NEIGHBOURS + (
        "__global__ void right(const float *x, float *y, int n) {\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) y[i] = x[i] + (i > 0 ? x[i - 1] : 0.0f);\n}\n"
    )
    text = mended(both, REPAIR).candidate.kernel.source
    assert "(i - 1 >= 0 ? x[i - 1] : (float)0)" in text


def test_a_kernel_that_stays_inside_is_left_alone(texts, search) -> None:
    assert search(texts["row"].replace("k > 0", "k > 1"), REPAIR).candidates == ()
