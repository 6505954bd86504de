"""Sums of rows' results into one number, and diagonals of products, as losses of contrastive learning have them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.session import Session
from kernelmate.synthesis.diagonals import diagonals_first
from kernelmate.synthesis.graph import evaluate
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right

PAIRS = {"a": "in float32[n, d] ~ normal", "b": "in float32[n, d] ~ normal"}
SUM = {"loss": "inout float32[1] ~ zeros", "n": "int32", "d": "int32"}
SIZES = "{ n = 70, d = 33 }, { n = 5, d = 4 }, { n = 1, d = 1 }"
CONTRASTIVE = """def reference(a, b, loss):
    s = a @ b.T / 4
    return loss + (np.log(np.exp(s).sum(axis=1)) - np.diagonal(s)).mean()"""
ROW = """  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float t = 0.0f, own = 0.0f;
  for (int j = 0; j < n; ++j) {
    float s = 0.0f;
    for (int k = 0; k < d; ++k) s += a[i * d + k] * b[j * d + k];
    t += expf(s / 4);
    if (j == i) own = s / 4;
  }
  atomicAdd(loss, (logf(t) - own) / n);"""
POINTS = {"p": "in float32[n, 3] ~ normal", "total": "inout float32[1] ~ zeros", "n": "int32"}
POTENTIAL = """def reference(p, total):
    d = p[:, None, :] - p[None, :, :]
    return total + np.triu(1 / np.sqrt((d * d).sum(axis=2) + 0.01), 1).sum()"""
EACH = """  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float s = 0.0f;
  for (int j = i + 1; j < n; ++j) {
    float x = p[3 * i] - p[3 * j], y = p[3 * i + 1] - p[3 * j + 1], z = p[3 * i + 2] - p[3 * j + 2];
    s += 1.0f / sqrtf(x * x + y * y + z * z + 0.01f);
  }
  atomicAdd(total, s);"""


def test_a_contrastive_loss_is_summed_from_the_kernel_of_its_rows(session: Session, make: Any) -> None:
    kernel, _ = make({**PAIRS, **SUM}, CONTRASTIVE, sizes=SIZES, body=ROW, grid="cdiv(n, block)")
    assert any(author.endswith("-added") for author in assert_judged_right(session, kernel))


def test_the_potential_of_all_pairs_is_summed_from_tiles_of_pairs(session: Session, make: Any) -> None:
    kernel, _ = make(POINTS, POTENTIAL, sizes="{ n = 300 }, { n = 37 }, { n = 1 }", body=EACH, grid="cdiv(n, block)")
    assert any(author.startswith("synthesis:pairs") for author in assert_judged_right(session, kernel))


@pytest.mark.parametrize(
    ("body", "more"), [(ROW.replace("atomicAdd(loss, ", "loss[0] += ("), ""), (ROW, "deterministic = true")]
)
def test_rows_are_not_added_in_any_order_where_the_kernel_keeps_one(
    body: str, more: str, make: Any, tmp_path: Path
) -> None:
    kernel, contract = make({**PAIRS, **SUM}, CONTRASTIVE, sizes=SIZES, body=body, grid="cdiv(n, block)", more=more)
    with pytest.raises(Refused):
        list(kernels_for(trace(contract, tmp_path), kernel, contract))


@pytest.mark.parametrize(
    "reference",
    [
        "np.diagonal(a @ b.T)",
        "np.diagonal(np.exp(a @ b.T) * np.arange(n)[None, :] + np.arange(n)[:, None])",
        "np.diagonal(np.einsum('ik,jk->ji', a, b) - a.sum(axis=1) + 2 * b.max(axis=1)[:, None])",
        "np.diagonal(((a[:, None, :] - b[None, :, :]) ** 2).sum(axis=2))",
    ],
)
def test_the_diagonal_of_a_result_is_computed_from_diagonals(reference: str, make: Any, tmp_path: Path) -> None:
    args = {**PAIRS, "y": "out float32[n]", "n": "int32", "d": "int32"}
    _, contract = make(args, f"def reference(a, b, n):\n    return {reference}", sizes=SIZES, grid="n")
    graph = trace(contract, tmp_path)
    found = diagonals_first(graph)
    assert found is not None
    assert not any(node.shape[:2] == ("n", "n") for node in found.nodes)
    drawn = np.random.default_rng(3)
    values = {"a": drawn.random((6, 4)), "b": drawn.random((6, 4))}
    size = {"n": 6, "d": 4}
    np.testing.assert_allclose(evaluate(found, values, size)[0], evaluate(graph, values, size)[0], rtol=1e-14)


def test_a_row_of_a_product_is_no_diagonal(make: Any, tmp_path: Path) -> None:
    args = {**PAIRS, "y": "out float32[n]", "n": "int32", "d": "int32"}
    reference = "def reference(a, b):\n    return (a @ b.T)[0].copy()"
    _, contract = make(args, reference, sizes="{ n = 70, d = 33 }, { n = 5, d = 4 }", grid="n")
    assert diagonals_first(trace(replace(contract), tmp_path)) is None
