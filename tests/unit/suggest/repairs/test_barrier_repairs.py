"""Repairs of barriers and of missing guards."""

from __future__ import annotations

from kernelmate.suggest.repairs.divergent_barrier import REPAIR as DIVERGENT_BARRIER
from kernelmate.suggest.repairs.missing_barrier import REPAIR as MISSING_BARRIER
from kernelmate.suggest.repairs.missing_guard import REPAIR as MISSING_GUARD

REUSED = """\
// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "n // 256"
// block = 128
// require = ["n % 256 == 0"]
// reference = "x.reshape(-1, 128)[:, ::-1].reshape(-1)"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void turned(const float* x, float* y, int n) {
  __shared__ float row[128];
  for (int start = blockIdx.x * 256; start < (blockIdx.x + 1) * 256; start += 128) {
    row[threadIdx.x] = x[start + threadIdx.x];
    __syncthreads();
    y[start + threadIdx.x] = row[127 - threadIdx.x];
  }
}
"""


def test_a_barrier_comes_between_a_store_and_the_loads_after_it(texts, mended) -> None:
    stored = "    part[threadIdx.x] = s;\n    __syncthreads();\n"
    broken = texts["row"].replace(stored, "    part[threadIdx.x] = s;\n")
    best = mended(broken, MISSING_BARRIER)
    assert best.candidate.kernel.unit.text == texts["row"]
    assert "Nothing orders" in best.candidate.why


def test_a_barrier_comes_at_the_end_of_each_turn_where_turns_race(texts, mended) -> None:
    broken = texts["row"].replace("part[threadIdx.x + k];\n        __syncthreads();\n", "part[threadIdx.x + k];\n")
    assert mended(broken, MISSING_BARRIER).candidate.kernel.unit.text == texts["row"]


def test_shared_memory_that_is_used_again_is_waited_for(mended) -> None:
    best = mended(REUSED, MISSING_BARRIER)
    assert best.candidate.kernel.source.count("__syncthreads();") == 2


def test_races_between_blocks_are_not_met_with_a_barrier(search) -> None:
    source = """\
// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "n // 128"
// block = 128
// require = ["n % 128 == 0"]
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// z = "out float32[n]"
// n = "int32"
// ///
__global__ void next(const float* x, float* y, float* z, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  z[i] = x[i];
  __syncthreads();
  y[i] = z[(i + 1) % n];
}
"""
    found = search(source, MISSING_BARRIER)
    assert [finding.code for finding in found.baseline.findings][:1] == ["global-race"]
    assert found.candidates == ()


CONTRACT = """\
// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "n // 128"
// block = 128
// require = ["n % 128 == 0"]
// reference = "right"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
"""
BRANCH = """\
__global__ void branch(const float* x, float* y, int n) {
  __shared__ float row[128];
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  row[threadIdx.x] = x[i];
  if (threadIdx.x < 48) {
    __syncthreads();
    y[i] = row[47 - threadIdx.x];
  } else {
    y[i] = 0.0f;
    __syncthreads();
  }
}
"""
RIGHT = """\
__global__ void right(const float* x, float* y, int n) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  y[i] = threadIdx.x < 48 ? x[blockIdx.x * 128 + 47 - threadIdx.x] : 0.0f;
}
"""


def test_the_branch_is_split_at_its_barrier(mended) -> None:
    text = mended(CONTRACT + BRANCH + RIGHT, DIVERGENT_BARRIER).candidate.kernel.source
    assert text.count("__syncthreads();") == 1
    assert "\n  __syncthreads();\n  if (threadIdx.x < 48) {\n    y[i] = row[47 - threadIdx.x];\n  }\n" in text


def test_a_condition_that_the_branch_changes_is_left_alone(search) -> None:
    broken = BRANCH.replace("const int i", "int t = threadIdx.x; const int i").replace("threadIdx.x < 48", "t < 48")
    found = search(
        CONTRACT + broken.replace("    y[i] = row[47", "    t = 90;\n    y[i] = row[47") + RIGHT, DIVERGENT_BARRIER
    )
    assert [finding.code for finding in found.baseline.findings][:1] == ["divergent-barrier"]
    assert found.candidates == ()


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
    assert lines(mended(source, MISSING_GUARD), source) == ["if (i >= n) return;"]


def test_two_axes_get_a_bound_each_whatever_the_order_of_the_parameters(mended, lines) -> None:
    assert lines(mended(TABLE, MISSING_GUARD), TABLE) == ["if (r >= rows || c >= cols) return;"]


def test_where_all_must_reach_a_barrier_only_the_accesses_are_guarded(mended) -> None:
    text = mended(REVERSED, MISSING_GUARD).candidate.kernel.source
    assert "return" not in text
    assert "tile[threadIdx.x] = (i < n ? x[i] : (float)0);" in text
    assert "if (i < n) y[i] = tile[threadIdx.x] * 2.0f;" in text


def test_an_element_beside_the_first_is_zero_where_the_reference_says_so(mended) -> None:
    both = NEIGHBOURS + (
        "__global__ void right(const float *x, float *y, int n) {\n"
        "    int i = blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) y[i] = x[i] + (i > 0 ? x[i - 1] : 0.0f);\n}\n"
    )
    text = mended(both, MISSING_GUARD).candidate.kernel.source
    assert "(i - 1 >= 0 ? x[i - 1] : (float)0)" in text


def test_a_kernel_that_stays_inside_is_left_alone(texts, search) -> None:
    assert search(texts["row"].replace("k > 0", "k > 1"), MISSING_GUARD).candidates == ()
