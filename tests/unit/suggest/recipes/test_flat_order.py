from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.flat_order import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ b = 5, h = 30, w = 64 }}, {{ b = 1, h = 1, w = 1 }}]
// grid = "cdiv(b * h * w, 128)"
// block = 128
// reference = "x * 2"
// [args]
// x = "in float32[b, h, w]"
// y = "out float32[b, h, w]"
// b = "int32"
// h = "int32"
// w = "int32"
// ///
__global__ void k(const float* x, float* y, int b, int h, int w) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= b * h * w) return;
  {parts}
  y[(n * h + r) * w + c] = 2.0f * x[(n * h + r) * w + c];
}}
"""


@pytest.mark.parametrize(
    "parts",
    [
        "const int n = i % b;\n  const int r = i / b % h;\n  const int c = i / (b * h);",
        "const int n = i % b;\n  const int rest = i / b;\n  const int r = rest % h;\n  const int c = rest / h;",
        "int r = i % h, n = (i / h) % b, c = i / (h * b);",
    ],
)
def test_the_contiguous_index_is_the_lowest_part(judged, parts: str) -> None:
    (one,) = judged(SOURCE.format(parts=parts), RECIPE, "move fewer bytes through global memory")
    text = one.candidate.kernel.source
    assert "c = i % w" in text
    assert "rest" not in text
    assert one.verdict.objective.after < one.verdict.objective.before / 3


@pytest.mark.parametrize(
    "parts",
    [
        "const int c = i % w;\n  const int r = i / w % h;\n  const int n = i / (w * h);",
        "const int n = i % b;\n  const int r = i / b % h;\n  const int c = i / (b * h);\n  y[i] = 0.0f;",
        "const int n = i % b;\n  const int r = i / w % h;\n  const int c = i / (b * h);",
    ],
)
def test_other_orders_and_other_uses_stay(ask, parts: str) -> None:
    assert list(RECIPE.candidates(ask(SOURCE.format(parts=parts)))) == []


def test_a_product_of_lengths_may_have_a_name(judged) -> None:
    parts = "const int plane = h * b;\n  const int c = i / plane;\n  const int rest = i % plane;\n  const int r = rest % h, n = rest / h;"
    (one,) = judged(SOURCE.format(parts=parts), RECIPE, "move fewer bytes through global memory")
    assert "c = i % w" in one.candidate.kernel.source
