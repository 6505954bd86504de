from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.block_atomics import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ n = 3000 }}, {{ n = 77 }}, {{ n = 1 }}]
// grid = "cdiv(n, 128)"
// block = {block}
// reference = "total + np.sum(x)"
// [args]
// x = "in int32[n] ~ integers(0, 100)"
// total = "inout int32[1] ~ zeros"
// n = "int32"
// ///
__global__ void add(const int* x, int* total, int n) {{
  const int i = blockIdx.x * 128 + threadIdx.x;
  if (i >= n) return;
  {body}
}}
"""


def test_a_block_or_a_warp_adds_once(judged) -> None:
    by_block, by_warp = judged(SOURCE.format(body="atomicAdd(total, x[i]);", block=128), RECIPE)
    assert "if (threadIdx.x == 0) atomicAdd(total, own);" in by_block.candidate.kernel.source
    assert "__shared__" not in by_warp.candidate.kernel.source
    assert by_block.verdict.counters.global_atomic_requests == 24
    assert by_warp.verdict.counters.global_atomic_requests == 24 * 4
    assert "one atomic per block" in by_block.candidate.why


def test_conditions_and_several_additions_are_kept(judged) -> None:
    body = "if (x[i] > 50) atomicAdd(&total[0], x[i]);\n  else atomicAdd(&total[0], x[i]);"
    by_block, _ = judged(SOURCE.format(body=body, block=128), RECIPE)
    assert by_block.candidate.kernel.source.count("own += x[i];") == 2


@pytest.mark.parametrize(
    ("body", "block"),
    [
        ("atomicAdd(&total[i % 4], x[i]);", 128),
        ("if (threadIdx.x == 0) atomicAdd(total, x[i]);", 128),
        ("int old = atomicAdd(total, x[i]);", 128),
        ("atomicAdd(total, x[i]);\n  total[0] = 3;", 128),
        ("atomicAdd(total, x[i]);\n  if (n > 3) { if (i) return; }", 128),
        ("atomicAdd(total, x[i]);", 100),
    ],
)
def test_what_is_joined_already_or_met_otherwise_stays(ask, body: str, block: int) -> None:
    assert list(RECIPE.candidates(ask(SOURCE.format(body=body, block=block)))) == []
