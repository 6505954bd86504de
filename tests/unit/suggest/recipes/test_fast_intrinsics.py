from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.fast_intrinsics import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ n = 700 }}, {{ n = 1 }}]
// grid = "cdiv(n, 128)"
// block = 128
// reference = "{reference}"
// {tolerance}
// [args]
// x = "in float32[n] ~ uniform(0.5, 2)"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const float* x, float* y, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {{
    float v = x[i];
    y[i] = {value};
  }}
}}
"""
LOOSE = "tolerance = { rtol = 1e-4, atol = 1e-4 }"


def source(value: str, reference: str = "x", tolerance: str = LOOSE) -> str:
    return SOURCE.format(value=value, reference=reference, tolerance=tolerance)


@pytest.mark.parametrize(
    ("value", "reference", "wanted"),
    [
        ("expf(v) + logf(v)", "np.exp(x) + np.log(x)", "__expf(v) + __logf(v)"),
        ("exp(v) * sinf(v)", "np.exp(x) * np.sin(x)", "__expf(v) * __sinf(v)"),
        ("1.0f / sqrtf(v + 1.0f)", "1 / np.sqrt(x + 1)", "rsqrtf(v + 1.0f)"),
        ("powf(v, 1.5f)", "x ** 1.5", "__powf(v, 1.5f)"),
    ],
)
def test_functions_become_approximations_that_the_tolerance_allows(
    judged, value: str, reference: str, wanted: str
) -> None:
    (one,) = judged(source(value, reference), RECIPE)
    assert wanted in one.candidate.kernel.source
    assert "tolerance" in one.candidate.why


@pytest.mark.parametrize("value", ["sqrtf(v)", "exp(v * 2.0)", "exp((double)v)", "v / 3.0f", "fmaxf(v, 0.0f)"])
def test_what_has_no_approximation_or_is_double_stays(ask, value: str) -> None:
    assert list(RECIPE.candidates(ask(source(value)))) == []


def test_a_tolerance_without_room_is_not_tried(ask) -> None:
    assert list(RECIPE.candidates(ask(source("expf(v)", tolerance="tolerance = { rtol = 0.0, atol = 0.0 }")))) == []


def test_the_accuracy_given_up_is_said_once_for_each_function(judged) -> None:
    (one,) = judged(source("expf(v) + expf(-v)", "np.exp(x) + np.exp(-x)"), RECIPE)
    text = one.candidate.kernel.source
    assert "    // Error of __expf: up to 2 + |1.17 x| ulp.\n    y[i] = __expf(v)" in text
    assert text.count("//") == 1
