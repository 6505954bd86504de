"""Loops along one axis after another: right by the judge in both layouts, with what is kept in results or in shared memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.session import Session
from kernelmate.session.writing import write_kernel
from kernelmate.synthesis.kernel_text import MULTIPROCESSORS, KernelText, WrittenKernel
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.reductions import WARP
from kernelmate.synthesis.schedules import sweeps
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import annotated, assert_judged_right


def system(layout: str, more: dict[str, str] | None = None) -> dict[str, str]:
    given = {"a": "in float32[{}] ~ uniform(-1, 1)", "b": "in float32[{}] ~ uniform(3, 4)", "c": "in float32[{}] ~ uniform(-1, 1)", "d": "in float32[{}]", "x": "out float32[{}]"}  # fmt: skip
    return {**{name: entry.format(layout) for name, entry in (given | (more or {})).items() if entry}, "s": "int32", "n": "int32"}  # fmt: skip


SIZES = "{ s = 40, n = 24 }, { s = 13, n = 7 }, { s = 1, n = 1 }"
ROWS = """def reference(a, b, c, d):
    s, n = a.shape
    cp, dp, x = np.zeros((s, n)), np.zeros((s, n)), np.zeros((s, n))
    cp[:, 0] = c[:, 0] / b[:, 0]
    dp[:, 0] = d[:, 0] / b[:, 0]
    for i in range(1, n):
        m = 1 / (b[:, i] - a[:, i] * cp[:, i - 1])
        cp[:, i] = c[:, i] * m
        dp[:, i] = (d[:, i] - a[:, i] * dp[:, i - 1]) * m
    x[:, n - 1] = dp[:, n - 1]
    for i in range(n - 2, -1, -1):
        x[:, i] = dp[:, i] - cp[:, i] * x[:, i + 1]
    return x"""
COLUMNS = """def reference(a, b, c, d):
    n, s = a.shape
    cp, dp, x = np.zeros_like(a), np.zeros_like(a), np.zeros_like(a)
    g, h, y = np.zeros(s), np.zeros(s), np.zeros(s)
    for i in range(n):
        m = b[i] - a[i] * g
        h = (d[i] - a[i] * h) / m
        g = c[i] / m
        cp[i], dp[i] = g, h
    for i in range(n - 1, -1, -1):
        y = dp[i] - cp[i] * y
        x[i] = y
    return x"""
IN_PLACE = """def reference(a, b, c, d):
    c, d = c.copy(), d.copy()
    n = a.shape[1]
    c[:, 0] /= b[:, 0]
    d[:, 0] /= b[:, 0]
    for i in range(1, n):
        m = b[:, i] - a[:, i] * c[:, i - 1]
        c[:, i] /= m
        d[:, i] = (d[:, i] - a[:, i] * d[:, i - 1]) / m
    for i in range(n - 2, -1, -1):
        d[:, i] -= c[:, i] * d[:, i + 1]
    return c, d"""
BOTH_WAYS = """def reference(x):
    y, z = np.zeros_like(x), np.zeros_like(x)
    s = np.zeros(x.shape[1])
    for i in range(x.shape[0]):
        s = s + 0.3 * (x[i] - s)
        y[i] = s
    for i in range(x.shape[0] - 1, -1, -1):
        s = s + 0.3 * (y[i] - s)
        z[i] = s
    return z"""
PAYOFF = """def reference(x):
    paths = np.exp(np.cumsum(0.01 * x, axis=0))
    return np.maximum(paths.mean(0) - 1, 0) + paths.max(0)"""
PAIRS = """def reference(a, x):
    y = np.zeros_like(x)
    u, v = np.zeros(x.shape[0]), np.zeros(x.shape[0])
    for i in range(x.shape[1]):
        u, v = a[:, i, 0] * u - a[:, i, 1] * v + x[:, i, 0], a[:, i, 0] * v + a[:, i, 1] * u + x[:, i, 1]
        y[:, i, 0] = u
        y[:, i, 1] = v
    return y"""
SECOND_ORDER = """def reference(x):
    y = np.zeros_like(x)
    y[:, 0], y[:, 1] = x[:, 0], x[:, 1]
    for i in range(2, x.shape[1]):
        y[:, i] = x[:, i] + 0.5 * y[:, i - 1] - 0.25 * y[:, i - 2]
    return y"""
EXCHANGED = """def reference(x):
    y, z = np.zeros_like(x), np.zeros_like(x)
    s, u, v, w = np.zeros(len(x)), x[:, 0], x[:, 0] + 1, x[:, 0]
    for i in range(x.shape[1]):
        u, v, w = v, u, 0.5 * w + u * x[:, i]
        y[:, i] = w
    for i in range(x.shape[1] - 1, -1, -1):
        s = 0.5 * s + y[:, i]
        z[:, i] = s
    return z"""
SIGNAL = {"x": "in float32[n, s]", "y": "out float32[n, s]", "s": "int32", "n": "int32"}
ROWS_OF_SIGNALS = {"x": "in float32[s, n] ~ normal", "y": "out float32[s, n]", "s": "int32", "n": "int32"}
CASES = {
    "tridiagonal systems by rows": (system("s, n"), ROWS),
    "tridiagonal systems by columns": (system("n, s"), COLUMNS),
    "tridiagonal systems in place": (system("s, n", {"c": "inout float32[{}] ~ uniform(-1, 1)", "d": "inout float32[{}]", "x": ""}), IN_PLACE),
    "a filter forwards and backwards": (SIGNAL, BOTH_WAYS),
    "payoffs of paths": ({"x": "in float32[n, s]", "y": "out float32[s]", "s": "int32", "n": "int32"}, PAYOFF),
    "complex numbers as pairs": ({"a": "in float32[s, n, 2] ~ uniform(-0.6, 0.6)", "x": "in float32[s, n, 2]", "y": "out float32[s, n, 2]", "s": "int32", "n": "int32"}, PAIRS),
    "values that are exchanged": (ROWS_OF_SIGNALS, EXCHANGED),
}  # fmt: skip


def text_of(make: Any, folder: Path, name: str, sizes: str = SIZES) -> WrittenKernel:
    args, reference = CASES[name]
    kernel, contract = make(args, reference, sizes=sizes, grid="s")
    return next(sweeps.written(trace(contract, folder), KernelText(kernel, contract)))


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_loops_are_right(name: str, tmp_path: Path, session: Session) -> None:
    args, reference = CASES[name]
    outcome = write_kernel(session, annotated(args, reference, SIZES, tmp_path))
    assert outcome.best is not None, outcome.notes
    assert [(one.schedule, one.right) for one in outcome.kernels] == [("sweeps", True)], outcome.notes
    assert outcome.best.verdict.diagnostics == ()


def test_each_value_of_a_step_is_from_before_all_updates(make: Any, session: Session) -> None:
    body = """  int r = blockIdx.x;
  for (int i = 0; i < n; ++i) {
    float v = x[r * n + i];
    y[r * n + i] = i < 2 ? v : v + 0.5f * y[r * n + i - 1] - 0.25f * y[r * n + i - 2];
  }"""
    kernel, _ = make(ROWS_OF_SIGNALS, SECOND_ORDER, sizes="{ s = 40, n = 24 }, { s = 3, n = 2 }", grid="s", block=1, body=body, more='require = ["n >= 2"]')  # fmt: skip
    assert assert_judged_right(session, kernel) == ["synthesis:sweeps"]


def test_systems_are_solved_in_place(make: Any, session: Session) -> None:
    body = """  int r = blockIdx.x;
  if (threadIdx.x != 0) return;
  for (int i = 0; i < n; ++i) {
    float m = i == 0 ? b[r * n] : b[r * n + i] - a[r * n + i] * c[r * n + i - 1];
    c[r * n + i] /= m;
    d[r * n + i] = (d[r * n + i] - (i > 0 ? a[r * n + i] * d[r * n + i - 1] : 0.0f)) / m;
  }
  for (int i = n - 2; i >= 0; --i) d[r * n + i] -= c[r * n + i] * d[r * n + i + 1];"""
    args, reference = CASES["tridiagonal systems in place"]
    kernel, _ = make(args, reference, sizes=SIZES, grid="s", body=body)
    assert assert_judged_right(session, kernel) == ["synthesis:sweeps"]


def test_a_result_that_is_written_last_holds_what_later_loops_need(make: Any, tmp_path: Path) -> None:
    found = text_of(make, tmp_path, "tridiagonal systems by columns")
    assert found.shared == "128 * n", "of two arrays, one is in the result"
    assert "cp[step * kThreads] = next_cp;" in found.definition


def test_results_in_place_need_no_shared_memory(make: Any, tmp_path: Path) -> None:
    found = text_of(make, tmp_path, "tridiagonal systems in place")
    assert found.shared == 0
    assert "c[static_cast<size_t>(0)" not in found.definition, "the first step reads no element of another one"


def test_blocks_have_fewer_threads_for_longer_loops(make: Any, tmp_path: Path) -> None:
    longer = "{ s = 40, n = 700 }, { s = 3, n = 5 }"
    assert text_of(make, tmp_path, "tridiagonal systems by columns", longer).block == 16


def test_blocks_have_more_threads_once_all_multiprocessors_have_work(make: Any, tmp_path: Path) -> None:
    counts = (40, 64 * MULTIPROCESSORS, 1 << 20)
    texts = [text_of(make, tmp_path, "tridiagonal systems in place", f"{{ s = {one}, n = 4 }}") for one in counts]
    assert [one.block for one in texts] == [WARP, 64, 128]


def test_loops_beyond_shared_memory_are_refused_with_advice(make: Any, tmp_path: Path) -> None:
    with pytest.raises(Refused, match="give the kernel a scratch array"):
        text_of(make, tmp_path, "tridiagonal systems by columns", "{ s = 40, n = 2000 }, { s = 3, n = 5 }")


def test_loops_side_by_side_are_one(make: Any, tmp_path: Path) -> None:
    found = text_of(make, tmp_path, "payoffs of paths")
    assert found.definition.count("for (int step") == 1
    assert found.shared == 0


def test_a_polynomial_is_evaluated_in_one_statement_for_each_coefficient(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[n]", "k": "in float32[terms]", "y": "out float32[n]", "n": "int32", "terms": "int32"}
    reference = "def reference(x, k):\n    power_sum = np.zeros_like(x)\n    for c in k[::-1]:\n        power_sum = power_sum * x + c\n    return power_sum"
    kernel, contract = make(
        args, reference, sizes="{ n = 40, terms = 12 }, { n = 7, terms = 3 }", grid="cdiv(n, block)"
    )
    text = next(iter(kernels_for(trace(contract, tmp_path), kernel, contract))).definition
    assert "const float x_i = x[i];" in text
    assert "    power_sum = power_sum * x_i + k[terms - 1 - step];\n" in text
