"""Block lengths that a kernel writes as numbers: rewrites apply as they do to a kernel that asks for `blockDim`."""

from __future__ import annotations

import pytest

from kernelmate.suggest.recipes import divide, interleave_chunks, tile_matmul, vectorize
from kernelmate.suggest.recipes.literal_blocks import names_length, with_block_dim

ID = "blockIdx.x * 256 + threadIdx.x"
MATMUL = """
// /// kernelmate
// sizes = [{ m = 40, n = 50, p = 30 }, { m = 1, n = 1, p = 1 }]
// grid = ["cdiv(n, 16)", "cdiv(m, 16)"]
// block = [16, 16]
// reference = "a @ b"
// [args]
// a = "in float32[m, p]"
// b = "in float32[p, n]"
// c = "out float32[m, n]"
// m = "int32"
// n = "int32"
// p = "int32"
// ///
__global__ void product(const float* a, const float* b, float* c, int m, int n, int p) {
  int col = blockIdx.x * 16 + threadIdx.x, row = threadIdx.y + 16 * blockIdx.y;
  if (row >= m || col >= n) return;
  float sum = 0.0f;
  for (int k = 0; k < p; ++k) sum += a[row * p + k] * b[k * n + col];
  c[row * n + col] = sum;
}
"""


@pytest.mark.parametrize(
    ("recipe", "body", "head", "grid"),
    [
        (divide.RECIPE, f" int i = {ID}; if (i < n) y[i / 2 * 2 + i % 2] = 2 * x[i]; ", "", "cdiv(n, 256)"),
        (vectorize.RECIPE, f" for (int i = {ID}; i < n; i += gridDim.x * 256) y[i] = 2 * x[i]; ", "", "4"),
        (vectorize.RECIPE, " for (int i = threadIdx.x; i < n; i += kThreads) y[i] = 2 * x[i]; ", "constexpr int kThreads = 256;", "1"),
        (interleave_chunks.RECIPE, f" int t = {ID}; for (int k = 0; k < 4; ++k) {{ int i = t * 4 + k; if (i < n) y[i] = 2 * x[i]; }} ", "", "cdiv(n, 1024)"),
    ],
    ids=["divide", "grid-stride", "block-stride", "chunks"],
)  # fmt: skip
def test_a_block_of_256_threads_written_as_a_number_is_one(judged, x_to_y, recipe, body, head, grid) -> None:
    found = judged(x_to_y(body, head, n=(4096, 999), grid=grid), recipe)
    assert found
    assert {one.candidate.contract.block for one in found} == {("256",)}


def test_a_product_in_blocks_of_16_by_16_goes_through_tiles(judged) -> None:
    found = judged(MATMUL, tile_matmul.RECIPE)
    assert [one.candidate.contract.block for one in found] == [("32", "32"), ("16", "16")]
    assert "blockIdx.x * blockDim.x + threadIdx.x" in found[0].candidate.kernel.source


def test_numbers_that_are_not_the_blocks_length_stay(ask, x_to_y) -> None:
    other = ask(x_to_y(" int i = blockIdx.x * 128 + threadIdx.x; if (i < n) y[i] = 2 * x[i]; "))
    assert with_block_dim(other) is None
    third = ask(
        x_to_y(f" __shared__ float t[256]; int i = {ID}; t[threadIdx.x] = x[i]; if (i < n) y[i] = 2 * t[threadIdx.x]; ")
    )
    changed = with_block_dim(third)
    assert changed is not None
    assert "blockIdx.x * blockDim.x + threadIdx.x" in changed.kernel.source
    assert names_length(changed)
    assert not names_length(ask(x_to_y(" int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * x[i]; ")))
