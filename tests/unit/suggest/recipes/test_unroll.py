from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.unroll import RECIPE

SOURCE = """
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
    four, eight = judged(SOURCE.format(loop=LOOP), RECIPE)
    assert f"#pragma unroll 4\n{LOOP}" in four.candidate.kernel.source
    assert f"#pragma unroll 8\n{LOOP}" in eight.candidate.kernel.source


def test_for_registers_loops_are_kept_rolled(judged) -> None:
    loop = f"#pragma unroll 16\n{LOOP}"
    (one,) = judged(SOURCE.format(loop=loop), RECIPE, "use fewer registers")
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
    assert list(RECIPE.candidates(ask(SOURCE.format(loop=loop)))) == []
