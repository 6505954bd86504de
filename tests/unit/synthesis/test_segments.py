"""Sums over rows in CSR written from references: right by the judge for empty and long rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.errors import ReferenceFailed
from kernelmate.session import Session
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.synthesis.trace import trace

SIZES = "{ rows = 61, cols = 37, nnz = 1009 }, { rows = 300, cols = 5, nnz = 200 }, { rows = 3, cols = 11, nnz = 307 }, { rows = 1, cols = 1, nnz = 1 }"
MAKE = """

def make(rows, cols, nnz, seed):
    rng = np.random.default_rng(seed)
    of = np.sort((rows * rng.random(nnz) ** 2).astype(np.int64))
    return {
        "p": np.searchsorted(of, np.arange(rows + 1)).astype(np.int32),
        "k": rng.integers(0, cols, nnz, dtype=np.int32),
        "v": rng.standard_normal(nnz, dtype=np.float32),
        "x": rng.standard_normal(cols, dtype=np.float32),
    }
"""
ARGS = {"p": "in int32[rows + 1]", "k": "in int32[nnz]", "v": "in float32[nnz]", "x": "in float32[cols]", "y": "out float32[rows]", "rows": "int32"}  # fmt: skip
ROWS_OF = "    of = np.repeat(np.arange(len(p) - 1), np.diff(p))\n"
SUM = "  for (int i = p[r]; i < p[r + 1]; ++i) s += v[i] * x[k[i]];\n"

CASES = {
    "product with a vector": (f"def reference(p, k, v, x, rows):\n{ROWS_OF}    return np.bincount(of, weights=v * x[k], minlength=rows)", f"{SUM}  y[r] = s;"),
    "added at": (
        f"def reference(p, k, v, x, rows):\n{ROWS_OF}    y = np.zeros(rows)\n    np.add.at(y, of, v * x[k.astype(np.int64)])\n    return y * 2",
        f"{SUM}  y[r] = 2 * s;",
    ),
    "means": (
        "def reference(p, v):\n    n = np.diff(p.astype(np.int64))\n    of = np.repeat(np.arange(p.size - 1), n)\n"
        "    return np.bincount(of, weights=v, minlength=p.size - 1) / np.maximum(n, 1)",
        "  for (int i = p[r]; i < p[r + 1]; ++i) s += v[i];\n  y[r] = s / max(p[r + 1] - p[r], 1);",
    ),
    "lengths": (f"def reference(p, rows):\n{ROWS_OF}    return np.bincount(of, minlength=rows) * 0.5", "  y[r] = 0.5f * (p[r + 1] - p[r]);"),
    "sums of squares": (
        f"def reference(p, v, rows):\n{ROWS_OF}    return np.sqrt(np.bincount(of, v * v, rows))",
        "  for (int i = p[r]; i < p[r + 1]; ++i) s += v[i] * v[i];\n  y[r] = sqrtf(s);",
    ),
    "a loop over rows": (
        "def reference(p, k, v, x, rows):\n    y = np.zeros(rows)\n    for r in range(rows):\n        y[r] = (v[p[r] : p[r + 1]] * x[k[p[r] : p[r + 1]]]).sum()\n    return y",
        f"{SUM}  y[r] = s;",
    ),
    "a loop over rows with a product": (
        "def reference(p, k, v, x, rows):\n    y = np.zeros(rows)\n    for r in range(len(p) - 1):\n        lo, hi = p[r], p[r + 1]\n        y[r] = 2 * (v[lo:hi].astype(np.float64) @ x[k[lo:hi]]) + 1\n    return y",
        f"{SUM}  y[r] = 2 * s + 1;",
    ),
    "means of rows in a loop": (
        "def reference(p, v, rows):\n    y = np.zeros(rows)\n    for r in range(rows):\n        y[r] = v[p[r] : p[r + 1]].sum() / np.maximum(p[r + 1] - p[r], 1)\n    return y",
        "  for (int i = p[r]; i < p[r + 1]; ++i) s += v[i];\n  y[r] = s / max(p[r + 1] - p[r], 1);",
    ),
    "plain means of rows in a loop": (
        "def reference(p, v, rows):\n    y = np.zeros(rows)\n    for r in range(rows):\n        y[r] = v[p[r] : p[r + 1]].mean()\n    return y",
        "  for (int i = p[r]; i < p[r + 1]; ++i) s += v[i];\n  y[r] = s / (p[r + 1] - p[r]);",
    ),
    "a list of sums of rows": (
        "def reference(p, v, rows):\n    return np.array([np.sum(v[p[r] : p[r + 1]] ** 2) for r in range(rows)])",
        "  for (int i = p[r]; i < p[r + 1]; ++i) s += v[i] * v[i];\n  y[r] = s;",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_sums_over_rows_are_right_for_empty_and_long_rows(name: str, make: Any, session: Session) -> None:
    reference, body = CASES[name]
    head = "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= rows) return;\n  float s = 0;\n"
    more = 'inputs = "reference.py:make"\n// require = ["rows > 0", "cols > 0"]'
    kernel, _ = make(ARGS, reference + MAKE, body=head + body, grid="cdiv(rows, block)", sizes=SIZES, more=more)
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert found.candidates, found.notes
    for judged in found.candidates:
        verdict = judged.verdict
        assert verdict.correct, (judged.candidate.author, verdict.findings, judged.candidate.kernel.source)
        assert not [one for one in verdict.diagnostics if "never referenced" not in one.message]


def test_the_row_of_each_element_for_anything_else_is_not_traced(make: Any, tmp_path: Path) -> None:
    reference = f"def reference(p, v, rows):\n{ROWS_OF}    return np.sqrt(of)"
    _, contract = make(ARGS, reference, sizes=SIZES)
    with pytest.raises(ReferenceFailed, match="the row of each element"):
        trace(contract, tmp_path)


def test_rows_between_other_values_than_neighbouring_offsets_are_not_traced(make: Any, tmp_path: Path) -> None:
    reference = "def reference(p, v, rows):\n    y = np.zeros(rows)\n    for r in range(rows):\n        y[r] = v[p[r] : p[r] + 3].sum()\n    return y"
    _, contract = make(ARGS, reference, sizes=SIZES)
    with pytest.raises(ReferenceFailed, match="two neighbouring offsets") as refused:
        trace(contract, tmp_path)
    assert refused.value.line == 7
