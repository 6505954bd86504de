from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.powers import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ n = 3000 }}, {{ n = 1 }}]
// grid = "cdiv(n, 64)"
// block = 64
// reference = "{reference}"
// [args]
// x = "in float32[n] ~ uniform(0.5, 2)"
// c = "in float32[6] ~ uniform(0.5, 1)"
// y = "out float32[n]"
// n = "int32"
// ///
{helper}
__global__ void k(const float* x, const float* c, float* y, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  {body}
}}
"""


@pytest.mark.parametrize(
    ("body", "reference", "written"),
    [
        ("const float v = x[i];\n  y[i] = powf(v, 3.0f) + powf(v, 2);", "x**3 + x**2", "(v * v * v) + (v * v)"),
        ("y[i] = powf(x[i] + 1.0f, 5.0f);", "(x + 1)**5", "const float base = x[i] + 1.0f;"),
        (
            "float s = 0.0f;\n  for (int k = 0; k < 6; ++k) s += c[k] * powf(x[i], (float)k);\n  y[i] = s;",
            "x[:, None] ** np.arange(6) @ c",
            "++k, power *= x[i]",
        ),
    ],
)
def test_whole_powers_are_products(judged, body: str, reference: str, written: str) -> None:
    (one,) = judged(SOURCE.format(helper="", body=body, reference=reference), RECIPE, "use fewer registers")
    assert written in one.candidate.kernel.source
    assert "pow" not in one.candidate.kernel.source.replace("power", "")


def test_a_function_of_the_kernels_own_goes_along(judged) -> None:
    helper = "__device__ float cube(float v) { return powf(v, 3.0f); }"
    (one,) = judged(SOURCE.format(helper=helper, body="y[i] = cube(x[i]);", reference="x**3"), RECIPE)
    assert "return (v * v * v);" in one.candidate.kernel.unit.text


@pytest.mark.parametrize("body", ["y[i] = powf(x[i], 2.5f);", "y[i] = powf(2.0f, x[i]);", "y[i] = powf(x[i], c[0]);"])
def test_other_powers_stay(ask, body: str) -> None:
    assert list(RECIPE.candidates(ask(SOURCE.format(helper="", body=body, reference="x")))) == []


def test_a_function_that_another_kernel_calls_stays(ask) -> None:
    helper = "__device__ float cube(float v) { return powf(v, 3.0f); }\n__global__ void other(float* y) { y[0] = cube(y[0]); }"  # fmt: skip
    request = ask(SOURCE.format(helper=helper, body="y[i] = cube(x[i]);", reference="x**3"), name="k")
    assert list(RECIPE.candidates(request)) == []
