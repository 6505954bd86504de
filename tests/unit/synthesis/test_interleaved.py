"""Elements that lie side by side for several results: channels, complex numbers, results in turns, pooled blocks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kernelmate.session import Session
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.synthesis.kernel_text import KernelText
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.schedules import interleaved
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for

I = "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= n) return;\n"  # noqa: E741 -- the kernel's own name
BY_I = "cdiv(n, block)"
SIZES = "{ n = 300 }, { n = 37 }, { n = 1 }"

CASES: dict[str, tuple[dict[str, str], str, str]] = {
    "channels of bytes": (
        {"x": "in uint8[n, 3] ~ integers(0, 256)", "y": "out uint8[n]", "n": "int32"},
        "def reference(x):\n    r, g, b = (x[:, k].astype(np.int64) for k in range(3))\n    return ((77 * r + 150 * g + 29 * b) >> 8).astype(np.uint8)",
        f"{I}  y[i] = (77 * x[3 * i] + 150 * x[3 * i + 1] + 29 * x[3 * i + 2]) >> 8;",
    ),
    "complex products in place": (
        {"x": "inout float32[n, 2] ~ normal", "a": "in float32[n, 2] ~ normal", "n": "int32"},
        "def reference(x, a):\n    y = np.empty_like(x)\n    y[:, 0] = x[:, 0] * a[:, 0] - x[:, 1] * a[:, 1]\n    y[:, 1] = x[:, 0] * a[:, 1] + x[:, 1] * a[:, 0]\n    return y",
        f"{I}  float u = x[2 * i], v = x[2 * i + 1], c = a[2 * i], s = a[2 * i + 1];\n  x[2 * i] = u * c - v * s;\n  x[2 * i + 1] = u * s + v * c;",
    ),
    "results in turns": (
        {"a": "in float32[n] ~ normal", "b": "in float32[n] ~ normal", "y": "out float32[2 * n]", "n": "int32"},
        "def reference(a, b, n):\n    y = np.empty(2 * n)\n    y[0::2] = a\n    y[1::2] = b * 2\n    return y",
        f"{I}  y[2 * i] = a[i];\n  y[2 * i + 1] = b[i] * 2;",
    ),
    "four values in order": (
        {"x": "in float32[n, 4] ~ normal", "y": "out float32[n, 4]", "p": "out int32[n, 4]", "n": "int32"},
        "def reference(x):\n    return np.sort(x, axis=1), np.argsort(x, axis=1)",
        f"{I}  for (int j = 0; j < 4; ++j) y[4 * i + j] = x[4 * i + j], p[4 * i + j] = j;\n"
        "  for (int a = 0; a < 3; ++a)\n    for (int j = 0; j < 3 - a; ++j)\n      if (y[4 * i + j + 1] < y[4 * i + j]) {\n"
        "        float v = y[4 * i + j];\n        y[4 * i + j] = y[4 * i + j + 1];\n        y[4 * i + j + 1] = v;\n"
        "        int k = p[4 * i + j];\n        p[4 * i + j] = p[4 * i + j + 1];\n        p[4 * i + j + 1] = k;\n      }",
    ),
    "turned vectors": (
        {"q": "in float32[n, 4] ~ normal", "v": "in float32[n, 3] ~ normal", "y": "out float32[n, 3]", "n": "int32"},
        "def reference(q, v):\n    u = q[:, 1:]\n    t = 2 * np.cross(u, v)\n    return v + q[:, :1] * t + np.cross(u, t)",
        f"{I}  const float *u = q + 4 * i + 1, *w = v + 3 * i;\n  float t[3];\n"
        "  for (int j = 0; j < 3; ++j) t[j] = 2 * (u[(j + 1) % 3] * w[(j + 2) % 3] - u[(j + 2) % 3] * w[(j + 1) % 3]);\n"
        "  for (int j = 0; j < 3; ++j) y[3 * i + j] = w[j] + q[4 * i] * t[j] + u[(j + 1) % 3] * t[(j + 2) % 3] - u[(j + 2) % 3] * t[(j + 1) % 3];",
    ),
    "products of small matrices": (
        {"a": "in float32[n, 4, 4] ~ normal", "b": "in float32[n, 4, 4] ~ normal", "c": "out float32[n, 4, 4]", "n": "int32"},
        "def reference(a, b):\n    return a @ b",
        f"{I}  for (int r = 0; r < 4; ++r)\n    for (int j = 0; j < 4; ++j) {{\n      float s = 0;\n"
        "      for (int k = 0; k < 4; ++k) s += a[16 * i + 4 * r + k] * b[16 * i + 4 * k + j];\n      c[16 * i + 4 * r + j] = s;\n    }",
    ),
    "adjugates": (
        {"m": "in float32[n, 3, 3] ~ normal", "y": "out float32[n, 3, 3]", "n": "int32", "scale": "float32 = 0.5"},
        "def reference(m, scale):\n    a = m * scale\n    y = np.empty_like(a)\n    for i in range(3):\n        for j in range(3):\n"
        "            r, s, u, v = (j + 1) % 3, (i + 1) % 3, (j + 2) % 3, (i + 2) % 3\n"
        "            y[:, i, j] = a[:, r, s] * a[:, u, v] - a[:, r, v] * a[:, u, s]\n    return y",
        f"{I}  const float* a = m + 9 * i;\n  for (int p = 0; p < 3; ++p)\n    for (int j = 0; j < 3; ++j) {{\n"
        "      int r = (j + 1) % 3, s = (p + 1) % 3, u = (j + 2) % 3, v = (p + 2) % 3;\n"
        "      y[9 * i + 3 * p + j] = scale * scale * (a[3 * r + s] * a[3 * u + v] - a[3 * r + v] * a[3 * u + s]);\n    }",
    ),
    "nibbles of words": (
        {"x": "in uint32[n]", "y": "out float32[8 * n]", "n": "int32", "s": "float32 = 0.5"},
        "def reference(x, s):\n    nibbles = (x.astype(np.int64)[:, None] >> (4 * np.arange(8))[None, :]) & 15\n    return ((nibbles - 8) * s).reshape(-1)",
        f"{I}  for (int j = 0; j < 8; ++j) y[8 * i + j] = (float)((int)(x[i] >> 4 * j & 15) - 8) * s;",
    ),
    "stacked halves of bytes": (
        {"x": "in uint8[n] ~ integers(0, 256)", "y": "out float32[2 * n]", "n": "int32", "s": "float32 = 0.5"},
        "def reference(x, s):\n    return np.stack([x & 15, x >> 4], axis=1).reshape(-1) * s",
        f"{I}  y[2 * i] = (x[i] & 15) * s;\n  y[2 * i + 1] = (x[i] >> 4) * s;",
    ),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_elements_side_by_side_are_right_at_odd_sizes(name: str, make: Any, session: Session) -> None:
    args, reference, body = CASES[name]
    kernel, _ = make(args, reference, body=body, grid=BY_I, sizes=SIZES)
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert [one.candidate.author for one in found.candidates] == ["synthesis:interleaved"], found.notes
    for judged in found.candidates:
        assert judged.verdict.correct, (judged.verdict.findings, judged.candidate.kernel.source)
        assert judged.verdict.diagnostics == ()


def test_a_thread_loads_whole_packs_of_channels(make: Any, tmp_path: Path) -> None:
    args, reference, body = CASES["channels of bytes"]
    kernel, contract = make(args, reference, body=body, grid=BY_I, sizes=SIZES)
    (text,) = interleaved.written(trace(contract, tmp_path), KernelText(kernel, contract))
    assert "constexpr int kPerThread = 16;" in text.helpers
    assert "(48, 16 bytes of a row at a time)" in text.why


def test_borders_are_left_to_others(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[n, 3] ~ normal", "y": "out float32[n]", "n": "int32"}
    kernel, contract = make(args, "np.concatenate([x[1:, 0], x[:1, 2]])", grid=BY_I, sizes=SIZES)
    with pytest.raises(Refused):
        next(interleaved.written(trace(contract, tmp_path), KernelText(kernel, contract)))


def test_few_terms_are_added_in_one_expression_and_rows_told_apart(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[h, w] ~ normal", "y": "out float32[h // 2, w // 2]", "h": "int32", "w": "int32"}
    reference = "x.reshape(h // 2, 2, w // 2, 2).mean(axis=(1, 3))"
    sizes, require = "{ h = 4, w = 64 }, { h = 2, w = 2 }", 'require = ["h % 2 == 0", "w % 2 == 0"]'
    kernel, contract = make(args, reference, grid="h * w", sizes=sizes, more=require)
    text = next(kernels_for(trace(contract, tmp_path), kernel, contract)).helpers
    assert "= x_first_pack.at[2 * j] + x_first_pack.at[2 * j + 1] + x_second_pack.at[2 * j] +" in " ".join(text.split())


def pooled(make: Any, folder: Path, body: str) -> str:
    args = {"x": "in float32[h, w] ~ normal", "y": "out float32[h // 2, w // 2]", "h": "int32", "w": "int32"}
    reference = "x.reshape(h // 2, 2, w // 2, 2).max(axis=(1, 3))"
    sizes, require = "{ h = 4, w = 64 }, { h = 2, w = 2 }", 'require = ["h % 2 == 0", "w % 2 == 0"]'
    kernel, contract = make(args, reference, grid="h * w", sizes=sizes, more=require, body=body)
    written = next(kernels_for(trace(contract, folder), kernel, contract))
    return f"{written.helpers}\n{written.definition}"


def test_a_maximum_drops_nan_only_where_the_old_kernel_does(make: Any, tmp_path: Path) -> None:
    assert "max_value = fmaxf(max_value, x_first_pack.at[2 * j]);" in pooled(make, tmp_path, "  fmaxf(x[0], x[1]);")
    assert "|| isnan(value)" in pooled(make, tmp_path, "")


def test_whole_packs_are_asked_for_once_and_by_their_names(make: Any, tmp_path: Path) -> None:
    text = pooled(make, tmp_path, "")
    assert re.findall(r"\bw[ /2)]*% [^;&]*", text) == ["w % (2 * kPerThread) == 0"]
    assert "__launch_bounds__(kThreadsX * kThreadsY)" in text
    assert not re.search(
        r"[^\w](?:32|8)\b", text.replace("constexpr int kThreadsX = 32;", "").replace("kThreadsY = 8;", "")
    )


def _text(name: str, make: Any, folder: Path) -> str:
    args, reference, body = CASES[name]
    kernel, contract = make(args, reference, sizes=SIZES, body=body, grid=BY_I)
    (found,) = kernels_for(trace(contract, folder), kernel, contract)
    assert found.schedule == "interleaved"
    return f"{found.helpers}\n{found.definition}"


def test_a_thread_computes_a_small_matrix_in_loops_from_whole_packs(make: Any, tmp_path: Path) -> None:
    text = _text("products of small matrices", make, tmp_path)
    assert "alignas(kAligned ? kAccessBytes : sizeof(float))" in text
    assert "for (int row = 0; row < 4; ++row)" in text
    assert "c_pack.at[4 * row + col] = a_pack.at[4 * row] * b_pack.at[col] +" in text


def test_elements_of_a_matrix_are_named_by_their_places_and_stored_in_order(make: Any, tmp_path: Path) -> None:
    text = _text("adjugates", make, tmp_path)
    assert "const float a12 = m_pack.at[9 * j + 5] * scale;" in text
    places = [int(one or 0) for one in re.findall(r"y_pack\.at\[9 \* j(?: \+ (\d))?\] = ", text)]
    assert places == [*range(9)]


def test_the_diagonal_of_a_matrix_is_written_without_comparing_positions(make: Any, tmp_path: Path) -> None:
    args = {"m": "in float32[n, 2, 2] ~ normal", "s": "in float32[n] ~ normal", "y": "out float32[n]", "n": "int32"}
    reference = (
        "def reference(m, s):\n    a = m + s[:, None, None] * np.eye(2)\n"
        "    return a[:, 0, 0] * a[:, 1, 1] - a[:, 0, 1] * a[:, 1, 0]"
    )
    kernel, contract = make(args, reference, sizes=SIZES, body="", grid=BY_I)
    text = next(kernels_for(trace(contract, tmp_path), kernel, contract)).helpers
    assert "==" not in text.replace("kResults == 1", "")
    assert "m_pack.at[4 * j] + s_i" in text
