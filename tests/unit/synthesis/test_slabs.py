"""Rows that read the columns of other rows than their own: a vector per batch, rows of a table by number."""

from __future__ import annotations

from typing import Any

import pytest

from kernelmate.session import Session
from tests.unit.synthesis.judging import judged_right

BATCHED = {"a": "in float32[batch, m, k]", "x": "in float32[batch, k]", "y": "out float32[batch, m]", "batch": "int32", "m": "int32", "k": "int32"}  # fmt: skip
BATCHED_SIZES = "{ batch = 5, m = 7, k = 65 }, { batch = 2, m = 12, k = 36 }, { batch = 1, m = 1, k = 1 }"
BATCHED_BODY = (
    "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= batch * m) return;\n  float s = 0;\n"
    "  for (int i = 0; i < k; ++i) s += a[(size_t)r * k + i] * x[r / m * k + i];\n  y[r] = s;"
)
TABLE = {"ids": "in int32[rows] ~ integers(0, 11)", "table": "in float32[11, cols]", "x": "in float32[rows, cols]", "y": "out float32[rows, cols]", "rows": "int32", "cols": "int32"}  # fmt: skip
TABLE_BODY = (
    "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= rows) return;\n"
    "  const float* t = table + ids[r] * cols;\n  float s = 0, v = 0;\n"
    "  for (int c = 0; c < cols; ++c) s += t[c] + x[r * cols + c];\n  s /= cols;\n"
    "  for (int c = 0; c < cols; ++c) v += (t[c] + x[r * cols + c] - s) * (t[c] + x[r * cols + c] - s);\n"
    "  for (int c = 0; c < cols; ++c) y[r * cols + c] = (t[c] + x[r * cols + c] - s) / sqrtf(v / cols + 1e-3f);"
)


@pytest.mark.parametrize("reference", ["np.einsum('bmk,bk->bm', a, x)", "(a @ x[..., None])[..., 0]"])
def test_batched_products_with_vectors_are_right(reference: str, make: Any, session: Session) -> None:
    kernel, _ = make(BATCHED, reference, body=BATCHED_BODY, grid="cdiv(batch * m, block)", sizes=BATCHED_SIZES)
    assert all(author.startswith("synthesis:rows-") for author in judged_right(session, kernel))


def test_rows_by_number_are_normalised_with_others(make: Any, session: Session) -> None:
    reference = (
        "def reference(ids, table, x):\n    h = table[ids] + x\n    d = h - h.mean(axis=1, keepdims=True)\n"
        "    return d / np.sqrt((d * d).mean(axis=1, keepdims=True) + 1e-3)"
    )
    kernel, _ = make(TABLE, reference, body=TABLE_BODY, grid="cdiv(rows, block)")
    assert all(author.startswith("synthesis:rows-") for author in judged_right(session, kernel))
