from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.divide import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ rows = 5, cols = 100 }}, {{ rows = 1, cols = 1 }}]
// grid = "rows"
// block = 64
// reference = "x / ({reference})"
// tolerance = {{ rtol = 1e-6, atol = 1e-6 }}
// [args]
// x = "in float32[rows, cols]"
// scale = "in float32[rows] ~ uniform(1, 2)"
// y = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void k(const float* x, const float* scale, float* y, int cols) {{
  const int t = threadIdx.x;
  float s = scale[blockIdx.x];
  for (int c = t; c < cols; c += blockDim.x) {{
    y[blockIdx.x * cols + c] = {value};
  }}
}}
"""


def source(value: str, reference: str = "scale[:, None]") -> str:
    return SOURCE.format(value=value, reference=reference)


def test_a_divisor_that_stays_is_inverted_before_the_loop(judged) -> None:
    (one,) = judged(source("x[blockIdx.x * cols + c] / s"), RECIPE)
    text = one.candidate.kernel.source
    assert text.index("const float s_inverse = 1.0f / s;") < text.index("for (")
    assert "x[blockIdx.x * cols + c] * s_inverse;" in text


def test_a_literal_is_inverted_by_the_compiler(judged) -> None:
    (one,) = judged(source("x[blockIdx.x * cols + c] / 3.0f", "3"), RECIPE)
    assert "x[blockIdx.x * cols + c] * (1.0f / 3.0f);" in one.candidate.kernel.source


def test_the_thread_number_is_divided_by_shifts_and_masks(judged) -> None:
    (one,) = judged(source("x[blockIdx.x * cols + c] + t / 32 - t / 32 + t % 8 - t % 8", "1"), RECIPE)
    assert "(t >> 5) - (t >> 5) + (t & 7)" in one.candidate.kernel.source


@pytest.mark.parametrize(
    "value",
    ["x[c] / 4.0f", "x[c] / 3.0", "x[c] / cols", "x[c] / scale[c]", "c / 8", "t / 33", "1.0 / s", "x[c] * 3.0f"],
)
def test_divisions_that_are_cheap_or_not_sure_stay(ask, value: str) -> None:
    assert list(RECIPE.candidates(ask(source(value)))) == []
