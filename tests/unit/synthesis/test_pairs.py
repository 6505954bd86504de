"""Reductions over all pairs of two sets, written from references: right by the judge at sets of any size, in tiles and lanes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.session import Session
from kernelmate.synthesis.components import with_components
from kernelmate.synthesis.graph import Graph, Node, evaluate
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right

SIZES = "{ n = 270, m = 263 }, { n = 37, m = 5 }, { n = 1, m = 7 }"
EACH = "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= n) return;\n"
BODIES = {
    "p": "in float32[n, 3] ~ normal",
    "w": "in float32[n] ~ uniform(0, 1)",
    "a": "out float32[n, 3]",
    "n": "int32",
}
FORCES = (
    EACH
    + """  float x = 0, y = 0, z = 0;
  for (int j = 0; j < n; ++j) {
    float dx = p[j * 3] - p[i * 3], dy = p[j * 3 + 1] - p[i * 3 + 1], dz = p[j * 3 + 2] - p[i * 3 + 2];
    float r = dx * dx + dy * dy + dz * dz + 0.01f, f = w[j] / (r * sqrtf(r));
    x += f * dx; y += f * dy; z += f * dz;
  }
  a[i * 3] = x; a[i * 3 + 1] = y; a[i * 3 + 2] = z;"""
)
FLAT = {
    "x": "in float32[n] ~ normal",
    "y": "in float32[n] ~ normal",
    "w": "in float32[n] ~ uniform(0, 1)",
    "e": "out float32[n]",
    "n": "int32",
}
TWO = {"x": "in float32[n] ~ normal", "q": "in float32[m] ~ normal", "e": "out float32[n]", "n": "int32", "m": "int32"}
POTENTIAL = (
    EACH
    + "  float s = 0;\n  for (int j = 0; j < n; ++j) s += w[j] * rsqrtf((x[j] - x[i]) * (x[j] - x[i]) + (y[j] - y[i]) * (y[j] - y[i]) + 0.01f);\n  e[i] = s;"
)

CASES: dict[str, tuple[dict[str, str], str, str]] = {
    "forces between bodies": (BODIES, "def reference(p, w):\n    d = p[None, :, :] - p[:, None, :]\n    r2 = (d * d).sum(-1) + 0.01\n    f = w[None, :] / (r2 * np.sqrt(r2))\n    return (f[:, :, None] * d).sum(1)", FORCES),
    "forces by coordinates": (BODIES, "def reference(p, w):\n    x, y, z = p[:, 0], p[:, 1], p[:, 2]\n    dx, dy, dz = (one - one[:, None] for one in (x, y, z))\n    f = w / (dx**2 + dy**2 + dz**2 + 0.01) ** 1.5\n    return np.stack([(f * dx).sum(1), (f * dy).sum(1), (f * dz).sum(1)], axis=1)", FORCES),
    "forces by einsum": (BODIES, "def reference(p, w):\n    d = p[None, :, :3] - p[:, None, :3]\n    f = w / ((d**2).sum(2) + 0.01) ** 1.5\n    return np.einsum('ij,ijk->ik', f, d)", FORCES),
    "velocities changed in place": (
        {"p": "in float32[n, 4] ~ normal", "v": "inout float32[n, 4] ~ normal", "n": "int32", "step": "float32 = 0.25"},
        "def reference(p, v, step):\n    d = p[None, :, :3] - p[:, None, :3]\n    f = p[:, 3] / np.sqrt((d**2).sum(-1) + 0.5)\n    out = v.copy()\n    out[:, :3] += step * (f[:, :, None] * d).sum(1)\n    return out",
        EACH + "  float s[3] = {};\n  for (int j = 0; j < n; ++j) {\n    float d[3], r = 0.5f;\n    for (int c = 0; c < 3; ++c) { d[c] = p[j * 4 + c] - p[i * 4 + c]; r += d[c] * d[c]; }\n    for (int c = 0; c < 3; ++c) s[c] += p[j * 4 + 3] / sqrtf(r) * d[c];\n  }\n  for (int c = 0; c < 3; ++c) v[i * 4 + c] += step * s[c];",
    ),
    "a potential": (FLAT, "def reference(x, y, w):\n    dx, dy = x[None, :] - x[:, None], y[None, :] - y[:, None]\n    return (w[None, :] / np.sqrt(dx * dx + dy * dy + 0.01)).sum(axis=1)", POTENTIAL),
    "a potential in a loop": (FLAT, "def reference(x, y, w, n):\n    e = np.zeros(n)\n    for i in range(n):\n        e[i] = np.sum(w / np.sqrt((x - x[i]) ** 2 + (y - y[i]) ** 2 + 0.01))\n    return e", POTENTIAL),
    "a potential without the element itself": (
        FLAT, "def reference(x, y, w, n):\n    r2 = (x[None, :] - x[:, None]) ** 2 + (y[None, :] - y[:, None]) ** 2\n    return np.where(np.eye(n) > 0, 0.0, w[None, :] / (r2 + 0.01)).sum(axis=1)",
        EACH + "  float s = 0;\n  for (int j = 0; j < n; ++j) if (j != i) s += w[j] / ((x[j] - x[i]) * (x[j] - x[i]) + (y[j] - y[i]) * (y[j] - y[i]) + 0.01f);\n  e[i] = s;",
    ),
    "a density": ({**TWO, "h": "float32 = 0.5"}, "np.exp(-0.5 * ((x[:, None] - q[None, :]) / h) ** 2).mean(axis=1)", EACH + "  float s = 0;\n  for (int j = 0; j < m; ++j) s += expf(-0.5f * (x[i] - q[j]) / h * ((x[i] - q[j]) / h));\n  e[i] = s / m;"),
    "nearest distances": (
        {"p": "in float32[n, 3] ~ normal", "q": "in float32[m, 3] ~ normal", "e": "out float32[n]", "n": "int32", "m": "int32"},
        "((p[:, None, :] - q[None, :, :]) ** 2).sum(2).min(1)",
        EACH + "  float s = INFINITY;\n  for (int j = 0; j < m; ++j) {\n    float r = 0;\n    for (int c = 0; c < 3; ++c) r += (p[i * 3 + c] - q[j * 3 + c]) * (p[i * 3 + c] - q[j * 3 + c]);\n    if (r < s || isnan(r)) s = r;\n  }\n  e[i] = s;",
    ),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_reductions_over_pairs_are_right_for_sets_of_any_size(name: str, make: Any, session: Session) -> None:
    args, reference, body = CASES[name]
    kernel, _ = make(args, reference, body=body, grid="cdiv(n, block)", sizes=SIZES, more='require = ["m > 0"]')
    authors = assert_judged_right(session, kernel)
    assert {"synthesis:pairs-32", "synthesis:pairs-16"} == {*authors}


def test_a_thread_has_a_result_of_its_own_where_there_are_many(make: Any, tmp_path: Path) -> None:
    args, reference, body = CASES["nearest distances"]
    kernel, contract = make(args, reference, body=body, grid="cdiv(n, block)", sizes="{ n = 200000, m = 4096 }, { n = 37, m = 300 }")  # fmt: skip
    first = next(iter(kernels_for(trace(contract, tmp_path), kernel, contract)))
    assert first.schedule == "pairs-1"
    assert "shfl" not in first.definition


OTHERS = {
    "an array of all pairs": ({**TWO, "k": "in float32[n, m] ~ normal"}, "(k * (x[:, None] - q[None, :])).sum(axis=1)"),
    "reductions of reductions": (TWO, "np.exp((x[:, None] * q[None, :]) - (x[:, None] * q[None, :]).max(1, keepdims=True)).sum(axis=1)"),
    "one set alone": (TWO, "x - q.mean()"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_reductions_are_not_written_as_pairs(name: str, make: Any, tmp_path: Path) -> None:
    args, reference = OTHERS[name]
    kernel, contract = make(args, reference, grid="cdiv(n, block)", sizes=SIZES)
    try:
        found = [one.schedule for one in kernels_for(trace(contract, tmp_path), kernel, contract)]
    except Refused:
        found = []
    assert not [one for one in found if one.startswith("pairs")]


def test_elements_along_short_axes_mean_what_the_axes_did() -> None:
    point = Node("input", (), ("n", "3"), "float64", ("p",))
    nodes = (
        point,
        Node("view", (0,), ("1", "n", "3"), "float64", (None, 0, 1)),
        Node("view", (0,), ("n", "1", "3"), "float64", (0, None, 1)),
        Node("map", (1, 2), ("n", "n", "3"), "float64", ("subtract",), "d"),
        Node("map", (3,), ("n", "n", "3"), "float64", ("square",)),
        Node("reduce", (4,), ("n", "n"), "float64", ("sum", 2)),
        Node("reduce", (3,), ("n", "3"), "float64", ("max", 1)),
    )
    graph, values = Graph(nodes, (5, 6)), np.random.default_rng(1).random((7, 3))
    whole = evaluate(graph, {"p": values}, {"n": 7})
    split, places = with_components(graph)
    assert places == [(0, (None, None)), (1, (None, 0)), (1, (None, 1)), (1, (None, 2))]
    assert {one.name for one in split.nodes} >= {"d_x", "d_y", "d_z"}
    columns = tuple(
        Node("input", (), ("n",), "float64", (f"p{one.data[2]}",)) if one.op == "input" else one for one in split.nodes
    )
    found = evaluate(Graph(columns, split.outputs), {f"p{axis}": values[:, axis] for axis in range(3)}, {"n": 7})
    np.testing.assert_allclose(found[0], whole[0], rtol=1e-14)
    np.testing.assert_array_equal(np.stack(found[1:], axis=1), whole[1])
