"""Stages that one block computes: right by the judge, with barriers only where needed, and refused with a reason."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.session import Session
from kernelmate.session.writing import write_kernel
from kernelmate.synthesis.block_stages import block_plans
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.schedules import staged_block
from kernelmate.synthesis.trace import trace
from tests.unit.synthesis.judging import annotated, assert_judged_right

PLANE = {"x": "in float32[rows, cols]", "y": "out float32[rows, cols]", "rows": "int32", "cols": "int32"}
SIZES = "{ rows = 24, cols = 40 }, { rows = 7, cols = 13 }, { rows = 1, cols = 1 }"
RUNNING = "running statistics beside normalised channels"
CASES = {
    "centred along both axes": (
        PLANE,
        "def reference(x):\n    return x - x.mean(0) - x.mean(1)[:, None] + x.mean()",
        SIZES,
    ),
    "normalised as a whole, then by rows": (
        PLANE,
        "def reference(x):\n    z = x / np.sqrt((x * x).sum() + 1)\n    e = np.exp(z - z.max(1, keepdims=True))\n    return e / e.sum(1, keepdims=True)",
        SIZES,
    ),
    "a mean of losses of rows": (
        {"x": "in float32[rows, cols]", "t": "in int32[rows] ~ integers(0, cols)", "y": "out float32[1]", "rows": "int32", "cols": "int32"},
        "def reference(x, t, rows):\n    m = x.max(1)\n    lse = m + np.log(np.exp(x - m[:, None]).sum(1))\n    loss = lse - x[np.arange(rows), t]\n    return (loss * loss).sum() / np.maximum(loss.sum(), 1)",
        SIZES,
    ),
    "a loss beside the rows that it counts": (
        {
            "x": "in float32[rows, cols]", "t": "in int32[rows] ~ integers(0, cols)", "y": "out float32[1]", "counted": "out bool[rows]",
            "rows": "int32", "cols": "int32",
        },
        "def reference(x, t):\n    z = x - x.max(1, keepdims=True)\n    counted = t != 3\n    p = np.take_along_axis(z, np.where(counted, t, 0)[:, None], 1)[:, 0]\n"
        "    return np.where(counted, np.log(np.exp(z).sum(1)) - p, 0).sum(), counted",
        SIZES,
    ),
    RUNNING: (
        {
            "x": "in float32[n, c, s]", "g": "in float32[c]", "y": "out float32[n, c, s]", "running": "inout float32[c]",
            "n": "int32", "c": "int32", "s": "int32",
        },
        "def reference(x, g, running):\n    m = x.mean(axis=(0, 2))\n    v = x.var(axis=(0, 2))\n    return (x - m[:, None]) / np.sqrt(v[:, None] + 1e-5) * g[:, None], 0.9 * running + 0.1 * m",
        "{ n = 6, c = 5, s = 36 }, { n = 3, c = 2, s = 5 }, { n = 1, c = 1, s = 1 }",
    ),
    "numbers drawn by their cumulative weights": (
        {"w": "in float32[rows, cols] ~ uniform(0.1, 1)", "u": "in float32[rows] ~ uniform(0.01, 0.99)", "y": "out int32[rows]", "rows": "int32", "cols": "int32"},
        "def reference(w, u, cols):\n    c = np.cumsum(w * w, 1)\n    return np.minimum((c < u[:, None] * c[:, -1:]).sum(1), cols - 1)",
        SIZES,
    ),
    "attention without a softmax": (
        {
            "q": "in float32[t, d]", "k": "in float32[t, d]", "v": "in float32[t, e]", "y": "out float32[t, e]",
            "t": "int32", "d": "int32", "e": "int32",
        },
        "def reference(q, k, v):\n    return q @ (k.T @ v)",
        "{ t = 64, d = 16, e = 12 }, { t = 7, d = 5, e = 3 }, { t = 1, d = 1, e = 1 }",
    ),
    "groups of a row with a scale each": (
        {"x": "in float32[rows, cols]", "p": "out uint8[rows, cols // 2]", "s": "out float32[rows, cols // 8]", "rows": "int32", "cols": "int32"},
        "def reference(x, rows, cols):\n    g = x.reshape(rows, cols // 8, 8)\n    d = np.abs(g).max(-1) / 7 + 1e-3\n"
        "    q = (np.clip(np.rint(g / d[..., None]), -8, 7) + 8).astype(np.uint8).reshape(rows, cols)\n    return q[:, 0::2] | (q[:, 1::2] << 4), d",
        "{ rows = 24, cols = 40 }, { rows = 3, cols = 16 }",
    ),
    "butterflies": (
        {"x": "in float32[rows, 32]", "y": "out float32[rows, 32]", "rows": "int32"},
        "def reference(x):\n    y = x.copy()\n    h = 1\n    while h < 32:\n        z = y.reshape(-1, 32 // (2 * h), 2, h)\n"
        "        y = np.stack([z[:, :, 0] + z[:, :, 1], z[:, :, 0] - z[:, :, 1]], axis=2).reshape(-1, 32)\n        h *= 2\n    return y",
        "{ rows = 9 }, { rows = 1 }",
    ),
}  # fmt: skip


def text_of(make: Any, folder: Path, name: str) -> WrittenKernel:
    args, reference, sizes = CASES[name]
    kernel, contract = make(args, reference, sizes=sizes, grid="1")
    return next(staged_block.written(trace(contract, folder), KernelText(kernel, contract)))


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", [one for one in CASES if one != RUNNING])
def test_stages_are_right(name: str, tmp_path: Path, session: Session) -> None:
    args, reference, sizes = CASES[name]
    outcome = write_kernel(session, annotated(args, reference, sizes, tmp_path))
    assert outcome.best is not None, outcome.notes
    assert [one.schedule for one in outcome.kernels if not one.right] == [], outcome.notes
    assert outcome.best.schedule.startswith("staged-")
    assert outcome.best.verdict.diagnostics == ()


def test_statistics_of_channels_are_replaced_beside_the_result(make: Any, session: Session) -> None:
    body = """  int k = blockIdx.x;
  if (threadIdx.x != 0) return;
  float m = 0.0f, v = 0.0f;
  for (int i = 0; i < n * s; ++i) m += x[(i / s * c + k) * s + i % s];
  m /= n * s;
  for (int i = 0; i < n * s; ++i) v += (x[(i / s * c + k) * s + i % s] - m) * (x[(i / s * c + k) * s + i % s] - m);
  for (int i = 0; i < n * s; ++i) y[(i / s * c + k) * s + i % s] = (x[(i / s * c + k) * s + i % s] - m) / sqrtf(v / (n * s) + 1e-5f) * g[k];
  running[k] = 0.9f * running[k] + 0.1f * m;"""
    args, reference, sizes = CASES[RUNNING]
    kernel, _ = make(args, reference, sizes=sizes, grid="c", body=body, more='require = ["n > 0", "s > 0"]')
    assert assert_judged_right(session, kernel) == ["synthesis:staged-block"]


def test_blocks_share_the_axis_that_nothing_reduces(make: Any, tmp_path: Path) -> None:
    assert text_of(make, tmp_path, "numbers drawn by their cumulative weights").grid == ("rows",)
    assert text_of(make, tmp_path, RUNNING).grid == ("c",)
    assert text_of(make, tmp_path, "centred along both axes").grid == ("1",)


def test_a_reduction_of_the_block_needs_no_other_barrier(make: Any, tmp_path: Path) -> None:
    text = text_of(make, tmp_path, RUNNING).definition
    assert text.count("block_sum(") == 2
    assert "__syncthreads" not in text


def test_arrays_take_the_place_of_those_that_no_stage_reads(make: Any, tmp_path: Path) -> None:
    found = text_of(make, tmp_path, "butterflies")
    assert found.shared == "4 * (32 + 32)"
    assert found.definition.count("__syncthreads();") == 4


def test_warps_and_blocks_call_one_function(make: Any, tmp_path: Path) -> None:
    helpers = text_of(make, tmp_path, "centred along both axes").helpers
    assert helpers.count("float warp_sum(") == 1


def test_results_that_replace_what_other_blocks_read_are_refused(make: Any, tmp_path: Path) -> None:
    args = {**PLANE, "x": "inout float32[rows, cols]"}
    del args["y"]
    kernel, contract = make(args, "def reference(x):\n    return x - x.mean(0) + x.max()", sizes=SIZES)
    text = next(staged_block.written(trace(contract, tmp_path), KernelText(kernel, contract)))
    assert text.grid == ("1",), "rows of other blocks would be read after they were written"


def test_whole_arrays_beyond_one_block_are_refused_with_advice(make: Any, tmp_path: Path) -> None:
    args, reference, _ = CASES["centred along both axes"]
    kernel, contract = make(args, reference, sizes="{ rows = 8192, cols = 4096 }, { rows = 3, cols = 5 }")
    with pytest.raises(Refused, match="divide the reference into several kernels"):
        next(staged_block.written(trace(contract, tmp_path), KernelText(kernel, contract)))


def test_each_plan_says_what_its_blocks_compute_again(make: Any, tmp_path: Path) -> None:
    args, reference, sizes = CASES["normalised as a whole, then by rows"]
    _, contract = make(args, reference, sizes=sizes, grid="1")
    plans = {one.blocks: one for one in block_plans(trace(contract, tmp_path), joins=False)}
    size = {"rows": 24, "cols": 40}
    assert plans[()].cost(size, 132)[1] == 0
    assert plans["rows",].cost(size, 132)[1] == 23 * 24 * 40, "the sum of the whole array, in all blocks but one"


def test_a_row_is_replaced_by_what_its_block_computed_of_it(make: Any, tmp_path: Path) -> None:
    args = {**PLANE, "x": "inout float32[rows, cols]"}
    del args["y"]
    reference = "def reference(x):\n    c = np.cumsum(x, 1)\n    return x - c.mean(1, keepdims=True)"
    kernel, contract = make(args, reference, sizes=SIZES)
    text = next(staged_block.written(trace(contract, tmp_path), KernelText(kernel, contract)))
    assert text.grid == ("rows",)
