from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.online_softmax import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ rows = 40, cols = 37 }}, {{ rows = 1, cols = 1 }}]
// grid = "cdiv(rows, 32)"
// block = 32
// require = ["cols > 0"]
// reference = "np.log(np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1)) + x.max(axis=1)"
// [args]
// x = "in float32[rows, cols] ~ normal"
// y = "out float32[rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void logsumexp(const float* x, float* y, int rows, int cols) {{
  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  const float* row = x + r * cols;
  float top = {start};
  for (int c = {first}; c < cols; ++c) {largest}
  float total = 0.0f;
  for (int c = 0; c < cols; ++c) {added}
  y[r] = logf(total) + top;
}}
"""
LARGEST, ADDED = "top = fmaxf(top, row[c]);", "total += expf(row[c] - top);"


def source(largest: str = LARGEST, added: str = ADDED, start: str = "-INFINITY", first: int = 0) -> str:
    return SOURCE.format(largest=largest, added=added, start=start, first=first)


@pytest.mark.parametrize(
    ("largest", "added", "start", "first"),
    [
        (LARGEST, ADDED, "-INFINITY", 0),
        ("{\n    float v = row[c];\n    if (v > top) top = v;\n  }", "{\n    float v = row[c];\n    total += expf(v - top);\n  }", "-INFINITY", 0),
        (LARGEST, ADDED, "row[0]", 1),
    ],
)  # fmt: skip
def test_the_sum_is_found_with_the_maximum(judged, largest: str, added: str, start: str, first: int) -> None:
    (one,) = judged(source(largest, added, start, first), RECIPE)
    text = one.candidate.kernel.source
    assert text.count("for (") == 1
    assert "if (own_sum != 0.0f) total += own_sum * expf(own_top - top);" in text


@pytest.mark.parametrize(
    ("largest", "added", "first"),
    [
        ("top = fminf(top, row[c]);", ADDED, 0),
        (LARGEST, "total += expf(2.0f * row[c] - top);", 0),
        (LARGEST, "total += row[c] - top;", 0),
        ("top = fmaxf(top, x[c]);", ADDED, 0),
        (LARGEST, ADDED, 1),
    ],
)
def test_other_pairs_of_loops_stay(ask, largest: str, added: str, first: int) -> None:
    assert list(RECIPE.candidates(ask(source(largest, added, "-1e30f", first)))) == []
