from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.grid_stride import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ n = 20000 }}, {{ n = 77 }}, {{ n = 1 }}]
// grid = "cdiv(n, 32)"
// block = 32
// reference = "x + 1"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const float* x, float* y, int n) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  {before}if (i >= n) return;  // beyond the end
  {body}
}}
"""


def test_fewer_blocks_go_through_the_data_in_strides(judged) -> None:
    several = judged(SOURCE.format(before="", body="y[i] = x[i] + 1.0f;"), RECIPE)
    assert [one.candidate.contract.grid for one in several] == [("min(cdiv(n, 32), 528)",), ("min(cdiv(n, 32), 132)",)]
    text = several[0].candidate.kernel.source
    assert "int i = blockIdx.x * blockDim.x + threadIdx.x;\n  const int stride = gridDim.x * blockDim.x;" in text
    assert "for (; i < n; i += stride) {" in text
    assert "    y[i] = x[i] + 1.0f;" in text


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("", "__syncthreads(); y[i] = x[i];"),
        ("float s = 0.0f; ", "s = x[i]; y[i] = s;"),
        ("const int j = i + 1; ", "y[i] = x[j];"),
        ("", "if (x[i] < 0.0f) return; y[i] = x[i];"),
        ("", "y[i] = exchanged(x[i]);"),
    ],
)
def test_work_that_is_not_independent_stays(ask, before: str, body: str) -> None:
    assert list(RECIPE.candidates(ask(SOURCE.format(before=before, body=body)))) == []


def test_a_grid_that_is_small_already_stays(ask) -> None:
    source = SOURCE.format(before="", body="y[i] = x[i];").replace("n = 20000", "n = 320")
    assert list(RECIPE.candidates(ask(source))) == []


CAPPED = """
// /// kernelmate
// sizes = [{{ n = 20000 }}, {{ n = 77 }}, {{ n = 1 }}]
// grid = "min(cdiv(n, block), 16)"
// block = 32
// reference = "x + 1"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const float* x, float* y, int n) {{
  {before}
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i] + 1.0f;
}}
"""


def test_a_grid_that_was_capped_low_gets_more_blocks(judged) -> None:
    several = judged(CAPPED.format(before=""), RECIPE)
    assert [one.candidate.contract.grid[0] for one in several] == [
        "min(cdiv(n, block), 528)",
        "min(cdiv(n, block), 132)",
        "min(cdiv(n, block), 2112)",
    ]
    assert several[0].verdict.speedup.median > 1.2


def test_a_kernel_that_stores_by_block_keeps_its_number_of_blocks(ask) -> None:
    assert list(RECIPE.candidates(ask(CAPPED.format(before="if (n < 0) y[blockIdx.x] = 0.0f;")))) == []
