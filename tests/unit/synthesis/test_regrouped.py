"""Values by groups of an axis: the graph without their reshapes gives the same values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.synthesis.graph import evaluate
from kernelmate.synthesis.grouped import regrouped
from kernelmate.synthesis.trace import trace

ARGS = {
    "x": "in float32[rows, 4 * n]",
    "s": "in float32[rows, n]",
    "y": "out float32[rows, 4 * n]",
    "rows": "int32",
    "n": "int32",
}
SIZES = "{ rows = 6, n = 8 }, { rows = 3, n = 5 }, { rows = 1, n = 1 }"


@pytest.mark.parametrize(
    "reference",
    [
        "def reference(x, s):\n    return (x.reshape(*s.shape, 4) * s[:, :, None]).reshape(x.shape)",
        "def reference(x, s):\n    return (np.tanh(x.reshape(*s.shape, -1)) - (s + 1)[..., None] * np.arange(4.0)).reshape(x.shape)",
        "def reference(x, s):\n    return np.stack([s, s * 2, -s, s + 1], axis=-1).reshape(x.shape) + x",
        "def reference(x, s):\n    return np.exp(np.stack([s, s * 2, -s, s + 1], axis=-1)).reshape(len(x), -1) + x",
    ],
)
def test_values_are_the_same(reference: str, make: Any, tmp_path: Path) -> None:
    graph = trace(make(ARGS, reference, sizes=SIZES)[1], tmp_path)
    other = regrouped(graph)
    assert other is not None
    assert all(node.op != "reshape" or other.nodes[node.args[0]].op == "input" for node in other.nodes)
    for rows, n in ((6, 8), (3, 5), (1, 1)):
        random = np.random.default_rng(rows)
        values = {"x": random.standard_normal((rows, 4 * n)), "s": random.standard_normal((rows, n))}
        size = {"rows": rows, "n": n}
        (want,), (got,) = evaluate(graph, values, size), evaluate(other, values, size)
        assert np.allclose(want, got)


def test_other_reshapes_stay(make: Any, tmp_path: Path) -> None:
    references = (
        "def reference(x, s):\n    return x.reshape(-1, 4)[::-1].reshape(x.shape)",
        "def reference(x, s):\n    return (x * 2).reshape(4, -1).T.reshape(x.shape)",
        "def reference(x, s):\n    return np.exp(x)",
    )
    for reference in references:
        assert regrouped(trace(make(ARGS, reference, sizes=SIZES)[1], tmp_path)) is None
