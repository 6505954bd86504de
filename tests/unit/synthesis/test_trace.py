"""Traced references mean what NumPy computes, at sizes that were not traced; what is not traced is named with its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.checks.reference import python_reference
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Contract
from kernelmate.source import argument_shapes, numpy_dtype
from kernelmate.synthesis.graph import Graph, evaluate
from kernelmate.synthesis.trace import sizes_to_trace, trace

MATRIX = {"x": "in float32[rows, cols]", "y": "out float32[rows, cols]", "cols": "int32"}
REDUCED = {"x": "in float32[rows, cols]", "y": "out float32[rows]", "cols": "int32"}
WEIGHTED = {"x": "in float32[rows, cols]", "w": "in float32[cols]", "y": "out float32[rows, cols]", "cols": "int32"}
SCALED = {**MATRIX, "a": "float32 = 0.5"}
LABELLED = {"x": "in float32[rows, cols]", "t": "in int32[rows]", "y": "out float32[rows]", "cols": "int32"}

EMBEDDED = {"x": "in float32[8, cols]", "t": "in int32[rows]", "y": "out float32[rows, cols]", "cols": "int32"}

REFERENCES = {
    "expression": (MATRIX, "np.tanh(x) * 0.5"),
    "softmax": (MATRIX, "def reference(x):\n    e = np.exp(x - x.max(axis=-1, keepdims=True))\n    return e / e.sum(-1, keepdims=True)"),
    "log-sum-exp": (REDUCED, "def reference(x):\n    m = np.max(x, axis=1)\n    return m + np.log(np.exp(x - m[:, None]).sum(axis=1))"),
    "layer norm": (MATRIX, "def reference(x):\n    return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5)"),
    "size in arithmetic": (REDUCED, "def reference(x, cols):\n    return x.sum(axis=1) / max(cols, 1) / np.sqrt(cols)"),
    "len and shape": (REDUCED, "def reference(x):\n    return x.sum(axis=1) * len(x) / x.shape[1]"),
    "scalar constructors": (SCALED, "def reference(x, a):\n    k = np.float32(a)\n    return x * float(k) + np.float64(2) * int(3)"),
    "out": (MATRIX, "def reference(x):\n    y = np.empty_like(x)\n    np.multiply(x, 2, out=y)\n    np.add(y, 1, out=y)\n    return y"),
    "assignment of a whole array": (MATRIX, "def reference(x, rows, cols):\n    y = np.zeros((rows, cols))\n    y[:] = x\n    y += 1\n    return y"),
    "where and comparison": (MATRIX, "def reference(x):\n    return np.where((x > 0.5) & (x < 0.8), x, -x)"),
    "clip and power": (MATRIX, "def reference(x):\n    return np.clip(x, 0.2, 0.9) ** 3 + x**2"),
    "broadcast of a vector": (WEIGHTED, "def reference(x, w):\n    return x * w[None, :] + w"),
    "reduction over both": (MATRIX, "def reference(x):\n    return x / x.max()"),
    "transposition twice": (MATRIX, "def reference(x):\n    return np.exp(x.T).T"),
    "matrix product": (REDUCED, "def reference(x):\n    return x @ np.ones(x.shape[1])"),
    "einsum": (WEIGHTED, "def reference(x, w):\n    return np.einsum('ij,j->ij', x, w)"),
    "reshape": (MATRIX, "def reference(x):\n    return np.abs(x.reshape(-1)).reshape(x.shape)"),
    "labels": (LABELLED, "def reference(x, t):\n    return x[np.arange(x.shape[0]), t.astype(np.int64)]"),
    "labels along an axis": (LABELLED, "def reference(x, t):\n    return np.take_along_axis(x, t[:, None].astype(int), axis=1)[:, 0]"),
    "positions": (MATRIX, "def reference(x):\n    return np.where(np.arange(x.shape[1]) > 2, x, -1.0)"),
    "functions of math": (MATRIX, "import math\n\n\ndef reference(x, cols):\n    return x / math.sqrt(cols) * math.pi + math.prod(x.shape)"),
    "triangle": (MATRIX, "def reference(x):\n    return np.tril(x) + np.triu(x, 2) * 3"),
    "mask by position": (MATRIX, "def reference(x, rows, cols):\n    return np.where(np.tri(rows, cols, dtype=bool), x, np.eye(rows, cols))"),
    "outer product": (REDUCED, "def reference(x):\n    return np.outer(x.mean(axis=1), x.sum(axis=1)).max(axis=1)"),
    "einsum with an ellipsis": (WEIGHTED, "def reference(x, w):\n    return np.einsum('...j,j->...j', x, w)"),
    "einsum without a result": (REDUCED, "def reference(x):\n    return np.einsum('ij,j', x, x.sum(axis=0))"),
    "softmax of scipy": (MATRIX, "from scipy.special import expit, softmax\n\n\ndef reference(x):\n    return softmax(x, axis=1) + expit(x)"),
    "rows by index": (EMBEDDED, "def reference(x, t):\n    return x[t.astype(np.int64)] + np.take(x, t, axis=0)"),
    "einsum of columns": (REDUCED, "def reference(x):\n    return np.einsum('ji,ji->i', x.T, x.T) + np.einsum('ij->i', x)"),
    "reduction of a transposed array": (REDUCED, "def reference(x):\n    return x.T.sum(axis=0) + x.T[None].max(axis=(0, 1))"),
    "norm": (REDUCED, "def reference(x):\n    return np.linalg.norm(x, axis=1)"),
    "scans": (MATRIX, "def reference(x):\n    return np.cumsum(x, axis=1) + x.cumprod(axis=0) - np.maximum.accumulate(x, axis=1)"),
    "scans from the end": (MATRIX, "def reference(x):\n    return np.cumsum(x[:, ::-1], axis=1)[:, ::-1] + np.flipud(np.cumsum(np.flipud(x * 2), axis=0))"),
    "a flip of a product": (MATRIX, "def reference(x):\n    return np.flip(x * x[0:], axis=1) + np.fliplr(np.flip(x))"),
    "counts": (LABELLED, "def reference(t):\n    return np.bincount(t, minlength=7)[t] * 0.5 + np.bincount(t.astype(int), weights=t * 0.5, minlength=7)[t]"),
    "additions of whole rows by number": ({**LABELLED, "y": "out float32[9, cols]"}, "def reference(x, t, cols):\n    out = np.zeros((9, cols))\n    np.add.at(out, (t, slice(None)), x)\n    np.add.at(out, (t, ...), x * 2)\n    return out"),
    "additions by number": (LABELLED, "def reference(t):\n    out = np.ones(9)\n    np.add.at(out, t, t * 0.25)\n    np.add.at(out, t, 1)\n    return out[t]"),
    "columns by number": (LABELLED, "def reference(x, t):\n    return np.take(x, t, axis=1).max(axis=1) + x[:, t].sum(axis=1)"),
    "elements along an axis": (MATRIX, "def reference(x, cols):\n    at = np.arange(cols) * 5 % cols\n    return np.take_along_axis(x, np.broadcast_to(at, x.shape), axis=1)"),
    "differences": (REDUCED, "def reference(x):\n    return x[:, 0:].sum(axis=1) + np.repeat(np.diff(x.sum(axis=0)).sum() + x[:, 0:].max(axis=1), 1)"),
    "assignment by a mask": (MATRIX, "def reference(x):\n    y = x - 0.5\n    y[y < 0] *= 0.1\n    y[y > 0.4] = 2\n    return y"),
    "a mask of some axes": (MATRIX, "def reference(x, cols):\n    y = np.stack([x, x * 2])\n    y[:, np.triu(np.ones(x.shape, dtype=bool), k=1)] = -1\n    y[0, ...] += x\n    return y.sum(axis=0)"),
    "elements of a mask": (REDUCED, "def reference(x):\n    return x.sum(axis=1) * x[x > 0.5].mean() + (x > 0.25).any() * np.count_nonzero(x < 0.5, axis=1)"),
    "a ufunc with where": (MATRIX, "def reference(x):\n    y = np.zeros_like(x)\n    np.divide(x, 0.5, out=y, where=x > 0.3)\n    return y + np.clip(x, 0.1, 0.2, out=np.empty_like(x))"),
    "select": (MATRIX, "def reference(x):\n    y = np.select([x < 0.2, x < 0.6], [x * 2, -x], default=0.5)\n    np.putmask(y, y > 0.9, 3)\n    np.copyto(y, x, where=y < -0.5)\n    return y"),
    "signs": (MATRIX, "def reference(x):\n    return np.sign(x - 0.5) * x"),
    "positions with a step": (MATRIX, "def reference(x, cols):\n    y = np.zeros_like(x)\n    y[:, 0::2] = np.sin(np.arange(0, cols, 2) / 7.0)\n    return y + np.linspace(0, 1, cols + 1)[1:] + np.arange(3, cols + 3)"),
    "a number by a size": (MATRIX, "SCALE = 4.0\n\n\ndef reference(x, cols, eps=2.5):\n    return x * (1.0 / cols) + SCALE / cols - np.log(10000.0) / cols * 2.0**cols / 3.0**cols + eps / cols + np.pi / cols"),
    "argmax": (REDUCED, "def reference(x):\n    return x.argmax(axis=1) + np.argmin(x, axis=1) * 0.5 + np.argmax(x)"),
    "a table of numbers": (REDUCED, "def reference(x):\n    return np.stack([x[:, 0], x[:, 1], x[:, 2]], axis=1) @ np.array([[0.3, 0.2], [0.1, 0.5], [0.7, 0.4]]) @ np.array([1.0, -2.0])"),
    "a list among arrays": (REDUCED, "def reference(x):\n    return np.concatenate([[0.0, 1.0], x[2:, 0]])"),
    "functions of several operations": (MATRIX, "def reference(x):\n    a, b = np.split(np.concatenate([x, x * 2], axis=1), 2, axis=1)\n    return np.logaddexp(a, b) + np.moveaxis(np.moveaxis(x[None], 0, 2), -1, 0)[0] + np.logaddexp.reduce(x, axis=1)[:, None]"),
    "remainders and steps": (MATRIX, "def reference(x):\n    y = x - 0.5\n    return y % 0.3 + np.mod(y, -0.2) + np.remainder(x, y) + np.heaviside(y, 0.5) + np.fmod(y, 0.2) + np.copysign(x, y)"),
    "inverse functions": (MATRIX, "def reference(x):\n    return np.arcsin(x) + np.arccos(x) * 2 + np.arctan2(x - 0.5, x) + np.arcsinh(x) - np.arccosh(x + 1) + np.arctanh(x * 0.5)"),
    "differences with ends": (MATRIX, "def reference(x):\n    return np.diff(x, prepend=0.0) + np.diff(x, axis=0, append=x[:1]) + np.diff(x, prepend=x[:, :1], axis=1)"),
    "choices by functions": (MATRIX, "def reference(x):\n    y = np.piecewise(x, [x < 0.2, x > 0.6], [lambda v: -v, 0.25, lambda v: v * v])\n    return y + np.digitize(x, [0.25, 0.5, 0.75]) + np.digitize(x, [0.1, 0.4], right=True) * 0.5"),
    "what is no number": (REDUCED, "def reference(x):\n    y = np.log(x - 0.3)\n    return np.nansum(y, axis=1) + np.nanmean(y, axis=1) + np.vecdot(x, x * 2)"),
    "an array rolled as a whole": (MATRIX, "def reference(x):\n    return np.roll(x, 3) - np.roll(x, -1)"),
    "gradient": (MATRIX, "def reference(x):\n    g, h = np.gradient(x)\n    return g * 2 + h + np.gradient(x, 0.5, axis=1)"),
    "convolution of a row": (REDUCED, "def reference(x):\n    w = np.array([0.25, 0.5, 1.0, 2.0])\n    v = x[:, 0]\n    return np.convolve(v, w, mode='same') + np.convolve(v, [1.0, 2.0], 'full')[1:] + np.pad(np.convolve(v, w[:3], 'valid'), 1)"),
    "vectorized functions": (MATRIX, "import math\n\nerf = np.vectorize(math.erf)\n\n\ndef reference(x):\n    return x * (1 + erf(x / math.sqrt(2.0)))"),
    "one element of each row": (LABELLED, "def reference(x, t):\n    y = x.copy()\n    y[np.arange(len(t)), t] -= 1\n    y[np.arange(len(t)), t + 0] = t * 2\n    return y.sum(axis=1)"),
    "mirrored borders": (MATRIX, "def reference(x, cols):\n    p = np.pad(x, ((0, 0), (2, 1)), mode='reflect')\n    q = np.pad(x, ((1, 2), (0, 0)), mode='symmetric')\n    return p[:, :cols] + p[:, 3:] * 2 + q[3:] - q[:-3]"),
    "a loop over a few parts": (MATRIX, "def reference(x):\n    y = np.zeros_like(x)\n    for c in np.stack([x[0], x[1], x[2]])[1:]:\n        y = y * x + c\n    return y + np.max([x[i : i + 2, 0] for i in range(3)], axis=0)[1]"),
    "whole numbers": (LABELLED, "def reference(x, t):\n    a = (t - 4) // 3 + (t - 4) % 3 * 2 + np.maximum(t.astype(np.int8), 3)\n    return (a + t.astype(np.uint8) * np.uint8(77) + np.where(t > 2, t, -t)) * 0.5"),
    "a loop over rows": (MATRIX, "def reference(x):\n    y = np.empty_like(x)\n    for i in range(x.shape[0]):\n        row = x[i]\n        e = np.exp(row - row.max())\n        y[i] = e / e.sum() + i\n    return y"),
    "a loop over rows and columns": (MATRIX, "def reference(x, rows, cols):\n    y = np.zeros((rows, cols))\n    for i in range(rows):\n        for j in range(cols):\n            y[i, j] = x[i, j] * i + np.sin(0.1 * j) + x[:, j].sum()\n    return y"),
    "neighbours in a loop": (MATRIX, "def reference(x):\n    y = x.copy()\n    for i in range(1, x.shape[0] - 1):\n        y[i] = 0.5 * x[i - 1] + x[i + 1] - x[i, ::-1] + x[i, 0] - x[-1]\n    return y"),
    "sums in a loop": (MATRIX, "def reference(x):\n    y = np.zeros_like(x)\n    for i in range(x.shape[0]):\n        y += np.outer(x[:, 0] * i, x[i])\n    y[0] -= 1\n    for column in x.T:\n        y[0] += column.sum()\n    return y"),
    "a list of rows": (MATRIX, "def reference(x):\n    rows = [np.cumsum(row) for row in x]\n    more = []\n    for i, row in enumerate(x):\n        more.append(row[None] * i)\n    return np.stack(rows) + np.array(rows) + np.concatenate(more, axis=0)"),
    "arrays side by side": (REDUCED, "def reference(x):\n    y = np.zeros(x.shape[0])\n    for i, (a, b) in enumerate(zip([1.0, 2.0], [3.0, 4.0])):\n        y += a * x[:, i] * b\n    return y + np.stack([a @ b for a, b in zip(x, x * 2)])"),
    "windows in a loop": (REDUCED, "def reference(x):\n    v = x[:, 0]\n    p = np.pad(v, 1)\n    y = np.zeros(len(v))\n    for i in range(len(v)):\n        y[i] = p[i : i + 3].max() + np.where(v[i] > 0.5, p[i + 2], -1)\n    return y"),
    "numbers in a loop": (LABELLED, "def reference(x, t):\n    y = np.zeros(len(t))\n    for i in range(len(t)):\n        y[i] = x[i, t[i]] + x[t[i] % 5, 0] + x[:, t[i]].sum()\n    return y"),
    "a product for each of some": (REDUCED, "def reference(x, cols):\n    a = np.stack([x, x * 2])\n    out = np.zeros((2, x.shape[0], x.shape[0]))\n    for b in range(a.shape[0]):\n        out[b] = a[b] @ a[b].T / np.sqrt(cols)\n    heads = [a[h].sum() for h in range(2)]\n    return out.sum(axis=(0, 2)) * heads[0]"),
    "additions to one element": (REDUCED, "def reference(x, rows, cols):\n    y = np.zeros(rows)\n    z = np.ones((rows, rows))\n    for i in range(rows):\n        for k in range(cols):\n            y[i] += x[i, k] * 2\n        for j in range(rows):\n            for k in range(cols):\n                z[i, j] += x[i, k] * x[j, k]\n    return y + z.sum(axis=1)"),
    "additions by number in a loop": (LABELLED, "def reference(x, t):\n    y, z = np.ones(9), np.zeros((9, x.shape[1]))\n    for i in range(len(t)):\n        y[t[i]] += x[i, 0]\n    for i, k in enumerate(t):\n        z[k] -= 2 * x[i]\n    for i in range(x.shape[0]):\n        for j in range(x.shape[1]):\n            z[t[i], j] += x[i, j] * j\n    np.subtract.at(y, t, x[:, 1])\n    return y[t] + z[t].sum(axis=1)"),
    "an initial value": (REDUCED, "def reference(x):\n    low = x.max(axis=1, initial=-1e300) - np.min(x, axis=1, initial=0.1)\n    return x.max(axis=1, initial=0.7) + x.sum(axis=1, initial=2.0) + low"),
    "the least number as an initial value": (REDUCED, "def reference(x):\n    return np.where(x > 2, x, -np.inf).max(axis=1, initial=-3.4028234663852886e38)"),
    "bounds and medians of whole numbers": (LABELLED, "def reference(x, t):\n    return np.maximum(np.maximum(t, 0.5), 1) * 3 + np.median(np.stack([t, t // 2, t * 3, t + 1]), axis=0)"),
    "ends of long rows in order": (MATRIX, "def reference(x):\n    s, t = np.sort(x, axis=1), -np.sort(-x, axis=1)[:, ::-1]\n    i = np.argsort(-x, axis=1, kind='stable')[:, :1].astype(np.int32)\n    return x - s[:, -1:] * i + t[:, 0][:, None] * np.argpartition(x, 0, axis=1)[:, :1] + np.take_along_axis(x, i, 1)"),
    "a few values in order": (REDUCED, "def reference(x):\n    v = np.stack([x[:, 0], x[:, 1] * 2, x[:, 2], 0.5 - x[:, 0], x[:, 2] * x[:, 1]], axis=1)\n    p = np.argsort(v, axis=1)\n    return np.sort(v, axis=1) @ np.arange(5.0) + p @ np.arange(1.0, 6.0) + np.partition(v, 1, axis=1)[:, 1] + np.argsort(np.floor(v * 2), axis=1, kind='stable')[:, 2]"),
    "vectors and small matrices": (REDUCED, "def reference(x):\n    u = np.stack([x[:, 0], x[:, 1], x[:, 2]], axis=1)\n    v = u**2 + 1\n    m = np.stack([u, v, np.cross(u, v + u)], axis=1)\n    return np.linalg.det(m) + np.linalg.det(m[:, :2, :2]) + np.cross(u, np.array([0.5, 1.0, 2.0])).sum(axis=1)"),
    "grids": (MATRIX, "def reference(x, rows, cols):\n    i, j = np.meshgrid(np.arange(rows), np.arange(cols), indexing='ij')\n    u, v = np.meshgrid(x[0], np.arange(rows) * 0.5)\n    return x * i + j + u - v + np.meshgrid(x[:, 0], x[1], indexing='ij', sparse=True)[0]"),
    "products of blocks": (REDUCED, "def reference(x):\n    return np.kron(x, np.array([[1.0, 2.0]]) * x[:1, :2]).reshape(x.shape[0], -1).sum(axis=1)"),
    "a sum of hundreds of terms": (MATRIX, "def reference(x):\n    y = np.zeros_like(x)\n    for k in range(1, 301):\n        y += x / k\n    return y"),
    "functions of math of one element": (MATRIX, "import math\nfrom math import erf\n\n\ndef reference(x):\n    return np.vectorize(lambda v: 0.5 * (1 + erf(v / math.sqrt(2))))(x) + np.vectorize(math.erfc)(x)"),
    "quarter turns": (MATRIX, "def reference(x):\n    return np.rot90(np.rot90(x, 3)) + np.rot90(x * 2, 2) + np.rot90(np.rot90(x[None], 1, axes=(1, 2)), -1, axes=(1, 2))[0]"),
    "a filled diagonal": (MATRIX, "def reference(x):\n    y = x * 2\n    np.fill_diagonal(y, -1.5)\n    return y"),
    "medians of a few": (REDUCED, "def reference(x):\n    odd = np.median([x[:, 0], x[:, 1], x[:, 2], x[:, 0] * x[:, 1], x[:, 2] * 0.5], axis=0)\n    return odd + np.median(np.stack([x[:, 0], x[:, 1], x[:, 2], x[:, 1] - 0.2], axis=1), axis=1)"),
    "whole powers": (MATRIX, "def reference(x):\n    return (x + 0.5) ** -6 + x**5 - x**7 + (x + 1) ** -2 * x**8 + (x + 1) ** -1 + (x + 2) ** 6"),
    "bounds of bounds": (MATRIX, "def reference(x):\n    return np.maximum(np.maximum(x, 0.2), 0.4) + np.minimum(np.minimum(x, 0.3), 0.6) * np.maximum(np.minimum(x, 0.5), 0.1) + 2.0 ** np.floor(x * 4)"),
    "whole numbers for a narrow result": ({**MATRIX, "y": "out int8[rows, cols]"}, "def reference(x):\n    return np.clip(np.rint(x * 200 - 100), -128, 127) - np.where(x > 0.5, np.floor(x), 2.0)"),
    "bits": (LABELLED, "def reference(x, t):\n    return np.bitwise_count(t.astype(np.uint32)) * 0.5 + np.bitwise_count(t.astype(np.uint8) ^ np.uint8(85))"),
    "average": (REDUCED, "def reference(x):\n    return np.average(x, axis=1) + np.average(x, axis=1, weights=x + 1)"),
    "a value in full": (MATRIX, "def reference(x):\n    return np.full_like(x, x[0, 0]) + np.full(x.shape, x.shape[0] * 2)"),
    "another name for an array": (MATRIX, "def reference(x):\n    y = np.asarray(x)\n    y += 1\n    z = x.copy()\n    z *= 3\n    return x + z"),
    "other functions of the file": (MATRIX, "def twice(x):\n    return x * 2\n\n\ndef reference(x):\n    return twice(x) + np.full(x.shape[1], 0.25)"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFERENCES)
def test_a_graph_means_what_numpy_computes_at_a_size_that_was_not_traced(name: str, make: Any, tmp_path: Path) -> None:
    args, reference = REFERENCES[name]
    if "scipy" in reference:
        pytest.importorskip("scipy", reason="SciPy is not installed: pip install scipy")
    _, contract = make(args, reference, sizes="{ rows = 6, cols = 40 }, { rows = 5, cols = 7 }")
    graph = trace(contract, tmp_path)
    size = {"rows": 11, "cols": 13}
    assert size not in sizes_to_trace(contract)
    arrays = _arrays(contract, size)
    wanted = python_reference(contract, tmp_path)
    assert wanted is not None
    scalars = {"a": 0.5, "cols": 13}
    got = evaluate(
        graph, {**{n: v.astype(float) if v.dtype.kind == "f" else v for n, v in arrays.items()}, **scalars}, size
    )
    np.testing.assert_allclose(got[0], wanted(arrays, size)["y"], rtol=1e-12)


def _arrays(contract: Contract, size: dict[str, int]) -> dict[str, np.ndarray[Any, Any]]:
    rng, shapes = np.random.default_rng(1), argument_shapes(contract, size)
    made = {}
    for one in contract.args:
        if one.shape is not None:
            dtype = numpy_dtype(one.dtype)
            values = rng.random(shapes[one.name]) if dtype.kind == "f" else rng.integers(0, 7, shapes[one.name])
            made[one.name] = values.astype(dtype)
    return made


def test_a_graph_survives_the_journey_as_text(make: Any, tmp_path: Path) -> None:
    args, reference = REFERENCES["softmax"]
    graph = trace(make(args, reference)[1], tmp_path)
    assert Graph.of(graph.text()) == graph


def test_sizes_stay_symbolic_where_a_listed_size_is_one(make: Any, tmp_path: Path) -> None:
    _, contract = make(WEIGHTED, "x * w", sizes="{ rows = 1, cols = 1 }")
    graph = trace(contract, tmp_path)
    assert graph.nodes[graph.outputs[0]].shape == ("rows", "cols")


REFUSED = {
    "a branch over a value": ("def reference(x):\n    if x.sum() > 0:\n        return x\n    return -x", 5, "a branch over a value"),
    "the value of a last turn": ("def reference(x):\n    for row in x:\n        y = row * 2\n    return x + y", 7, "after the loop"),
    "a recurrence of three elements": ("def reference(x):\n    y = x.copy()\n    for i in range(3, x.shape[0]):\n        y[i] = y[i - 1] * 0.5 + y[i - 3]\n    return y", 7, "a value of another one"),
    "what some turns have added": ("def reference(x, rows, cols):\n    y, z = np.zeros(rows), np.zeros((rows, cols))\n    for i in range(rows):\n        for k in range(cols):\n            y[i] += x[i, k]\n            z[i, k] = y[i]\n    return z", 9, "a value of another one"),
    "what some turns have added by number": ("def reference(x, rows):\n    t, y = np.arange(rows) % 3, np.zeros(rows)\n    for i in range(rows):\n        y[t[i]] += x[i, 0]\n        x[i] += y[i]\n    return x", 8, "a value of another one"),
    "an element by number that is scaled": ("def reference(x, rows):\n    t, y = np.arange(rows) % 3, np.zeros(rows)\n    for i in range(rows):\n        y[t[i]] = 2 * y[t[i]] + x[i, 0]\n    return x + y[0]", 7, "a value of another one"),
    "a slice of a block that a value numbers": ("def reference(x, rows):\n    y = np.zeros(rows)\n    for i in range(rows):\n        first = 2 * x[i, 0].astype(int)\n        y[i] = x[i, first : first + 2].sum()\n    return y", 8, "whose bound is a value"),
    "a loop with a step": ("def reference(x, rows):\n    y = x.copy()\n    for i in range(0, rows, 2):\n        y[i] = 0\n    return y", 6, "with a step"),
    "slices that grow along an axis that is kept": ("def reference(x):\n    y = np.zeros_like(x)\n    for i in range(len(x)):\n        y[i] = np.median(x[: i + 1], axis=0)\n    return y", 7, "length differs"),
    "slices of lengths that differ": ("def reference(x):\n    y = np.zeros_like(x)\n    for i in range(1, len(x)):\n        y[i] = (x[:i] * x[i:]).sum()\n    return y", 7, "lengths differ"),
    "an unknown function": ("def reference(x):\n    y = x + 1\n    return np.sort(y, axis=1)", 6, "np.sort"),
    "an unknown method": ("def reference(x):\n    return x.argsort()", 5, "argsort"),
    "an element by a computed number": ("def reference(x):\n    y = x.copy()\n    y[x.argmax()] = 1\n    return y", 6, "chosen by an array"),
    "a branch over a size": ("def reference(x, cols):\n    if cols > 30:\n        return x * 2\n    return x + x", 6, "depend on a size"),
    "a size as a Python number": ("import math\ndef reference(x, cols):\n    return x * math.gcd(cols, 4)", 6, "np.gcd"),
    "a scan of all axes": ("def reference(x):\n    return x + np.cumsum(x)[-1]", 5, "whose axes it merges"),
    "a scan of another operation": ("def reference(x):\n    return np.subtract.accumulate(x, axis=1)", 5, "another operation"),
    "a view that is assigned to": ("def reference(x):\n    y = x.T\n    x += 1\n    return y.T", 6, "view"),
    "a constant table": ("def reference(x):\n    return x + np.arange(200.0)[:1] + np.sin(np.array(range(100)))", 5, "constant array"),
    "a table by a size": ("def reference(x, cols):\n    return x + np.hanning(cols)", 5, "np.hanning of a size"),
    "another ufunc": ("def reference(x):\n    return np.nextafter(x, 1.0)", 5, "np.nextafter"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_traced_is_named_with_its_line(name: str, make: Any, tmp_path: Path) -> None:
    reference, line, what = REFUSED[name]
    _, contract = make(MATRIX, reference)
    with pytest.raises(ReferenceFailed, match=what) as refused:
        trace(contract, tmp_path)
    assert refused.value.line == line
    assert f"reference.py:{line}: The reference cannot be traced" in refused.value.message


def test_a_branch_that_only_the_headline_takes_is_seen(make: Any, tmp_path: Path) -> None:
    reference = "def reference(x, cols):\n    return x * 2 if cols > 4096 else x + 1"
    _, contract = make(MATRIX, reference, sizes="{ rows = 2, cols = 5000 }, { rows = 3, cols = 7 }")
    with pytest.raises(ReferenceFailed, match="depend on a size"):
        trace(contract, tmp_path)


INTERIOR = """\
def reference(x):
    y = x.copy()
    if min(x.shape) > 2:
        y[1:-1, 1:-1] = 0.25 * (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:])
    return y
"""


def test_a_special_case_of_the_smallest_sizes_is_left_to_the_judge(make: Any, tmp_path: Path) -> None:
    _, contract = make(
        MATRIX, INTERIOR, sizes="{ rows = 40, cols = 64 }, { rows = 7, cols = 5 }, { rows = 1, cols = 1 }"
    )
    graph = trace(contract, tmp_path)
    assert {"rows": 1, "cols": 1} in sizes_to_trace(contract)
    wanted = python_reference(contract, tmp_path)
    assert wanted is not None
    for size in ({"rows": 1, "cols": 1}, {"rows": 2, "cols": 9}, {"rows": 6, "cols": 3}):
        arrays = _arrays(contract, size)
        (got,) = evaluate(graph, {"x": arrays["x"].astype(float), "cols": size["cols"]}, size)
        np.testing.assert_allclose(got, wanted(arrays, size)["y"])


@pytest.mark.parametrize(
    ("reference", "sizes"),
    [
        (INTERIOR.replace("> 2", "> 6"), "{ rows = 40, cols = 64 }, { rows = 7, cols = 5 }"),
        # Small in another dimension than the one that is asked of.
        (
            "def reference(x):\n    return x * 2 if x.shape[0] > 3000 else x + 1",
            "{ rows = 4000, cols = 2 }, { rows = 3500, cols = 2 }, { rows = 40, cols = 2 }",
        ),
    ],
    ids=["at most six rows", "many rows"],
)
def test_a_special_case_of_larger_sizes_is_refused(reference: str, sizes: str, make: Any, tmp_path: Path) -> None:
    _, contract = make(MATRIX, reference, sizes=sizes)
    with pytest.raises(ReferenceFailed, match="depend on a size"):
        trace(contract, tmp_path)


def test_sizes_at_which_numpy_would_refuse_are_not_traced(make: Any, tmp_path: Path) -> None:
    _, contract = make(MATRIX, "def reference(x, rows):\n    return np.pad(x[:, :rows] * np.arange(rows), ((0, 0), (0, x.shape[1] - rows)))", sizes="{ rows = 5, cols = 9 }, { rows = 3, cols = 4 }")  # fmt: skip
    assert trace(contract, tmp_path).outputs


def test_an_expression_that_is_not_traced_names_the_contract(make: Any, tmp_path: Path) -> None:
    _, contract = make(MATRIX, "np.sort(x)")
    with pytest.raises(
        ReferenceFailed, match=r"np.sort of more than 25 values, of which not only the first or last 16 are taken"
    ):
        trace(contract, tmp_path)
