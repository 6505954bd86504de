from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.interleave_chunks import RECIPE

SOURCE = """
#define PER 4
// /// kernelmate
// sizes = [{{ n = 3000 }}, {{ n = 5 }}, {{ n = 1 }}]
// grid = "cdiv(n, 256)"
// block = 64
// reference = "x + 1"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const float* x, float* y, int n) {{
  int t = blockIdx.x * blockDim.x + threadIdx.x;
  for (int j = 0; j < PER; j++) {{
    {body}
  }}
}}
"""


def test_neighbouring_lanes_get_neighbouring_elements(judged) -> None:
    body = "int i = t * PER + j;\n    if (i < n) y[i] = x[i] + 1.0f;"
    (one,) = judged(SOURCE.format(body=body), RECIPE, "less global traffic")
    assert "int i = j * (gridDim.x * blockDim.x) + t;" in one.candidate.kernel.source
    assert one.verdict.counters.global_load_requests <= 3000 // 32 + 2


@pytest.mark.parametrize(
    "body",
    [
        "int i = t * PER + j;\n    if (i < n) y[i] = x[i] + j;",
        "int i = t * 8 + j;\n    if (i < n) y[i] = x[i];",
        "int i = t * PER + j;\n    if (i < n) y[0] += x[i];",
        "int i = t * PER + j;\n    if (i >= n) return;\n    y[i] = x[i];",
        "int i = n * PER + j;\n    if (i < n) y[i] = x[i];",
    ],
)
def test_other_runs_stay(ask, body: str) -> None:
    assert list(RECIPE.candidates(ask(SOURCE.format(body=body)))) == []
