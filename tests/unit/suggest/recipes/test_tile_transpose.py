from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.tile_transpose import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ rows = 70, cols = 45 }}, {{ rows = 1, cols = 1 }}]
// grid = ["cdiv(cols, 8)", "cdiv(rows, 8)"]
// block = [8, 8]
// reference = "x.T"
// [args]
// x = "in float64[rows, cols]"
// y = "out float64[cols, rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void turn(const double* x, double* y, int rows, int cols) {{
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  int r = blockIdx.y * blockDim.y + threadIdx.y;
  if ({guard}) {{
    {body}
  }}
}}
"""


def source(body: str = "y[c * rows + r] = x[r * cols + c];", guard: str = "c < cols && r < rows") -> str:
    return SOURCE.format(body=body, guard=guard)


def test_reads_and_writes_are_both_side_by_side(judged) -> None:
    (one,) = judged(source(), RECIPE, "less global traffic")
    assert "__shared__ double tile[kTile][kTile + 1];" in one.candidate.kernel.source
    assert one.candidate.contract.block == ("32", "8")
    assert one.candidate.contract.grid == ("cdiv(cols, 32)", "cdiv(rows, 32)")


@pytest.mark.parametrize(
    ("body", "guard"),
    [
        ("y[r * cols + c] = x[r * cols + c];", "c < cols && r < rows"),
        ("y[c * rows + r] = 2 * x[r * cols + c];", "c < cols && r < rows"),
        ("y[c * rows + r] += x[r * cols + c];", "c < cols && r < rows"),
        ("y[c * rows + r] = x[r * cols + c];", "c < cols && r < rows && c < r"),
        ("y[c * rows + r] = x[r * cols + c];", "c < cols - 1 && r < rows"),
    ],
)
def test_what_is_no_plain_transposition_stays(ask, body: str, guard: str) -> None:
    assert list(RECIPE.candidates(ask(source(body, guard)))) == []
