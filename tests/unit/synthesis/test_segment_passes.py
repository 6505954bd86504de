"""Results for each element of rows in CSR, from reductions of the rows: softmax and normalisation, right for empty and long rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.errors import ReferenceFailed
from kernelmate.session import Session
from kernelmate.synthesis.graph import evaluate
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right
from tests.unit.synthesis.test_segments import ARGS, MAKE

SIZES = "{ rows = 61, cols = 37, nnz = 509 }, { rows = 30, cols = 5, nnz = 20 }, { rows = 1, cols = 1, nnz = 1 }"
ROWS_OF = "    of = np.repeat(np.arange(rows), np.diff(p))\n"
SOFTMAX = (
    "  float m = -INFINITY, s = 0;\n  for (int i = p[r]; i < p[r + 1]; ++i) m = fmaxf(m, v[i]);\n"
    "  for (int i = p[r]; i < p[r + 1]; ++i) s += expf(v[i] - m);\n  for (int i = p[r]; i < p[r + 1]; ++i) y[i] = expf(v[i] - m) / s;"
)
NORM = "  float s = 0;\n  for (int i = p[r]; i < p[r + 1]; ++i) s += {};\n  for (int i = p[r]; i < p[r + 1]; ++i) y[i] = {};"

CASES = {
    "softmax by number": (
        f"def reference(p, v, rows):\n{ROWS_OF}    m = np.full(rows, -np.inf)\n    np.maximum.at(m, of, v)\n    e = np.exp(v - m[of])\n"
        "    return e / np.bincount(of, weights=e, minlength=rows)[of]",
        SOFTMAX,
    ),
    "softmax of slices": (
        "def reference(p, v, rows):\n    y = np.empty_like(v)\n    for r in range(rows):\n        row = v[p[r] : p[r + 1]]\n"
        "        e = np.exp(row - np.max(row, initial=-np.inf))\n        y[p[r] : p[r + 1]] = e / e.sum()\n    return y",
        SOFTMAX,
    ),
    "scaled by a root": (
        "def reference(p, v, rows):\n    n = np.diff(p)\n    s = np.bincount(np.repeat(np.arange(rows), n), v * v, rows)\n    return v / np.repeat(np.sqrt(s + 1), n)",
        NORM.format("v[i] * v[i]", "v[i] / sqrtf(s + 1)"),
    ),
    "elements by number": (
        f"def reference(p, k, v, x, rows):\n{ROWS_OF}    w = v * x[k]\n    s = np.bincount(of, np.abs(w), rows)\n    return np.where(s[of] > 1, w / s[of], w)",
        NORM.format("fabsf(v[i] * x[k[i]])", "s > 1 ? v[i] * x[k[i]] / s : v[i] * x[k[i]]"),
    ),
    "softmax in loops": (
        "def reference(p, v, rows):\n    y = np.zeros(len(v))\n    for r in range(rows):\n        m, s = -np.inf, 0.0\n"
        "        for i in range(p[r], p[r + 1]):\n            m = max(m, v[i])\n        for i in range(p[r], p[r + 1]):\n            s += np.exp(v[i] - m)\n"
        "        for i in range(p[r], p[r + 1]):\n            y[i] = np.exp(v[i] - m) / s\n    return y",
        SOFTMAX,
    ),
    "a value of the row that is changed after it was taken": (
        f"def reference(p, v, rows):\n{ROWS_OF}    s = np.bincount(of, v * v, rows)\n    w = s[of]\n    s += 1\n    return v / (w + 2)",
        NORM.format("v[i] * v[i]", "v[i] / (s + 2)"),
    ),
    "without a reduction": (
        "def reference(p, v, rows):\n    n = np.diff(p)\n    return v / np.repeat(np.maximum(n, 1), n)",
        "  for (int i = p[r]; i < p[r + 1]; ++i) y[i] = v[i] / max(p[r + 1] - p[r], 1);",
    ),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_elements_get_what_their_row_was_reduced_to(name: str, make: Any, session: Session) -> None:
    reference, body = CASES[name]
    head = "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= rows) return;\n"
    more = 'inputs = "reference.py:make"\n// require = ["rows > 0", "cols > 0"]'
    args = ARGS | {"y": "out float32[nnz]"}
    kernel, _ = make(args, reference + MAKE, body=head + body, grid="cdiv(rows, block)", sizes=SIZES, more=more)
    assert all(author.startswith("synthesis:segment-passes-") for author in assert_judged_right(session, kernel))


def test_terms_of_a_sum_in_loops_may_have_a_factor_of_the_row(make: Any, tmp_path: Path) -> None:
    reference = (
        "def reference(p, v, x, rows):\n    y = np.zeros(rows)\n    for r in range(rows):\n"
        "        for i in range(p[r], p[r + 1]):\n            y[r] += x[r] * v[i]\n    return y"
    )
    args = ARGS | {"x": "in float32[rows]"}
    kernel, contract = make(args, reference, grid="cdiv(rows, block)", sizes=SIZES)
    text = next(kernels_for(trace(contract, tmp_path), kernel, contract)).definition
    assert "const float x_i = x[row];" in text
    assert "y[row] = sum;" in text


def test_rows_are_normalised_in_place(make: Any, session: Session) -> None:
    reference = "def reference(p, v, rows):\n    for r in range(rows):\n        v[p[r] : p[r + 1]] /= 1 + np.abs(v[p[r] : p[r + 1]]).sum()\n    return v"
    body = (
        "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= rows) return;\n  float s = 1;\n"
        "  for (int i = p[r]; i < p[r + 1]; ++i) s += fabsf(v[i]);\n  for (int i = p[r]; i < p[r + 1]; ++i) v[i] /= s;"
    )
    args = {"p": ARGS["p"], "v": "inout float32[nnz]", "rows": "int32"}
    more = 'inputs = "reference.py:make"\n// require = ["rows > 0", "cols > 0"]'
    made = MAKE.replace('        "k": rng.integers(0, cols, nnz, dtype=np.int32),\n', "").replace(
        '        "x": rng.standard_normal(cols, dtype=np.float32),\n', ""
    )
    kernel, _ = make(args, reference + made, body=body, grid="cdiv(rows, block)", sizes=SIZES, more=more)
    assert assert_judged_right(session, kernel)


def test_the_graph_repeats_values_of_rows(make: Any, tmp_path: Path) -> None:
    _, contract = make(
        ARGS | {"y": "out float32[nnz]"},
        "def reference(p, v, rows):\n    y = np.zeros(len(v))\n    for r in range(rows):\n        y[p[r] : p[r + 1]] = v[p[r] : p[r + 1]] * v[p[r] : p[r + 1]].sum()\n    return y",
        sizes=SIZES,
    )
    graph = trace(contract, tmp_path)
    p, v = np.array([0, 2, 2, 5]), np.arange(1.0, 6.0)
    (y,) = evaluate(graph, {"p": p, "v": v, "rows": 3}, {"rows": 3, "cols": 1, "nnz": 5})
    assert y.tolist() == [3, 6, 36, 48, 60]


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("row = v[p[r] : p[r + 1]]\n        v[p[r] : p[r + 1]] = 2 * row\n        y[r] = row.sum()", "changed after they were taken"),
        ("v[r] = 0\n        y[r] = v[p[r] : p[r + 1]].sum()", "needs a value of another one"),
        ("y[r] = v[p[r] : p[r + 1]].sum()\n        v[r] = 0", "needs a value of another one"),
        ("for i in range(p[r], p[r + 1]):\n            v[i] = v[i] + v[i - 1]\n        y[r] = 0", "assigns to the same elements|a value of another one"),
    ],
)  # fmt: skip
def test_rows_that_turns_change_otherwise_are_refused(lines: str, said: str, make: Any, tmp_path: Path) -> None:
    reference = f"def reference(p, v, rows):\n    y = np.zeros(rows)\n    v = v.copy()\n    for r in range(rows):\n        {lines}\n    return y"
    _, contract = make(ARGS, reference, sizes=SIZES)
    with pytest.raises(ReferenceFailed, match=said):
        trace(contract, tmp_path)
