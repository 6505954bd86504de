"""Sums of rows by number, separate results in one launch, columns of few rows, and products of parts of one array."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.records import Judged
from kernelmate.session import Session
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.synthesis.schedules import columns, permutation
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for

SIZES = "{ n = 300, rows = 100, cols = 40 }, { n = 37, rows = 11, cols = 7 }, { n = 1, rows = 3, cols = 1 }"
GIVEN = {"g": "in float32[n, cols] ~ normal", "ids": "in int32[n] ~ integers(0, rows)"}
COUNTS = {"n": "int32", "rows": "int32", "cols": "int32"}
C = "  int c = blockIdx.x * blockDim.x + threadIdx.x;\n  if (c >= cols) return;\n"
ADD = "  for (int i = 0; i < n; ++i) w[ids[i] * cols + c] += g[i * cols + c];\n"


def judged(session: Session, kernel: Any) -> tuple[Judged, ...]:
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert found.candidates, found.notes
    for one in found.candidates:
        assert one.verdict.correct, (one.candidate.author, one.verdict.findings, one.candidate.kernel.source)
        assert one.verdict.diagnostics == (), one.candidate.kernel.unit.text
    return found.candidates


def test_rows_are_added_to_what_was_there_without_atomics(make: Any, session: Session) -> None:
    args = {"w": "inout float32[rows, cols] ~ normal", **GIVEN, "n": "int32", "cols": "int32"}
    reference = "def reference(w, g, ids):\n    w = w.copy()\n    np.add.at(w, ids, g)\n    return w"
    kernel, _ = make(args, reference, body=C + ADD, grid="cdiv(cols, block)", sizes=SIZES)
    (one,) = judged(session, kernel)
    assert one.candidate.author == "synthesis:scatter-rows"
    assert "atomic" not in one.candidate.kernel.source


EDGES = {
    "at once": "    np.add.at(w, ids, g[of] * s[:, None])",
    "in a loop": "    for i in range(len(ids)):\n        w[ids[i]] += s[i] * g[of[i]]",
    "in two loops": "    for i in range(ids.shape[0]):\n        for c in range(w.shape[1]):\n            w[ids[i], c] += s[i] * g[of[i], c]",
}


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", EDGES)
def test_rows_by_number_are_added_atomically_as_by_the_kernel(name: str, make: Any, session: Session) -> None:
    args = {"w": "inout float32[rows, cols] ~ normal", "g": "in float32[rows, cols] ~ normal", "ids": GIVEN["ids"]}
    args |= {"of": GIVEN["ids"], "s": "in float32[n] ~ normal", "n": "int32", "cols": "int32"}
    body = "  int i = blockIdx.x;\n  for (int c = threadIdx.x; c < cols; c += blockDim.x) atomicAdd(&w[ids[i] * cols + c], s[i] * g[of[i] * cols + c]);"
    kernel, _ = make(args, f"def reference(w, g, ids, of, s):\n{EDGES[name]}\n    return w", body=body, grid="n", sizes=SIZES)  # fmt: skip
    authors = sorted(one.candidate.author for one in judged(session, kernel))
    assert authors == ["synthesis:scatter-atomic", "synthesis:scatter-atomic-rows"]


def test_rows_are_not_added_atomically_where_the_order_is_fixed(make: Any, tmp_path: Path) -> None:
    args = {"w": "inout float32[rows, cols] ~ zeros", **GIVEN, "n": "int32", "cols": "int32"}
    reference = "def reference(w, g, ids):\n    np.add.at(w, ids, g)\n    return w"
    body = "  atomicAdd(&w[ids[0] * cols], g[0]);"
    kernel, contract = make(args, reference, body=body, grid="n", sizes=SIZES, more="deterministic = true")
    (only,) = kernels_for(trace(contract, tmp_path), kernel, contract)
    assert only.schedule == "scatter-rows"


def test_sums_of_rows_begin_with_zeros_where_the_reference_makes_them(make: Any, session: Session) -> None:
    args = {"w": "out float32[rows, cols]", **GIVEN, **COUNTS}
    reference = (
        "def reference(g, ids, rows, cols):\n    w = np.zeros((rows, cols))\n    np.add.at(w, ids, 2 * g)\n    return w"
    )
    body = f"{C}  for (int r = 0; r < rows; ++r) w[r * cols + c] = 0;\n{ADD.replace('+= g', '+= 2 * g')}"
    kernel, _ = make(args, reference, body=body, grid="cdiv(cols, block)", sizes=SIZES)
    (one,) = judged(session, kernel)
    assert "// Begins a row of w." in one.candidate.kernel.unit.text


def test_results_that_are_apart_are_computed_by_blocks_of_their_own(make: Any, session: Session) -> None:
    args = {"w": "inout float32[rows, cols] ~ normal", "s": "out float32[cols]", **GIVEN, "n": "int32", "cols": "int32"}
    reference = "def reference(w, g, ids):\n    w = w.copy()\n    np.add.at(w, ids, g)\n    return w, g.sum(axis=0)"
    body = f"{C}{ADD}  float t = 0;\n  for (int i = 0; i < n; ++i) t += g[i * cols + c];\n  s[c] = t;"
    kernel, _ = make(args, reference, body=body, grid="cdiv(cols, block)", sizes=SIZES)
    (one,) = judged(session, kernel)
    assert one.candidate.author == "synthesis:apart"


HEADS = """def reference(x, y, t, c):
    q, k = x[:, :c].reshape(t, 2, c // 2), x[:, c : 2 * c].reshape(t, 2, c // 2)
    full = np.einsum("thd,shd->hts", q, k)
    return np.where(np.arange(t)[None, :] <= np.arange(t)[:, None], full, y)"""


def test_parts_of_one_array_are_both_operands_and_masked_tiles_are_left_out(make: Any, session: Session) -> None:
    args = {"x": "in float32[t, 3 * c] ~ normal", "y": "inout float32[2, t, t] ~ normal", "t": "int32", "c": "int32"}
    body = """  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 * t * t) return;
  int h = i / (t * t), a = i / t % t, b = i % t, d = c / 2;
  if (b > a) return;
  float s = 0;
  for (int k = 0; k < d; ++k) s += x[a * 3 * c + h * d + k] * x[b * 3 * c + c + h * d + k];
  y[i] = s;"""
    sizes = "{ t = 70, c = 12 }, { t = 9, c = 6 }, { t = 1, c = 2 }"
    kernel, _ = make(
        args, HEADS, body=body, grid="cdiv(2 * t * t, block)", sizes=sizes, more='require = ["c % 2 == 0"]'
    )
    for one in judged(session, kernel):
        assert "whole tiles are left out" in one.candidate.kernel.source
        assert "x_2 = x;" not in one.candidate.kernel.source, "both are parts of one array"
        assert "x_2_aligned" in one.candidate.kernel.source or "x_2_tile" in one.candidate.kernel.source


def test_squared_distances_are_sums_of_squared_differences(make: Any, tmp_path: Path) -> None:
    args = {"a": "in float32[n, d]", "b": "in float32[m, d]", "y": "out float32[n, m]", "n": "int32", "m": "int32", "d": "int32"}  # fmt: skip
    reference = "(a**2).sum(1)[:, None] + (b**2).sum(1)[None, :] - 2 * a @ b.T"
    kernel, contract = make(args, reference, sizes="{ n = 70, m = 33, d = 5 }", grid="n")
    text = next(kernels_for(trace(contract, tmp_path), kernel, contract))
    assert text.schedule.startswith("contraction-")
    assert "difference * difference" in text.definition


def test_many_columns_of_few_rows_have_a_thread_each(
    make: Any, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "ENOUGH_BLOCKS", 1)
    args = {"x": "in float32[rows, cols] ~ normal", "y": "out float32[cols]", "rows": "int32", "cols": "int32"}
    body = f"{C}  float s = 0;\n  for (int r = 0; r < rows; ++r) s += x[r * cols + c];\n  y[c] = s / rows;"
    sizes = "{ rows = 5, cols = 300 }, { rows = 9, cols = 37 }, { rows = 1, cols = 1 }"
    kernel, _ = make(args, "x.mean(axis=0)", body=body, grid="cdiv(cols, block)", sizes=sizes)
    found = {one.candidate.author: one.candidate.kernel.source for one in judged(session, kernel)}
    assert "shared" not in found["synthesis:columns-256"]


def test_wide_arrays_are_permuted_in_wide_tiles(make: Any, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permutation, "ENOUGH_BLOCKS", 1)
    args = {"x": "in float32[rows, cols] ~ normal", "y": "out float32[cols, rows]", "rows": "int32", "cols": "int32"}
    body = (
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < rows * cols) y[i % cols * rows + i / cols] = x[i];"
    )
    sizes = "{ rows = 70, cols = 130 }, { rows = 33, cols = 64 }, { rows = 1, cols = 1 }"
    kernel, _ = make(args, "x.T", body=body, grid="cdiv(rows * cols, block)", sizes=sizes)
    assert "synthesis:permutation-tile-64" in {one.candidate.author for one in judged(session, kernel)}
