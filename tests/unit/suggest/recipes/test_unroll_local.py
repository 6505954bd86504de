from __future__ import annotations

from kernelmate.suggest.recipes.unroll_local import RECIPE

SOURCE = """
#define TAPS 6
// /// kernelmate
// sizes = [{ n = 1200 }, { n = 1 }]
// grid = "cdiv(n, 64)"
// block = 64
// reference = "np.sort(x, axis=1)[:, 2]"
// [args]
// x = "in float32[n, 6]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const float* x, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float v[TAPS];
  #pragma unroll 1
  for (int k = 0; k < TAPS; ++k) v[k] = x[i * TAPS + k];
  #pragma unroll 1
  for (int a = 0; a < TAPS - 1; ++a) {
    #pragma unroll 1
    for (int b = 0; b < TAPS - 1 - a; ++b)
      if (v[b] > v[b + 1]) { const float t = v[b]; v[b] = v[b + 1]; v[b + 1] = t; }
  }
  y[i] = v[2];
}
"""


def test_an_array_that_loops_go_over_becomes_registers(judged) -> None:
    (one,) = judged(SOURCE, RECIPE, "it spills to local memory")
    assert "unroll 1" not in one.candidate.kernel.source
    assert one.verdict.objective.after == 0
    assert one.verdict.objective.met is True


def test_loops_of_unknown_length_stay(ask) -> None:
    text = SOURCE.replace("k < TAPS", "k < n").replace("a < TAPS - 1", "a < n").replace("TAPS - 1 - a", "n")
    assert list(RECIPE.candidates(ask(text, "it spills to local memory"))) == []
