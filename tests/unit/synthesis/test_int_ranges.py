"""Ranges of integers, from which the ranges of shift counts follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.synthesis.int_ranges import is_shift_of
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for


@pytest.mark.parametrize(
    ("count", "known"),
    [
        ("(x >> 28) + 4", True),
        ("x & 31", True),
        ("((x.astype(np.uint64) * 5 & 0xFFFFFFFF) >> 28) + 4", True),
        ("(x.astype(np.uint64) & 0xFFFFFFFF) >> 26", False),
        ("np.maximum((x & 7) + 3, 1)", True),
        ("np.minimum((x & 255).astype(np.int8), 31)", False),
        ("np.maximum((x & 7) - 3, 0)", False),
        ("(x & 31) + 1", False),
    ],
)
def test_a_shift_is_known_where_no_value_wraps(count: str, known: bool, make: Any, tmp_path: Path) -> None:
    args = {"x": "in uint32[n]", "y": "out uint32[n]", "n": "int32"}
    reference = f"def reference(x):\n    return x << ({count}).astype(np.uint32)"
    _, contract = make(args, reference, sizes="{ n = 6 }, { n = 3 }, { n = 1 }", grid="n")
    graph = trace(contract, tmp_path)
    (shift,) = [node for node in graph.nodes if node.data[:1] == ("left_shift",)]
    assert is_shift_of(graph, shift.args[1], 32) is known


@pytest.mark.parametrize(
    ("reference", "own", "narrow"),
    [
        ("np.cumsum(x, axis=1)", "int", True),
        ("np.cumsum(x, axis=1) - x", "int", True),
        ("np.cumsum(x, axis=1)", "long long", False),
        ("np.cumsum(x, axis=1) // 2", "int", False),
        ("np.maximum(np.cumsum(x, axis=1), 0)", "int", False),
    ],
)
def test_sums_are_as_wide_as_the_result_and_the_old_sums(
    reference: str, own: str, narrow: bool, make: Any, tmp_path: Path
) -> None:
    args = {"x": "in int32[rows, cols]", "y": "out int32[rows, cols]", "rows": "int32", "cols": "int32"}
    kernel, contract = make(args, reference, sizes="{ rows = 6, cols = 900 }", body=f"  {own} sum = 0;\n  y[0] = sum;")
    text = next(kernels_for(trace(contract, tmp_path), kernel, contract))
    assert ("long long" not in text.definition + text.helpers) is narrow
    assert "static_cast<int>(" not in text.definition + text.helpers or not narrow
