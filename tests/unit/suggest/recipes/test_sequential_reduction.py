from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.sequential_reduction import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ n = 512 }}, {{ n = 77 }}, {{ n = 1 }}]
// grid = "cdiv(n, 128)"
// block = {block}
// reference = "np.add.reduceat(x, np.arange(0, n, 128)) if n else x[:0]"
// [args]
// x = "in float32[n]"
// y = "out float32[cdiv(n, 128)]"
// n = "int32"
// ///
__global__ void k(const float* x, float* y, int n) {{
  __shared__ float s[128];
  const int t = threadIdx.x;
  const int i = blockIdx.x * 128 + t;
  s[t] = i < n ? x[i] : 0.0f;
  __syncthreads();
  for ({head}) {{  // the tree
    if ({test}) {{
      {combine}
    }}
    __syncthreads();
  }}
  if (t == 0) y[blockIdx.x] = s[0];
}}
"""
HEAD = "int d = 1; d < blockDim.x; d *= 2"
TEST = "t % (2 * d) == 0"
COMBINE = "s[t] += s[t + d];"


def source(head: str = HEAD, test: str = TEST, combine: str = COMBINE, block: int = 128) -> str:
    return SOURCE.format(head=head, test=test, combine=combine, block=block)


@pytest.mark.parametrize(
    ("head", "test", "combine"),
    [
        (HEAD, TEST, COMBINE),
        ("unsigned int d = 1; d < blockDim.x; d <<= 1", "(t & (2 * d - 1)) == 0", "s[t] = s[t + d] + s[t];"),
    ],
)
def test_the_active_threads_become_the_first_ones(judged, head: str, test: str, combine: str) -> None:
    (one,) = judged(source(head, test, combine), RECIPE)
    text = one.candidate.kernel.source
    assert "d = blockDim.x / 2; d > 0; d /= 2) {  // the tree" in text
    assert "if (t < d)" in text
    assert combine in text


@pytest.mark.parametrize(
    ("head", "test", "combine"),
    [
        (HEAD, "t % d == 0", COMBINE),
        (HEAD, TEST, "s[t] -= s[t + d];"),
        (HEAD, TEST, "s[t] += s[t + 2 * d];"),
        ("int d = 2; d < blockDim.x; d *= 2", TEST, COMBINE),
        ("int d = 1; d < n; d *= 2", TEST, COMBINE),
        ("int d = 1; d < blockDim.x; d += 2", TEST, COMBINE),
    ],
)
def test_other_loops_stay(ask, head: str, test: str, combine: str) -> None:
    assert list(RECIPE.candidates(ask(source(head, test, combine)))) == []


def test_a_block_that_is_no_power_of_two_stays(ask) -> None:
    assert list(RECIPE.candidates(ask(source(block=96)))) == []
