from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.own_shared_element import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ rows = 40, cols = 70 }}, {{ rows = 1, cols = 1 }}]
// grid = ["cdiv(cols, 32)", "cdiv(rows, 8)"]
// block = [32, 8]
// reference = "x * 2"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void k(const float* x, float* y, int rows, int cols) {{
  __shared__ float tile[8][33];
  const int c = blockIdx.x * 32 + threadIdx.x, r = blockIdx.y * 8 + threadIdx.y;
  if (r < rows && c < cols) tile[threadIdx.y][threadIdx.x] = x[r * cols + c];
  __syncthreads();
  if (r < rows && c < cols) y[r * cols + c] = 2.0f * {read};
}}
"""


def test_what_a_thread_hands_to_itself_is_a_variable(judged) -> None:
    (one,) = judged(SOURCE.format(read="tile[threadIdx.y][threadIdx.x]"), RECIPE, "use less shared memory")
    text = one.candidate.kernel.source
    assert "float own_tile;" in text
    assert "__syncthreads" not in text
    assert one.verdict.objective.after == 0
    assert one.verdict.accepted is True


@pytest.mark.parametrize("read", ["tile[threadIdx.y][threadIdx.x ^ 1]", "tile[threadIdx.y][0]"])
def test_what_others_read_stays(ask, read: str) -> None:
    assert list(RECIPE.candidates(ask(SOURCE.format(read=read), "use less shared memory"))) == []


def test_an_element_that_two_threads_share_stays(ask) -> None:
    text = SOURCE.format(read="tile[0][threadIdx.x]").replace("tile[threadIdx.y][threadIdx.x]", "tile[0][threadIdx.x]")
    assert list(RECIPE.candidates(ask(text, "use less shared memory"))) == []
