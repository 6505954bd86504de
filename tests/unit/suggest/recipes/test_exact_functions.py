from __future__ import annotations

from kernelmate.suggest.recipes.exact_functions import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{ n = 1000 }]
// grid = "cdiv(n, 64)"
// block = 64
// tolerance = { rtol = 1e-3, atol = 1e-3 }
// reference = "np.sin(x) / x"
// [args]
// x = "in float32[n] ~ uniform(1, 40)"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = __fdividef(__sinf(x[i]), x[i]);
}
"""


def test_the_full_functions_stand_instead(judged) -> None:
    (one,) = judged(SOURCE, RECIPE, "more accurate")
    assert "y[i] = ((sinf(x[i])) / (x[i]));" in one.candidate.kernel.source


def test_full_functions_stay(ask) -> None:
    text = SOURCE.replace("__fdividef(__sinf(x[i]), x[i])", "sinf(x[i])")
    assert list(RECIPE.candidates(ask(text, "more accurate"))) == []
