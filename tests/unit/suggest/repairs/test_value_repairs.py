"""Repairs of wrong values: starts of sums, signs, ratios of integers, updates that are lost."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kernelmate.suggest.repairs.integer_ratio import REPAIR as INTEGER_RATIO
from kernelmate.suggest.repairs.lost_update import REPAIR as LOST_UPDATE
from kernelmate.suggest.repairs.neutral_start import REPAIR as NEUTRAL_START
from kernelmate.suggest.repairs.sign import REPAIR as SIGN
from kernelmate.suggest.repairs.unset_start import REPAIR as UNSET_START

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
    best = mended(PEAK.replace("START", start).replace("FILL", fill), NEUTRAL_START)
    assert "float best = -INFINITY;" in best.candidate.kernel.source
    assert "accumulates a maximum" in best.candidate.why or "Every start" in best.candidate.why


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
    assert "int low = 2147483647;" in mended(source, NEUTRAL_START).candidate.kernel.source


def test_sums_keep_their_start(texts, search) -> None:
    assert search(texts["row"].replace("k > 0", "k > 1"), NEUTRAL_START).candidates == ()


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
    assert lines(mended(source, UNSET_START), source) == ["if (threadIdx.x == 0) sum = 0;"]


def test_an_output_that_is_gathered_in_a_loop_is_set_before_it(texts, mended, lines) -> None:
    source = texts["row contract"] + ONE_THREAD
    assert lines(mended(source, UNSET_START), source) == ["y[blockIdx.x] = 0;"]


def test_an_output_that_is_added_to_once_is_stored(texts, mended) -> None:
    assert "y[i] = 2.0f * x[i];" in mended(texts["map contract"] + STORE, UNSET_START).candidate.kernel.source


def test_a_local_array_begins_with_zeros(texts, mended) -> None:
    assert "float sums[8] = {}, s = 0.0f;" in mended(texts["row contract"] + LOCAL, UNSET_START).candidate.kernel.source


def test_a_sum_that_is_used_for_something_else_later_begins_with_zero_too(mended, lines, tmp_path) -> None:
    examples = Path(__file__).parents[4] / "examples"
    shutil.copy(examples / "reference.py", tmp_path)
    source = (examples / "rmsnorm.cu").read_text()
    broken = source.replace("float squares = 0.0f;", "float squares;")
    assert lines(mended(broken, UNSET_START), broken) == ["float squares = 0;"]


def test_what_is_set_is_left_alone(texts, search) -> None:
    found = search(texts["row"].replace("k > 0", "k > 1"), UNSET_START)
    assert found.baseline.correct is False
    assert all("s = 0.0f = " not in one.candidate.kernel.source for one in found.candidates)


ROTATE = """\
// /// kernelmate
// sizes = [{ n = 70 }, { n = 1 }]
// grid = "cdiv(n, 64)"
// block = 64
// reference = "(a * c - b * d, a * d + b * c)"
// [args]
// a = "in float32[n]"
// b = "in float32[n]"
// c = "in float32[n]"
// d = "in float32[n]"
// re = "out float32[n]"
// im = "out float32[n]"
// n = "int32"
// ///
__global__ void product(const float *a, const float *b, const float *c, const float *d, float *re, float *im, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    re[i] = a[i] * c[i] + b[i] * d[i];
    im[i] = a[i] * d[i] + b[i] * c[i];
}
"""


def test_the_wrong_sign_of_a_product_is_turned(mended) -> None:
    best = mended(ROTATE, SIGN)
    assert "re[i] = a[i] * c[i] - b[i] * d[i];" in best.candidate.kernel.source
    assert "im[i] = a[i] * d[i] + b[i] * c[i];" in best.candidate.kernel.source


def test_sums_in_indices_are_no_formula(texts, search) -> None:
    broken = texts["map contract"] + "__global__ void k(const float *x, float *y, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) y[i] = x[i]; }\n"  # fmt: skip
    assert search(broken, SIGN).candidates == ()


def source(texts, body: str) -> str:
    contract = texts["map contract"].replace('"x * 2"', '"x * np.arange(n) / n"')
    return f"""{contract}__global__ void ramp(const float *x, float *y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {{ {body} }}
}}
"""


@pytest.mark.parametrize(
    ("body", "mended_to"),
    [
        ("y[i] = x[i] * (i / n);", "x[i] * ((float)i / n)"),
        ("float part = i / n; y[i] = part * x[i];", "float part = (float)i / n;"),
    ],
)
def test_the_fraction_is_kept(texts, mended, body: str, mended_to: str) -> None:
    best = mended(source(texts, body), INTEGER_RATIO)
    assert mended_to in best.candidate.kernel.source
    assert "drops the fraction" in best.candidate.why


def test_quotients_in_an_index_stay_whole(texts, search) -> None:
    assert search(source(texts, "y[i] = x[i / 2];"), INTEGER_RATIO).candidates == ()


COUNTS = """\
// /// kernelmate
// sizes = [{ n = 1000 }, { n = 64 }]
// grid = "cdiv(n, 128)"
// block = 128
// reference = "bins + np.bincount(keys, minlength=16)"
// deterministic = true
// [args]
// keys = "in int32[n] ~ integers(0, 16)"
// bins = "inout int32[16] ~ zeros"
// n = "int32"
// ///
__global__ void counts(const int* keys, int* bins, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) UPDATE;
}
"""


@pytest.mark.parametrize(
    "update",
    [
        "bins[keys[i]] += 1",
        "bins[keys[i]]++",
        "bins[keys[i]] = bins[keys[i]] + 1",
        "atomicAdd_block(&bins[keys[i]], 1)",
    ],
)
def test_an_update_by_many_threads_becomes_atomic(mended, reference, update: str) -> None:
    best = mended(reference(COUNTS.replace("UPDATE", update)), LOST_UPDATE)
    assert "if (i < n) atomicAdd(&bins[keys[i]], 1);" in best.candidate.kernel.source


@pytest.fixture
def reference(tmp_path):
    """The contract with its reference in a file beside it."""
    (tmp_path / "reference.py").write_text(
        "import numpy as np\ndef counts(keys, bins):\n    return bins + np.bincount(keys.astype(int), minlength=16)\n"
    )
    return lambda text: text.replace("bins + np.bincount(keys, minlength=16)", "reference.py:counts")
