from __future__ import annotations

import shutil
from pathlib import Path

from kernelmate.suggest.repairs.unset_start import REPAIR

SUMS = """\
__global__ void row_sum(const float *x, float *y, int rows, int cols) {
    __shared__ float sum;
    float s = 0.0f;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) s += x[blockIdx.x * cols + c];
    atomicAdd(&sum, s);
    __syncthreads();
    if (threadIdx.x == 0) y[blockIdx.x] = sum;
}
"""
ONE_THREAD = """\
__global__ void row_sum(const float *x, float *y, int rows, int cols) {
    if (threadIdx.x != 0) return;
    for (int c = 0; c < cols; c++) {
        y[blockIdx.x] += x[blockIdx.x * cols + c];
    }
}
"""
STORE = """\
__global__ void twice(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += 2.0f * x[i];
}
"""
LOCAL = """\
__global__ void row_sum(const float *x, float *y, int rows, int cols) {
    if (threadIdx.x != 0) return;
    float sums[8], s = 0.0f;
    for (int c = 0; c < cols; c++) sums[c * rows % 7] += x[blockIdx.x * cols + c];
#pragma unroll 1
    for (int k = 0; k < 7; k++) s += sums[k * rows % 7];
    y[blockIdx.x] = s;
}
"""


def test_a_shared_sum_begins_with_zero_before_anything_is_added(texts, mended, lines) -> None:
    source = texts["row contract"] + SUMS
    assert lines(mended(source, REPAIR), source) == ["if (threadIdx.x == 0) sum = 0;"]


def test_an_output_that_is_gathered_in_a_loop_is_set_before_it(texts, mended, lines) -> None:
    source = texts["row contract"] + ONE_THREAD
    assert lines(mended(source, REPAIR), source) == ["y[blockIdx.x] = 0;"]


def test_an_output_that_is_added_to_once_is_stored(texts, mended) -> None:
    assert "y[i] = 2.0f * x[i];" in mended(texts["map contract"] + STORE, REPAIR).candidate.kernel.source


def test_a_local_array_begins_with_zeros(texts, mended) -> None:
    assert "float sums[8] = {}, s = 0.0f;" in mended(texts["row contract"] + LOCAL, REPAIR).candidate.kernel.source


def test_a_sum_that_is_used_for_something_else_later_begins_with_zero_too(mended, lines, tmp_path) -> None:
    examples = Path(__file__).parents[4] / "examples"
    shutil.copy(examples / "reference.py", tmp_path)
    source = (examples / "rmsnorm.cu").read_text()
    broken = source.replace("float squares = 0.0f;", "float squares;")
    assert lines(mended(broken, REPAIR), broken) == ["float squares = 0;"]


def test_what_is_set_is_left_alone(texts, search) -> None:
    found = search(texts["row"].replace("k > 0", "k > 1"), REPAIR)
    assert found.baseline.correct is False
    assert all("s = 0.0f = " not in one.candidate.kernel.source for one in found.candidates)
