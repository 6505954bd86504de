"""Scans written from references: right by the judge along each axis, in both directions, in each dtype, at odd sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.session import Session
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.synthesis.graph import evaluate
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right

SIZES = "{ rows = 3, cols = 1283 }, { rows = 5, cols = 7 }, { rows = 9, cols = 264 }, { rows = 1, cols = 1 }"
ROW = "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= rows) return;\n"
COLUMN = "  int c = blockIdx.x * blockDim.x + threadIdx.x;\n  if (c >= cols) return;\n"
BY_ROW, BY_COLUMN = "cdiv(rows, block)", "cdiv(cols, block)"
INTS = {"rows": "int32", "cols": "int32"}
HALF = "#include <cuda_fp16.h>\n"
MATRIX = {"x": "in float32[rows, cols] ~ normal", "y": "out float32[rows, cols]", **INTS}
UP, DOWN = "for (int c = 0; c < cols; ++c)", "for (int c = cols - 1; c >= 0; --c)"


def along(loop: str, step: str, start: str = "0") -> str:
    return f"{ROW}  float s = {start};\n  {loop} {{ int i = r * cols + c; {step} }}"


CASES: dict[str, tuple[dict[str, str], str, str, str, str]] = {
    "inclusive": (MATRIX, "np.cumsum(x, axis=1)", along(UP, "s += x[i]; y[i] = s;"), BY_ROW, ""),
    "exclusive": (MATRIX, "x.cumsum(axis=-1) - x", along(UP, "y[i] = s; s += x[i];"), BY_ROW, ""),
    "exclusive beside inclusive": (
        MATRIX, "def reference(x):\n    s = np.cumsum(x, axis=1)\n    return s * 2 + (s - x)", along(UP, "y[i] = s; s += x[i]; y[i] += 2 * s;"), BY_ROW, "",
    ),
    "exclusive from the end": (
        MATRIX, "x[:, ::-1].cumsum(axis=1)[:, ::-1] - x", along(DOWN, "y[i] = s; s += x[i];"), BY_ROW, "",
    ),
    "from the end": (MATRIX, "x[:, ::-1].cumsum(axis=1)[:, ::-1]", along(DOWN, "s += x[i]; y[i] = s;"), BY_ROW, ""),
    "from the end by flips": (MATRIX, "np.flip(np.cumsum(np.flip(x * 2, 1), axis=1), axis=1) + x", along(DOWN, "s += 2 * x[i]; y[i] = s + x[i];"), BY_ROW, ""),
    "product": (
        {**MATRIX, "x": "in float32[rows, cols] ~ uniform(0.97, 1.03)"}, "np.cumprod(x, axis=1)",
        along(UP, "s *= x[i]; y[i] = s;", "1"), BY_ROW, "",
    ),
    "running maximum": (MATRIX, "np.maximum.accumulate(x, axis=1)", along(UP, "s = c ? fmaxf(s, x[i]) : x[i]; y[i] = s;"), BY_ROW, ""),
    "running logarithm of sums of exponentials": (
        MATRIX, "np.logaddexp.accumulate(x, axis=1)",
        along(UP, "float v = x[i]; s = c ? fmaxf(s, v) + log1pf(expf(-fabsf(s - v))) : v; y[i] = s;"), BY_ROW, "",
    ),
    "running logarithm of sums of exponentials in columns": (
        MATRIX, "np.logaddexp.accumulate(x, axis=0)",
        f"{COLUMN}  float s = 0;\n  for (int r = 0; r < rows; ++r) {{ float v = x[r * cols + c]; s = r ? fmaxf(s, v) + log1pf(expf(-fabsf(s - v))) : v; y[r * cols + c] = s; }}", BY_COLUMN, "",
    ),
    "running sum of a square with a scale": (
        {**MATRIX, "w": "in float32[rows] ~ normal"}, "np.cumsum(x**2, axis=1) * w[:, None]",
        along(UP, "s += x[i] * x[i]; y[i] = s * w[r];"), BY_ROW, "",
    ),
    "share of a row's sum": (
        {**MATRIX, "x": "in float32[rows, cols] ~ uniform(0.5, 1)"}, "np.cumsum(x / x.sum(axis=1, keepdims=True), axis=1)",
        f"{ROW}  float t = 0, s = 0;\n  {UP} t += x[r * cols + c];\n  {UP} {{ s += x[r * cols + c] / t; y[r * cols + c] = s; }}", BY_ROW, "",
    ),
    "two scans": (
        {"x": "in float32[rows, cols] ~ normal", "y": "out float32[rows, cols]", "z": "out float32[rows, cols]", **INTS},
        "def reference(x):\n    return np.cumsum(x, axis=1), np.minimum.accumulate(x, axis=1) + 1",
        f"{ROW}  float s = 0, m = x[r * cols];\n  {UP} {{ int i = r * cols + c; s += x[i]; m = fminf(m, x[i]); y[i] = s; z[i] = m + 1; }}", BY_ROW, "",
    ),
    "in place": ({"y": "inout float32[rows, cols] ~ normal", **INTS}, "y.cumsum(axis=1)", along(UP, "s += y[i]; y[i] = s;"), BY_ROW, ""),
    "whole numbers": (
        {"x": "in int32[rows, cols] ~ integers(-9, 9)", "y": "out int32[rows, cols]", **INTS}, "np.cumsum(x, axis=1).astype(np.int32)",
        f"{ROW}  int s = 0;\n  {UP} {{ s += x[r * cols + c]; y[r * cols + c] = s; }}", BY_ROW, "",
    ),
    "ranks of a mask": (
        {"x": "in float32[rows, cols] ~ normal", "y": "out int32[rows, cols]", **INTS}, "np.cumsum(x > 0, axis=1)",
        f"{ROW}  int s = 0;\n  {UP} {{ s += x[r * cols + c] > 0; y[r * cols + c] = s; }}", BY_ROW, "",
    ),
    "double": (
        {"x": "in float64[rows, cols] ~ normal", "y": "out float64[rows, cols]", **INTS}, "np.cumsum(x, axis=1)",
        f"{ROW}  double s = 0;\n  {UP} {{ s += x[r * cols + c]; y[r * cols + c] = s; }}", BY_ROW, "",
    ),
    "half": (
        {"x": "in float16[rows, cols] ~ uniform(0, 0.1)", "y": "out float16[rows, cols]", **INTS}, "np.cumsum(x, axis=1)",
        along(UP, "s += __half2float(x[i]); y[i] = __float2half(s);"), BY_ROW, HALF,
    ),
    "down the columns": (
        MATRIX, "np.cumsum(x, axis=0)",
        f"{COLUMN}  float s = 0;\n  for (int r = 0; r < rows; ++r) {{ s += x[r * cols + c]; y[r * cols + c] = s; }}", BY_COLUMN, "",
    ),
    "up the columns with a weight": (
        {**MATRIX, "w": "in float32[cols] ~ normal"}, "np.flipud(np.cumsum(x[::-1] * w, axis=0))",
        f"{COLUMN}  float s = 0;\n  for (int r = rows - 1; r >= 0; --r) {{ s += x[r * cols + c] * w[c]; y[r * cols + c] = s; }}", BY_COLUMN, "",
    ),
    "an axis in the middle": (
        {"x": "in float32[3, rows, cols] ~ normal", "y": "out float32[3, rows, cols]", **INTS}, "np.cumsum(x, axis=1)",
        """  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 3 * cols) return;
  float s = 0;
  for (int r = 0; r < rows; ++r) { int at = (i / cols * rows + r) * cols + i % cols; s += x[at]; y[at] = s; }""", "cdiv(3 * cols, block)", "",
    ),
    "a vector by one block": (
        {"x": "in float32[cols] ~ normal", "y": "out float32[cols]", "cols": "int32"}, "np.cumsum(x)",
        f"  if (threadIdx.x) return;\n  float s = 0;\n  {UP} {{ s += x[c]; y[c] = s; }}", "1", "",
    ),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_scans_are_right_at_sizes_that_are_no_packs(name: str, make: Any, session: Session) -> None:
    args, reference, body, grid, above = CASES[name]
    kernel, _ = make(args, reference, body=body, grid=grid, above=above, sizes=SIZES)
    assert all(author.startswith("synthesis:scan") for author in assert_judged_right(session, kernel))


@pytest.mark.parametrize("name", ["exclusive", "exclusive from the end"])
def test_a_sum_before_an_element_is_not_found_by_subtracting_it(name: str, make: Any, tmp_path: Path) -> None:
    args, reference, body, grid, _ = CASES[name]
    kernel, contract = make(args, reference, body=body, grid=grid, sizes=SIZES)
    text = next(kernels_for(trace(contract, tmp_path), kernel, contract)).helpers
    assert "local_prefix[j] = sum;\n        sum += x_pack.at[j];" in text
    assert " - x_pack" not in text


TALL = "{ rows = 1091, cols = 19 }, { rows = 5, cols = 7 }, { rows = 1, cols = 1 }"
TILES: dict[str, tuple[dict[str, str], str, str, str]] = {
    **{name: CASES[name][:4] for name in ("down the columns", "up the columns with a weight", "an axis in the middle")},
    "down, in place, with ranks": (
        {"y": "inout float32[rows, cols] ~ normal", "n": "out int32[rows, cols]", **INTS},
        "def reference(y, rows):\n    return np.maximum.accumulate(y, axis=0) + np.arange(rows)[:, None], np.cumsum(y > 0, axis=0)",
        f"""{COLUMN}  float s = -INFINITY;
  int k = 0;
  for (int r = 0; r < rows; ++r) {{ int i = r * cols + c; float v = y[i]; s = v > s || isnan(v) ? v : s; k += v > 0; y[i] = s + r; n[i] = k; }}""",
        BY_COLUMN,
    ),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", TILES)
def test_few_long_columns_are_scanned_in_tiles(name: str, make: Any, session: Session) -> None:
    args, reference, body, grid = TILES[name]
    kernel, _ = make(
        args, reference, body=body, grid=grid, above="#define INFINITY __int_as_float(0x7f800000)\n", sizes=TALL
    )
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    (tiles,) = (one for one in found.candidates if one.candidate.author == "synthesis:scan-column-tiles")
    assert tiles.verdict.correct, (tiles.verdict.findings, tiles.candidate.kernel.source)
    assert tiles.verdict.diagnostics == ()


LOOPS = {
    "a start that changes nothing": "run = np.full(x.shape[0], {start})\n    for c in range(x.shape[1]):\n        run = {step}(run, x[:, c])\n        y[:, c] = run",
    "a first element": "y[:, 0] = x[:, 0]\n    for c in range(1, x.shape[1]):\n        y[:, c] = {step}(y[:, c - 1], x[:, c])",
}


@pytest.mark.parametrize("step", ["np.logaddexp", "np.maximum", "np.minimum"])
@pytest.mark.parametrize("name", LOOPS)
def test_a_loop_that_combines_values_is_a_scan(name: str, step: str, make: Any, tmp_path: Path) -> None:
    start = "np.inf" if step == "np.minimum" else "-np.inf"
    body = LOOPS[name].format(step=step, start=start)
    kernel, contract = make(MATRIX, f"def reference(x):\n    y = np.empty_like(x)\n    {body}\n    return y")
    graph = trace(contract, tmp_path)
    kinds = [node.data[0] for node in graph.nodes if node.op == "scan"]
    assert kinds == [{"np.logaddexp": "logaddexp", "np.maximum": "max", "np.minimum": "min"}[step]]
    x = np.random.default_rng(0).normal(size=(3, 7))
    (found,) = evaluate(graph, {"x": x}, {"rows": 3, "cols": 7})
    np.testing.assert_allclose(found, getattr(np, step[3:]).accumulate(x, axis=1))
    assert next(iter(kernels_for(graph, kernel, contract))).schedule.startswith("scan-")


def test_a_total_of_exponentials_in_a_loop_is_a_reduction(make: Any, tmp_path: Path) -> None:
    args = {**MATRIX, "y": "out float32[rows]"}
    step = (
        "run = np.full(x.shape[0], -np.inf)\n    for c in range(x.shape[1]):\n        run = np.logaddexp(run, x[:, c])"
    )
    _, contract = make(args, f"def reference(x):\n    {step}\n    return run")
    graph = trace(contract, tmp_path)
    x = np.random.default_rng(0).normal(size=(3, 7))
    (found,) = evaluate(graph, {"x": x}, {"rows": 3, "cols": 7})
    assert not any(node.op in ("scan", "recur") for node in graph.nodes)
    np.testing.assert_allclose(found, np.logaddexp.reduce(x, axis=1))
