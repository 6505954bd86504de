"""Recipes that move work out of loops: row pointers and loads."""

from __future__ import annotations

import pytest

from kernelmate.source import find_kernels, text_unit
from kernelmate.suggest.recipes.hoist_loads import RECIPE as HOIST_LOADS
from kernelmate.suggest.recipes.row_pointers import with_row_pointers

KERNEL = """__global__ void shift(const float* a, float* b, const int* rows, int* moved, int n) {
  const int line = blockIdx.x;
  LOOP
}
"""


def changed(loop: str) -> str | None:
    """The kernel's text with row pointers; None where it has none."""
    kernel = find_kernels(text_unit(KERNEL.replace("LOOP", loop), "k.cu"))[0]
    new = with_row_pointers(kernel)
    return None if new is kernel else new.unit.text


def test_accesses_at_an_offset_that_stays_get_a_pointer_before_the_loops() -> None:
    text = changed("for (int i = threadIdx.x; i < n; i += blockDim.x) b[line * n + i] = 2 * a[rows[line] * n + i];")
    assert text is not None
    assert (
        "  const int line = blockIdx.x;\n  float* b_row = b + line * n;\n  const float* a_row = a + rows[line] * n;\n"
        in text
    )
    assert "b_row[i] = 2 * a_row[i];" in text


@pytest.mark.parametrize(
    "body",
    [
        "b[i * n + i] = 1.0f;",
        "b[line * n + 2 * i] = 1.0f;",
        "b[blockIdx.x - 1 + i] = 1.0f;",
        "b[moved[line] + i] = 1.0f;",
        "{ int k = line; b[k + i] = 1.0f; }",
        "{ n += 1; b[n + i] = 1.0f; }",
        "{ b[line * n + i] = 1.0f; b[line + i] = 2.0f; }",
    ],
)
def test_other_offsets_keep_their_index(body: str) -> None:
    assert changed(f"for (int i = threadIdx.x; i < n; i += blockDim.x) {body}") is None


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
    (one,) = judged(SOURCE.format(body=BODY), HOIST_LOADS)
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
    assert list(HOIST_LOADS.candidates(ask(SOURCE.format(body=body)))) == []


def test_an_array_that_the_kernel_writes_is_read_again(ask) -> None:
    source = SOURCE.format(body="out[c] = out[0] + table[c];").replace("const int* ids", "int* ids")
    assert list(HOIST_LOADS.candidates(ask(source))) == []
