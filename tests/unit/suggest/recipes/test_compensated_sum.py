from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.compensated_sum import RECIPE

SOURCE = """
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
    (one,) = judged(SOURCE.format(body=f"for (int c = 0; c < cols; ++c) {add}"), RECIPE, "reduce the rounding error")
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
    assert list(RECIPE.candidates(ask(SOURCE.format(body=body), "more accurate"))) == []
