from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.wider_accumulators import RECIPE

SOURCE = """
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
    return SOURCE.format(header=header, dtype=dtype, type=kind, body=body, grid=grid)


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
    (one,) = judged(source(text, kind), RECIPE, "more accurate")
    assert "float s = (0.0f)" in one.candidate.kernel.source.replace("0.f)", "0.0f)")
    assert one.verdict.objective.met is True
    assert one.verdict.objective.after < one.verdict.objective.before / 2


def test_shared_arrays_go_along(judged) -> None:
    (one,) = judged(source(SHARED, grid="rows"), RECIPE, "more accurate")
    text = one.candidate.kernel.source
    assert "__shared__ float part[64];" in text
    assert "part[threadIdx.x] = (part[threadIdx.x] + part[threadIdx.x + k]);" in text
    assert "y[blockIdx.x] = __float2half(part[0]);" in text


def test_floats_and_lone_halves_stay(ask) -> None:
    lone = "const int r = threadIdx.x;\n  if (r >= rows) return;\n  __half v = x[r];\n  y[r] = v;"
    assert list(RECIPE.candidates(ask(source(lone), "more accurate"))) == []
