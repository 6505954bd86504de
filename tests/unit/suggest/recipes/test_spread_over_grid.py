from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.spread_over_grid import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ n = 2000 }}, {{ n = 1 }}]
// grid = 1
// block = {block}
// reference = "x * 3"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const float* x, float* y, int n) {{
  {head} {{
    {body}
  }}
}}
void run(const float* x, float* y, int count) {{ k<<<1, {block}>>>(x, y, count); }}
"""
STRIDED = "for (int i = threadIdx.x; i < n; i += blockDim.x)"


def source(head: str = STRIDED, body: str = "y[i] = 3 * x[i];", block: int = 128) -> str:
    return SOURCE.format(head=head, body=body, block=block)


def test_one_block_becomes_as_many_as_there_is_work_for(judged) -> None:
    (one,) = judged(source(), RECIPE)
    text = one.candidate.kernel.unit.text
    assert one.candidate.contract.grid == ("cdiv(n, block)",)
    assert "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)" in text
    assert "k<<<(count + 127) / 128, 128>>>" in text
    assert one.verdict.speedup.median > 1.5


def test_one_thread_becomes_blocks_of_threads(judged) -> None:
    (one,) = judged(source("for (int i = 0; i < n; ++i)", block=1), RECIPE)
    assert one.candidate.contract.block == ("256",)


@pytest.mark.parametrize(
    "body",
    [
        "y[i] = x[i] + (i > 0 ? y[i - 1] : 0.0f);",
        "y[0] += x[i];",
        "if (x[i] < 0.0f) break; y[i] = x[i];",
        "y[i] = x[i] * threadIdx.x;",
        "y[i] = shared_sum(x[i]);",
        "__syncthreads(); y[i] = x[i];",
    ],
)
def test_turns_that_depend_on_each_other_or_on_the_block_stay(ask, body: str) -> None:
    assert list(RECIPE.candidates(ask(source(body=body)))) == []


def test_a_grid_that_is_spread_already_stays(ask) -> None:
    assert list(RECIPE.candidates(ask(source().replace("grid = 1", 'grid = "cdiv(n, 128)"')))) == []
