"""Sums over rows in CSR written from references: right by the judge for empty and long rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.errors import ReferenceFailed
from kernelmate.session import Session
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.synthesis.graph import Graph, Node, evaluate
from kernelmate.synthesis.trace import trace
from tests.unit.synthesis.judging import assert_judged_right

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
    "a loop over a row's elements": (
        "def reference(p, k, v, x, rows):\n    y = np.zeros(rows)\n    for r in range(rows):\n        total = 0.0\n        for i in range(p[r], p[r + 1]):\n            total += v[i] * x[k[i]]\n        y[r] = total\n    return y",
        f"{SUM}  y[r] = s;",
    ),
    "a loop that adds to the result": (
        "def reference(p, k, v, x):\n    y = np.zeros(len(p) - 1)\n    for r in range(len(p) - 1):\n        for i in range(int(p[r]), int(p[r + 1])):\n            y[r] += v[i] * x[k[i]]\n    return y",
        f"{SUM}  y[r] = s;",
    ),
    "the largest of each row": (
        "def reference(p, v, rows):\n    y = np.zeros(rows)\n    for r in range(rows):\n        y[r] = np.max(v[p[r] : p[r + 1]], initial=0)\n    return y",
        "  for (int i = p[r]; i < p[r + 1]; ++i) s = fmaxf(s, v[i]);\n  y[r] = s;",
    ),
    "the smallest of each row in a loop": (
        "def reference(p, v, rows):\n    y = np.zeros(rows)\n    for r in range(rows):\n        least = np.inf\n        for i in range(p[r], p[r + 1]):\n            least = min(least, v[i])\n        y[r] = least\n    return y",
        "  s = INFINITY;\n  for (int i = p[r]; i < p[r + 1]; ++i) s = fminf(s, v[i]);\n  y[r] = s;",
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


@pytest.mark.exhaustive(share=0.25)
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


DENSE = {"p": "in int32[rows + 1]", "k": "in int32[nnz]", "v": "in float32[nnz]", "b": "in float32[cols, d]", "y": "out float32[rows, d]", "rows": "int32", "d": "int32"}  # fmt: skip
DENSE_SIZES = "{ rows = 61, cols = 37, nnz = 509, d = 12 }, { rows = 30, cols = 5, nnz = 20, d = 7 }, { rows = 3, cols = 11, nnz = 107, d = 33 }, { rows = 1, cols = 1, nnz = 1, d = 1 }"
DENSE_MAKE = MAKE.replace("cols, nnz, seed", "cols, nnz, d, seed").replace('"x": rng.standard_normal(cols,', '"b": rng.standard_normal((cols, d),')  # fmt: skip
PRODUCT = "  for (int i = p[r]; i < p[r + 1]; ++i) s += v[i] * b[(size_t)k[i] * d + c];\n  y[(size_t)r * d + c] = s;"

WIDE = {
    "added at": (f"def reference(p, k, v, b, rows, d):\n{ROWS_OF}    y = np.zeros((rows, d))\n    np.add.at(y, of, v[:, None] * b[k])\n    return y", PRODUCT),
    "a loop over rows with a product": ("def reference(p, k, v, b, rows, d):\n    y = np.zeros((rows, d))\n    for r in range(rows):\n        lo, hi = p[r], p[r + 1]\n        y[r] = v[lo:hi] @ b[k[lo:hi]]\n    return y", PRODUCT),
    "a loop over rows with a sum": ("def reference(p, k, v, b, rows, d):\n    y = np.empty((rows, d))\n    for r in range(rows):\n        y[r] = (v[p[r] : p[r + 1], None] * b[k[p[r] : p[r + 1]]]).sum(axis=0)\n    return y", PRODUCT),
    "a loop over a row's elements": ("def reference(p, k, v, b, rows, d):\n    y = np.zeros((rows, d))\n    for r in range(rows):\n        for i in range(p[r], p[r + 1]):\n            y[r] += v[i] * b[k[i]]\n    return y", PRODUCT),
    "three loops": ("def reference(p, k, v, b, rows, d):\n    y = np.zeros((rows, d))\n    for r in range(rows):\n        for c in range(d):\n            s = 0.0\n            for i in range(p[r], p[r + 1]):\n                s += v[i] * b[k[i], c]\n            y[r, c] = s\n    return y", PRODUCT),
    "means": (
        f"def reference(p, k, b, rows, d):\n{ROWS_OF}    y = np.zeros((rows, d))\n    np.add.at(y, of, b[k])\n    return y / np.maximum(np.diff(p), 1)[:, None]",
        "  for (int i = p[r]; i < p[r + 1]; ++i) s += b[(size_t)k[i] * d + c];\n  y[(size_t)r * d + c] = s / max(p[r + 1] - p[r], 1);",
    ),
    "the largest": (
        "def reference(p, k, b, rows):\n    return np.stack([np.max(b[k[p[r] : p[r + 1]]], axis=0, initial=0) for r in range(rows)])",
        "  for (int i = p[r]; i < p[r + 1]; ++i) s = fmaxf(s, b[(size_t)k[i] * d + c]);\n  y[(size_t)r * d + c] = s;",
    ),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", WIDE)
def test_reduced_rows_of_matrices_are_right_for_empty_and_long_rows(name: str, make: Any, session: Session) -> None:
    reference, body = WIDE[name]
    head = "  int r = blockIdx.x;\n  int c = blockIdx.y * blockDim.x + threadIdx.x;\n  if (c >= d) return;\n  float s = 0;\n"
    more = 'inputs = "reference.py:make"\n// require = ["rows > 0", "cols > 0"]'
    kernel, _ = make(DENSE, reference + DENSE_MAKE, body=head + body, grid='rows", "cdiv(d, block)', sizes=DENSE_SIZES, more=more)  # fmt: skip
    authors = assert_judged_right(session, kernel)
    assert {"synthesis:bags", "synthesis:bags-rows"} <= {*authors}


STARTS = """

def make(rows, cols, nnz, seed):
    rng = np.random.default_rng(seed)
    p = np.sort(rng.choice(nnz, rows, replace=False))
    p[0] = 0
    return {"p": np.append(p, nnz).astype(np.int32)[: rows + EXTRA], "v": rng.standard_normal(nnz, dtype=np.float32)}
"""


@pytest.mark.parametrize("kind", ["add", "maximum", "minimum"])
@pytest.mark.parametrize("every", [True, False])
def test_reduceat_is_right_with_and_without_the_last_offset(
    kind: str, every: bool, make: Any, session: Session
) -> None:
    args = {"p": f"in int32[rows{' + 1' * every}]", "v": "in float32[nnz]", "y": "out float32[rows]", "rows": "int32", "nnz": "int32"}  # fmt: skip
    reference = f"def reference(p, v):\n    return np.{kind}.reduceat(v, p{'[:-1]' * every})"
    step = {"add": "s + v[i]", "maximum": "fmaxf(s, v[i])", "minimum": "fminf(s, v[i])"}[kind]
    end = "p[r + 1]" if every else "r + 1 < rows ? p[r + 1] : nnz"
    body = f"  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= rows) return;\n  float s = v[p[r]];\n  int end = {end};\n  for (int i = p[r] + 1; i < end; ++i) s = {step};\n  y[r] = s;"
    sizes = "{ rows = 61, cols = 1, nnz = 1009 }, { rows = 30, cols = 1, nnz = 30 }, { rows = 1, cols = 1, nnz = 1 }"
    more = 'inputs = "reference.py:make"\n// require = ["rows > 0", "rows <= nnz"]'
    kernel, _ = make(args, reference + STARTS.replace("EXTRA", str(int(every))), body=body, grid="cdiv(rows, block)", sizes=sizes, more=more)  # fmt: skip
    assert assert_judged_right(session, kernel)[0].startswith("synthesis:segments-")


def test_reduceat_takes_one_element_where_the_next_offset_is_not_behind() -> None:
    node = Node("segment", (0, 1), ("4",), "float64", ("sum", 1))
    leaves = Node("input", (), ("4",), "int64", ("p",)), Node("input", (), ("6",), "float64", ("v",))
    graph = Graph((*leaves, node), (2,))
    offsets, values = np.array([0, 3, 1, 4]), np.arange(6.0)
    (found,) = evaluate(graph, {"p": offsets, "v": values}, {})
    np.testing.assert_array_equal(found, np.add.reduceat(values, offsets))


REFUSED_ROWS = {
    "what some elements add up to": "            y[r] += v[i]\n            z[i] = y[r]",
    "a sum before its end": "            z[i] = v[i] - y[r]\n            y[r] += v[i]",
    "a running sum": "            z[r] += v[i]\n            y[r] += z[r] * v[i]",
    "a running maximum": "            q = np.maximum(q, v[i])\n            y[r] += np.exp(v[i] - q[r])",
    "a product": "            y[r] *= v[i]",
}


@pytest.mark.parametrize("name", REFUSED_ROWS)
def test_other_loops_over_a_rows_elements_are_not_traced(name: str, make: Any, tmp_path: Path) -> None:
    loops = f"    for r in range(rows):\n        for i in range(p[r], p[r + 1]):\n{REFUSED_ROWS[name]}"
    reference = f"def reference(p, v, rows):\n    y, z, q = np.zeros(rows), np.zeros_like(v), v[:rows]\n{loops}\n    return y + z.sum()"
    _, contract = make(ARGS, reference, sizes=SIZES)
    with pytest.raises(ReferenceFailed, match="cannot be traced"):
        trace(contract, tmp_path)


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
