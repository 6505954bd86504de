"""Pointers to rows: which accesses get one, and which keep their index."""

from __future__ import annotations

import pytest

from kernelmate.source import find_kernels, text_unit
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
