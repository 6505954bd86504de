"""Parts of arrays: traced slices, borders, joined and rolled arrays mean what NumPy computes, and what is not traced is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.checks.reference import python_reference
from kernelmate.errors import ReferenceFailed
from kernelmate.source import argument_shapes
from kernelmate.synthesis.graph import Graph, evaluate
from kernelmate.synthesis.index_maps import Linear, linear, never_negative
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for

MATRIX = {"x": "in float32[rows, cols]", "y": "out float32[rows, cols]", "rows": "int32", "cols": "int32"}


def shaped(shape: str) -> dict[str, str]:
    return {**MATRIX, "y": f"out float32[{shape}]"}


REFERENCES = {
    "five points": (MATRIX, "def reference(x):\n    y = x.copy()\n    y[1:-1, 1:-1] += 0.2 * (x[1:-1, :-2] + x[1:-1, 2:] + x[:-2, 1:-1] + x[2:, 1:-1])\n    return y"),
    "negative starts": (MATRIX, "def reference(x):\n    y = x * 2\n    y[-2:, -3:] = x[-2:, -3:]\n    return y"),
    "stops beyond the end": (MATRIX, "def reference(x):\n    y = np.zeros_like(x)\n    y[:4, :9] = x[:4, :9]\n    return y"),
    "steps": (MATRIX, "def reference(x):\n    y = np.zeros_like(x)\n    y[::2, 1::3] = x[::2, 1::3]\n    return y"),
    "backward steps": (MATRIX, "def reference(x):\n    y = x.copy()\n    y[::-1, ::-2] = x[:, ::2]\n    return y"),
    "a backward range": (shaped("rows, max(cols - 1, 0)"), "def reference(x):\n    return x[::-1, :0:-1]"),
    "single rows and columns": (MATRIX, "def reference(x):\n    y = x.copy()\n    y[0] = 1\n    y[-1, :] = x[0, ::-1]\n    y[:, 0] += y[:, -1]\n    return y"),
    "a part that is seen through another": (MATRIX, "def reference(x):\n    y = x.copy()\n    row = y[0]\n    part = row[1:]\n    part *= 3\n    row += 1\n    return y"),
    "a part by out": (MATRIX, "def reference(x):\n    y = np.zeros_like(x)\n    np.multiply(x[:, 1:], 2, out=y[:, 1:])\n    return y"),
    "new axes in a part": (MATRIX, "def reference(x):\n    return x[:1, None, ::-1][:, 0] * x[-1:] + x"),
    "zeros around": (shaped("rows + 3, cols + 3"), "np.pad(x, (1, 2))"),
    "a value on one side": (shaped("rows, cols + 2"), "np.pad(x, ((0, 0), (2, 0)), constant_values=7)"),
    "edges around": (shaped("rows + 2, cols + 4"), "np.pad(x, ((1,), (2,)), mode='edge')"),
    "opposite sides around": (shaped("rows + 2, cols + 2"), "np.pad(x, 1, mode='wrap')"),
    "padded, then taken apart": (MATRIX, "def reference(x, rows, cols):\n    p = np.pad(x, 1)\n    return sum(p[a : a + rows, b : b + cols] for a in range(3) for b in range(3))"),
    "joined": (shaped("rows, 2 * cols + 1"), "np.concatenate([x, x[:, :1], x * 2], axis=1)"),
    "joined in rows": (shaped("2 * rows, cols"), "np.vstack((x, -x))"),
    "stacked": ({**MATRIX, "y": "out float32[rows, 2, cols]"}, "np.stack([x, x + 1], axis=1)"),
    "halves": (MATRIX, "def reference(x, cols):\n    half = cols // 2\n    return np.hstack([-x[:, half:], x[:, :half]])"),
    "flipped": (MATRIX, "np.flip(x, axis=0) + np.fliplr(x) * 2"),
    "rolled": (MATRIX, "np.roll(x, 1, axis=0) + np.roll(x, (-2, 5), axis=(0, 1))"),
    "windows": ({**MATRIX, "y": "out float32[rows, cols]", "x": "in float32[rows, cols + 2]"}, "from numpy.lib.stride_tricks import sliding_window_view\n\n\ndef reference(x):\n    return sliding_window_view(x, 3, axis=1).max(axis=-1)"),
    "differences": (shaped("rows, max(cols - 1, 0)"), "np.diff(x)"),
    "second differences": (shaped("max(rows - 2, 0), cols"), "np.diff(x, n=2, axis=0)"),
    "pooling by slices": ({**MATRIX, "x": "in float32[2 * rows, 2 * cols]"}, "np.maximum(x[::2, ::2], x[1::2, 1::2])"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFERENCES)
def test_parts_mean_what_numpy_computes_at_sizes_that_were_not_traced(name: str, make: Any, tmp_path: Path) -> None:
    args, reference = REFERENCES[name]
    sizes = "{ rows = 6, cols = 40 }, { rows = 3, cols = 8 }"
    sizes += ", { rows = 1, cols = 1 }" if name in ("zeros around", "five points", "rolled", "joined") else ""
    _, contract = make(args, reference, sizes=sizes)
    graph = trace(contract, tmp_path)
    assert Graph.of(graph.text()) == graph
    wanted = python_reference(contract, tmp_path)
    assert wanted is not None
    for size in ({"rows": 11, "cols": 14}, {"rows": 4, "cols": 9}, {"rows": 13, "cols": 2}):
        shapes = argument_shapes(contract, size)
        arrays = {
            one: np.random.default_rng(1).random(shapes[one]).astype(np.float32) for one in ("x", "y") if one in shapes
        }
        got = evaluate(graph, {**{n: v.astype(float) for n, v in arrays.items()}}, size)
        np.testing.assert_allclose(got[0], wanted(arrays, size)["y"], rtol=1e-12)


REFUSED = {
    "a step that is a size": ("def reference(x, cols):\n    return x[:, ::cols] * x", 5, "a slice whose step is a size"),
    "another border": ("def reference(x):\n    return np.pad(x, 1, mode='linear_ramp')[1:-1, 1:-1]", 5, "np.pad with mode linear_ramp"),
    "a mask beside a slice": ("def reference(x):\n    y = x.copy()\n    y[1:, x[0] > 0] = 1\n    return y", 6, "a mask beside indices"),
    "a bound that is a value": ("def reference(x):\n    return x[: x.max()]", 5, "a slice whose bound is a value"),
    "an array that a transposed one is a view of": ("def reference(x):\n    y = x.copy()\n    z = y.T\n    y[1:] = 0\n    return z.T", 7, "view"),
    "joined without an axis": ("def reference(x):\n    return np.concatenate([x, x], axis=None)", 5, "without an axis"),
    "an index beyond some sizes": ("def reference(x):\n    return x * x[5, 0]", 5, "the index 5"),
    "arrays of positions along two axes": ("def reference(x):\n    return x[np.array([[0], [1]]), np.array([0, 1])]", 5, "indexing by an array"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_parts_that_are_not_traced_are_named_with_their_line(name: str, make: Any, tmp_path: Path) -> None:
    reference, line, what = REFUSED[name]
    _, contract = make(MATRIX, reference)
    with pytest.raises(ReferenceFailed, match=what) as refused:
        trace(contract, tmp_path)
    assert refused.value.line == line


def test_sums_of_sizes_have_one_form() -> None:
    assert linear("(length - taps) + 1 - length") == linear("1 - taps")
    assert linear("2 * (rows - 3)").text() == "(2 * rows - 6)"
    assert linear("0").text() == "0"
    assert linear("rows").text() == "rows"


def test_sums_are_proved_to_be_at_least_zero() -> None:
    assert never_negative(linear("dim - dim // 2"))
    assert never_negative(linear("rows + 2 - (rows + 1)"))
    assert never_negative(linear("2 * (rows // 2)"))
    assert never_negative(linear("2 * (rows // 2) + 1 - rows"))
    assert not never_negative(linear("rows - 1"))
    assert not never_negative(linear("2 * (cols // 2) - cols"))
    column = Linear((("__0", 1),))
    assert never_negative(linear("cols").plus(-1).plus(column, -1), {"__0": linear("cols")})
    assert not never_negative(linear("cols").plus(-2).plus(column, -1), {"__0": linear("cols")})


def test_halves_of_converted_rows_are_read_in_packs(make: Any, tmp_path: Path) -> None:
    reference = (
        "def reference(x):\n    a, b = np.split(x.astype(np.float32), 2, axis=1)\n    return a / (1 + np.exp(-a)) * b"
    )
    args = {"x": "in float16[rows, 2 * cols]", "y": "out float16[rows, cols]", "rows": "int32", "cols": "int32"}
    kernel, contract = make(args, reference)
    assert next(kernels_for(trace(contract, tmp_path), kernel, contract)).schedule == "permutation-packs"
