"""Threads for several neighbouring columns of windows along rows: right by the judge, with strips in registers and packed accesses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.session import Session
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right

MATRIX = {"rows": "int32", "cols": "int32"}
SIZES = "{ rows = 5, cols = 72 }, { rows = 3, cols = 67 }, { rows = 2, cols = 1 }"
HEAD = "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= rows * cols) return;\n  int r = i / cols, c = i % cols;\n"
WINDOW = "from numpy.lib.stride_tricks import sliding_window_view\n\n\n"
X, Y = {"x": "in float32[rows, cols] ~ normal"}, {"y": "out float32[rows, cols]"}
HALF = "#include <cuda_fp16.h>\n"

CASES: dict[str, tuple[dict[str, str], str, str, str]] = {
    "mean of seventeen, zeros beyond the ends": (
        X | Y | MATRIX, f"{WINDOW}def reference(x):\n    return sliding_window_view(np.pad(x, ((0, 0), (8, 8))), 17, axis=1).sum(axis=-1) / 17",
        f"{HEAD}  float s = 0;\n  for (int d = -8; d <= 8; ++d) if (c + d >= 0 && c + d < cols) s += x[i + d];\n  y[i] = s / 17;", "rows * cols",
    ),
    "causal taps with a bias for each column": (
        X | {"w": "in float32[6] ~ normal", "bias": "in float32[cols] ~ normal"} | Y | MATRIX,
        "def reference(x, w, bias):\n    p = np.pad(x, ((0, 0), (5, 0)))\n    return sum(w[k] * p[:, k : k + x.shape[1]] for k in range(6)) + bias",
        f"{HEAD}  float s = bias[c];\n  for (int k = 0; k < 6; ++k) if (c + k - 5 >= 0) s += w[k] * x[i + k - 5];\n  y[i] = s;", "rows * cols",
    ),
    "only whole windows": (
        {"x": "in float32[rows, cols + 8] ~ normal"} | Y | MATRIX, f"{WINDOW}def reference(x):\n    return sliding_window_view(x, 9, axis=1).max(axis=-1)",
        f"{HEAD}  float m = -INFINITY;\n  for (int d = 0; d < 9; ++d) {{ float v = x[r * (cols + 8) + c + d]; if (v > m || isnan(v)) m = v; }}\n  y[i] = m;", "rows * cols",
    ),
    "whole windows of rows of odd length": (
        {"x": "in float32[rows, cols + 5] ~ normal"} | Y | MATRIX, f"{WINDOW}def reference(x):\n    return sliding_window_view(x, 6, axis=1).sum(axis=-1)",
        f"{HEAD}  float s = 0;\n  for (int d = 0; d < 6; ++d) s += x[r * (cols + 5) + c + d];\n  y[i] = s;", "rows * cols",
    ),
    "a signal": (
        {"x": "in float32[n] ~ normal", "y": "out float32[n]", "n": "int32"}, f"{WINDOW}def reference(x):\n    return sliding_window_view(np.pad(x, 6), 13).sum(axis=-1)",
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= n) return;\n  float s = 0;\n  for (int d = -6; d <= 6; ++d) if (i + d >= 0 && i + d < n) s += x[i + d];\n  y[i] = s;", "n",
    ),
    "a causal signal": (
        {"x": "in float32[n] ~ normal", "w": "in float32[5] ~ normal", "y": "out float32[n]", "n": "int32"},
        "def reference(x, w):\n    p = np.pad(x, (4, 0))\n    return sum(w[k] * p[k : k + len(x)] for k in range(5))",
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= n) return;\n  float s = 0;\n  for (int k = 0; k < 5; ++k) if (i + k - 4 >= 0) s += w[k] * x[i + k - 4];\n  y[i] = s;", "n",
    ),
    "halves with a residual": (
        {"x": "in float16[rows, cols] ~ normal", "z": "in float16[rows, cols] ~ normal", "y": "out float16[rows, cols]"} | MATRIX,
        f"{WINDOW}def reference(x, z):\n    return sliding_window_view(np.pad(x, ((0, 0), (4, 4))), 9, axis=1).sum(axis=-1) / 9 + z",
        f"{HEAD}  float s = 0;\n  for (int d = -4; d <= 4; ++d) if (c + d >= 0 && c + d < cols) s += __half2float(x[i + d]);\n  y[i] = __float2half(s / 9 + __half2float(z[i]));", "rows * cols",
    ),
    "doubles": (
        {"x": "in float64[rows, cols] ~ normal", "y": "out float64[rows, cols]"} | MATRIX, f"{WINDOW}def reference(x):\n    return sliding_window_view(np.pad(x, ((0, 0), (2, 2))), 5, axis=1).sum(axis=-1)",
        f"{HEAD}  double s = 0;\n  for (int d = -2; d <= 2; ++d) if (c + d >= 0 && c + d < cols) s += x[i + d];\n  y[i] = s;", "rows * cols",
    ),
    "two results of one window": (
        X | Y | {"z": "out float32[rows, cols]"} | MATRIX,
        f"{WINDOW}def reference(x):\n    w = sliding_window_view(np.pad(x, ((0, 0), (3, 3)), constant_values=1), 7, axis=1)\n    return w.sum(axis=-1), w.max(axis=-1)",
        f"{HEAD}  float s = 0, m = -INFINITY;\n  for (int d = -3; d <= 3; ++d) {{ float v = c + d >= 0 && c + d < cols ? x[i + d] : 1; s += v; if (v > m || isnan(v)) m = v; }}\n  y[i] = s;\n  z[i] = m;", "rows * cols",
    ),
    "batches of channels": (
        {"x": "in float32[batch, rows, cols] ~ normal", "w": "in float32[rows, 8] ~ normal", "y": "out float32[batch, rows, cols]", "batch": "int32"} | MATRIX,
        "def reference(x, w):\n    p = np.pad(x, ((0, 0), (0, 0), (7, 0)))\n    return sum(w[None, :, k, None] * p[:, :, k : k + x.shape[2]] for k in range(8))",
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= batch * rows * cols) return;\n  int c = i % cols, r = i / cols % rows;\n  float s = 0;\n"
        "  for (int k = 0; k < 8; ++k) if (c + k - 7 >= 0) s += w[r * 8 + k] * x[i + k - 7];\n  y[i] = s;", "batch * rows * cols",
    ),
}  # fmt: skip


def kernel_of(make: Any, name: str) -> Any:
    args, reference, body, count = CASES[name]
    sizes = SIZES
    if "n" in args:
        sizes = "{ n = 1100 }, { n = 1031 }, { n = 1 }"
    elif "batch" in args:
        sizes = SIZES.replace("{ rows", "{ batch = 2, rows")
    above = HALF if any("float16" in one for one in args.values()) else ""
    return make(args, reference, sizes=sizes, body=body, grid=f"cdiv({count}, 128)", above=above)


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_it_is_right(name: str, make: Any, session: Session) -> None:
    kernel, _ = kernel_of(make, name)
    assert "synthesis:windows-columns" in assert_judged_right(session, kernel)


def test_a_strip_is_loaded_in_packs_of_which_the_first_lies_before_the_window(make: Any, tmp_path: Path) -> None:
    kernel, contract = kernel_of(make, "causal taps with a bias for each column")
    texts = {one.schedule: one.definition for one in kernels_for(trace(contract, tmp_path), kernel, contract)}
    text = texts["windows-columns"]
    assert "float x_window[kColumns + 8];" in text
    assert "const int in_col = first + p - 8;" in text
    assert "float bias_values[kColumns];\n  if (packed) {" in text
    assert text.count("*reinterpret_cast<const Pack*>") == 2
    assert text.count("*reinterpret_cast<Pack*>(y + ") == 1


@pytest.mark.parametrize(
    ("args", "reference"),
    [
        (X | Y | MATRIX, f"{WINDOW}def reference(x):\n    return sliding_window_view(np.pad(x, ((0, 0), (1, 1))), 3, axis=1).sum(axis=-1)"),
        (X | Y | MATRIX, f"{WINDOW}def reference(x):\n    return sliding_window_view(np.pad(x, ((0, 0), (40, 40))), 81, axis=1).sum(axis=-1)"),
        ({"x": "in float32[rows, 2 * cols + 6] ~ normal"} | Y | MATRIX, f"{WINDOW}def reference(x):\n    return sliding_window_view(x, 8, axis=1)[:, ::2].sum(axis=-1)"),
    ],
    ids=["few neighbours", "more than registers hold", "every second column"],
)  # fmt: skip
def test_other_windows_are_not_written_by_columns(
    args: dict[str, str], reference: str, make: Any, tmp_path: Path
) -> None:
    kernel, contract = make(args, reference, sizes=SIZES, grid="cdiv(rows * cols, 128)")
    found = [one.schedule for one in kernels_for(trace(contract, tmp_path), kernel, contract)]
    assert found
    assert "windows-columns" not in found
