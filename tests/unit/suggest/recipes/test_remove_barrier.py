from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.remove_barrier import CAUTION, RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ n = 512 }}, {{ n = 128 }}]
// grid = "n // 128"
// block = 128
// require = ["n % 128 == 0"]
// reference = "x.reshape(-1, 128)[:, ::-1].reshape(-1) * 2"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const float* x, float* y, int n) {{
  __shared__ float s[128];
  __shared__ float r[128];
  const int t = threadIdx.x, i = blockIdx.x * 128 + t;
  s[t] = x[i];
  {first}
  r[t] = 2.0f * s[127 - t];
  {second}
  y[i] = r[t];
}}
"""
BARRIER = "__syncthreads();"


def test_a_barrier_that_separates_nothing_is_offered_and_never_accepted_by_itself(judged) -> None:
    several = judged(SOURCE.format(first=BARRIER, second=f"y[i] = 0.0f;\n  {BARRIER}\n  {BARRIER}"), RECIPE)
    assert len(several) >= 1
    for one in several:
        assert one.candidate.kernel.source.count(BARRIER) == 2
        assert one.verdict.accepted is not True
        assert one.candidate.caution == CAUTION
        assert "line" in one.candidate.why


def test_the_caution_stands_in_the_verdict_even_where_nothing_else_was_asked(judged) -> None:
    source = SOURCE.format(first=f"{BARRIER}\n  {BARRIER}", second="")
    several = judged(source, RECIPE)
    assert [one.verdict.accepted for one in several].count(True) == 0


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (BARRIER, ""),
        (BARRIER, "if (t > 3) return;"),
        (f"if (n > 3) {{ {BARRIER} }}", ""),
        (f"helper(s); {BARRIER}", ""),
        (f"for (int o = 1; o < 3; ++o) {{ s[t] += r[t + o]; {BARRIER} r[t] = s[t]; {BARRIER} }}", ""),
    ],
)
def test_barriers_that_separate_something_or_cannot_be_read_stay(ask, first: str, second: str) -> None:
    assert list(RECIPE.candidates(ask(SOURCE.format(first=first, second=second)))) == []
