from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.single_pass_moments import RECIPE

SOURCE = """
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
    (one,) = judged(SOURCE.format(first=FIRST, second=second, between=""), RECIPE)
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
    assert list(RECIPE.candidates(ask(SOURCE.format(first=first, second=second, between=between)))) == []
