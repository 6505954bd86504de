from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.tile_matmul import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ m = 50, n = 35, k = 41 }}, {{ m = 1, n = 1, k = 1 }}]
// grid = ["cdiv(n, 16)", "cdiv(m, 16)"]
// block = [16, 16]
// reference = "{reference}"
// [args]
// a = "in float32[m, k]"
// b = "in float32[k, n]"
// c = "out float32[m, n]"
// m = "int32"
// n = "int32"
// k = "int32"
// ///
__global__ void product(const float* a, const float* b, float* c, int m, int n, int k) {{
  int col = blockIdx.x * blockDim.x + threadIdx.x;
  int row = blockIdx.y * blockDim.y + threadIdx.y;
  {guard}
  float sum = 0.0f;
  for (int i = 0; i < k; ++i) {{
    {body}
  }}
  c[row * n + col] = sum;
}}
"""
GUARD = "if (row >= m) return;\n  if (col >= n) return;"
BODY = "sum += a[row * k + i] * b[i * n + col];"


def source(body: str = BODY, guard: str = GUARD, reference: str = "a @ b") -> str:
    return SOURCE.format(body=body, guard=guard, reference=reference)


def test_both_matrices_go_through_tiles_of_either_size(judged) -> None:
    wide, narrow = judged(source(), RECIPE, "less global traffic")
    assert (wide.candidate.contract.block, narrow.candidate.contract.block) == (("32", "32"), ("16", "16"))
    text = narrow.candidate.kernel.source
    assert "constexpr int kTile = 16;" in narrow.candidate.kernel.unit.text
    assert "__shared__ float tile_a[kTile][kTile];" in text
    assert "sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];" in text
    assert "return" not in text
    assert "if (row < m && col < n) c[row * n + col] = sum;" in text
    assert narrow.verdict.accepted is True


def test_a_constant_of_the_file_gives_the_side_and_the_launch_stays(judged) -> None:
    text = (
        "#define TILE 16\n"
        + source()
        + "void run(float* a, dim3 grid, dim3 block) { product<<<grid, block>>>(a, a, a, 16, 16, 16); }\n"
    )
    (one,) = judged(text, RECIPE, "less global traffic")
    assert "tile_b[TILE][TILE];" in one.candidate.kernel.source
    assert "product<<<grid, block>>>" in one.candidate.kernel.unit.text


def test_lanes_walk_the_rows_of_the_result(judged) -> None:
    text = source().replace("col = blockIdx.x", "col = blockIdx.Y").replace("row = blockIdx.y", "row = blockIdx.x")
    text = text.replace("blockDim.x + threadIdx.x", "blockDim.Y + threadIdx.Y").replace(
        "blockDim.y + threadIdx.y", "blockDim.x + threadIdx.x"
    )
    text = (
        text.replace("dim.Y", "dim.y")
        .replace("Dim.Y", "Dim.y")
        .replace("Idx.Y", "Idx.y")
        .replace('["cdiv(n, 16)", "cdiv(m, 16)"]', '["cdiv(m, 16)", "cdiv(n, 16)"]')
    )
    _, narrow = judged(text, RECIPE, "less global traffic")
    assert "int col = blockIdx.y * blockDim.y + threadIdx.x;" in narrow.candidate.kernel.source
    assert "int row = blockIdx.x * blockDim.x + threadIdx.y;" in narrow.candidate.kernel.source
    assert "sum += tile_a[threadIdx.y][i] * tile_b[i][threadIdx.x];" in narrow.candidate.kernel.source


def test_a_tile_whose_rows_belong_to_lanes_is_padded(judged) -> None:
    given = source("sum += a[row * k + i] * b[col * k + i];", reference="a @ b.T").replace("[k, n]", "[n, k]")
    wide, _ = judged(given, RECIPE)
    assert "tile_b[kTile][kTile + 1];  // + 1, so that" in wide.candidate.kernel.source
    assert "tile_b[threadIdx.y][threadIdx.x] = col_b < n" in wide.candidate.kernel.source


def test_what_is_no_plain_product_stops_at_the_end_of_the_matrix(judged) -> None:
    body = "float d = a[row * k + i] - b[i * n + col];\n    sum += d * d + i;"
    reference = "((a[:, None, :] - b.T[None]) ** 2).sum(axis=2) + k * (k - 1) / 2"
    wide, _ = judged(source(body, "if (row >= m || col >= n) return;", reference), RECIPE)
    assert "const int i = start + i_in;\n" in wide.candidate.kernel.source


@pytest.mark.parametrize(
    ("body", "guard"),
    [
        ("sum += a[row * k + i] * a[row * k + i];", GUARD),
        ("sum += a[row * k + i] * b[i * n + col] * c[i];", GUARD),
        ("sum += a[(row + col) * k + i] * b[i * n + col];", GUARD),
        (BODY, "if (row * n + col >= m * n) return;"),
        ("c[0] = 1.0f;\n    sum += a[row * k + i] * b[i * n + col];", GUARD),
        ("sum += a[row * k + i] * lookup(b, i * n + col);", GUARD),
    ],
)
def test_other_loops_stay(ask, body: str, guard: str) -> None:
    assert list(RECIPE.candidates(ask(source(body, guard)))) == []
