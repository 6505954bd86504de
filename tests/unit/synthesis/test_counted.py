"""Loops whose number of iterations is an integer scalar of the contract."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.session import Session
from kernelmate.synthesis.counted import FEWEST
from kernelmate.synthesis.early_exits import with_exit
from kernelmate.synthesis.graph import evaluate
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right

ARGS = {"x": "in float32[n] ~ uniform(-2, 1)", "y": "out int32[n]", "n": "int32", "steps": "int32 = 20"}
ESCAPE = (
    "def reference(x, steps):\n    z = np.zeros_like(x)\n    count = np.zeros(x.shape, dtype=np.int32)\n    for _ in range(steps):\n"
    "        inside = z * z <= 4\n        z = np.where(inside, z * z + x, z)\n        count = count + inside\n    return count"
)
BODY = (
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= n) return;\n  float z = 0.0f;\n  int k = 0;\n"
    "  while (k < steps && z * z <= 4.0f) {\n    z = z * z + x[i];\n    ++k;\n  }\n  y[i] = k;"
)
HALVED = "def reference(x, steps):\n    z = x\n    for _ in range(steps):\n        z = 0.5 * (z + 1 / (z * z + 1))\n    return z"


def texts(make: Any, folder: Path, reference: str, **args: str) -> str:
    kernel, contract = make({**ARGS, **args}, reference, sizes="{ n = 40 }, { n = 7 }", grid="cdiv(n, block)")
    return next(iter(kernels_for(trace(contract, folder), kernel, contract))).definition


def test_a_scalar_counts_the_iterations_of_the_kernels_loop(make: Any, tmp_path: Path) -> None:
    text = texts(make, tmp_path, HALVED, y="out float32[n]")
    assert "for (int step = 0; step < steps; ++step)" in text
    assert text.count("0.5f") == 1


def test_few_iterations_are_written_out(make: Any, tmp_path: Path) -> None:
    text = texts(make, tmp_path, HALVED, y="out float32[n]", steps=f"int32 = {FEWEST - 1}")
    assert text.count("0.5f") == FEWEST - 1


def test_the_graph_has_the_scalar_as_a_size(make: Any, tmp_path: Path) -> None:
    _, contract = make({**ARGS, "y": "out float32[n]"}, HALVED, sizes="{ n = 40 }, { n = 7 }", grid="n")
    graph = trace(contract, tmp_path)
    assert [node.data[5] for node in graph.nodes if node.op == "recur"] == ["steps"]
    x = np.linspace(-1, 1, 5)
    (found,) = evaluate(graph, {"x": x}, {"n": 5, "steps": 3})
    expected = x
    for _ in range(3):
        expected = 0.5 * (expected + 1 / (expected * expected + 1))
    np.testing.assert_allclose(found, expected)


def test_a_loop_ends_once_nothing_changes(make: Any, tmp_path: Path) -> None:
    text = texts(make, tmp_path, ESCAPE)
    assert "if (!(z * z <= 4.0f)) break;" in text
    assert "?" not in text


def test_a_kernel_that_ends_its_loop_early_is_right(make: Any, session: Session) -> None:
    kernel, _ = make(ARGS, ESCAPE, sizes="{ n = 40 }, { n = 7 }, { n = 1 }", grid="cdiv(n, block)", body=BODY)
    assert assert_judged_right(session, kernel) == ["synthesis:recurrence-columns"]


FLAGGED = (
    "def reference(x):\n    z, count = np.broadcast_arrays(x, 0)[0], np.zeros(x.shape, np.int32)\n    alive = np.ones(x.shape, bool)\n"
    "    for _ in range(20):\n        alive = alive & (z * z <= 4)\n        count = count + alive\n"
    "        z = np.where(alive, z * z + x, z)\n    return count"
)
WITHOUT_STEPS = {name: entry for name, entry in ARGS.items() if name != "steps"}


def test_a_long_loop_of_fixed_length_stays_a_loop_that_ends_with_its_flag(make: Any, tmp_path: Path) -> None:
    kernel, contract = make(WITHOUT_STEPS, FLAGGED, sizes="{ n = 40 }, { n = 7 }", grid="cdiv(n, block)")
    text = next(iter(kernels_for(trace(contract, tmp_path), kernel, contract))).definition
    assert "for (int step = 0; step < 20; ++step)" in text
    assert "if (!(z * z <= 4.0f)) break;" in text
    assert "bool" not in text


def test_a_kernel_that_ends_with_its_flag_is_right(make: Any, session: Session) -> None:
    body = BODY.replace("float z = 0.0f", "float z = x[i]").replace("steps", "20")
    kernel, _ = make(WITHOUT_STEPS, FLAGGED, sizes="{ n = 40 }, { n = 7 }, { n = 1 }", grid="cdiv(n, block)", body=body)
    assert assert_judged_right(session, kernel) == ["synthesis:recurrence-columns"]


def test_a_long_loop_over_neighbours_is_written_out(make: Any, tmp_path: Path) -> None:
    reference = "def reference(x):\n    p = np.pad(x, 10)\n    return sum(p[k : k + len(x)] for k in range(20))"
    _, contract = make({**WITHOUT_STEPS, "y": "out float32[n]"}, reference, sizes="{ n = 40 }, { n = 7 }", grid="n")
    assert all(node.op != "recur" for node in trace(contract, tmp_path).nodes)


@pytest.mark.parametrize(
    "body",
    [
        ["const bool in = z < 4.0f;", "z = in ? z + 1.0f : z;", "n = n + 1;"],
        ["const bool in = z < x[step];", "z = in ? z + 1.0f : z;", "n = n + in;"],
        ["const bool in = step < 4;", "z = in ? z + 1.0f : z;", "n = n + in;"],
        ["const bool in = z < 4.0f;", "z = in ? z + 1.0f : 0.0f;", "n = n + in;"],
        ["const bool in = z < 4.0f;", "z = in ? z + 1.0f : z;", "n = n + in;", "y[step] = z;"],
    ],
    ids=["a value that always changes", "an array", "the step", "another value", "a store"],
)
def test_a_loop_that_still_changes_something_has_no_early_end(body: list[str]) -> None:
    assert with_exit(body, ["z", "n"], "step") == body
