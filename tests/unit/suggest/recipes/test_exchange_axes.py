from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.exchange_axes import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ d = 40, h = 6, w = 70 }}, {{ d = 1, h = 1, w = 1 }}]
// grid = {grid}
// block = {block}
// reference = "x * b[:, None, None]"
// [args]
// x = "in float32[d, h, w]"
// b = "in float32[d]"
// y = "out float32[d, h, w]"
// d = "int32"
// h = "int32"
// w = "int32"
// ///
__global__ void k(const float* x, const float* b, float* y, int d, int h, int w) {{
  {body}
  y[(z * h + r) * w + c] = x[(z * h + r) * w + c] * b[z];
}}
"""
SLOWEST_ON_X = """const int z = blockIdx.x * blockDim.x + threadIdx.x;
  const int r = blockIdx.y;
  const int c = blockIdx.z;
  if (z >= d) return;"""
SLOWEST_ON_X_IN_BLOCKS = """int z = blockIdx.x * blockDim.x + threadIdx.x;
  int c = blockIdx.y * blockDim.y + threadIdx.y;
  int r = blockIdx.z;
  if (z >= d || c >= w) return;"""


@pytest.mark.parametrize(
    ("body", "grid", "block", "after"),
    [
        (SLOWEST_ON_X, '["cdiv(d, 64)", "h", "w"]', "64", ("cdiv(w, 64)", "cdiv(h, 4)", "d")),
        (SLOWEST_ON_X_IN_BLOCKS, '["cdiv(d, 8)", "cdiv(w, 8)", "h"]', "[8, 8]", ("cdiv(w, 64)", "cdiv(h, 4)", "d")),
    ],
)
def test_the_contiguous_index_goes_to_x(judged, body: str, grid: str, block: str, after: tuple[str, ...]) -> None:
    (one,) = judged(SOURCE.format(body=body, grid=grid, block=block), RECIPE, "move fewer bytes through global memory")
    assert one.candidate.contract.grid == after
    assert one.candidate.contract.block == ("64", "4", "1")
    assert one.verdict.objective.after < 0.75 * one.verdict.objective.before


def test_a_launch_in_the_right_order_stays(ask) -> None:
    body = """const int c = blockIdx.x * blockDim.x + threadIdx.x;
  const int r = blockIdx.y, z = blockIdx.z;
  if (c >= w) return;"""
    assert list(RECIPE.candidates(ask(SOURCE.format(body=body, grid='["cdiv(w, 64)", "h", "d"]', block="64")))) == []


def test_threads_that_meet_stay(ask) -> None:
    body = SLOWEST_ON_X + "\n  __syncthreads();"
    assert list(RECIPE.candidates(ask(SOURCE.format(body=body, grid='["cdiv(d, 64)", "h", "w"]', block="64")))) == []
