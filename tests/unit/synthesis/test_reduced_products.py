"""Reductions of a product's rows: right by the judge for extremes, positions, sums and log-sum-exp, and the product is not stored."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.session import Session
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import judged_right

SIZES = "{ m = 70, n = 81, d = 37 }, { m = 33, n = 32, d = 36 }, { m = 1, n = 1, d = 1 }"
POINTS = {"x": "in float32[m, d] ~ normal", "c": "in float32[n, d] ~ normal"}
LENGTHS = {"m": "int32", "n": "int32", "d": "int32"}
ROW = "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= m) return;\n"
DISTANCE = "    float s = 0;\n    for (int k = 0; k < d; ++k) s += (x[r * d + k] - c[j * d + k]) * (x[r * d + k] - c[j * d + k]);\n"
DOT = "    float s = 0;\n    for (int k = 0; k < d; ++k) s += x[r * d + k] * c[j * d + k];\n"
NEAREST = f"  float best = INFINITY;\n  int at = 0;\n  for (int j = 0; j < n; ++j) {{\n{DISTANCE}    if (s < best) best = s, at = j;\n  }}\n"
LARGEST = f"  float best = -INFINITY;\n  for (int j = 0; j < n; ++j) {{\n{DOT}    best = fmaxf(best, s@);\n  }}\n"
EXPONENTIALS = f"  float top = -INFINITY, e = 0;\n  for (int j = 0; j < n; ++j) {{\n{DOT}    top = fmaxf(top, s);\n  }}\n  for (int j = 0; j < n; ++j) {{\n{DOT}    e += expf(s - top);\n  }}\n"

CASES: dict[str, tuple[dict[str, str], str, str]] = {
    "the nearest of each": (
        {"y": "out int32[m]"}, "((x[:, None] - c[None]) ** 2).sum(axis=2).argmin(axis=1)", f"{NEAREST}  y[r] = at;",
    ),
    "the nearest by the expanded form, and its distance": (
        {"y": "out int32[m]", "z": "out float32[m]"},
        "def reference(x, c):\n    e = (x * x).sum(1)[:, None] - 2 * x @ c.T + (c * c).sum(1)\n    return e.argmin(axis=1), np.sqrt(e.min(axis=1))",
        f"{NEAREST}  y[r] = at;\n  z[r] = sqrtf(best);",
    ),
    "the largest product with a bias of each column": (
        {"b": "in float32[n] ~ normal", "y": "out float32[m]"}, "(x @ c.T + b).max(axis=1)", f"{LARGEST.replace('@', ' + b[j]')}  y[r] = best;",
    ),
    "the largest product by row and column": (
        {"b": "in float32[m] ~ uniform(0.5, 2)", "y": "inout float32[m]"}, "y + (x @ c.T / b[:, None]).max(axis=1) * 2",
        f"{LARGEST.replace('@', ' / b[r]')}  y[r] += best * 2;",
    ),
    "log-sum-exp": (
        {"y": "out float32[m]"},
        "def reference(x, c):\n    s = x @ c.T\n    t = s.max(axis=1, keepdims=True)\n    return np.log(np.exp(s - t).sum(axis=1)) + t[:, 0]",
        f"{EXPONENTIALS}  y[r] = logf(e) + top;",
    ),
    "a kernel density": (
        {"y": "out float32[m]"}, "np.exp(-0.5 * ((x[:, None] - c[None]) ** 2).sum(-1) / d).mean(axis=1)",
        f"  float e = 0;\n  for (int j = 0; j < n; ++j) {{\n{DISTANCE}    e += expf(-0.5f * s / d);\n  }}\n  y[r] = e / n;",
    ),
    "differences by absolute value": (
        {"y": "out float32[m]"}, "np.abs(x[:, None] - c[None]).sum(-1).min(axis=1)",
        f"  float best = INFINITY;\n  for (int j = 0; j < n; ++j) {{\n{DISTANCE.replace('(x[r * d + k] - c[j * d + k]) * (x[r * d + k] - c[j * d + k])', 'fabsf(x[r * d + k] - c[j * d + k])')}    best = fminf(best, s);\n  }}\n  y[r] = best;",
    ),
    "by position": (
        {"y": "out float32[m]"}, "np.where(np.arange(n) % 2 == 1, x @ c.T, -9.0).max(axis=1)",
        f"  float best = -9;\n  for (int j = 1; j < n; j += 2) {{\n{DOT}    best = fmaxf(best, s);\n  }}\n  y[r] = best;",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_rows_of_products_are_reduced_right(name: str, make: Any, session: Session) -> None:
    args, reference, body = CASES[name]
    kernel, _ = make(POINTS | args | LENGTHS, reference, body=ROW + body, grid="cdiv(m, block)", sizes=SIZES, more='require = ["n > 0", "d > 0", "m > 0"]')  # fmt: skip
    assert all(author.startswith("synthesis:reduced-products-") for author in judged_right(session, kernel))
