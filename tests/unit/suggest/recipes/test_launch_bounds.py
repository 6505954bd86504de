from __future__ import annotations

from dataclasses import replace

import pytest

from kernelmate.records import Occupancy
from kernelmate.suggest.recipes.launch_bounds import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{ n = 2000 }, { n = 77 }]
// grid = "cdiv(n, 128)"
// block = 128
// reference = "x * x * x + x * x + x"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void cube(const float* x, float* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    float v = x[i];
    y[i] = v * v * v + v * v + v;
  }
}
"""


def test_a_cap_lowers_registers_and_is_accepted_where_nothing_spills(judged) -> None:
    source = SOURCE.replace("i += gridDim.x * blockDim.x) {", "i += gridDim.x * blockDim.x) {\n#pragma unroll 8")
    source = source.replace("#pragma unroll 8", "").replace("  for (int i", "#pragma unroll 8\n  for (int i")
    several = judged(source, RECIPE, "use fewer registers")
    assert several
    assert any(one.verdict.accepted for one in several)
    assert all("registers" in one.candidate.why for one in several)


def bounds(ask, prompt: str, limiter: str = "registers", **resources: int) -> list[str]:
    request = ask(SOURCE, prompt, **resources)
    request = replace(request, verdict=replace(request.verdict, occupancy=Occupancy(0.5, limiter, 4, 1.0)))
    texts = [candidate.kernel.source for candidate in RECIPE.candidates(request)]
    return [text[text.index("void ") + 5 : text.index(" cube(")] for text in texts]


def test_caps_are_the_mildest_below_what_there_is(ask) -> None:
    assert bounds(ask, "use fewer registers", registers=100) == [
        "__launch_bounds__(128, 5)",
        "__launch_bounds__(128, 6)",
        "__launch_bounds__(128, 7)",
    ]
    assert bounds(ask, "use fewer registers", registers=30) == ["__maxnreg__(24)"]
    assert bounds(ask, "use fewer registers", registers=24) == []


def test_against_spills_only_the_block_is_named(ask) -> None:
    assert bounds(ask, "stop the spills", registers=64, spill_bytes=40) == ["__launch_bounds__(128)"]
    assert bounds(ask, "make it faster", registers=64) == []


@pytest.mark.parametrize(("limiter", "count"), [("registers", 3), ("shared", 0)])
def test_occupancy_is_helped_where_registers_limit_it(ask, limiter: str, count: int) -> None:
    assert len(bounds(ask, "increase occupancy", limiter, registers=100)) == count


def test_bounds_that_are_there_are_replaced(ask) -> None:
    source = SOURCE.replace("void cube", "void __launch_bounds__(256) cube")
    texts = [one.kernel.source for one in RECIPE.candidates(ask(source, "use fewer registers", registers=100))]
    assert [text.count("__launch_bounds__") for text in texts] == [1, 1, 1]
