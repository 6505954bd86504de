from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.accumulate_in_register import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ n = 67, m = 33 }}, {{ n = 1, m = 1 }}]
// grid = "cdiv(n, 64)"
// block = 64
// reference = "np.add.reduce(a, axis=1) + {start}"
// [args]
// a = "in float32[n, m] ~ uniform(0, 1)"
// out = "{direction} float32[n] ~ uniform(0, 1)"
// n = "int32"
// m = "int32"
// ///
__global__ void sums(const float* a, float* out, int n, int m) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {{
    {first}
    for (int k = 0; k < m; ++k) {{
      {step}  // one more
    }}
  }}
}}
"""


def source(first: str = "out[i] = 0.0f;", step: str = "out[i] += a[i * m + k];", **more: str) -> str:
    return SOURCE.format(
        first=first, step=step, start=more.get("start", "0"), direction=more.get("direction", "out")
    ).replace('"out float32[n] ~ uniform(0, 1)"', '"out float32[n]"')


def test_a_sum_in_global_memory_is_kept_in_a_register_and_stored_once(judged) -> None:
    (one,) = judged(source(), RECIPE, "less global traffic")
    text = one.candidate.kernel.source
    assert "float sum = 0.0f;" in text
    assert "sum += a[i * m + k];  // one more" in text
    assert text.count("out[i]") == 1
    assert one.verdict.accepted is True


def test_a_sum_that_goes_on_from_what_was_there_begins_with_it(judged) -> None:
    text = source(first="", step="out[i] = out[i] + a[i * m + k];", direction="inout", start="out")
    (one,) = judged(text, RECIPE)
    assert "float sum = out[i];" in one.candidate.kernel.source


@pytest.mark.parametrize(
    "step",
    [
        "out[k] += a[i * m + k];",
        "out[i] += out[k];",
        "atomicAdd(&out[i], a[k]);",
        "out[i] = a[k];",
        "out[i] += helper(out);",
        "if (a[k] < 0.0f) return; out[i] += a[k];",
    ],
)
def test_an_element_that_changes_or_is_met_otherwise_stays(ask, step: str) -> None:
    assert list(RECIPE.candidates(ask(source(step=step)))) == []
