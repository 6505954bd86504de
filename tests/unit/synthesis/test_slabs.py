"""Rows that read the columns of other rows than their own: a vector per batch, rows of a table by number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.session import Session
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right

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
    assert all(author.startswith("synthesis:rows-") for author in assert_judged_right(session, kernel))


def test_rows_by_number_are_normalised_with_others(make: Any, session: Session) -> None:
    reference = (
        "def reference(ids, table, x):\n    h = table[ids] + x\n    d = h - h.mean(axis=1, keepdims=True)\n"
        "    return d / np.sqrt((d * d).mean(axis=1, keepdims=True) + 1e-3)"
    )
    kernel, _ = make(TABLE, reference, body=TABLE_BODY, grid="cdiv(rows, block)")
    assert all(author.startswith("synthesis:rows-") for author in assert_judged_right(session, kernel))


POOLED = {"h": "in float32[b, t, d]", "mask": "in int32[b, t] ~ integers(0, 2)", "y": "out float32[b, d]", "b": "int32", "t": "int32", "d": "int32"}  # fmt: skip
POOLED_BODY = (
    "  int c = threadIdx.x + blockIdx.x * blockDim.x, r = c / d;\n  if (c >= b * d) return;\n  float s = 0, n = 0;\n"
    "  for (int i = 0; i < t; ++i) {\n    s += h[(r * t + i) * d + c % d] * mask[r * t + i];\n    n += mask[r * t + i];\n  }\n"
    "  y[c] = s / fmaxf(n, 0.5f);"
)


def test_masked_means_sum_the_mask_beside_the_elements(make: Any, session: Session) -> None:
    reference = "def reference(h, mask):\n    m = mask[..., None]\n    return (h * m).sum(axis=1) / np.maximum(m.sum(axis=1), 0.5)"
    sizes = "{ b = 3, t = 37, d = 13 }, { b = 1, t = 1, d = 1 }"
    kernel, _ = make(POOLED, reference, body=POOLED_BODY, grid="cdiv(b * d, block)", sizes=sizes)
    assert all(author.startswith("synthesis:columns-") for author in assert_judged_right(session, kernel))


@pytest.mark.parametrize("reference", ["a @ b.T", "a @ b.T - a.sum(axis=1)[:, None]"])
def test_products_of_matrices_are_not_computed_row_by_row(reference: str, make: Any, tmp_path: Path) -> None:
    args = {"a": "in float32[m, k]", "b": "in float32[n, k]", "y": "out float32[m, n]", "m": "int32", "n": "int32", "k": "int32"}  # fmt: skip
    kernel, contract = make(args, reference, grid="cdiv(m * n, block)", sizes="{ m = 37, n = 12, k = 65 }")
    written = list(kernels_for(trace(contract, tmp_path), kernel, contract))
    assert written
    assert all(one.schedule.startswith("contraction-") for one in written)
