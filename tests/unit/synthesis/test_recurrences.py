"""Recurrences written from references with loops: right by the judge along each axis, in both directions, at odd sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.checks.reference import python_reference
from kernelmate.errors import ReferenceFailed
from kernelmate.session import Session
from kernelmate.synthesis.graph import evaluate
from kernelmate.synthesis.trace import trace
from tests.unit.synthesis.judging import assert_judged_right

SIZES = "{ rows = 37, cols = 131 }, { rows = 9, cols = 264 }, { rows = 5, cols = 7 }, { rows = 1, cols = 1 }"
INTS = {"rows": "int32", "cols": "int32"}
MATRIX = {"x": "in float32[rows, cols] ~ normal", "y": "out float32[rows, cols]", **INTS}
SCALED = {**MATRIX, "k": "float32 = 0.875"}
STEPS = {"a": "in float32[rows, cols] ~ uniform(0.2, 0.9)", **MATRIX}
STARTED = {**MATRIX, "s": "in float32[cols] ~ normal"}
LAST = {"x": "in float32[rows, cols] ~ normal", "y": "out float32[cols]", **INTS}
VECTOR = {"x": "in float32[cols] ~ normal", "y": "out float32[cols]", "cols": "int32", "k": "float32 = 0.875"}

DOWN = "  int c = blockIdx.x * blockDim.x + threadIdx.x;\n  if (c >= cols) return;\n  float h = {start};\n"
UP = "for (int t = rows - 1; t >= 0; --t)"
ROW = "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= rows) return;\n  float h = {start};\n"


def down(turn: str, start: str = "0", loop: str = "for (int t = 0; t < rows; ++t)", after: str = "") -> tuple[str, str]:
    body = DOWN.replace("{start}", start)
    return f"{body}  {loop} {{ int i = t * cols + c; {turn} }}\n  {after}", "cdiv(cols, block)"


def along(turn: str, start: str = "0", loop: str = "for (int t = 0; t < cols; ++t)") -> tuple[str, str]:
    body = ROW.replace("{start}", start)
    return f"{body}  {loop} {{ int i = r * cols + t; {turn} }}", "cdiv(rows, block)"


HEAD = "def reference(x, k):\n    y = np.empty_like(x)\n"
AVERAGE = "h = k * h + (1 - k) * x[i]; y[i] = h;"
FROM_FIRST = "h = t ? k * h + (1 - k) * x[i] : x[i]; y[i] = h;"

COLUMNS: dict[str, tuple[dict[str, str], str, tuple[str, str]]] = {
    "a moving average": (SCALED, f"{HEAD}    h = np.zeros(x.shape[1])\n    for t in range(len(x)):\n        h = k * h + (1 - k) * x[t]\n        y[t] = h\n    return y", down(AVERAGE)),
    "from a number": (SCALED, f"{HEAD}    h = 0.0\n    for t in range(len(x)):\n        h = k * h + (1 - k) * x[t]\n        y[t] = h\n    return y", down(AVERAGE)),
    "in place": (STARTED, "def reference(x, s):\n    y = np.empty_like(x)\n    h = s.copy()\n    for t in range(len(x)):\n        h *= 0.875\n        h += x[t]\n        y[t] = h\n    return y", down("h = 0.875f * h + x[i]; y[i] = h;", "s[c]")),
    "from a starting state": (STARTED, "def reference(x, s):\n    y = np.empty_like(x)\n    h = s\n    for t in range(len(x)):\n        h = 0.875 * h + x[t]\n        y[t] = h\n    return y", down("h = 0.875f * h + x[i]; y[i] = h;", "s[c]")),
    "from the first row": (SCALED, f"{HEAD}    h = x[0]\n    for row in range(len(x)):\n        h = k * h + (1 - k) * x[row]\n        y[row] = h\n    return y", down(AVERAGE, "x[c]")),
    "the element before": (SCALED, f"{HEAD}    y[0] = x[0]\n    for t in range(1, len(x)):\n        y[t] = k * y[t - 1] + (1 - k) * x[t]\n    return y", down(FROM_FIRST)),
    "the element behind": (SCALED, f"{HEAD}    y[0] = x[0]\n    for t in range(len(x) - 1):\n        y[t + 1] = k * y[t] + (1 - k) * x[t + 1]\n    return y", down(FROM_FIRST)),
    "added to the element before": (SCALED, "def reference(x, k):\n    y = x.copy()\n    for t in range(1, len(x)):\n        y[t] += k * y[t - 1]\n    return y", down("h = k * h + x[i]; y[i] = h;")),
    "coefficients of each step": (STEPS, "def reference(a, x):\n    y = np.empty_like(x)\n    h = np.zeros(x.shape[1])\n    for t in range(len(x)):\n        h = a[t] * h + x[t]\n        y[t] = h\n    return y", down("h = a[i] * h + x[i]; y[i] = h;")),
    "a list of rows": (SCALED, "def reference(x, k):\n    h = np.zeros(x.shape[1])\n    out = []\n    for row in x:\n        h = k * h + row\n        out.append(h)\n    return np.stack(out)", down("h = k * h + x[i]; y[i] = h;")),
    "before each turn": (SCALED, f"{HEAD}    h = np.zeros(x.shape[1])\n    for t in range(len(x)):\n        y[t] = h\n        h = k * h + x[t]\n    return y", down("y[i] = h; h = k * h + x[i];")),
    "from the end": (SCALED, f"{HEAD}    h = 0.0\n    for t in reversed(range(len(x))):\n        h = x[t] + k * h\n        y[t] = h\n    return y", down("h = x[i] + k * h; y[i] = h;", loop=UP)),
    "returns from the end": (SCALED, "def reference(x, k):\n    y = x.copy()\n    for t in range(len(x) - 2, -1, -1):\n        y[t] += k * y[t + 1]\n    return y", down("h = x[i] + k * h; y[i] = h;", loop=UP)),
    "the last state": ({**LAST, "k": "float32 = 0.875"}, "def reference(x, k):\n    h = np.zeros(x.shape[1])\n    for row in x:\n        h = k * h + row\n    return h", down("h = k * h + x[i];", after="y[c] = h;")),
    "a polynomial": ({"x": "in float32[cols] ~ uniform(-0.9, 0.9)", "w": "in float32[rows] ~ normal", "y": "out float32[cols]", **INTS}, "def reference(x, w):\n    p = np.zeros_like(x)\n    for k in range(len(w)):\n        p = p * x + w[k]\n    return p", down("h = h * x[c] + w[t]; (void)i;", after="y[c] = h;")),
    "a filter of second order": (MATRIX, "def reference(x):\n    y = np.empty_like(x)\n    y1 = y2 = x1 = x2 = np.zeros(x.shape[1])\n    for t in range(len(x)):\n        v = 0.2 * x[t] + 0.3 * x1 + 0.2 * x2 + 0.5 * y1 - 0.2 * y2\n        x2, x1 = x1, x[t]\n        y2, y1 = y1, v\n        y[t] = v\n    return y", down("float v = 0.2f * x[i] + 0.3f * x1 + 0.2f * x2 + 0.5f * h - 0.2f * y2; x2 = x1; x1 = x[i]; y2 = h; h = v; y[i] = v;", "0, x1 = 0, x2 = 0, y2 = 0")),
    "two elements before": (MATRIX, "def reference(x):\n    y = np.zeros_like(x)\n    for t in range(2, len(x)):\n        y[t] = x[t] + 0.5 * y[t - 1] - 0.2 * y[t - 2]\n    return y", down("float v = t < 2 ? 0 : x[i] + 0.5f * h - 0.2f * g; g = h; h = v; y[i] = v;", "0, g = 0")),
    "added to two elements before": (MATRIX, "def reference(x):\n    y = x.copy()\n    for t in range(2, len(x)):\n        y[t] += 0.25 * y[t - 2]\n    return y", down("float v = t < 2 ? x[i] : x[i] + 0.25f * g; g = h; h = v; y[i] = v;", "0, g = 0")),
    "a filter of second order by elements": (MATRIX, "def reference(x):\n    y = np.zeros_like(x)\n    for t in range(2, len(x)):\n        y[t] = 0.2 * x[t] + 0.3 * x[t - 1] + 0.2 * x[t - 2] + 0.5 * y[t - 1] - 0.2 * y[t - 2]\n    return y", down("float v = t < 2 ? 0 : 0.2f * x[i] + 0.3f * x[i - cols] + 0.2f * x[i - 2 * cols] + 0.5f * h - 0.2f * g; g = h; h = v; y[i] = v;", "0, g = 0")),
    "a high-pass filter": (SCALED, "def reference(x, k):\n    y = np.zeros_like(x)\n    for t in range(1, len(x)):\n        y[t] = k * (y[t - 1] + x[t] - x[t - 1])\n    return y", down("h = t ? k * (h + x[i] - x[i - cols]) : 0; y[i] = h;")),
    "a gate": (STEPS, "def reference(a, x):\n    y = np.empty_like(x)\n    h = np.zeros(x.shape[1])\n    for t in range(len(x)):\n        h = np.tanh(a[t] * h + x[t])\n        y[t] = h\n    return y", down("h = tanhf(a[i] * h + x[i]); y[i] = h;")),
    "momentum": (MATRIX, "def reference(x):\n    y = np.empty_like(x)\n    v = 0.0\n    p = 1.0\n    for t in range(len(x)):\n        v = 0.875 * v + x[t]\n        p = p - 0.125 * v\n        y[t] = p\n    return y", down("h = 0.875f * h + x[i]; p -= 0.125f * h; y[i] = p;", "0, p = 1")),
    "one column after another": (SCALED, f"{HEAD}    for c in range(x.shape[1]):\n        h = 0.0\n        for r in range(x.shape[0]):\n            h = k * h + (1 - k) * x[r, c]\n            y[r, c] = h\n    return y", down(AVERAGE)),
    "in double": (SCALED, "def reference(x, k):\n    x = x.astype(np.float64)\n    y = np.zeros(x.shape, np.float64)\n    h = np.zeros(x.shape[1], dtype=np.float64)\n    for t in range(len(x)):\n        h = k * h + (1.0 - k) * x[t]\n        y[t] = h\n    return y.astype(np.float32)", down(AVERAGE)),
}  # fmt: skip

REPLACED = {
    "a state that is replaced": ({"s": "inout float32[cols] ~ normal", **MATRIX}, "def reference(x, s):\n    h, y = s, np.empty_like(x)\n    for t in range(len(x)):\n        h = np.tanh(0.5 * h + x[t])\n        y[t] = h\n    return h + s, y", down("h = tanhf(0.5f * h + x[i]); y[i] = h;", "s[c]", after="s[c] += h;")),
    "random bits": ({"s": "inout uint32[cols]", "y": "out uint32[rows, cols]", **INTS}, "def reference(s, rows):\n    y = np.empty((rows, len(s)), np.uint32)\n    for t in range(rows):\n        s = s ^ (s << 13)\n        s = s ^ (s >> 17)\n        s = s ^ (s << 5)\n        y[t] = s\n    return s, y", down("g ^= g << 13; g ^= g >> 17; g ^= g << 5; y[i] = g;", "0;  unsigned g = s[c]", after="s[c] = g;")),
}  # fmt: skip
"""States that begin with what an argument holds, and replace it."""

ROWS: dict[str, tuple[dict[str, str], str, tuple[str, str]]] = {
    "columns one after another": (SCALED, f"{HEAD}    h = np.zeros(len(x))\n    for c in range(x.shape[1]):\n        h = k * h + (1 - k) * x[:, c]\n        y[:, c] = h\n    return y", along(AVERAGE)),
    "the column before": (SCALED, f"{HEAD}    y[:, 0] = x[:, 0]\n    for c in range(1, x.shape[1]):\n        y[:, c] = k * y[:, c - 1] + (1 - k) * x[:, c]\n    return y", along(FROM_FIRST)),
    "rows and columns": (SCALED, f"{HEAD}    for r in range(x.shape[0]):\n        h = 0.0\n        for c in range(x.shape[1]):\n            h = k * h + (1 - k) * x[r, c]\n            y[r, c] = h\n    return y", along(AVERAGE)),
    "the element before in each row": (SCALED, f"{HEAD}    for r in range(x.shape[0]):\n        y[r, 0] = x[r, 0]\n        for c in range(1, x.shape[1]):\n            y[r, c] = k * y[r, c - 1] + (1 - k) * x[r, c]\n    return y", along(FROM_FIRST)),
    "coefficients of each column": (STEPS, "def reference(a, x):\n    y = np.empty_like(x)\n    h = np.zeros(len(x))\n    for c in range(x.shape[1]):\n        h = a[:, c] * h + x[:, c]\n        y[:, c] = h\n    return y", along("h = a[i] * h + x[i]; y[i] = h;")),
    "a starting state of each row": ({**SCALED, "s": "in float32[rows] ~ normal"}, "def reference(x, k, s):\n    y = np.empty_like(x)\n    h = s\n    for c in range(x.shape[1]):\n        h = x[:, c] - k * h / 2\n        y[:, c] = h\n    return y", along("h = x[i] - k * h / 2; y[i] = h;", "s[r]")),
    "columns from the end": (SCALED, f"{HEAD}    h = 0.0\n    for c in range(x.shape[1] - 1, -1, -1):\n        h = x[:, c] + k * h\n        y[:, c] = h\n    return y * 2", along("h = x[i] + k * h; y[i] = 2 * h;", loop="for (int t = cols - 1; t >= 0; --t)")),
}  # fmt: skip


def _judged(session: Session, make: Any, case: tuple[dict[str, str], str, tuple[str, str]], sizes: str = SIZES) -> list[str]:  # fmt: skip
    args, reference, (body, grid) = case
    kernel, _ = make(args, reference, body=body, grid=grid, sizes=sizes)
    return assert_judged_right(session, kernel)


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", COLUMNS)
def test_recurrences_down_columns_are_right_with_a_thread_for_each(name: str, make: Any, session: Session) -> None:
    assert _judged(session, make, COLUMNS[name]) == ["synthesis:recurrence-columns"]


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", ROWS)
def test_linear_recurrences_along_rows_are_right_as_scans_of_steps(name: str, make: Any, session: Session) -> None:
    authors = _judged(session, make, ROWS[name], "{ rows = 3, cols = 1283 }, " + SIZES)
    assert authors
    assert all(one.startswith("synthesis:recurrence-") for one in authors)


def test_a_recurrence_along_a_vector_is_a_scan_by_one_block(make: Any, session: Session) -> None:
    reference = f"{HEAD}    h = 0.0\n    for t in range(len(x)):\n        h = k * h + (1 - k) * x[t]\n        y[t] = h\n    return y"
    body = f"  if (threadIdx.x) return;\n  float h = 0;\n  for (int i = 0; i < cols; ++i) {{ {AVERAGE} }}"
    case = (VECTOR, reference, (body, "1"))
    assert _judged(session, make, case, "{ cols = 5003 }, { cols = 7 }, { cols = 1 }")[0].startswith(
        "synthesis:recurrence-block"
    )


MEANT = {
    "a running sum": "    s = 0.0\n    for t in range(len(x)):\n        s += x[t]\n        y[t] = s\n    return y",
    "a running sum in place": "    s = np.zeros(x.shape[1])\n    for t in range(len(x)):\n        s += x[t]\n        y[t] = s\n    return y",
    "a running maximum": "    m = np.full(x.shape[1], -np.inf)\n    for t in range(len(x)):\n        m = np.maximum(m, x[t])\n        y[t] = m\n    return y",
    "a maximum with the element before": "    y[0] = x[0]\n    for t in range(1, len(x)):\n        y[t] = np.maximum(y[t - 1], x[t])\n    return y",
    "a sum of each row": "    for r in range(len(x)):\n        s = 0.0\n        for c in range(x.shape[1]):\n            s += x[r, c]\n        y[r] = s\n    return y",
    "a sum after the loop": "    s = 0.0\n    for row in x:\n        s = s + row.sum()\n    return x + s",
    "a power by products": "    p = 1.0\n    for _ in range(x.shape[1]):\n        p = p * 0.9\n    return x * p",
    "a sum of something that does not change": "    y = x * 0\n    for _ in range(x.shape[1]):\n        y = y + x\n    return y",
    "two recurrences beside each other": "    h = g = 0.0\n    for t in range(len(x)):\n        h, g = 0.5 * h + x[t], 0.25 * g - h\n        y[t] = h + g\n    return y",
    "a state behind another": "    h = np.zeros(x.shape[1])\n    for t in range(len(x)):\n        h = 0.5 * h + x[t]\n        y[t] = h\n    g = np.zeros(x.shape[1])\n    z = np.empty_like(x)\n    for t in range(len(x)):\n        g = 0.5 * g + y[t]\n        z[t] = g\n    return z",
    "two elements before, given": "    y[0] = x[0]\n    y[1] = 2 * x[1]\n    for t in range(2, len(x)):\n        y[t] = x[t] + 0.5 * y[t - 1] - 0.2 * y[t - 2]\n    return y",
    "two elements behind": "    y[:] = x\n    for t in range(len(x) - 2):\n        y[t + 2] = 0.5 * y[t] + x[t + 2] * x[t + 1]\n    return y",
    "the second element before alone, from a state": "    h = x[0] * 0 + 1\n    y[:] = 0\n    for t in range(2, len(x)):\n        y[t] = 0.5 * y[t - 2] + h * x[t - 1]\n        h = 0.5 * h\n    return y",
    "the element before, chosen": "    y[:] = 0\n    for t in range(len(x)):\n        before = np.where(t > 0, y[t - 1], 0.0)\n        y[t] = 0.5 * before + x[t]\n    return y",
}  # fmt: skip


@pytest.mark.parametrize("name", REPLACED)
def test_a_state_is_replaced_by_the_last_one(name: str, make: Any, session: Session) -> None:
    args, reference, (body, grid) = REPLACED[name]
    kernel, _ = make(args, reference, sizes=SIZES, body=body, grid=grid)
    assert assert_judged_right(session, kernel) == ["synthesis:recurrence-columns"]


@pytest.mark.parametrize("name", [*COLUMNS, *ROWS, *MEANT])
def test_a_traced_loop_means_what_numpy_computes(name: str, make: Any, tmp_path: Path) -> None:
    cases = {**COLUMNS, **ROWS}
    args, reference = cases[name][:2] if name in cases else (MATRIX, f"def reference(x):\n    y = np.empty_like(x)\n{MEANT[name]}")  # fmt: skip
    _, contract = make(args, reference, sizes="{ rows = 6, cols = 40 }, { rows = 5, cols = 7 }")
    graph = trace(contract, tmp_path)
    size, rng = {"rows": 11, "cols": 13}, np.random.default_rng(1)
    shapes = {one.name: [size[side] for side in one.shape] for one in contract.args if one.shape is not None}
    arrays = {one: rng.random(shape).astype(np.float32) for one, shape in shapes.items()}
    wanted = python_reference(contract, tmp_path)
    assert wanted is not None
    held = {**{key: value.astype(float) for key, value in arrays.items()}, "k": 0.875}
    np.testing.assert_allclose(evaluate(graph, held, size)[0], wanted(arrays, size)["y"], rtol=1e-9)


def test_a_local_that_each_iteration_assigns_first_is_not_carried(make: Any, tmp_path: Path) -> None:
    body = "    d = x[0].sum()\n    h = x[0] / d\n    for t in range(1, len(x)):\n        d = x[t].sum()\n        h = 0.5 * h + x[t] / d\n    return h"
    _, contract = make(LAST, f"def reference(x):\n{body}", sizes="{ rows = 6, cols = 40 }, { rows = 5, cols = 7 }")
    graph = trace(contract, tmp_path)
    (recurrence,) = [node for node in graph.nodes if node.op == "recur"]
    assert [graph.nodes[one].shape for one in recurrence.args] == [(), ("rows", "cols")]
    size, x = {"rows": 11, "cols": 13}, np.random.default_rng(1).random((11, 13)).astype(np.float32)
    wanted = python_reference(contract, tmp_path)
    assert wanted is not None
    np.testing.assert_allclose(evaluate(graph, {"x": x.astype(float)}, size)[0], wanted({"x": x}, size)["y"], rtol=1e-9)


REFUSED = {
    "three elements before": ("    y = x.copy()\n    for t in range(3, len(x)):\n        y[t] = 0.5 * y[t - 1] - 0.2 * y[t - 3] + x[t]\n    return y", 7, "a value of another one"),
    "the row above in the other order": ("    y = x.copy()\n    for t in range(1, len(x)):\n        y[t] = y[t - 1, ::-1] + x[t]\n    return y", 7, "a value of another one"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_recurrence_is_named_with_its_line(name: str, make: Any, tmp_path: Path) -> None:
    body, line, what = REFUSED[name]
    _, contract = make(MATRIX, f"def reference(x):\n{body}")
    with pytest.raises(ReferenceFailed, match=what) as refused:
        trace(contract, tmp_path)
    assert refused.value.line == line
