from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.narrow_shared import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ n = 1000 }}, {{ n = 1 }}]
// grid = "cdiv(n, 128)"
// block = 128
// reference = "np.add(np.append(x[1:], 0).astype(np.float64), x)"
// [args]
// x = "in uint8[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const unsigned char* x, float* y, int n) {{
  __shared__ float part[129];
  const int i = blockIdx.x * 128 + threadIdx.x;
  part[threadIdx.x] = {first};
  if (threadIdx.x == 0) part[128] = i + 128 < n ? (float)x[i + 128] : 0.0f;
  __syncthreads();
  if (i < n) y[i] = part[threadIdx.x] + part[threadIdx.x + 1];
}}
"""


@pytest.mark.parametrize("first", ["i < n ? x[i] : 0.0f", "i < n ? static_cast<float>(x[i]) : 0"])
def test_bytes_are_staged_as_bytes(judged, first: str) -> None:
    (one,) = judged(SOURCE.format(first=first), RECIPE, "use less shared memory")
    assert "__shared__ unsigned char part[129];" in one.candidate.kernel.source
    assert "(float)part[threadIdx.x] + (float)part[threadIdx.x + 1]" in one.candidate.kernel.source
    assert one.verdict.objective.after < 150
    assert one.verdict.accepted is True


@pytest.mark.parametrize("first", ["i < n ? x[i] * 0.5f : 0.0f", "i < n ? x[i] : 1.0f"])
def test_other_values_stay_float(ask, first: str) -> None:
    assert list(RECIPE.candidates(ask(SOURCE.format(first=first), "use less shared memory"))) == []
