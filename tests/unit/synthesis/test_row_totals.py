"""Sums of rows' results, as losses: added atomically as by the kernel, and refused where the order is fixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.session import Session
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import schedules_for

SIZES = "{ rows = 70, cols = 96 }, { rows = 7, cols = 37 }, { rows = 1, cols = 1 }"
ROW = "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= rows) return;\n  x += r * cols;\n"
ARGS = {
    "x": "in float32[rows, cols] ~ normal", "t": "in int32[rows] ~ integers(0, cols)", "y": "inout float32[1] ~ normal", "rows": "int32", "cols": "int32",
}  # fmt: skip
CROSS_ENTROPY = (
    "{ROW}  float m = x[0], s = 0;\n  for (int c = 1; c < cols; ++c) m = fmaxf(m, x[c]);\n"
    "  for (int c = 0; c < cols; ++c) s += expf(x[c] - m);\n  atomicAdd(y, (logf(s) + m - x[t[r]]){scale});"
)
NORM = "  float s = 0;\n  for (int c = 0; c < cols; ++c) s += x[c] * x[c];\n"
LOSS = "def reference(x, t, y, rows):\n    m = x.max(axis=1, keepdims=True)\n    n = np.log(np.exp(x - m).sum(axis=1)) + m[:, 0]\n    return y + (n - x[np.arange(len(t)), t.astype(np.int64)])"

CASES = {
    "the sum of a loss": (f"{LOSS}.sum()", CROSS_ENTROPY.format(ROW=ROW, scale="")),
    "the mean of a loss": (f"{LOSS}.mean()", CROSS_ENTROPY.format(ROW=ROW, scale=" / rows")),
    "a scaled sum of lengths": (
        "0.5 * np.sqrt((x * x).sum(axis=1)).sum() + y",
        f"{ROW}{NORM}  atomicAdd(&y[0], 0.5f * sqrtf(s));",
    ),
}


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_each_row_adds_its_result(name: str, make: Any, session: Session) -> None:
    reference, body = CASES[name]
    kernel, _ = make(ARGS, reference, body=body, grid="cdiv(rows, block)", sizes=SIZES, more='require = ["rows > 0", "cols > 0"]\n// tolerance = { rtol = 1e-4, atol = 1e-4 }')  # fmt: skip
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert found.candidates, found.notes
    for judged in found.candidates:
        assert judged.candidate.author.startswith("synthesis:rows-")
        assert judged.verdict.correct, (judged.verdict.findings, judged.candidate.kernel.source)
        assert judged.verdict.diagnostics == ()
        assert judged.candidate.kernel.unit.text.count("atomicAdd(y, ") == 1


ADDED = f"{ROW}{NORM}  atomicAdd(y, sqrtf(s));"


@pytest.mark.parametrize(
    ("args", "reference", "schedules"),
    [
        (ARGS, "y + np.sqrt((x * x).sum(axis=1)).sum().astype(np.int32)", ["staged-single-block"]),
        (ARGS | {"y": "inout float32[m]"}, "y + np.sqrt((x * x).sum(axis=1)).sum()", []),
    ],
    ids=["a rounded sum", "several totals"],
)
def test_other_totals_have_other_schedules_or_none(
    args: dict[str, str], reference: str, schedules: list[str], make: Any, tmp_path: Path
) -> None:
    sizes = SIZES.replace("cols =", "m = 3, cols =") if "m" in args["y"] else SIZES
    kernel, contract = make(args, reference, body=ADDED, grid="cdiv(rows, block)", sizes=sizes)
    assert schedules_for(kernel, contract, tmp_path) == schedules


@pytest.mark.parametrize(
    ("body", "more"),
    [
        (f"{ROW}{NORM}  atomicAdd(y, sqrtf(s));", "deterministic = true"),
        (
            "  if (blockIdx.x || threadIdx.x) return;\n  for (int r = 0; r < rows; ++r, x += cols) {\n  "
            + NORM
            + "    *y += sqrtf(s);\n  }",
            "",
        ),
    ],
    ids=["the contract fixes the order", "the kernel adds in order"],
)
def test_rows_are_not_added_in_any_order_unasked(body: str, more: str, make: Any, tmp_path: Path) -> None:
    kernel, contract = make(ARGS, "y + np.sqrt((x * x).sum(axis=1)).sum()", body=body, grid="cdiv(rows, block)", sizes=SIZES, more=more)  # fmt: skip
    (found,) = kernels_for(trace(contract, tmp_path), kernel, contract)
    assert found.schedule == "staged-single-block"
    assert "atomic" not in found.definition + found.helpers


@pytest.mark.parametrize("target", ["g", "x"])
def test_a_sum_is_added_beside_results_of_all_elements(target: str, make: Any, session: Session) -> None:
    args = {"x": f"{'inout' if target == 'x' else 'in'} float32[n] ~ normal", "loss": "inout float32[1] ~ zeros"}
    args |= {} if target == "x" else {"g": "out float32[n]"}
    returned = "2 * x, loss + s" if target == "x" else "loss + s, 2 * x"
    reference = f"def reference(x, loss):\n    s = (np.sqrt(np.abs(x)) * x).sum()\n    return {returned}"
    body = f"""  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicAdd(loss, sqrtf(fabsf(x[i])) * x[i]);
  {target}[i] = 2 * x[i];"""
    sizes = "{ n = 100000 }, { n = 301 }, { n = 1 }"
    more = "tolerance = { rtol = 1e-4, atol = 1e-2 }"  # the baseline adds one by one
    kernel, _ = make(args | {"n": "int32"}, reference, sizes=sizes, body=body, grid="cdiv(n, block)", more=more)
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert [(one.candidate.author, one.verdict.correct) for one in found.candidates] == [
        ("synthesis:total-atomic", True)
    ], found.notes
