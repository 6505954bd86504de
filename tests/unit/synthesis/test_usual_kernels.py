"""Kernels as they are often first written: the kernels written from their references are right, NaN included."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kernelmate.errors import ReferenceFailed
from kernelmate.session import Session
from kernelmate.session.writing import write_kernel
from kernelmate.source.examples import load_python_function, read_examples
from kernelmate.synthesis.angles import within_a_turn
from kernelmate.synthesis.draft import KernelRequest
from kernelmate.synthesis.graph import Graph, Node, evaluate
from kernelmate.synthesis.kernel_text import KernelText
from kernelmate.synthesis.neutral import without_neutral
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.schedules import sweeps
from kernelmate.synthesis.size_text import size_text
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right, schedules_for

CASES: dict[str, tuple[dict[str, str], str, str, str, str, str]] = {
    "a blur with weights": (
        {"x": "in float32[h, w]", "y": "out float32[h, w]", "h": "int32", "w": "int32"},
        "def reference(x, h, w):\n    g = [1, 4, 6, 4, 1]\n    p = np.pad(x, 2)\n    return sum(g[i] * g[j] / 256 * p[i : i + h, j : j + w] for i in range(5) for j in range(5))",
        "  int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;\n  if (c >= w) return;\n  const int g[5] = {1, 4, 6, 4, 1};\n  float sum = 0.0f;\n"
        "  for (int i = 0; i < 5; ++i)\n    for (int j = 0; j < 5; ++j) {\n      int a = r + i - 2, b = c + j - 2;\n"
        "      if (a >= 0 && a < h && b >= 0 && b < w) sum += g[i] * g[j] / 256.0f * x[a * w + b];\n    }\n  y[r * w + c] = sum;",
        "cdiv(w, block)\", \"h", "{ h = 24, w = 40 }, { h = 7, w = 13 }, { h = 1, w = 1 }", "windows",
    ),
    "sums that begin anew at flags": (
        {"x": "in float32[rows, cols]", "f": "in uint8[rows, cols] ~ integers(0, 2)", "y": "out float32[rows, cols]", "rows": "int32", "cols": "int32"},
        "def reference(x, f):\n    h = np.zeros(len(x))\n    y = np.empty_like(x)\n    for t in range(x.shape[1]):\n"
        "        h = np.where(f[:, t] != 0, x[:, t], h + x[:, t])\n        y[:, t] = h\n    return y",
        "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= rows) return;\n  float h = 0.0f;\n"
        "  for (int t = 0; t < cols; ++t) {\n    h = f[r * cols + t] ? x[r * cols + t] : h + x[r * cols + t];\n    y[r * cols + t] = h;\n  }",
        "cdiv(rows, block)", "{ rows = 5, cols = 200 }, { rows = 3, cols = 37 }, { rows = 1, cols = 1 }", "recurrence",
    ),
    "pooling with places": (
        {"x": "in float32[n, 2 * h, 2 * w]", "y": "out float32[n, h, w]", "at": "out int32[n, h, w]", "h": "int32", "w": "int32"},
        "def reference(x, h, w):\n    v = x.reshape(-1, h, 2, w, 2).transpose(0, 1, 3, 2, 4).reshape(-1, h, w, 4)\n"
        "    return v.max(-1), v.argmax(-1).astype(np.int32)",
        "  int i = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y, p = blockIdx.z;\n  if (i >= w) return;\n"
        "  float best = -INFINITY;\n  int place = 0;\n  for (int k = 0; k < 4; ++k) {\n"
        "    float v = x[(p * 2 * h + 2 * r + k / 2) * 2 * w + 2 * i + k % 2];\n    if (v > best || (isnan(v) && !isnan(best))) { best = v; place = k; }\n  }\n"
        "  y[(p * h + r) * w + i] = best;\n  at[(p * h + r) * w + i] = place;",
        "cdiv(w, block)\", \"h\", \"n", "{ n = 3, h = 8, w = 20 }, { n = 2, h = 3, w = 7 }, { n = 1, h = 1, w = 1 }", "interleaved",
    ),
    "a convolution of groups": (
        {"x": "in float32[g * ci, l]", "k": "in float32[g * co, ci, 3]", "b": "in float32[g * co]", "y": "out float32[g * co, l - 2]", "g": "int32", "ci": "int32", "co": "int32", "l": "int32"},
        "def reference(x, k, b, g, ci, co, l):\n    x, k = x.reshape(g, ci, l), k.reshape(g, co, ci, 3)\n"
        "    y = sum(np.einsum('gcl,goc->gol', x[..., t : l - 2 + t], k[..., t]) for t in range(3))\n    return y.reshape(g * co, l - 2) + b[:, None]",
        "  int i = blockIdx.x * blockDim.x + threadIdx.x, o = blockIdx.y;\n  if (i >= l - 2) return;\n  float sum = b[o];\n"
        "  for (int c = 0; c < ci; ++c)\n    for (int t = 0; t < 3; ++t) sum += x[(o / co * ci + c) * l + i + t] * k[(o * ci + c) * 3 + t];\n  y[o * (l - 2) + i] = sum;",
        "cdiv(l - 2, block)\", \"g * co", "{ g = 3, ci = 4, co = 4, l = 50 }, { g = 2, ci = 3, co = 2, l = 13 }, { g = 1, ci = 1, co = 1, l = 3 }", "convolution",
    ),
    "a median of neighbours": (
        {"x": "in float32[n]", "y": "out float32[n]", "n": "int32"},
        "def reference(x, n):\n    p = np.pad(x, 1, mode='edge')\n    return np.median(np.stack([p[:n], x, p[2:]]), axis=0)",
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= n) return;\n  float a = x[max(i - 1, 0)], b = x[i], c = x[min(i + 1, n - 1)];\n"
        "  if (isnan(a) || isnan(b) || isnan(c)) { y[i] = isnan(a) ? a : isnan(b) ? b : c; return; }\n  y[i] = fmaxf(fminf(a, b), fminf(fmaxf(a, b), c));",
        "cdiv(n, block)", "{ n = 300 }, { n = 37 }, { n = 1 }", "windows",
    ),
    "an alignment bias before a softmax": (
        {"s": "in float32[h, n, m]", "a": "in float32[h] ~ uniform(0.1, 0.5)", "p": "out float32[h, n, m]", "n": "int32", "m": "int32"},
        "def reference(s, a, n, m):\n    i, j = np.arange(n)[:, None], np.arange(m)\n    z = np.where(j <= i, s + a[:, None, None] * (j - i), -np.inf)\n"
        "    e = np.exp(z - z.max(-1, keepdims=True))\n    return e / e.sum(-1, keepdims=True)",
        "  int i = blockIdx.x;\n  if (threadIdx.x) return;\n  const float* v = s + (blockIdx.y * n + i) * m;\n  float* o = p + (blockIdx.y * n + i) * m;\n"
        "  float k = a[blockIdx.y], t = -INFINITY, sum = 0.0f;\n  for (int j = 0; j <= i && j < m; ++j) t = fmaxf(t, v[j] + k * (j - i));\n"
        "  for (int j = 0; j <= i && j < m; ++j) sum += expf(v[j] + k * (j - i) - t);\n  for (int j = 0; j < m; ++j) o[j] = j <= i ? expf(v[j] + k * (j - i) - t) / sum : 0.0f;",
        "n\", \"h", "{ h = 3, n = 20, m = 40 }, { h = 2, n = 7, m = 13 }, { h = 1, n = 1, m = 1 }", "rows",
    ),
    "a step in a vector per block": (
        {"p": "in float32[b, t, s] ~ uniform(-4, -0.1)", "y": "out float32[b, s]", "t": "int32", "s": "int32"},
        "def reference(p, b, s):\n    a = np.zeros((b, s))\n    for i in range(p.shape[1]):\n"
        "        a = np.logaddexp(a, np.concatenate([np.full((b, 1), -1e9), a[:, :-1]], 1)) + p[:, i]\n    return a",
        "  float old[64], now[64];\n  if (threadIdx.x) return;\n  for (int j = 0; j < s; ++j) old[j] = 0.0f;\n  for (int i = 0; i < t; ++i) {\n"
        "    for (int j = 0; j < s; ++j) {\n      float q = j ? old[j - 1] : -1e9f, m = fmaxf(old[j], q);\n"
        "      now[j] = m + log1pf(expf(-fabsf(old[j] - q))) + p[(blockIdx.x * t + i) * s + j];\n    }\n    for (int j = 0; j < s; ++j) old[j] = now[j];\n  }\n"
        "  for (int j = 0; j < s; ++j) y[blockIdx.x * s + j] = old[j];",
        "b", "{ b = 3, t = 12, s = 33 }, { b = 2, t = 7, s = 5 }, { b = 1, t = 1, s = 1 }", "recurrence-vectors",
    ),
    "a sum of the largest values": (
        {"x": "in float32[n, c]", "y": "out float32[n]", "n": "int32", "c": "int32"},
        "def reference(x):\n    at = np.argpartition(-x, 3, axis=1)[:, :3]\n    return np.take_along_axis(x, at, 1).sum(1)",
        "  if (threadIdx.x) return;\n  float t[3] = {-INFINITY, -INFINITY, -INFINITY};\n  for (int i = 0; i < c; ++i) {\n    float v = x[blockIdx.x * c + i];\n"
        "    for (int k = 0; k < 3; ++k)\n      if (v > t[k]) { float s = t[k]; t[k] = v; v = s; }\n  }\n  y[blockIdx.x] = t[0] + t[1] + t[2];",
        "n", "{ n = 6, c = 70 }, { n = 3, c = 13 }, { n = 1, c = 4 }", "rows",
    ),
    "a product of packed codes with scales of groups": (
        {"q": "in uint8[n, k // 2] ~ integers(0, 256)", "s": "in float32[n, k // 32] ~ uniform(0.01, 0.1)", "x": "in float32[k]", "y": "out float32[n]", "n": "int32", "k": "int32"},
        "def reference(q, s, x, n, k):\n    w = np.stack([q & 15, q >> 4], -1).reshape(n, k // 32, 32).astype(np.float32)\n"
        "    return (((w - 8) * s[..., None]).reshape(n, k) * x).sum(1)",
        "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= n) return;\n  float sum = 0.0f;\n  for (int c = 0; c < k; ++c) {\n"
        "    int code = q[r * (k / 2) + c / 2];\n    sum += ((c % 2 ? code >> 4 : code & 15) - 8) * s[r * (k / 32) + c / 32] * x[c];\n  }\n  y[r] = sum;",
        "cdiv(n, block)", "{ n = 20, k = 256 }, { n = 7, k = 96 }, { n = 1, k = 32 }", "scaled-products",
    ),
}  # fmt: skip
MORE = {
    "a sum of the largest values": 'require = ["c > 3"]',
    "a product of packed codes with scales of groups": 'require = ["k % 32 == 0"]',
    "a convolution of groups": 'require = ["l > 2"]',
    "a step in a vector per block": 'require = ["s <= 64"]',
    "an alignment bias before a softmax": 'require = ["m >= n"]',
}


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_usual_kernels_are_written_anew(name: str, make: Any, session: Session) -> None:
    args, reference, body, grid, sizes, schedule = CASES[name]
    kernel, _ = make(args, reference, body=body, grid=grid, sizes=sizes, more=MORE.get(name, ""), block=64)
    assert {one.removeprefix("synthesis:").startswith(schedule) for one in assert_judged_right(session, kernel)} == {
        True
    }


def test_a_loop_over_each_result_carries_no_vector_beside_numbers(make: Any, tmp_path: Path) -> None:
    args = {"a": "in int32[p, n]", "b": "in int32[p, m]", "y": "out float32[p]", "n": "int32", "m": "int32"}
    reference = (
        "def reference(a, b, p, m):\n    old = np.zeros((p, m + 1))\n    top = np.zeros(p)\n    for i in range(a.shape[1]):\n"
        "        step = np.maximum(old[:, :-1] + (a[:, i][:, None] == b), old[:, 1:] - 1)\n        new = np.zeros_like(old)\n"
        "        new[:, 1:] = step\n        top = np.maximum(top, step.max(1))\n        old = new\n    return top"
    )
    kernel, contract = make(args, reference, sizes="{ p = 3, n = 7, m = 9 }, { p = 2, n = 3, m = 5 }", grid="p")
    with pytest.raises(Refused, match="numbers beside vectors"):
        list(sweeps.written(trace(contract, tmp_path), KernelText(kernel, contract)))


def test_operations_by_neutral_numbers_are_left_out(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[n]", "y": "out float32[n]", "n": "int32"}
    reference = "def reference(x):\n    w = [1.0, -1.0, 2.0]\n    p = np.pad(x, 1)\n    return w[0] * p[:-2] + w[1] * p[1:-1] + w[2] * p[2:]"
    kernel, contract = make(args, reference, sizes="{ n = 300 }, { n = 37 }", grid="cdiv(n, block)")
    text = next(kernels_for(trace(contract, tmp_path), kernel, contract)).definition
    assert not re.search(r"\b1\.0f|\+ -", text), text


def test_products_with_one_keep_types_and_shapes() -> None:
    whole, one = Node("input", (), ("n",), "int32", ("x",)), Node("constant", (), (), "float64", (1.0,))
    graph = Graph((whole, one, Node("map", (0, 1), ("n",), "float64", ("multiply",))), (2,))
    assert without_neutral(graph) == graph


def test_a_constant_that_is_not_a_number_is_traced(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[n]", "y": "out float32[n]", "n": "int32"}
    kernel, contract = make(args, "np.where(x > 0, x, np.nan)", sizes="{ n = 300 }, { n = 37 }", grid="cdiv(n, block)")
    text = next(kernels_for(trace(contract, tmp_path), kernel, contract))
    assert "NAN" in text.definition + text.helpers


def test_planes_of_an_array_are_addressed_in_64_bits(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[3, h, w]", "y": "out float32[3, h, w]", "h": "int32", "w": "int32"}
    reference = "def reference(x):\n    g = [np.roll(x[i], i - 1, axis=1) for i in range(3)]\n    s = g[0] + g[1] + g[2]\n    return np.stack([g[0] - s, g[1] + s, g[2] * s])"
    kernel, contract = make(args, reference, sizes="{ h = 8, w = 40 }, { h = 3, w = 7 }", grid='cdiv(w, 32)", "h')
    text = next(kernels_for(trace(contract, tmp_path), kernel, contract)).definition
    assert "plane_size" not in text
    assert (
        len(re.findall(r"static_cast<size_t>\(\w+ \+ \w+\) \* w|static_cast<size_t>\(2 \* \w+ \+ \w+\) \* w", text))
        == 4
    )


def test_weights_of_an_unrolled_loop_are_one_table_and_one_loop(make: Any, tmp_path: Path) -> None:
    reference = (
        "def reference(x, h, w):\n    p = np.pad(x, 2, mode='edge')\n    num, den = 0, 0\n    for i in range(5):\n        for j in range(5):\n"
        "            v = p[i : i + h, j : j + w]\n            k = np.exp(-((i - 2) ** 2 + (j - 2) ** 2) / 8) * np.exp(-(v - x) * (v - x))\n"
        "            num = num + k * v\n            den = den + k\n    return num / den"
    )
    args = {"x": "in float32[h, w]", "y": "out float32[h, w]", "h": "int32", "w": "int32"}
    kernel, contract = make(args, reference, sizes="{ h = 24, w = 40 }, { h = 7, w = 13 }", grid='cdiv(w, 32)", "h')
    text = next(kernels_for(trace(contract, tmp_path), kernel, contract)).definition
    assert text.count("constexpr float") == 1
    assert text.count("expf(") == 1
    assert "num +=" in text
    assert "den +=" in text


@pytest.mark.parametrize(
    "angle", ["-2 * np.pi / n * np.outer(t, t)", "2 * np.pi * t[:, None] * t / n", "np.pi * t[:, None] * (t / (4 * n))"]
)
def test_angles_of_a_fourier_transform_stay_within_a_turn(angle: str, make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[b, n]", "y": "out float32[b, n]", "b": "int32", "n": "int32"}
    reference = f"def reference(x, n):\n    t = np.arange(n)\n    a = {angle}\n    return x @ (np.cos(a) + np.sin(a))"
    kernel, contract = make(args, reference, sizes="{ b = 3, n = 24 }, { b = 2, n = 7 }", grid='cdiv(n, 128)", "b')
    graph = trace(contract, tmp_path)
    x = np.random.default_rng(3).normal(size=(3, 24))
    found, expected = (evaluate(one, {"x": x}, {"b": 3, "n": 24})[0] for one in (within_a_turn(graph), graph))
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    text = next(kernels_for(graph, kernel, contract))
    assert {"cospif", " % "} <= {*re.findall(r"cospif| % ", text.definition)}, text.definition
    assert "static_cast<long long>(static_cast<long long>" not in text.definition


def test_other_angles_are_left_as_they_are(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[n]", "y": "out float32[n]", "n": "int32"}
    for angle in ("x * np.arange(n)", "0.1 * np.arange(n)", "2 * np.pi * np.arange(n) * x / n"):
        _, contract = make(args, f"np.cos({angle})", sizes="{ n = 24 }, { n = 7 }", grid="cdiv(n, 128)")
        graph = trace(contract, tmp_path)
        assert within_a_turn(graph) is graph


@pytest.mark.parametrize(
    "expression",
    [
        "np.packbits(x > 0, axis=1)",
        "np.packbits(x > 0, axis=0, bitorder='little')",
        "np.unpackbits((x > 0).astype(np.uint8) * np.uint8(77), axis=1)",
        "np.quantile(np.stack([x[:, i] for i in range(9)]), 0.3, axis=0)",
        "np.percentile(np.stack([x[:, i] for i in range(8)], 1), 75, axis=1, keepdims=True)",
        "np.median(np.stack([x[:, i] for i in range(9)], 1), axis=1)",
        "np.argpartition(-x, 3, axis=1)[:, :3]",
        "np.sort(x, axis=1)[:, :3]",
    ],
)
def test_functions_mean_what_numpy_computes(expression: str, make: Any, tmp_path: Path) -> None:
    x = np.random.default_rng(3).normal(size=(12, 30))
    x[[2, 7], [4, 8]] = np.nan
    expected = eval(expression, {"np": np, "x": x})
    dtype = {"f": "float32", "u": "uint8", "i": "int32"}[expected.dtype.kind]
    known = {12: "rows", 30: "cols", 2: "(rows + 7) // 8", 4: "(cols + 7) // 8", 240: "cols * 8"}
    sides = ", ".join(known.get(side, str(side)) for side in expected.shape)
    args = {"x": "in float32[rows, cols]", "y": f"out {dtype}[{sides}]", "rows": "int32", "cols": "int32"}
    _, contract = make(
        args, f"def reference(x):\n    return {expression}", sizes="{ rows = 12, cols = 30 }, { rows = 3, cols = 25 }"
    )
    (found,) = evaluate(trace(contract, tmp_path), {"x": x}, {"rows": 12, "cols": 30})
    if "argpartition" in expression:  # in any order
        found, expected = np.sort(found, 1), np.sort(expected, 1)
    np.testing.assert_array_equal(found, expected)


def test_a_remainder_of_a_size_that_is_subtracted_is_not_negative() -> None:
    assert size_text("(0 - n) % 8", {"n": "n"}) == "((0 - n) % 8 + 8) % 8"
    assert size_text("(n - 1) % 8", {"n": "n"}) == "(n - 1) % 8"


def test_padding_to_a_multiple_is_right(make: Any, session: Session) -> None:
    args = {"x": "in float32[n]", "y": "out float32[(n + 7) // 8]", "n": "int32"}
    body = (
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= (n + 7) / 8) return;\n  float sum = 0.0f;\n"
        "  for (int k = 8 * i; k < 8 * i + 8 && k < n; ++k) sum += x[k];\n  y[i] = sum;"
    )
    reference = "def reference(x, n):\n    p = np.pad(x, (0, -n % 8))\n    return sum(p[k::8] for k in range(8))"
    kernel, _ = make(args, reference, body=body, sizes="{ n = 300 }, { n = 37 }, { n = 1 }", grid="cdiv(n, 8 * block)")
    assert_judged_right(session, kernel)


def test_a_dictionary_as_result_is_refused_by_name(tmp_path: Path, session: Session) -> None:
    path = tmp_path / "named.py"
    path.write_text('def named(x: "float32[n=64, c=32]"):\n    return {"mean": x.mean(1)}\n')
    function = load_python_function(f"{path}:named")
    request = KernelRequest(function, read_examples(function, "", {}), tmp_path / "named.cu", "named")
    with pytest.raises(ReferenceFailed, match="returned a dict"):
        write_kernel(session, request)


@pytest.mark.parametrize(
    ("reference", "value"),
    [
        ("np.array([x.sum()])", "x[i]"),
        ("np.array([(x * x).mean()])", "x[i] * x[i] / n"),
        ("np.array([0.5 * np.abs(x).sum()])", "0.5f * fabsf(x[i])"),
        ("y + x.sum()", "x[i]"),
        ("np.array([np.sqrt((x * x).sum())])", ""),
        ("np.array([x.sum() + 1])", ""),
    ],
)
def test_blocks_add_to_an_output_that_is_cleared(reference: str, value: str, make: Any, session: Session) -> None:
    args = {"x": "in float32[n]", "y": "inout float32[1] ~ zeros", "n": "int32"}
    body = f"  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) atomicAdd(y, {value or 'x[i]'});"
    kernel, contract = make(args, reference, sizes="{ n = 40000 }, { n = 7 }", body=body, grid="cdiv(n, 128)")
    found = schedules_for(kernel, contract, Path(kernel.unit.path).parent)
    assert ("total-atomic" in found) is bool(value)
    if value:
        assert_judged_right(session, kernel)


@pytest.mark.parametrize(
    ("reference", "adds"),
    [
        ("y + x.mean()", True),
        ("y + 0.5 * (x * x).sum() / n", True),
        ("y + np.int32(x.sum())", False),
        ("y + x.mean().astype(np.int32)", False),
        ("y * x.mean()", False),
    ],
)
def test_blocks_add_parts_of_a_mean_but_of_no_rounded_one(reference: str, adds: bool, make: Any) -> None:
    args = {"x": "in float32[n]", "y": "inout float32[1]", "n": "int32"}
    body = "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) atomicAdd(y, x[i]);"
    text = f"def reference(x, y, n):\n    return {reference}"
    kernel, contract = make(args, text, sizes="{ n = 40000 }, { n = 7 }", body=body, grid="cdiv(n, 128)")
    found = schedules_for(kernel, contract, Path(kernel.unit.path).parent)
    assert any(one.endswith(("-atomic", "-added")) for one in found) is adds


def test_blocks_count_in_32_bits(make: Any, session: Session) -> None:
    args = {"x": "in float32[n]", "y": "inout int32[1] ~ zeros", "n": "int32"}
    body = "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n && x[i] > 0) atomicAdd(y, 1);"
    sizes = "{ n = 40000 }, { n = 7 }"
    kernel, contract = make(args, "np.array([(x > 0).sum()])", sizes=sizes, body=body, grid="cdiv(n, 128)")
    text = next(kernels_for(trace(contract, Path(kernel.unit.path).parent), kernel, contract))
    assert text.schedule == "total-atomic"
    assert "long long value" not in text.helpers
    assert_judged_right(session, kernel)


@pytest.mark.parametrize(
    ("reference", "step"),
    [
        ("x.T @ w", "s += x[i * n + j] * w[i]"),
        ("(x.T * w).sum(axis=1)", "s += x[i * n + j] * w[i]"),
        ("np.abs(x.T - w).max(axis=1) / 127", "s = fmaxf(s, fabsf(x[i * n + j] - w[i]) / 127)"),
    ],
)
def test_rows_of_a_transposed_array_are_read_as_columns(reference: str, step: str, make: Any, session: Session) -> None:
    args = {"x": "in float32[m, n]", "w": "in float32[m]", "y": "out float32[n]", "m": "int32", "n": "int32"}
    body = f"  int j = blockIdx.x * blockDim.x + threadIdx.x;\n  if (j >= n) return;\n  float s = 0;\n  for (int i = 0; i < m; i++) {step};\n  y[j] = s;"
    sizes = "{ m = 300, n = 90 }, { m = 7, n = 1 }"
    kernel, contract = make(args, reference, sizes=sizes, body=body, grid="cdiv(n, 128)")
    assert schedules_for(kernel, contract, Path(kernel.unit.path).parent) == ["columns"]
    assert_judged_right(session, kernel)
