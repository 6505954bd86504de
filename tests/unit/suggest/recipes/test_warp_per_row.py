from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.warp_per_row import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ rows = 41, cols = 75 }}, {{ rows = 1, cols = 1 }}]
// grid = "cdiv(rows, 64)"
// block = 64
// require = ["cols > 0"]
// reference = "{reference}"
// [args]
// x = "in float32[rows, cols] ~ uniform(-4, 4)"
// y = "out {dtype}[{shape}]"
// rows = "int32"
// cols = "int32"
// ///
__global__ void k(const float* x, {type}* y, int rows, int cols) {{
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= rows) return;
  {body}
}}
"""


def source(body: str, reference: str, shape: str = "rows", dtype: str = "float32", kind: str = "float") -> str:
    return SOURCE.format(body=body, reference=reference, shape=shape, dtype=dtype, type=kind)


SUM = "float s = 0.0f;\n  for (int c = 0; c < cols; ++c) s += x[r * cols + c];\n  y[r] = s;"


def test_lanes_share_a_sum_and_one_of_them_stores_it(judged) -> None:
    (one,) = judged(source(SUM, "x.sum(axis=1)"), RECIPE)
    text = one.candidate.kernel.source
    assert "(blockIdx.x * blockDim.x + threadIdx.x) / 32" in text
    assert "for (int c = lane; c < cols; c += 32)" in text
    assert "if (lane == 0) y[r] = s;" in text
    assert one.candidate.contract.grid == ("cdiv(rows * 32, 64)",)
    assert one.verdict.speedup.median > 1.2


@pytest.mark.parametrize(
    ("body", "reference", "shape", "dtype", "kind"),
    [
        (
            "float m = x[r * cols];\n  for (int c = 1; c < cols; ++c) m = fmaxf(m, x[r * cols + c]);\n  y[r] = m;",
            "x.max(axis=1)", "rows", "float32", "float",
        ),
        (
            "float m = 1e30f;\n  int at = 0;\n  for (int c = 0; c < cols; ++c) {\n    float v = x[r * cols + c];\n"
            "    if (v < m) {\n      m = v;\n      at = c;\n    }\n  }\n  y[r] = at;",
            "x.argmin(axis=1).astype(np.int32)", "rows", "int32", "int",
        ),
        (
            "float s = 0.0f;\n  for (int c = 0; c < cols; ++c) s += x[r * cols + c];\n"
            "  for (int c = 0; c < cols; ++c) y[r * cols + c] = x[r * cols + c] - s / cols;",
            "x - x.mean(axis=1, keepdims=True)", "rows, cols", "float32", "float",
        ),
        (
            "y[r] = 1.0f;\n  for (int c = 0; c < cols; ++c) y[r] += x[r * cols + c];",
            "1 + x.sum(axis=1)", "rows", "float32", "float",
        ),
    ],
)  # fmt: skip
def test_extremes_places_elements_and_sums_in_memory_are_right(judged, body, reference, shape, dtype, kind) -> None:
    (one,) = judged(source(body, reference, shape, dtype, kind), RECIPE)
    assert "+= 32)" in one.candidate.kernel.source


@pytest.mark.parametrize(
    "body",
    [
        "y[r] = x[r];",
        "float s = 0.0f;\n  for (int c = 0; c < cols; ++c) s = s * 0.5f + x[r * cols + c];\n  y[r] = s;",
        "for (int c = 1; c < cols; ++c) y[r * cols + c] = y[r * cols + c - 1] + x[r * cols + c];",
        "float s = 0.0f;\n  for (int c = 0; c < cols; ++c) {\n    if (x[c] > 1.0f) break;\n    s += x[c];\n  }\n  y[r] = s;",
        "float s = 0.0f;\n  for (int c = 0; c < cols; ++c) {\n    s += x[c];\n    y[r] = s;\n  }",
        "y[r] = threadIdx.x;\n  for (int c = 0; c < cols; ++c) y[r] += x[c];",
    ],
)
def test_turns_that_need_each_other_stay_with_one_thread(ask, body: str) -> None:
    assert list(RECIPE.candidates(ask(source(body, "x")))) == []


def test_a_grid_that_follows_from_no_size_stays(ask) -> None:
    assert list(RECIPE.candidates(ask(source(SUM, "x").replace('"cdiv(rows, 64)"', "8")))) == []
