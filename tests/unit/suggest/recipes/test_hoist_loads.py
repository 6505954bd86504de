from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.hoist_loads import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ rows = 5, cols = 70 }}, {{ rows = 1, cols = 1 }}]
// grid = "rows"
// block = 32
// reference = "table[ids.astype(np.int64)]"
// [args]
// ids = "in int32[rows] ~ integers(0, rows)"
// table = "in float32[rows, cols]"
// out = "out float32[rows, cols]"
// cols = "int32"
// ///
__global__ void gather(const int* ids, const float* table, float* out, int cols) {{
  for (int c = threadIdx.x; c < cols; c += blockDim.x) {{
    {body}
  }}
}}
"""
BODY = "out[blockIdx.x * cols + c] = table[ids[blockIdx.x] * cols + c];"


def test_a_load_that_stays_the_same_moves_before_the_loop(judged) -> None:
    (one,) = judged(SOURCE.format(body=BODY), RECIPE)
    text = one.candidate.kernel.source
    assert text.index("const int ids_once = ids[blockIdx.x];") < text.index("for (")
    assert "table[ids_once * cols + c]" in text
    assert "ids[blockIdx.x]" in one.candidate.why


@pytest.mark.parametrize(
    "body",
    [
        "out[c] = table[ids[c]];",
        "if (c < 3) out[c] = table[ids[blockIdx.x]];",
        "float sum = ids[blockIdx.x] + table[c];",
        "out[c] = c > 0 && table[0] > 1.0f ? 1.0f : 0.0f;",
        "out[c] = unknown(c) + table[0];",
    ],
)
def test_loads_that_move_or_are_conditional_or_need_no_help_stay(ask, body: str) -> None:
    assert list(RECIPE.candidates(ask(SOURCE.format(body=body)))) == []


def test_an_array_that_the_kernel_writes_is_read_again(ask) -> None:
    source = SOURCE.format(body="out[c] = out[0] + table[c];").replace("const int* ids", "int* ids")
    assert list(RECIPE.candidates(ask(source))) == []
