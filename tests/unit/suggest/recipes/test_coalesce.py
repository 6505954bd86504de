from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.coalesce import RECIPE

SOURCE = """
#include <cstdio>
// /// kernelmate
// sizes = [{{ h = 70, w = 45 }}, {{ h = 1, w = 1 }}]
// grid = ["cdiv(h, 16)", "cdiv(w, block_y)"]
// block = [16, 8]
// reference = "x * 2"
// [args]
// x = "in float32[h, w]"
// y = "out float32[h, w]"
// h = "int32"
// w = "int32"
// ///
__global__ void twice(const float* x, float* y, int h, int w) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;  // row
  const int j = blockIdx.y * blockDim.y + threadIdx.y;
  if (i < h && j < w) {body}
}}
void run(const float* x, float* y, int h, int w) {{
  twice<<<dim3((h + 15) / 16, (w + 7) / 8), dim3(16, 8)>>>(x, y, h, w);
}}
"""


def test_axes_change_roles_in_the_kernel_its_contract_and_its_launches(judged) -> None:
    (one,) = judged(SOURCE.format(body="y[i * w + j] = 2 * x[i * w + j];"), RECIPE, "less global traffic")
    text = one.candidate.kernel.unit.text
    assert "const int i = blockIdx.y * blockDim.y + threadIdx.y;  // row" in text
    assert one.candidate.contract.block == ("8", "16")
    assert one.candidate.contract.grid == ("cdiv(w, block_x)", "cdiv(h, 16)")
    assert "dim3(8, 16)" in text
    assert "times fewer sectors" in one.candidate.why
    assert one.verdict.counters.global_load_sectors <= 70 * 45


@pytest.mark.parametrize(
    "body",
    [
        "y[j * h + i] = 2 * x[j * h + i];",
        "y[i * w + j] = __shfl_xor_sync(0xffffffffu, x[i * w + j], 1);",
        "y[i * w + j] = place(threadIdx) + x[i * w + j];",
        "y[i * w + j] = twice_of(x[i * w + j]);",
    ],
)
def test_coalesced_kernels_and_those_that_depend_on_lanes_stay(ask, body: str) -> None:
    assert list(RECIPE.candidates(ask(SOURCE.format(body=body)))) == []


def test_one_dimension_has_no_axes_to_exchange(ask) -> None:
    source = (
        SOURCE.format(body="y[i] = x[i];")
        .replace("[16, 8]", "16")
        .replace('["cdiv(h, 16)", "cdiv(w, block_y)"]', '"h"')
    )
    assert list(RECIPE.candidates(ask(source))) == []
