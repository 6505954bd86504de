from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.tile_permute import RECIPE

SOURCE = """
#include <cuda_fp16.h>
// /// kernelmate
// sizes = [{{ a = 3, b = 70, c = 40 }}, {{ a = 1, b = 1, c = 1 }}]
// grid = {grid}
// block = {block}
// reference = "{reference}"
// [args]
// x = "in {dtype}[a, b, c]"
// y = "out {dtype}[{shape}]"
// a = "int32"
// b = "int32"
// c = "int32"
// ///
__global__ void k(const {type}* x, {type}* y, int a, int b, int c) {{
  {body}
}}
"""
BATCH = """const int k = blockIdx.x * blockDim.x + threadIdx.x;
  const int j = blockIdx.y * blockDim.y + threadIdx.y;
  const int i = blockIdx.z;
  if (k >= c || j >= b) return;
  y[(i * c + k) * b + j] = x[(i * b + j) * c + k];"""
FLAT = """const int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= a * b * c) return;
  const int k = t % c, j = t / c % b, i = t / (b * c);
  y[(k * b + j) * a + i] = x[t];"""
LAST_TWO = """const int t = blockIdx.x * blockDim.x + threadIdx.x;
  if (t >= a * b * c) return;
  const int k = t % c;
  const int rest = t / c;
  const int j = rest % b;
  const int i = rest / b;
  const int to = (i * c + k) * b + (b - 1 - j);
  y[to] = x[t];"""


@pytest.mark.parametrize(
    ("body", "grid", "block", "shape", "reference", "dtype", "kind"),
    [
        (BATCH, '["cdiv(c, 16)", "cdiv(b, 16)", "a"]', "[16, 16]", "a, c, b", "x.transpose(0, 2, 1)", "float16", "__half"),
        (LAST_TWO, '"cdiv(a * b * c, 128)"', "128", "a, c, b", "x.transpose(0, 2, 1)[:, :, ::-1]", "uint8", "unsigned char"),
        (FLAT, '"cdiv(a * b * c, 128)"', "128", "c, b, a", "x.transpose(2, 1, 0)", "float32", "float"),
    ],
)  # fmt: skip
def test_permuting_copies_go_through_a_tile(judged, body, grid, block, shape, reference, dtype, kind) -> None:
    source = SOURCE.format(body=body, grid=grid, block=block, shape=shape, reference=reference, dtype=dtype, type=kind)
    (one,) = judged(source, RECIPE, "move fewer bytes through global memory")
    text = one.candidate.kernel.source
    assert f"__shared__ {kind} tile[kTile][kTile + 1];" in text
    assert one.candidate.contract.block == ("32", "8")
    if kind != "float":
        assert one.verdict.objective.after < 0.75 * one.verdict.objective.before


def test_a_copy_along_memory_stays(ask) -> None:
    body = FLAT.replace("(k * b + j) * a + i", "(i * b + j) * c + k")
    text = SOURCE.format(body=body, grid='"cdiv(a * b * c, 128)"', block="128", shape="a, b, c", reference="x", dtype="float32", type="float")  # fmt: skip
    assert list(RECIPE.candidates(ask(text))) == []


@pytest.mark.parametrize("also", ["j < limit", "k > 3", "i * 2 < a", "k <= limit", "t < limit"])
def test_a_copy_that_leaves_elements_alone_stays_as_it_is(ask, also) -> None:
    body = FLAT.replace("if (t >= a * b * c) return;\n", "").replace("  y[(k", f"  if (t < a * b * c && {also}) y[(k")
    text = SOURCE.format(body=body, grid='"cdiv(a * b * c, 128)"', block="128", shape="c, b, a", reference="x", dtype="float32", type="float")  # fmt: skip
    text = text.replace('// c = "int32"', '// c = "int32"\n// limit = "int32 = 5"').replace(
        "int c)", "int c, int limit)"
    )
    assert list(RECIPE.candidates(ask(text))) == []


def test_a_guard_that_names_the_whole_number_or_its_parts_is_what_the_tile_guards_itself(judged) -> None:
    body = FLAT.replace("if (t >= a * b * c) return;", "const int all = a * (b * c);\n  if (all <= t) return;")
    text = SOURCE.format(body=body, grid='"cdiv(a * b * c, 128)"', block="128", shape="c, b, a", reference="x.transpose(2, 1, 0)", dtype="float32", type="float")  # fmt: skip
    (one,) = judged(text, RECIPE, "move fewer bytes through global memory")
    assert "all" not in one.candidate.kernel.source.split("{", 1)[1]


PARTLY = """
// /// kernelmate
// sizes = [{ a = 3, b = 70, c = 40, limit = 17 }, { a = 1, b = 1, c = 1, limit = 1 }]
// grid = ["cdiv(c, 16)", "cdiv(b, 16)", "a"]
// block = [16, 16]
// reference = "np.where(np.arange(b)[None, None, :] < limit, x.transpose(0, 2, 1), y)"
// [args]
// x = "in float32[a, b, c]"
// y = "inout float32[a, c, b]"
// a = "int32"
// b = "int32"
// c = "int32"
// limit = "int32"
// ///
__global__ void k(const float* x, float* y, int a, int b, int c, int limit) {
  const int k = blockIdx.x * blockDim.x + threadIdx.x;
  const int j = blockIdx.y * blockDim.y + threadIdx.y;
  const int i = blockIdx.z;
  if (k >= c || j >= limit) return;
  y[(i * c + k) * b + j] = x[(i * b + j) * c + k];
}
"""


def test_a_copy_of_a_part_of_the_array_is_not_made_a_copy_of_all_of_it(judged) -> None:
    """The judge would find what a dropped guard writes; the recipe does not propose it."""
    assert judged(PARTLY, RECIPE, "move fewer bytes through global memory") == []
