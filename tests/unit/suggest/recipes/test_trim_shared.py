from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.trim_shared import RECIPE

SOURCE = """
#define WIDEST 64
// /// kernelmate
// sizes = [{{ rows = 40, cols = 70 }}, {{ rows = 1, cols = 1 }}]
// grid = ["cdiv(cols, 16)", "cdiv(rows, 16)"]
// block = [16, 16]
// reference = "x.T * 2"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[cols, rows]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void k(const float* x, float* y, int rows, int cols) {{
  __shared__ float tile[{dims}];
  int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
  if (r < rows && c < cols) tile[threadIdx.y][threadIdx.x] = x[r * cols + c];
  __syncthreads();
  c = blockIdx.x * 16 + threadIdx.y;
  r = blockIdx.y * 16 + threadIdx.x;
  if (r < rows && c < cols) y[c * rows + r] = 2.0f * tile[threadIdx.x][{index}];
}}
"""


def test_a_tile_shrinks_to_what_the_block_uses(judged) -> None:
    (one,) = judged(SOURCE.format(dims="WIDEST][WIDEST", index="threadIdx.y"), RECIPE, "use less shared memory")
    assert "__shared__ float tile[16][16];" in one.candidate.kernel.source
    assert one.verdict.objective.after == 1024


@pytest.mark.parametrize(("dims", "index"), [("16][16", "threadIdx.y"), ("64][64", "c % 64"), ("64][64", "(int)x[0]")])
def test_arrays_that_are_used_up_or_whose_use_is_not_known_stay(ask, dims: str, index: str) -> None:
    assert list(RECIPE.candidates(ask(SOURCE.format(dims=dims, index=index), "use less shared memory"))) == []
