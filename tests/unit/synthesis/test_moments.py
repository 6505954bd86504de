"""Mean and variance in one pass: right by the judge where chunks are full, partial and empty, and left alone where they are neither."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelmate.config import load_settings
from kernelmate.session import Session
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for

DOWN = {"x": "in {0}[rows, cols] ~ normal", "mean": "out {0}[cols]", "var": "out {0}[cols]", "rows": "int32", "cols": "int32"}  # fmt: skip
BODY = """  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= cols) return;
  {0} s = 0, q = 0;
  for (int r = 0; r < rows; ++r) s += x[r * cols + c];
  {0} m = s / rows;
  for (int r = 0; r < rows; ++r) q += (x[r * cols + c] - m) * (x[r * cols + c] - m);
  mean[c] = m;
  var[c] = q / {1};"""
SIZES = "{ rows = 4500, cols = 3 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }"
GROUPS = {"x": "in float32[batch, groups, pixels] ~ normal", "y": "out float32[groups]", "batch": "int32", "groups": "int32", "pixels": "int32"}  # fmt: skip


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session(load_settings(seed=3)) as opened:
        yield opened


def moments(make: Any, reference: str, dtype: str = "float32", below: str = "rows") -> Any:
    args = {name: entry.format(dtype) for name, entry in DOWN.items()}
    body = BODY.format({"float32": "float", "float64": "double"}[dtype], below)
    return make(args, reference, body=body, grid="cdiv(cols, block)", sizes=SIZES, more='require = ["rows > 0"]')


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_moments_of_columns_are_right_in_one_pass(dtype: str, make: Any, session: Session) -> None:
    reference = "def reference(x):\n    return x.mean(axis=0), x.var(axis=0)"
    kernel, _ = moments(make, reference, dtype)
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert found.candidates, found.notes
    for judged in found.candidates:
        assert "reads them once" in judged.candidate.why
        assert judged.verdict.correct, judged.verdict.findings


def test_moments_of_groups_over_several_axes_are_right(make: Any, session: Session) -> None:
    body = """  int g = blockIdx.x;
  if (threadIdx.x != 0) return;
  float s = 0, q = 0;
  for (int b = 0; b < batch; ++b) for (int p = 0; p < pixels; ++p) s += x[(b * groups + g) * pixels + p];
  float m = s / (batch * pixels);
  for (int b = 0; b < batch; ++b)
    for (int p = 0; p < pixels; ++p) q += (x[(b * groups + g) * pixels + p] - m) * (x[(b * groups + g) * pixels + p] - m);
  y[g] = q / (batch * pixels);"""
    kernel, _ = make(
        GROUPS, "x.var(axis=(0, 2))", body=body, grid="groups", more='require = ["batch > 0", "pixels > 0"]',
        sizes="{ batch = 2, groups = 3, pixels = 1200 }, { batch = 3, groups = 2, pixels = 7 }, { batch = 1, groups = 1, pixels = 1 }",
    )  # fmt: skip
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert [one.candidate.author for one in found.candidates] == ["synthesis:groups-256"]
    assert found.candidates[0].verdict.correct, found.candidates[0].verdict.findings
    assert "moments_of" in found.candidates[0].candidate.kernel.unit.text


def test_differences_from_something_else_than_the_mean_take_two_passes(make: Any, tmp_path: Path) -> None:
    reference = "def reference(x):\n    m = x.sum(axis=0) / (x.shape[0] + 1)\n    return m, ((x - m) ** 2).sum(axis=0)"
    kernel, contract = moments(make, reference, below="1")
    texts = [one.helpers + one.definition for one in kernels_for(trace(contract, tmp_path), kernel, contract)]
    assert texts
    assert not any("Moments" in text for text in texts)
