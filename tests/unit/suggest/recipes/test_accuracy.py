"""Recipes for accuracy: compensated sums, wider accumulators, variances around a shift or in one pass."""

from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.compensated_sum import RECIPE as COMPENSATED_SUM
from kernelmate.suggest.recipes.shifted_variance import RECIPE as SHIFTED_VARIANCE
from kernelmate.suggest.recipes.single_pass_moments import RECIPE as SINGLE_PASS_MOMENTS
from kernelmate.suggest.recipes.wider_accumulators import RECIPE as WIDER_ACCUMULATORS

COMPENSATED_SUM_SOURCE = """
// /// kernelmate
// sizes = [{{ rows = 33, cols = 4000 }}, {{ rows = 1, cols = 3 }}]
// grid = "cdiv(rows, 32)"
// block = 32
// reference = "x.sum(axis=1)"
// [args]
// x = "in float32[rows, cols] ~ uniform(0, 1)"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void k(const float* x, float* y, int rows, int cols) {{
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float s = 0.0f;
  {body}
  y[r] = s;
}}
"""


@pytest.mark.parametrize("add", ["s += x[r * cols + c];", "s = s + x[r * cols + c];"])
def test_what_a_step_rounds_away_is_taken_into_the_next(judged, add: str) -> None:
    (one,) = judged(
        COMPENSATED_SUM_SOURCE.format(body=f"for (int c = 0; c < cols; ++c) {add}"),
        COMPENSATED_SUM,
        "reduce the rounding error",
    )
    assert "float s_lost = 0;" in one.candidate.kernel.source
    assert one.verdict.objective.after < one.verdict.objective.before / 3


@pytest.mark.parametrize(
    "body",
    [
        "s += x[r * cols];",
        "for (int c = 0; c < cols; ++c) { s += x[r * cols + c]; y[r] = s; }",
        "for (int o = 16; o > 0; o /= 2) s += __shfl_xor_sync(0xffffffffu, s, o);",
        "int n = 0;\n  for (int c = 0; c < cols; ++c) n += 1;\n  s = n;",
    ],
)
def test_other_sums_stay(ask, body: str) -> None:
    assert list(COMPENSATED_SUM.candidates(ask(COMPENSATED_SUM_SOURCE.format(body=body), "more accurate"))) == []


WIDER_ACCUMULATORS_SOURCE = """
#include <{header}>
// /// kernelmate
// sizes = [{{ rows = 41, cols = 300 }}, {{ rows = 1, cols = 1 }}]
// grid = "{grid}"
// block = 64
// require = ["cols > 0"]
// tolerance = {{ rtol = 0.05, atol = 2.0 }}
// reference = "x.sum(axis=1)"
// [args]
// x = "in {dtype}[rows, cols] ~ uniform(-4, 4)"
// y = "out {dtype}[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void k(const {type}* x, {type}* y, int rows, int cols) {{
  {body}
}}
"""
ALONE = """const int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  {type} s = {zero};
  for (int c = 0; c < cols; ++c) {add};
  y[r] = s;"""
SHARED = """__shared__ __half part[64];
  __half s = __float2half(0.0f);
  for (int c = threadIdx.x; c < cols; c += 64) s = __hadd(s, x[blockIdx.x * cols + c]);
  part[threadIdx.x] = s;
  __syncthreads();
  for (int k = 32; k > 0; k /= 2) {
    if (threadIdx.x < k) part[threadIdx.x] = __hadd(part[threadIdx.x], part[threadIdx.x + k]);
    __syncthreads();
  }
  if (threadIdx.x == 0) y[blockIdx.x] = part[0];"""


def source(body: str, kind: str = "__half", grid: str = "cdiv(rows, 64)") -> str:
    header, dtype = ("cuda_fp16.h", "float16") if kind == "__half" else ("cuda_bf16.h", "bfloat16")
    return WIDER_ACCUMULATORS_SOURCE.format(header=header, dtype=dtype, type=kind, body=body, grid=grid)


@pytest.mark.parametrize(
    ("kind", "zero", "add"),
    [
        ("__half", "__float2half(0.0f)", "s = __hadd(s, x[r * cols + c])"),
        ("__nv_bfloat16", "__float2bfloat16(0.0f)", "s += x[r * cols + c]"),
        ("__half", "__float2half(0.f)", "s = __hfma(x[r * cols + c], __float2half(1.0f), s)"),
        ("__half", "__float2half(0.f)", "s = __float2half(__half2float(s) + __half2float(x[r * cols + c]))"),
    ],
)
def test_a_sum_of_halves_is_kept_in_float(judged, kind: str, zero: str, add: str) -> None:
    text = ALONE.replace("{type}", kind).replace("{zero}", zero).replace("{add}", add)
    (one,) = judged(source(text, kind), WIDER_ACCUMULATORS, "more accurate")
    assert "float s = (0.0f)" in one.candidate.kernel.source.replace("0.f)", "0.0f)")
    assert one.verdict.objective.met is True
    assert one.verdict.objective.after < one.verdict.objective.before / 2


def test_shared_arrays_go_along(judged) -> None:
    (one,) = judged(source(SHARED, grid="rows"), WIDER_ACCUMULATORS, "more accurate")
    text = one.candidate.kernel.source
    assert "__shared__ float part[64];" in text
    assert "part[threadIdx.x] = (part[threadIdx.x] + part[threadIdx.x + k]);" in text
    assert "y[blockIdx.x] = __float2half(part[0]);" in text


def test_floats_and_lone_halves_stay(ask) -> None:
    lone = "const int r = threadIdx.x;\n  if (r >= rows) return;\n  __half v = x[r];\n  y[r] = v;"
    assert list(WIDER_ACCUMULATORS.candidates(ask(source(lone), "more accurate"))) == []


SHIFTED_VARIANCE_SOURCE = """
// /// kernelmate
// sizes = [{{ rows = 20, cols = 300 }}, {{ rows = 1, cols = 2 }}]
// grid = "{grid}"
// block = 32
// require = ["cols > 0"]
// tolerance = {{ rtol = 0.1, atol = 0.5 }}
// reference = "x.var(axis=1)"
// [args]
// x = "in float32[rows, cols] ~ uniform(100, 160)"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void k(const float* x, float* y, int rows, int cols) {{
  {body}
}}
"""
SHIFTED_VARIANCE_ALONE = """const int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float s = 0.0f, q = 0.0f;
  for (int c = 0; c < cols; ++c) {
    const float v = x[r * cols + c];
    s += v;
    q += v * v;
  }
  const float mean = s / cols;
  y[r] = q / cols - mean * mean;"""
TOGETHER = """const float* row = x + blockIdx.x * cols;
  float s = 0.0f, q = 0.0f;
  for (int c = threadIdx.x; c < cols; c += 32) {
    s += row[c];
    q += row[c] * row[c];
  }
  for (int o = 16; o > 0; o /= 2) {
    s += __shfl_xor_sync(0xffffffffu, s, o);
    q += __shfl_xor_sync(0xffffffffu, q, o);
  }
  const float mean = s / cols;
  if (threadIdx.x == 0) y[blockIdx.x] = fmaxf(q / cols - mean * mean, 0.0f);"""
DIRECT = SHIFTED_VARIANCE_ALONE.replace(
    "const float mean = s / cols;\n  y[r] = q / cols - mean * mean;",
    "const float mean = s / cols;\n  y[r] = (q - s * s / cols) / cols + 0.0f * mean;",
)


@pytest.mark.parametrize(("body", "grid"), [(SHIFTED_VARIANCE_ALONE, "cdiv(rows, 32)"), (TOGETHER, "rows")])
def test_squares_are_taken_about_the_first_element(judged, body: str, grid: str) -> None:
    (one,) = judged(
        SHIFTED_VARIANCE_SOURCE.format(body=body, grid=grid), SHIFTED_VARIANCE, "improve the numerical stability"
    )
    assert "(mean - shift) * (mean - shift)" in one.candidate.kernel.source
    assert "const float mean = shift + (s / cols);" in one.candidate.kernel.source
    assert one.verdict.objective.after < one.verdict.objective.before / 10


def test_a_variance_about_the_mean_stays(ask) -> None:
    body = SHIFTED_VARIANCE_ALONE.replace("q += v * v;", "q += (v - 1.0f) * (v - 1.0f);")
    assert (
        list(SHIFTED_VARIANCE.candidates(ask(SHIFTED_VARIANCE_SOURCE.format(body=body, grid="rows"), "more accurate")))
        == []
    )


def test_a_variance_of_the_sums_themselves_needs_no_other_formula(judged) -> None:
    (one,) = judged(
        SHIFTED_VARIANCE_SOURCE.format(body=DIRECT, grid="cdiv(rows, 32)"),
        SHIFTED_VARIANCE,
        "improve the numerical stability",
    )
    text = one.candidate.kernel.source
    assert "y[r] = (q - s * s / cols) / cols" in text
    assert "const float mean = shift + s / cols;" in text
    assert one.verdict.objective.after < one.verdict.objective.before / 10


SINGLE_PASS_MOMENTS_SOURCE = """
// /// kernelmate
// sizes = [{{ rows = 40, cols = 57 }}, {{ rows = 1, cols = 1 }}]
// grid = "cdiv(rows, 32)"
// block = 32
// require = ["cols > 0"]
// reference = "x.var(axis=1)"
// tolerance = {{ rtol = 1e-4, atol = 1e-4 }}
// [args]
// x = "in float32[rows, cols] ~ normal"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void variance(const float* x, float* y, int rows, int cols) {{
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float sum = 0.0f;
  for (int c = 0; c < cols; ++c) {first}
  float mean = sum / cols;
  {between}
  float squares = 0.0f;
  for (int c = 0; c < cols; ++c) {second}
  y[r] = squares / cols;
}}
"""
FIRST = "sum += x[r * cols + c];"
SECOND = "squares += (x[r * cols + c] - mean) * (x[r * cols + c] - mean);"


@pytest.mark.parametrize(
    "second", [SECOND, "{\n    const float d = x[r * cols + c] - mean;\n    squares += d * d;\n  }"]
)
def test_one_pass_gives_mean_and_variance(judged, second: str) -> None:
    (one,) = judged(SINGLE_PASS_MOMENTS_SOURCE.format(first=FIRST, second=second, between=""), SINGLE_PASS_MOMENTS)
    text = one.candidate.kernel.source
    assert text.count("for (") == 1
    assert "if (taken > 0) {" in text


@pytest.mark.parametrize(
    ("first", "second", "between"),
    [
        (FIRST, "squares += (x[c] - mean) * (x[c] - mean);", ""),
        (FIRST, "squares += x[r * cols + c] * x[r * cols + c];", ""),
        (FIRST, "squares += (x[r * cols + c] - mean) * (x[r * cols + c] - sum);", ""),
        ("sum = fmaxf(sum, x[r * cols + c]);", SECOND, ""),
        (FIRST, SECOND, "y[r] = 1.0f; ((float*)x)[r] = 0.0f; x[r * cols] = 1.0f;"),
    ],
)
def test_other_pairs_of_loops_stay(ask, first: str, second: str, between: str) -> None:
    assert (
        list(
            SINGLE_PASS_MOMENTS.candidates(
                ask(SINGLE_PASS_MOMENTS_SOURCE.format(first=first, second=second, between=between))
            )
        )
        == []
    )
