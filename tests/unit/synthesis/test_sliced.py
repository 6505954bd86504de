"""Slices of results become slices of arrays: the values are the same, and schedules see parts of arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.synthesis.graph import evaluate
from kernelmate.synthesis.identities import always_equal
from kernelmate.synthesis.parts import slices_first, with_parts
from kernelmate.synthesis.trace import trace

ARGS = {"x": "in float32[rows, k]", "w": "in float32[k, n]", "b": "in float32[n]", "y": "out float32[rows, m]",
        "rows": "int32", "k": "int32", "n": "int32", "m": "int32"}  # fmt: skip
SIZES = "{ rows = 6, k = 5, n = 16, m = 8 }, { rows = 3, k = 2, n = 6, m = 3 }"
HALVES = "def reference(x, w, b):\n    z = x @ w + b\n    m = z.shape[1] // 2\n    return z[:, :m] * np.tanh(z[:, m:])"


@pytest.mark.parametrize(
    ("reference", "windows"),
    [
        (HALVES, 4),
        ("def reference(x, w, b):\n    return (x[:, :, None] * w).max(axis=1)[:, : w.shape[1] // 2]", 1),
        ("def reference(x, w, b):\n    z = np.exp(x @ w) - b\n    return z[:, w.shape[1] // 2 :]", 2),
    ],
)
def test_values_are_the_same(reference: str, windows: int, make: Any, tmp_path: Path) -> None:
    _, contract = make(ARGS, reference, sizes=SIZES, more='require = ["n == 2 * m"]')
    graph = trace(contract, tmp_path)
    other = slices_first(graph, contract)
    assert other is not None
    slices = [node for node in other.nodes if node.op == "window"]
    assert len(slices) == windows
    assert all(other.nodes[node.args[0]].op == "input" for node in slices)
    assert with_parts(other, []) is not None
    for size in contract.sizes:
        random = np.random.default_rng(size["n"])
        values = {"x": random.standard_normal((size["rows"], size["k"])), "w": random.standard_normal((size["k"], size["n"])),
                  "b": random.standard_normal(size["n"])}  # fmt: skip
        (want,), (got,) = evaluate(graph, values, size), evaluate(other, values, size)
        assert np.allclose(want, got)


def test_graphs_without_slices_of_results_stay(make: Any, tmp_path: Path) -> None:
    for reference in ("def reference(x, w, b):\n    return x @ w[:, : w.shape[1] // 2]", "def reference(x, w, b):\n    return np.cumsum(x @ w, axis=1)[:, : w.shape[1] // 2]"):  # fmt: skip
        _, contract = make(ARGS, reference, sizes=SIZES, more='require = ["n == 2 * m"]')
        assert slices_first(trace(contract, tmp_path), contract) is None


def test_sizes_that_are_multiples_by_require_are_equal_to_them(make: Any) -> None:
    _, contract = make(ARGS, HALVES, sizes=SIZES, more='require = ["n == 2 * m"]')
    assert always_equal(contract, "n", "2 * m")
    assert not always_equal(contract, "n", "3 * m")
    assert not always_equal(make(ARGS, HALVES, sizes=SIZES)[1], "n", "2 * m")
