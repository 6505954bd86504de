"""Filters with a number of taps that is a size, written from references: right by the judge at the ends of signals and of tiles."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.errors import ReferenceFailed
from kernelmate.session import Session
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right

SIZES = "{ n = 1100, k = 67 }, { n = 1027, k = 64 }, { n = 37, k = 5 }, { n = 9, k = 1 }"
MORE = 'require = ["n >= k", "k > 0"]'
INTS = {"n": "int32", "k": "int32"}
SIGNAL = {"x": "in float32[n] ~ normal", "w": "in float32[k] ~ normal"}


def naive(count: str, at: str, tap: str = "j") -> str:
    """A kernel with a thread for each of `count` results, which sums `x[at]` by `w[tap]` where `x` has such an element."""
    return (
        f"  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= {count}) return;\n  float s = 0;\n"
        f"  for (int j = 0; j < k; ++j) {{ int at = {at}; if (at >= 0 && at < n) s += w[{tap}] * x[at]; }}\n  y[i] = s;"
    )


ROWS = """  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * n) return;
  int r = i / n, c = i % n;
  float s = b[r];
  for (int j = 0; j < k; ++j) if (c - j >= 0) s += w[r * k + j] * x[r * n + c - j];
  y[i] = fmaxf(s, 0);"""

CASES: dict[str, tuple[str, str, str]] = {
    "whole windows": ("n - k + 1", "np.convolve(x, w, mode='valid')", naive("n - k + 1", "i + k - 1 - j")),
    "all results": ("n + k - 1", "np.convolve(x, w)", naive("n + k - 1", "i - j")),
    "as many results as elements": ("n", "np.convolve(x, w, 'same')", naive("n", "i - j + (k - 1) / 2")),
    "the first results": ("n", "np.convolve(x, w)[:n]", naive("n", "i - j")),
    "correlation": ("n - k + 1", "np.correlate(x, w)", naive("n - k + 1", "i + j")),
    "correlation in place": ("n", "np.correlate(x, w, mode='same')", naive("n", "i + j - k / 2")),
    "sums in a loop": ("n - k + 1", "def reference(x, w, n, k):\n    y = np.zeros(n - k + 1)\n    for j in range(k):\n        y += w[j] * x[j : j + n - k + 1]\n    return y", naive("n - k + 1", "i + j")),
    "windows": ("n - k + 1", "def reference(x, w):\n    return np.lib.stride_tricks.sliding_window_view(x, len(w)) @ w", naive("n - k + 1", "i + j")),
    "a causal loop": ("n", "def reference(x, w, n, k):\n    p = np.pad(x, (k - 1, 0))\n    y = np.zeros(n)\n    for j in range(k):\n        y += w[j] * p[k - 1 - j : k - 1 - j + n]\n    return y", naive("n", "i - j")),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_filters_are_right_at_the_ends_of_signals_and_tiles(name: str, make: Any, session: Session) -> None:
    count, reference, body = CASES[name]
    args = {**SIGNAL, "y": f"out float32[{count}]", **INTS}
    kernel, _ = make(args, reference, body=body, grid=f"cdiv({count}, block)", sizes=SIZES, more=MORE)
    assert assert_judged_right(session, kernel) == ["synthesis:filter"]


def test_rows_are_filtered_by_taps_of_their_own(make: Any, session: Session) -> None:
    args = {"x": "in float32[rows, n] ~ normal", "w": "in float32[rows, k] ~ normal", "b": "in float32[rows] ~ normal", "y": "out float32[rows, n]"}  # fmt: skip
    reference = "def reference(x, w, b, n, k):\n    p = np.pad(x, ((0, 0), (k - 1, 0)))\n    y = np.zeros_like(x)\n    for j in range(k):\n        y += w[:, j : j + 1] * p[:, k - 1 - j : k - 1 - j + n]\n    return np.maximum(y + b[:, None], 0)"
    sizes = "{ rows = 3, n = 1100, k = 67 }, { rows = 2, n = 37, k = 5 }, { rows = 1, n = 9, k = 1 }"
    kernel, _ = make({**args, "rows": "int32", **INTS}, reference, body=ROWS, grid="cdiv(rows * n, block)", sizes=sizes, more=MORE)  # fmt: skip
    assert "synthesis:filter" in assert_judged_right(session, kernel)


def test_few_taps_are_read_from_the_cache(make: Any, tmp_path: Path) -> None:
    args = {**SIGNAL, "y": "out float32[n - k + 1]", **INTS}
    kernel, contract = make(args, "np.convolve(x, w, mode='valid')", grid="cdiv(n, block)", sizes="{ n = 1000, k = 7 }, { n = 37, k = 5 }", more=MORE)  # fmt: skip
    assert next(iter(kernels_for(trace(contract, tmp_path), kernel, contract))).schedule == "windows"


def test_a_filter_with_more_taps_than_elements_is_not_traced(make: Any, tmp_path: Path) -> None:
    args = {**SIGNAL, "y": "out float32[k - n + 1]", **INTS}
    _, contract = make(args, "np.convolve(x, w, mode='valid')", sizes="{ n = 3, k = 20 }", grid="1")
    with pytest.raises(ReferenceFailed, match="more taps than elements"):
        trace(contract, tmp_path)
