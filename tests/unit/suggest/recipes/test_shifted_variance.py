from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.shifted_variance import RECIPE

SOURCE = """
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
ALONE = """const int r = blockIdx.x * blockDim.x + threadIdx.x;
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

DIRECT = ALONE.replace(
    "const float mean = s / cols;\n  y[r] = q / cols - mean * mean;",
    "const float mean = s / cols;\n  y[r] = (q - s * s / cols) / cols + 0.0f * mean;",
)


@pytest.mark.parametrize(("body", "grid"), [(ALONE, "cdiv(rows, 32)"), (TOGETHER, "rows")])
def test_squares_are_taken_about_the_first_element(judged, body: str, grid: str) -> None:
    (one,) = judged(SOURCE.format(body=body, grid=grid), RECIPE, "improve the numerical stability")
    assert "(mean - shift) * (mean - shift)" in one.candidate.kernel.source
    assert "const float mean = shift + (s / cols);" in one.candidate.kernel.source
    assert one.verdict.objective.after < one.verdict.objective.before / 10


def test_a_variance_about_the_mean_stays(ask) -> None:
    body = ALONE.replace("q += v * v;", "q += (v - 1.0f) * (v - 1.0f);")
    assert list(RECIPE.candidates(ask(SOURCE.format(body=body, grid="rows"), "more accurate"))) == []


def test_a_variance_of_the_sums_themselves_needs_no_other_formula(judged) -> None:
    (one,) = judged(SOURCE.format(body=DIRECT, grid="cdiv(rows, 32)"), RECIPE, "improve the numerical stability")
    text = one.candidate.kernel.source
    assert "y[r] = (q - s * s / cols) / cols" in text
    assert "const float mean = shift + s / cols;" in text
    assert one.verdict.objective.after < one.verdict.objective.before / 10
