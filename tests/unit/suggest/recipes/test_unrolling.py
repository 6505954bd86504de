"""Recipes that unroll loops, for speed or to keep an array in registers."""

from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.unroll import RECIPE as UNROLL
from kernelmate.suggest.recipes.unroll_local import RECIPE as UNROLL_LOCAL

UNROLL_SOURCE = """
// /// kernelmate
// sizes = [{{ rows = 40, cols = 57 }}, {{ rows = 1, cols = 1 }}]
// grid = "cdiv(rows, 32)"
// block = 32
// reference = "x.sum(axis=1)"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void k(const float* x, float* y, int rows, int cols) {{
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  float s = 0.0f;
{loop}
  y[r] = s;
}}
"""
LOOP = "  for (int c = 0; c < cols; ++c) s += x[r * cols + c];"


def test_the_innermost_loop_gets_a_pragma_for_each_number_of_turns(judged) -> None:
    four, eight = judged(UNROLL_SOURCE.format(loop=LOOP), UNROLL)
    assert f"#pragma unroll 4\n{LOOP}" in four.candidate.kernel.source
    assert f"#pragma unroll 8\n{LOOP}" in eight.candidate.kernel.source


def test_for_registers_loops_are_kept_rolled(judged) -> None:
    loop = f"#pragma unroll 16\n{LOOP}"
    (one,) = judged(UNROLL_SOURCE.format(loop=loop), UNROLL, "use fewer registers")
    assert one.candidate.kernel.source.count("#pragma unroll 1\n") == 1
    assert one.verdict.objective.after < one.verdict.objective.before


@pytest.mark.parametrize(
    "loop",
    [
        "  for (int c = 0; c < 4; ++c) s += x[r * 4 + c];",
        f"#pragma unroll 2\n{LOOP}",
        "  for (int c = cols; c > 0; c /= 2) s += x[c];",
        "  for (int c = 0; c < cols; ++c) { s += x[c]; __syncthreads(); }",
    ],
)
def test_other_loops_stay(ask, loop: str) -> None:
    assert list(UNROLL.candidates(ask(UNROLL_SOURCE.format(loop=loop)))) == []


UNROLL_LOCAL_SOURCE = """
#define TAPS 6
// /// kernelmate
// sizes = [{ n = 1200 }, { n = 1 }]
// grid = "cdiv(n, 64)"
// block = 64
// reference = "np.sort(x, axis=1)[:, 2]"
// [args]
// x = "in float32[n, 6]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v[TAPS];
  #pragma unroll 1
  for (int k = 0; k < TAPS; ++k) v[k] = x[i * TAPS + k];
  #pragma unroll 1
  for (int a = 0; a < TAPS - 1; ++a) {
    #pragma unroll 1
    for (int b = 0; b < TAPS - 1 - a; ++b)
      if (v[b] > v[b + 1]) { const float t = v[b]; v[b] = v[b + 1]; v[b + 1] = t; }
  }
  y[i] = v[2];
}
"""


def test_an_array_that_loops_go_over_becomes_registers(judged) -> None:
    (one,) = judged(UNROLL_LOCAL_SOURCE, UNROLL_LOCAL, "it spills to local memory")
    assert "unroll 1" not in one.candidate.kernel.source
    assert one.verdict.objective.after == 0
    assert one.verdict.objective.met is True


def test_loops_of_unknown_length_stay(ask) -> None:
    text = (
        UNROLL_LOCAL_SOURCE.replace("k < TAPS", "k < n").replace("a < TAPS - 1", "a < n").replace("TAPS - 1 - a", "n")
    )
    assert list(UNROLL_LOCAL.candidates(ask(text, "it spills to local memory"))) == []
