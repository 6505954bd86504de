"""Reductions along rows of what neighbours make: right by the judge for sums, extremes and positions, borders included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.session import Session
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right, schedules_for

SIZES = "{ rows = 5, cols = 1100 }, { rows = 9, cols = 37 }, { rows = 1, cols = 2 }"
MATRIX = {"x": "in float32[rows, cols] ~ normal", "y": "out float32[rows]", "rows": "int32", "cols": "int32"}
ROW = "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= rows) return;\n  x += r * cols;\n"
DIFFERENCES = "  for (int c = 0; c + 1 < cols; ++c) {\n    const float d = x[c + 1] - x[c];\n"

CASES: dict[str, tuple[dict[str, str], str, str]] = {
    "trapezoids": (
        MATRIX, "((x[:, 1:] + x[:, :-1]) * 0.5).sum(axis=1)",
        f"{ROW}  float s = 0;\n  for (int c = 0; c + 1 < cols; ++c) s += (x[c] + x[c + 1]) * 0.5f;\n  y[r] = s;",
    ),
    "total variation with a weight": (
        {**MATRIX, "w": "in float32[rows] ~ normal"}, "w * np.abs(np.diff(x, axis=1)).mean(axis=1)",
        f"{ROW}  float s = 0;\n{DIFFERENCES}    s += fabsf(d);\n  }}\n  y[r] = w[r] * s / (cols - 1);",
    ),
    "the largest step and its place": (
        {**MATRIX, "p": "out int32[rows]"}, "def reference(x):\n    d = np.abs(np.diff(x, axis=1))\n    return d.max(axis=1), d.argmax(axis=1)",
        f"{ROW}  float s = -1;\n  int k = 0;\n{DIFFERENCES}    if (fabsf(d) > s) s = fabsf(d), k = c;\n  }}\n  y[r] = s;\n  p[r] = k;",
    ),
    "energies of smoothed rows": (
        MATRIX, "def reference(x, cols):\n    p = np.pad(x, ((0, 0), (1, 1)), mode='edge')\n    s = (p[:, :-2] + 2 * p[:, 1:-1] + p[:, 2:]) / 4\n    return np.sqrt((s * s).sum(axis=1)) / cols",
        f"{ROW}  float s = 0;\n  for (int c = 0; c < cols; ++c) {{\n    const float v = (x[max(c - 1, 0)] + 2 * x[c] + x[min(c + 1, cols - 1)]) / 4;\n    s += v * v;\n  }}\n  y[r] = sqrtf(s) / cols;",
    ),
    "gradients between rows": (
        MATRIX, "def reference(x):\n    p = np.pad(x, ((1, 0), (0, 0)))\n    return ((x - p[:-1]) ** 2).sum(axis=1)",
        f"{ROW}  float s = 0;\n  for (int c = 0; c < cols; ++c) {{\n    const float d = x[c] - (r ? x[c - cols] : 0);\n    s += d * d;\n  }}\n  y[r] = s;",
    ),
    "whole numbers": (
        {**MATRIX, "x": "in int32[rows, cols] ~ integers(0, 3)", "y": "out int32[rows]"}, "(x[:, 1:] != x[:, :-1]).sum(axis=1) + 1",
        f"{ROW}  int s = 1;\n  for (int c = 0; c + 1 < cols; ++c) s += x[c + 1] != x[c];\n  y[r] = s;",
    ),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_rows_of_neighbours_are_reduced_right(name: str, make: Any, session: Session) -> None:
    args, reference, body = CASES[name]
    kernel, _ = make(args, reference, body=body, grid="cdiv(rows, block)", sizes=SIZES, more='require = ["cols > 1"]')
    assert all(author.startswith("synthesis:row-windows-") for author in assert_judged_right(session, kernel))


def test_rows_over_several_axes_are_counted_once(make: Any, tmp_path: Path) -> None:
    args = {
        "x": "in float32[n, rows, cols]",
        "y": "out float32[n, rows]",
        "n": "int32",
        "rows": "int32",
        "cols": "int32",
    }
    sizes = "{ n = 3, rows = 5, cols = 4000 }, { n = 2, rows = 1, cols = 2 }"
    kernel, contract = make(args, "np.diff(x, axis=2).max(axis=2)", grid="n", sizes=sizes)
    first, *_ = kernels_for(trace(contract, tmp_path), kernel, contract)
    assert (first.schedule, first.grid) == ("row-windows-block-256", ("n * rows",))
    assert "const int outer = row % rows;" in first.definition
    assert "y[row] = row_max;" in first.definition


@pytest.mark.parametrize(
    ("reference", "schedule"),
    [
        ("np.diff(np.diff(x, axis=1).sum(axis=1), prepend=0)", "staged-single-block"),
        ("np.diff(x, axis=1).sum(axis=1) + np.diff(x[:, 1:], axis=1).max(axis=1)", "staged-block"),
    ],
    ids=["neighbouring rows", "rows of two lengths"],
)  # fmt: skip
def test_other_reductions_of_windows_have_other_schedules(
    reference: str, schedule: str, make: Any, tmp_path: Path
) -> None:
    kernel, contract = make(MATRIX, reference, grid="cdiv(rows, block)", sizes=SIZES)
    assert schedules_for(kernel, contract, tmp_path) == [schedule]
