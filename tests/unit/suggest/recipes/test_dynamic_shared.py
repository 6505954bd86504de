from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.dynamic_shared import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ n = 700 }}, {{ n = 77 }}, {{ n = 1 }}]
// grid = "cdiv(n, 128)"
// block = 128
// reference = "x + y"
// [args]
// x = "in float32[n]"
// y = "in float32[n]"
// z = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const float* x, const float* y, float* z, int n) {{
  __shared__ {first};
  __shared__ {second};
  const int t = threadIdx.x;
  const int i = blockIdx.x * blockDim.x + t;
  {write} = i < n ? x[i] : 0.0f;
  b[t] = i < n ? y[i] : 0.0f;
  __syncthreads();
  if (i < n) z[i] = a[t] + b[t];
}}
void run(const float* x, const float* y, float* z, int n) {{ k<<<(n + 127) / 128, 128>>>(x, y, z, n); }}
"""


def source(first: str = "float a[1024]", second: str = "float b[512]", write: str = "a[t]") -> str:
    return SOURCE.format(first=first, second=second, write=write)


def test_arrays_take_what_the_launched_block_needs(judged) -> None:
    (one,) = judged(source(), RECIPE, "use less shared memory")
    text = one.candidate.kernel.unit.text
    assert "extern __shared__ float a[];" in text
    assert "float* b = a + blockDim.x;" in text
    assert one.candidate.contract.shared == "block * 8"
    assert "k<<<(n + 127) / 128, 128, 128 * 8>>>" in text
    assert (one.verdict.resources.shared_bytes, one.verdict.resources.dynamic_shared_bytes) == (0, 1024)
    assert one.verdict.accepted is True


@pytest.mark.parametrize(
    ("first", "second", "write"),
    [
        ("float a[128]", "float b[128]", "a[t]"),
        ("float a[1024]", "int b[1024]", "a[t]"),
        ("float a[1024]", "float b[128]", "a[t + 1]"),
        ("float a[4][256]", "float b[128]", "a[0][t]"),
        ("volatile float a[1024]", "float b[128]", "a[t]"),
    ],
)
def test_arrays_that_are_used_otherwise_stay(ask, first: str, second: str, write: str) -> None:
    assert list(RECIPE.candidates(ask(source(first, second, write)))) == []
