"""Axes that a reshape merges stay apart in what follows it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.session import Session
from kernelmate.session.writing import write_kernel
from kernelmate.source.examples import load_python_function, read_examples
from kernelmate.synthesis.draft import KernelRequest
from kernelmate.synthesis.graph import evaluate
from kernelmate.synthesis.splitting import with_split_axes
from kernelmate.synthesis.trace import trace

ARGS = {
    "x": "in float32[n, h, 3 * c]", "gamma": "in float32[3 * c]", "row": "in float32[h, 1]", "y": "out float32[n, h, 3 * c]",
    "n": "int32", "h": "int32", "c": "int32",
}  # fmt: skip
SIZES = "{ n = 2, h = 5, c = 4 }, { n = 3, h = 2, c = 5 }, { n = 1, h = 1, c = 1 }"


@pytest.mark.parametrize(
    "lines",
    [
        "np.exp(x.reshape(*x.shape[:2], 3, -1)).reshape(x.shape) * gamma + row",
        "np.exp(x.reshape(len(x), x.shape[1], -1, 3)).reshape(x.shape) * np.tanh(gamma[None, None] * 2)",
        "np.tanh(x.reshape(-1, 3, x.shape[2] // 3)).reshape(x.shape) * gamma",
    ],
)
def test_values_are_the_same(lines: str, make: Any, tmp_path: Path) -> None:
    graph = trace(make(ARGS, f"def reference(x, gamma, row):\n    return {lines}", sizes=SIZES, grid="n")[1], tmp_path)
    contract = make(ARGS, f"def reference(x, gamma, row):\n    return {lines}", sizes=SIZES, grid="n")[1]
    other = with_split_axes(graph, contract)
    assert other is not None
    assert all(node.op != "reshape" for node in other.nodes)
    for n, h, c in ((2, 5, 4), (3, 2, 5), (1, 1, 1)):
        random = np.random.default_rng(n)
        values = {"x": random.standard_normal((n, h, 3 * c)), "gamma": random.standard_normal(3 * c), "row": random.standard_normal((h, 1))}  # fmt: skip
        (want,) = evaluate(graph, values, {"n": n, "h": h, "c": c})
        shaped = {str(node.data[0]): values[str(node.data[0])].reshape([eval(side, {"n": n, "h": h, "c": c}) for side in node.shape]) for node in other.nodes if node.op == "input"}  # fmt: skip
        (got,) = evaluate(other, shaped, {"n": n, "h": h, "c": c})
        assert np.allclose(want.ravel(), got.ravel())


def test_an_operand_that_cuts_through_the_axes_stays(make: Any, tmp_path: Path) -> None:
    reference = (
        "def reference(x, gamma, row):\n    return np.exp(x.reshape(-1, 3, x.shape[2] // 3)).reshape(x.shape) * row"
    )
    _, contract = make(ARGS, reference, sizes=SIZES, grid="n")
    assert with_split_axes(trace(contract, tmp_path), contract) is None


def test_an_operand_of_repeated_operands_is_split_once(make: Any, tmp_path: Path) -> None:
    reference = """def reference(x, gamma, row):
    for _ in range(40):
        gamma = gamma * gamma + gamma
    return np.exp(x.reshape(*x.shape[:2], 3, -1)).reshape(x.shape) * gamma"""
    _, contract = make(ARGS, reference, sizes=SIZES, grid="n")
    graph = trace(contract, tmp_path)
    other = with_split_axes(graph, contract)
    assert other is not None
    assert len(other.nodes) <= len(graph.nodes)


def test_groups_of_channels_are_normalised(tmp_path: Path, session: Session) -> None:
    (tmp_path / "norm.py").write_text("""import numpy as np


def norm(x: "float32[n=2, h=5, w=3, c=32]", gamma: "float32[c]", beta: "float32[c]", eps=1e-5):
    n, h, w, c = x.shape
    g = x.reshape(n, h * w, 8, c // 8)
    y = (g - g.mean((1, 3), keepdims=True)) / np.sqrt(g.var((1, 3), keepdims=True) + eps)
    return y.reshape(x.shape) * gamma + beta
""")
    function = load_python_function(f"{tmp_path / 'norm.py'}:norm")
    asked = KernelRequest(function, read_examples(function, "", {}), tmp_path / "norm.cu", "norm")
    outcome = write_kernel(session, asked)
    assert outcome.best is not None, outcome.notes
    assert [(one.schedule, one.right) for one in outcome.kernels] == [("groups-64", True)], outcome.notes
    assert outcome.best.verdict.diagnostics == ()
    assert "element / " in outcome.best.kernel.source  # short rows of channels share the threads of a block
