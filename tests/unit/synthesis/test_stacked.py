"""Sums along stacks of shifted arrays: written as loops over taps, and left as they are where no loop fits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.rolled import LEAST, rolled
from kernelmate.synthesis.stacked import spread_stacks
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for

ARGS = {"x": "in float32[h, w]", "f": "in float32[3, 3]", "y": "out float32[h, w]", "h": "int32", "w": "int32"}
SIDES = "{ h = 37, w = 53 }, { h = 5, w = 7 }, { h = 1, w = 1 }"
STACK = """
def reference(x, f):
    h, w = x.shape
    p = np.pad(x, 1)
    return {}
"""
SHIFTED = "np.stack([p[a : a + h, b : b + w] for a in range(3) for b in range(3)])"
SUM = f"np.einsum('shw,s->hw', {SHIFTED}, f.reshape(9))"


def graph_of(make: Any, folder: Path, value: str) -> Graph:
    _, contract = make(ARGS, STACK.format(value).strip(), sizes=SIDES, grid="h")
    return trace(contract, folder)


def operations(graph: Graph) -> list[str]:
    return [str(node.data[0]) if node.op in ("map", "reduce") else node.op for node in graph.nodes]


def test_taps_of_a_stack_are_two_loops(make: Any, tmp_path: Path) -> None:
    kernel, contract = make(ARGS, STACK.format(SUM).strip(), sizes=SIDES, grid="h")
    for written in kernels_for(trace(contract, tmp_path), kernel, contract):
        text = written.definition
        assert text.count("sum += ") == 1, text
        assert "for (int dy = 0; dy < 3; ++dy)" in text
        assert "#pragma unroll" in text


@pytest.mark.parametrize("kind", ["sum", "max", "min"])
def test_a_stack_becomes_a_chain_of_its_terms(kind: str, make: Any, tmp_path: Path) -> None:
    graph = graph_of(make, tmp_path, f"({SHIFTED} * f.reshape(9, 1, 1)).{kind}(axis=0)")
    spread = spread_stacks(graph, LEAST)
    name = {"sum": "add", "max": "maximum", "min": "minimum"}[kind]
    assert operations(spread).count(name) == 8
    assert operations(graph).count(name) == 0
    assert operations(rolled(graph)).count(kind) == 2


@pytest.mark.parametrize(
    "value",
    [
        "np.stack([p[a : a + h, b : b + w] for a in range(2) for b in range(2)]).sum(axis=0) + f[0, 0]",  # few taps
        "np.stack([p[1 : h + 1, 1 : w + 1] * k for k in (1, 4, 2, 8, 5, 7, 3, 6, 9)]).sum(axis=0) + f[0, 0]",  # no even steps
        "np.repeat(x[None], 9, axis=0).sum(axis=0) + f[0, 0]",  # no stack
    ],
)
def test_what_no_loop_fits_stays_a_reduction(value: str, make: Any, tmp_path: Path) -> None:
    graph = graph_of(make, tmp_path, value)
    assert operations(rolled(graph)).count("sum") == operations(graph).count("sum") == 1
