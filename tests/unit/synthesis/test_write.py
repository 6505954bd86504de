"""Kernels written from references: right by the judge at odd sizes and in each dtype, with the baseline's name and parameters."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from kernelmate.records import Candidate, Contract, Judged, Kernel
from kernelmate.session import Session
from kernelmate.suggest.synthesis import Synthesis
from kernelmate.synthesis.placing import placed
from kernelmate.synthesis.plan import Refused, plan_of
from kernelmate.synthesis.schedules import contraction
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import schedules_for

ROW = "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= rows) return;\n"
ITEM = "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= rows * cols) return;\n"
COLUMN = "  int c = blockIdx.x * blockDim.x + threadIdx.x;\n  if (c >= cols) return;\n"
BY_ROW, BY_ITEM, BY_COLUMN = "cdiv(rows, block)", "cdiv(rows * cols, block)", "cdiv(cols, block)"
SIZES = {"rows": "int32", "cols": "int32"}
HALF, BRAIN = "#include <cuda_fp16.h>\n", "#include <cuda_bf16.h>\n"


def matrix(dtype: str = "float32", **more: str) -> dict[str, str]:
    return {"x": f"in {dtype}[rows, cols] ~ normal", **more, "y": f"out {dtype}[rows, cols]", **SIZES}


def reduced(**more: str) -> dict[str, str]:
    return {"x": "in float32[rows, cols] ~ normal", **more, "y": "out float32[rows]", **SIZES}


LOAD = {"float32": "{}", "float64": "{}", "float16": "__half2float({})", "bfloat16": "__bfloat162float({})"}
STORE = {"float32": "{}", "float64": "{}", "float16": "__float2half({})", "bfloat16": "__float2bfloat16({})"}


def silu(dtype: str) -> tuple[dict[str, str], str, str, str, str]:
    real = "double" if dtype == "float64" else "float"
    body = f"{ITEM}  {real} v = {LOAD[dtype].format('x[i]')};\n  y[i] = {STORE[dtype].format('v / (1 + exp(-v))')};"
    return matrix(dtype), "x / (1 + np.exp(-x))", body, BY_ITEM, {"float16": HALF, "bfloat16": BRAIN}.get(dtype, "")


CASES: dict[str, tuple[dict[str, str], str, str, str, str]] = {
    **{f"silu {dtype}": silu(dtype) for dtype in LOAD},
    "axpy in place": (
        {"x": "in float32[rows, cols]", "y": "inout float32[rows, cols]", "a": "float32 = 0.75", **SIZES},
        "a * x + y", f"{ITEM}  y[i] = a * x[i] + y[i];", BY_ITEM, "",
    ),
    "bias and scale": (
        matrix(w="in float32[cols] ~ normal", s="in float32[rows] ~ normal"),
        "(x + w) * s[:, None]", f"{ITEM}  y[i] = (x[i] + w[i % cols]) * s[i / cols];", BY_ITEM, "",
    ),
    "padded rows": (
        {"x": "in float32[rows, cols + 5] ~ normal", "y": "inout float32[rows, cols + 5] ~ normal", "m": "out float32[rows]", **SIZES, "pitch": "int32 = cols + 5"},
        "def reference(x, y, cols):\n    v = x[:, :cols]\n    e = np.exp(v - v.max(axis=1, keepdims=True))\n    out = y.copy()\n"
        "    out[:, :cols] = e / e.sum(axis=1, keepdims=True)\n    return out, v.max(axis=1)",
        f"{ROW}  float t = -INFINITY, s = 0;\n  for (int c = 0; c < cols; ++c) t = fmaxf(t, x[r * pitch + c]);\n"
        "  for (int c = 0; c < cols; ++c) s += expf(x[r * pitch + c] - t);\n  m[r] = t;\n"
        "  for (int c = 0; c < cols; ++c) y[r * pitch + c] = expf(x[r * pitch + c] - t) / s;", BY_ROW, "",
    ),
    "the larger of bytes": (
        {"q": "in int8[rows, cols]", "y": "out int8[rows, cols]", **SIZES}, "np.maximum(q, 0)",
        f"{ITEM}  y[i] = q[i] > 0 ? q[i] : 0;", BY_ITEM, "",
    ),
    "a blend of bytes": (
        {"a": "in uint8[rows, cols]", "b": "in uint8[rows, cols]", "y": "out uint8[rows, cols]", **SIZES},
        "((a.astype(np.uint16) * 3 + b + 2) >> 2).astype(np.uint8)", f"{ITEM}  y[i] = (a[i] * 3 + b[i] + 2) >> 2;", BY_ITEM, "",
    ),
    "sums of bytes that wrap": (
        {"a": "in uint8[rows, cols]", "y": "out uint8[rows, cols]", **SIZES}, "a * np.uint8(7) + a",
        f"{ITEM}  y[i] = a[i] * 8;", BY_ITEM, "",
    ),
    "quotients rounded down": (
        {"a": "in int32[rows, cols]", "y": "out int32[rows, cols]", **SIZES}, "a // 7 + a % 5",
        f"{ITEM}  int v = a[i];\n  y[i] = v / 7 - (v % 7 < 0) + (v % 5 + 5) % 5;", BY_ITEM, "",
    ),
    "a threshold that may change": (
        {"a": "in int32[rows, cols] ~ integers(-200, 200)", "low": "int32 = 100", "y": "out int32[rows, cols]", **SIZES},
        "np.where(a < low, 0, a)", f"{ITEM}  y[i] = a[i] < low ? 0 : a[i];", BY_ITEM, "",
    ),
    "a mask and a sign": (
        matrix(), "def reference(x):\n    y = np.sign(x) * x**2\n    y[x < -1] *= 0.1\n    return y",
        f"{ITEM}  float v = x[i], s = v > 0 ? v * v : -v * v;\n  y[i] = v < -1 ? 0.1f * s : s;", BY_ITEM, "",
    ),
    "a loop over rows": (
        matrix(), "def reference(x):\n    y = np.empty_like(x)\n    for i in range(len(x)):\n        e = np.exp(x[i] - x[i].max())\n        y[i] = e / e.sum()\n    return y",
        f"{ROW}  float m = -INFINITY, s = 0;\n  for (int c = 0; c < cols; ++c) m = fmaxf(m, x[r * cols + c]);\n"
        "  for (int c = 0; c < cols; ++c) s += expf(x[r * cols + c] - m);\n"
        "  for (int c = 0; c < cols; ++c) y[r * cols + c] = expf(x[r * cols + c] - m) / s;", BY_ROW, "",
    ),
    "a product of bytes": (
        {"a": "in int8[rows, cols]", "b": "in int8[cols, rows]", "y": "out int32[rows, rows]", **SIZES},
        "a.astype(np.int32) @ b.astype(np.int32)",
        "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i >= rows * rows) return;\n  int s = 0;\n"
        "  for (int c = 0; c < cols; ++c) s += a[i / rows * cols + c] * b[c * rows + i % rows];\n  y[i] = s;", "cdiv(rows * rows, block)", "",
    ),
    "int8 to float": (
        {"q": "in int8[rows, cols]", "s": "in float32[rows]", "y": "out float32[rows, cols]", **SIZES},
        "q.astype(np.float64) * s[:, None]", f"{ITEM}  y[i] = q[i] * s[i / cols];", BY_ITEM, "",
    ),
    "causal mask": (
        matrix(), "np.where(np.arange(cols)[None, :] > np.arange(rows)[:, None], -1.0, x)",
        f"{ITEM}  y[i] = i % cols > i / cols ? -1.0f : x[i];", BY_ITEM, "",
    ),
    "leaky bounds": (
        matrix(), "np.maximum(x, 0) + 0.1 * np.minimum(x, 0)",
        f"{ITEM}  float v = x[i];\n  y[i] = (v < 0 ? 0.0f : v) + 0.1f * (v > 0 ? 0.0f : v);", BY_ITEM, "",
    ),
    "bytes less words": (
        {"q": "in int8[rows, cols]", "t": "in int32[rows, cols] ~ integers(0, 9)", "y": "out float32[rows, cols]", **SIZES},
        "(q.astype(np.int64) - t) * 0.5", f"{ITEM}  y[i] = (q[i] - t[i]) * 0.5f;", BY_ITEM, "",
    ),
    "bounds by arguments": (
        {**matrix(), "low": "float32 = -0.5", "high": "float32 = 0.5"}, "np.clip(x, low, high)",
        f"{ITEM}  float v = x[i];\n  if (v < low) v = low;\n  if (v > high) v = high;\n  y[i] = v;", BY_ITEM, "",
    ),
    "larger of two": (
        matrix(w="in float32[rows, cols] ~ normal"), "np.maximum(x, w)",
        f"{ITEM}  y[i] = x[i] > w[i] || x[i] != x[i] ? x[i] : w[i];", BY_ITEM, "",
    ),
    "bits": (
        {"q": "in int32[rows, cols]", "t": "in uint8[rows, cols]", "y": "out int32[rows, cols]", **SIZES},
        "((q >> 3) & 0xFF ^ ~q) | (t.astype(np.int32) // 5 << 2) + t % 7",
        f"{ITEM}  y[i] = (((q[i] >> 3) & 0xFF) ^ ~q[i]) | ((t[i] / 5 << 2) + t[i] % 7);", BY_ITEM, "",
    ),
    "all sums": (
        {"x": "in float32[rows]", "w": "in float32[cols]", "y": "out float32[rows, cols]", **SIZES},
        "np.add.outer(x, w)", f"{ITEM}  y[i] = x[i / cols] + w[i % cols];", BY_ITEM, "",
    ),
    "rows rounded to int8": (
        {"x": "in float32[rows, cols] ~ uniform(-3, 3)", "y": "out int8[rows, cols]", **SIZES},
        "np.rint(x / np.maximum(np.abs(x).max(axis=1, keepdims=True), 1e-8) * 127).astype(np.int8)",
        f"{ROW}  float m = 1e-8f;\n  for (int c = 0; c < cols; ++c) m = fmaxf(m, fabsf(x[r * cols + c]));\n"
        "  for (int c = 0; c < cols; ++c) y[r * cols + c] = (signed char)rintf(x[r * cols + c] / m * 127);", BY_ROW, "",
    ),
    "a product for each row number": (
        {"x": "in float32[rows, 5, 7] ~ normal", "w": "in float32[rows, 7, cols] ~ normal", "y": "out float32[rows, 5, cols]", "cols": "int32"},
        "np.einsum('bik,bkj->bij', x, w)",
        "  int r = blockIdx.x;\n  for (int i = threadIdx.x; i < 5 * cols; i += blockDim.x) {\n    float s = 0;\n"
        "    for (int k = 0; k < 7; ++k) s += x[r * 35 + i / cols * 7 + k] * w[(r * 7 + k) * cols + i % cols];\n"
        "    y[r * 5 * cols + i] = s;\n  }", "rows", "",
    ),
    "running sums": (
        matrix(), "np.cumsum(x, axis=1)",
        f"{ROW}  float s = 0;\n  for (int c = 0; c < cols; ++c) y[r * cols + c] = s += x[r * cols + c];", BY_ROW, "",
    ),
    "running sums of squares, weighted": (
        matrix(w="in float32[cols] ~ normal", s="in float32[rows] ~ normal"),
        "np.sqrt((x * x).cumsum(-1)) * w + s[:, None]",
        f"{ROW}  float t = 0;\n  for (int c = 0; c < cols; ++c) {{\n    t += x[r * cols + c] * x[r * cols + c];\n"
        "    y[r * cols + c] = sqrtf(t) * w[c] + s[r];\n  }", BY_ROW, "",
    ),
    "running sums in place": (
        {"y": "inout float32[rows, cols] ~ normal", **SIZES}, "np.cumsum(y, axis=1)",
        f"{ROW}  for (int c = 1; c < cols; ++c) y[r * cols + c] += y[r * cols + c - 1];", BY_ROW, "",
    ),
    "running counts": (
        {"q": "in uint8[rows, cols]", "y": "out int32[rows, cols]", **SIZES},
        "np.cumsum(q > 127, axis=1).astype(np.int32)",
        f"{ROW}  int s = 0;\n  for (int c = 0; c < cols; ++c) y[r * cols + c] = s += q[r * cols + c] > 127;", BY_ROW, "",
    ),
    "running sums of halves": (
        matrix("float16"), "np.cumsum(x, axis=1)",
        f"{ROW}  float s = 0;\n  for (int c = 0; c < cols; ++c) {{\n    s += __half2float(x[r * cols + c]);\n"
        "    y[r * cols + c] = __float2half(s);\n  }", BY_ROW, HALF,
    ),
    "groups of channels": (
        {"x": "in float32[rows, cols, 6] ~ normal", "w": "in float32[cols] ~ normal", "y": "out float32[rows, cols, 6]", **SIZES},
        "def reference(x, w):\n    rows, cols, six = x.shape\n    g = x.reshape(rows, 1, -1)\n"
        "    return (g - g.mean(axis=2, keepdims=True)).reshape(x.shape) * w[:, None]",
        f"{ROW}  float s = 0;\n  for (int i = 0; i < cols * 6; ++i) s += x[r * cols * 6 + i];\n"
        "  for (int i = 0; i < cols * 6; ++i) y[r * cols * 6 + i] = (x[r * cols * 6 + i] - s / (cols * 6)) * w[i / 6];", BY_ROW, "",
    ),
    "two outputs": (
        {"x": "in float32[rows, cols]", "y": "out float32[rows, cols]", "z": "out float32[rows, cols]", **SIZES},
        "def reference(x):\n    return np.sqrt(x), x**3",
        f"{ITEM}  y[i] = sqrtf(x[i]);\n  z[i] = x[i] * x[i] * x[i];", BY_ITEM, "",
    ),
    "row sum": (reduced(), "x.sum(axis=1)", f"{ROW}  float s = 0;\n  for (int c = 0; c < cols; ++c) s += x[r * cols + c];\n  y[r] = s;", BY_ROW, ""),
    "row maximum with NaN": (reduced(), "x.max(axis=1)", f"{ROW}  float s = x[r * cols];\n  for (int c = 1; c < cols; ++c) s = x[r * cols + c] > s ? x[r * cols + c] : s;\n  y[r] = s;", BY_ROW, ""),
    "row maximum": (reduced(), "x.max(axis=1)", f"{ROW}  float s = x[r * cols];\n  for (int c = 1; c < cols; ++c) s = fmaxf(s, x[r * cols + c]);\n  y[r] = s;", BY_ROW, ""),
    "softmax": (
        matrix(), "def reference(x):\n    e = np.exp(x - x.max(axis=1, keepdims=True))\n    return e / e.sum(axis=1, keepdims=True)",
        f"""{ROW}  float m = x[r * cols], s = 0;
  for (int c = 1; c < cols; ++c) m = fmaxf(m, x[r * cols + c]);
  for (int c = 0; c < cols; ++c) s += expf(x[r * cols + c] - m);
  for (int c = 0; c < cols; ++c) y[r * cols + c] = expf(x[r * cols + c] - m) / s;""", BY_ROW, "",
    ),
    "layer norm with offset": (
        {**matrix(g="in float32[cols] ~ normal"), "x": "in float32[rows, cols] ~ normal(300, 1)"},
        "def reference(x, g):\n    return (x - x.mean(axis=1, keepdims=True)) / np.sqrt(x.var(axis=1, keepdims=True) + 1e-5) * g",
        f"""{ROW}  float m = 0, s = 0;
  for (int c = 0; c < cols; ++c) m += x[r * cols + c];
  m /= cols;
  for (int c = 0; c < cols; ++c) s += (x[r * cols + c] - m) * (x[r * cols + c] - m);
  for (int c = 0; c < cols; ++c) y[r * cols + c] = (x[r * cols + c] - m) / sqrtf(s / cols + 1e-5f) * g[c];""", BY_ROW, "",
    ),
    "rms norm in half": (
        matrix("float16"), "x / np.sqrt((x**2).mean(axis=1, keepdims=True) + 1e-5)",
        f"""{ROW}  float s = 0;
  for (int c = 0; c < cols; ++c) s += __half2float(x[r * cols + c]) * __half2float(x[r * cols + c]);
  float f = 1.0f / sqrtf(s / cols + 1e-5f);
  for (int c = 0; c < cols; ++c) y[r * cols + c] = __float2half(__half2float(x[r * cols + c]) * f);""", BY_ROW, HALF,
    ),
    "row sum added": (
        {"x": "in float32[rows, cols] ~ normal", "y": "inout float32[rows] ~ normal", **SIZES}, "y + x.sum(axis=1)",
        f"{ROW}  float s = 0;\n  for (int c = 0; c < cols; ++c) s += x[r * cols + c];\n  y[r] += s;", BY_ROW, "",
    ),
    "column sum by einsum": (
        {"x": "in float32[rows, cols] ~ normal", "y": "out float32[cols]", **SIZES}, "np.einsum('ij->j', x)",
        f"{COLUMN}  float s = 0;\n  for (int r = 0; r < rows; ++r) s += x[r * cols + c];\n  y[c] = s;", BY_COLUMN, "",
    ),
    **{f"column sum {dtype}": (
        {"x": f"in {dtype}[rows, cols] ~ normal", "y": f"out {dtype}[cols]", **SIZES}, "x.sum(axis=0)",
        f"{COLUMN}  {'double' if dtype == 'float64' else 'float'} s = 0;\n  for (int r = 0; r < rows; ++r) s += {LOAD[dtype].format('x[r * cols + c]')};\n"
        f"  y[c] = {STORE[dtype].format('s')};", BY_COLUMN, {"float16": HALF, "bfloat16": BRAIN}.get(dtype, ""),
    ) for dtype in LOAD},
    "bias gradients": (
        {"x": "in float32[rows, cols] ~ normal", "n": "in float32[rows, cols] ~ normal", "b": "inout float32[cols] ~ normal", "g": "inout float32[cols] ~ normal", **SIZES},
        "def reference(b, g, x, n):\n    return b + x.sum(axis=0), g + (n * x).sum(axis=0)",
        f"""{COLUMN}  float s = 0, t = 0;
  for (int r = 0; r < rows; ++r) {{ s += x[r * cols + c]; t += n[r * cols + c] * x[r * cols + c]; }}
  b[c] += s;
  g[c] += t;""", BY_COLUMN, "",
    ),
    "column norm with offset": (
        {**matrix(w="in float32[rows] ~ normal"), "x": "in float32[rows, cols] ~ normal(300, 1)"},
        "def reference(x, w):\n    return (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5) * w[:, None]",
        f"""{COLUMN}  float m = 0, s = 0;
  for (int r = 0; r < rows; ++r) m += x[r * cols + c];
  m /= rows;
  for (int r = 0; r < rows; ++r) s += (x[r * cols + c] - m) * (x[r * cols + c] - m);
  for (int r = 0; r < rows; ++r) y[r * cols + c] = (x[r * cols + c] - m) / sqrtf(s / rows + 1e-5f) * w[r];""", BY_COLUMN, "",
    ),
    "channel statistics": (
        {"x": "in float32[rows, 3, cols] ~ normal(40, 1)", "m": "out float32[3]", "v": "out float32[3]", **SIZES},
        "def reference(x):\n    return x.mean(axis=(0, 2)), x.var(axis=(0, 2))",
        """  int k = threadIdx.x;
  if (k >= 3) return;
  float s = 0, t = 0;
  for (int r = 0; r < rows; ++r) for (int c = 0; c < cols; ++c) s += x[(r * 3 + k) * cols + c];
  s /= rows * cols;
  for (int r = 0; r < rows; ++r) for (int c = 0; c < cols; ++c) { float d = x[(r * 3 + k) * cols + c] - s; t += d * d; }
  m[k] = s;
  v[k] = t / (rows * cols);""", "1", "",
    ),
    "softmax of the middle axis": (
        {"x": "in float32[2, rows, cols] ~ normal", "w": "in float32[2] ~ normal", "y": "out float32[2, rows, cols]", **SIZES},
        "def reference(x, w):\n    e = np.exp(x - x.max(axis=1, keepdims=True))\n    return e / e.sum(axis=1, keepdims=True) * w[:, None, None]",
        """  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 * cols) return;
  const float* p = x + i / cols * rows * cols + i % cols;
  float* q = y + i / cols * rows * cols + i % cols;
  float m = p[0], s = 0;
  for (int r = 1; r < rows; ++r) m = fmaxf(m, p[r * cols]);
  for (int r = 0; r < rows; ++r) s += expf(p[r * cols] - m);
  for (int r = 0; r < rows; ++r) q[r * cols] = expf(p[r * cols] - m) / s * w[i / cols];""", "cdiv(2 * cols, block)", "",
    ),
    "column softmax in place": (
        {"x": "inout float32[rows, cols] ~ normal", **SIZES}, "def reference(x):\n    e = np.exp(x - x.max(axis=0))\n    return e / e.sum(axis=0)",
        f"""{COLUMN}  float m = x[c], s = 0;
  for (int r = 1; r < rows; ++r) m = fmaxf(m, x[r * cols + c]);
  for (int r = 0; r < rows; ++r) s += expf(x[r * cols + c] - m);
  for (int r = 0; r < rows; ++r) x[r * cols + c] = expf(x[r * cols + c] - m) / s;""", BY_COLUMN, "",
    ),
    **{f"transposition {dtype}": (
        {"x": f"in {dtype}[rows, cols] ~ normal", "y": f"out {dtype}[cols, rows]", **SIZES}, "x.T",
        f"{ITEM}  y[(i % cols) * rows + i / cols] = x[i];", BY_ITEM, {"float16": HALF, "bfloat16": BRAIN}.get(dtype, ""),
    ) for dtype in LOAD},
    "scaled transposition added": (
        {"x": "in float32[rows, cols] ~ normal", "b": "in float32[rows] ~ normal", "y": "inout float32[cols, rows] ~ normal", **SIZES},
        "y + x.T * 0.5 + b", f"{ITEM}  y[(i % cols) * rows + i / cols] += x[i] * 0.5f + b[i / cols];", BY_ITEM, "",
    ),
    "channels last": (
        {"x": "in float32[rows, 3, cols] ~ normal", "y": "out float32[rows, cols, 3]", **SIZES}, "x.transpose(0, 2, 1)",
        """  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * cols * 3) return;
  y[i] = x[(i / (3 * cols) * 3 + i % 3) * cols + i / 3 % cols];""", "cdiv(rows * cols * 3, block)", "",
    ),
    "heads": (
        {"x": "in float32[rows, cols * 8] ~ normal", "y": "out float32[2, rows, cols * 4]", **SIZES}, "x.reshape(x.shape[0], 2, -1).transpose(1, 0, 2)",
        """  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * cols * 8) return;
  int r = i / (cols * 8), h = i / (cols * 4) % 2, c = i % (cols * 4);
  y[(h * rows + r) * cols * 4 + c] = x[i];""", "cdiv(rows * cols * 8, block)", "",
    ),
    "channel scale": (
        {"x": "in float32[rows, 5, cols] ~ normal", "s": "in float32[5] ~ normal", "b": "in float32[rows, cols] ~ normal", "y": "out float32[rows, 5, cols]", **SIZES},
        "x * s[:, None] + b[:, None, :]",
        """  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * cols * 5) return;
  y[i] = x[i] * s[i / cols % 5] + b[i / (5 * cols) * cols + i % cols];""", "cdiv(rows * cols * 5, block)", "",
    ),
    **{f"matrix product {dtype}": (
        {"a": f"in {dtype}[rows, cols] ~ normal", "b": f"in {dtype}[cols, 9] ~ normal", "y": f"out {dtype}[rows, 9]", **SIZES}, "a @ b",
        f"""  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * 9) return;
  {"double" if dtype == "float64" else "float"} s = 0;
  for (int k = 0; k < cols; ++k) s += {LOAD[dtype].format("a[i / 9 * cols + k]")} * {LOAD[dtype].format("b[k * 9 + i % 9]")};
  y[i] = {STORE[dtype].format("s")};""", "cdiv(rows * 9, block)", {"float16": HALF, "bfloat16": BRAIN}.get(dtype, ""),
    ) for dtype in LOAD},
    "linear layer": (
        {"x": "in float32[2, rows, cols] ~ normal", "w": "in float32[70, cols] ~ normal", "b": "in float32[70] ~ normal", "y": "out float32[2, rows, 70]", **SIZES},
        "np.maximum(x @ w.T + b, 0)",
        """  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * 140) return;
  float s = b[i % 70];
  for (int k = 0; k < cols; ++k) s += x[i / 70 * cols + k] * w[i % 70 * cols + k];
  y[i] = s < 0 ? 0 : s;""", "cdiv(rows * 140, block)", "",
    ),
    "scores of heads": (
        {"q": "in float32[2, rows, 3, cols] ~ normal", "k": "in float32[2, rows, 3, cols] ~ normal", "y": "inout float32[2, 3, rows, rows] ~ normal", **SIZES},
        "y + np.einsum('bthd,bshd->bhts', q, k) / np.sqrt(cols)",
        """  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * rows * 6) return;
  int s = i % rows, t = i / rows % rows, h = i / rows / rows % 3, b = i / rows / rows / 3;
  float sum = 0;
  for (int d = 0; d < cols; ++d) sum += q[((b * rows + t) * 3 + h) * cols + d] * k[((b * rows + s) * 3 + h) * cols + d];
  y[i] += sum / sqrtf(cols);""", "cdiv(rows * rows * 6, block)", "",
    ),
    "weight gradient": (
        {"x": "in float32[2, rows, cols] ~ normal", "g": "in float32[2, rows, 8] ~ normal", "y": "out float32[8, cols]", **SIZES},
        "np.einsum('btc,bto->oc', x, g)",
        """  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= cols * 8) return;
  float s = 0;
  for (int r = 0; r < 2 * rows; ++r) s += g[r * 8 + i / cols] * x[r * cols + i % cols];
  y[i] = s;""", "cdiv(cols * 8, block)", "",
    ),
    "squared distances": (
        {"p": "in float32[rows, 5] ~ normal", "q": "in float32[cols, 5] ~ normal", "y": "out float32[rows, cols]", **SIZES},
        "((p[:, None, :] - q[None, :, :])**2).sum(axis=-1)",
        f"""{ITEM}  float s = 0;
  for (int k = 0; k < 5; ++k) {{ float d = p[i / cols * 5 + k] - q[i % cols * 5 + k]; s += d * d; }}
  y[i] = s;""", BY_ITEM, "",
    ),
    "embedding": (
        {"table": "in float32[23, cols] ~ normal", "ids": "in int32[2, rows] ~ integers(0, 23)", "p": "in float32[rows, cols] ~ normal", "y": "out float32[2, rows, cols]", **SIZES},
        "table[ids] * np.sqrt(cols) + p",
        """  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= 2 * rows * cols) return;
  y[i] = table[ids[i / cols] * cols + i % cols] * sqrtf(cols) + p[i % (rows * cols)];""", "cdiv(2 * rows * cols, block)", "",
    ),
    "causal softmax of heads": (
        {"x": "in float32[3, rows, rows] ~ normal", "s": "in float32[3] ~ uniform(1, 2)", "y": "out float32[3, rows, rows]", "rows": "int32"},
        "def reference(x, s):\n    t = np.where(np.tri(x.shape[-1], dtype=bool), x * s[:, None, None], -np.inf)\n"
        "    e = np.exp(t - t.max(axis=-1, keepdims=True))\n    return e / e.sum(axis=-1, keepdims=True)",
        """  int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= 3 * rows) return;
  float f = s[r / rows], m = x[r * rows] * f, sum = 0;
  for (int c = 1; c <= r % rows; ++c) m = fmaxf(m, x[r * rows + c] * f);
  for (int c = 0; c <= r % rows; ++c) sum += expf(x[r * rows + c] * f - m);
  for (int c = 0; c < rows; ++c) y[r * rows + c] = c <= r % rows ? expf(x[r * rows + c] * f - m) / sum : 0;""", "cdiv(3 * rows, block)", "",
    ),
    "positions that are multiplied": (
        matrix(), "x.sum(axis=1, keepdims=True) + np.arange(cols) * np.arange(cols) + np.arange(rows)[:, None]",
        f"""{ROW}  float s = 0;
  for (int c = 0; c < cols; ++c) s += x[r * cols + c];
  for (int c = 0; c < cols; ++c) y[r * cols + c] = s + (float)c * c + r;""", BY_ROW, "",
    ),
    "dot product with atomics": (
        {"a": "in float32[rows, cols] ~ normal", "b": "in float32[rows, cols] ~ normal", "y": "inout float32[1] ~ zeros", **SIZES}, "y + (a * b).sum()",
        f"{ITEM}  atomicAdd(y, a[i] * b[i]);", BY_ITEM, "",
    ),
    "norm by one block": (
        {"a": "in float32[cols] ~ normal", "y": "out float32[cols]", "z": "out float32[1]", "cols": "int32"},
        "def reference(a):\n    n = np.sqrt((a * a).sum())\n    return a / (n + 1), n.reshape(1)",
        """  float s = 0;
  for (int c = 0; c < cols; ++c) s += a[c] * a[c];
  for (int c = threadIdx.x; c < cols; c += blockDim.x) y[c] = a[c] / (sqrtf(s) + 1);
  if (threadIdx.x == 0) z[0] = sqrtf(s);""", "1", "",
    ),
    "cross entropy": (
        reduced(t="in int32[rows] ~ integers(0, cols)"),
        "def reference(x, t):\n    m = x.max(axis=1)\n    z = np.log(np.exp(x - m[:, None]).sum(axis=1)) + m\n    return z - x[np.arange(len(x)), t]",
        f"""{ROW}  float m = x[r * cols], s = 0;
  for (int c = 1; c < cols; ++c) m = fmaxf(m, x[r * cols + c]);
  for (int c = 0; c < cols; ++c) s += expf(x[r * cols + c] - m);
  y[r] = logf(s) + m - x[r * cols + t[r]];""", BY_ROW, "",
    ),
}  # fmt: skip


def build(make: Any, name: str, **changes: Any) -> tuple[Kernel, Contract]:
    args, reference, body, grid, above = CASES[name]
    positive = 'require = ["cols > 0", "rows > 0"]'
    made: tuple[Kernel, Contract] = make(args, reference, body=body, grid=grid, above=above, more=positive, **changes)
    return made


def search(session: Session, kernel: Kernel) -> tuple[Judged, ...]:
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert found.candidates, found.notes
    return found.candidates


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_written_kernels_are_right_and_keep_the_signature(name: str, make: Any, session: Session) -> None:
    kernel, _ = build(make, name)
    for judged in search(session, kernel):
        verdict = judged.verdict
        assert verdict.correct, (judged.candidate.author, verdict.findings, judged.candidate.kernel.source)
        assert verdict.diagnostics == ()
        assert any(case.origin == "own" for case in verdict.cases)
        mine, theirs = judged.candidate.kernel.signature.parameters, kernel.signature.parameters
        assert [(p.name, p.base, p.pointer) for p in mine] == [(p.name, p.base, p.pointer) for p in theirs]
        assert all(p.restrict for p in mine if p.pointer)


def test_long_rows_are_taken_by_blocks_and_short_ones_by_warps_first(make: Any, session: Session) -> None:
    short, _ = build(make, "row sum", sizes="{ rows = 9, cols = 130 }")
    long, _ = build(make, "row sum", sizes="{ rows = 3, cols = 4100 }")
    assert {one.candidate.author for one in search(session, short)} == {
        "synthesis:rows-warp",
        "synthesis:rows-block-64",
    }
    assert {one.candidate.author for one in search(session, long)} >= {
        "synthesis:rows-block-256",
        "synthesis:rows-warp",
    }


def test_every_tile_of_a_contraction_is_right(make: Any, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contraction, "ENOUGH_BLOCKS", 1)
    kernel, _ = build(make, "linear layer", sizes="{ rows = 70, cols = 21 }")
    candidates = search(session, kernel)
    tiles = {one.candidate.author for one in candidates}
    assert tiles == {"synthesis:contraction-128x128", "synthesis:contraction-64x64"}
    assert all(one.verdict.correct for one in candidates)


def written(make: Any, tmp_path: Path, name: str, **changes: Any) -> list[str]:
    kernel, contract = build(make, name, **changes)
    graph = trace(contract, tmp_path)
    return [f"{one.helpers}\n{one.definition}" for one in kernels_for(graph, kernel, contract)]


def test_a_variance_is_computed_in_two_passes(make: Any, tmp_path: Path) -> None:
    for text in written(make, tmp_path, "layer norm with offset"):
        assert text.index("mean = ") < text.index("- mean")
        assert "sum_sq += difference * difference" in text


def test_a_variance_as_a_difference_of_squares_is_refused(make: Any, tmp_path: Path) -> None:
    reference = "def reference(x):\n    return (x**2).mean(axis=1) - x.mean(axis=1) ** 2"
    _, contract = make(reduced(), reference)
    with pytest.raises(Refused, match="loses digits"):
        plan_of(trace(contract, tmp_path))


REFUSED = {
    "a transposition in place": ({"x": "inout float32[rows, rows]", **SIZES}, "x.T", "another order"),
    "a sum of everything": ({"x": "in float32[rows, cols]", "y": "out float32[1]", **SIZES}, "x.sum().reshape(1)", "whole array", "{ rows = 3000, cols = 100 }"),
    "a size that is not a parameter": ({"x": "in float32[rows]", "y": "out float32[rows]", "a": "float32 = 2"}, "x * a", "gets the size rows only through its grid"),
    "a floating result that is no whole number": ({"x": "in float32[rows]", "y": "out int32[rows]", "rows": "int32"}, "np.sqrt(x)", "rounds"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_schedule_computes_is_refused_with_the_reason(name: str, make: Any, tmp_path: Path) -> None:
    args, reference, reason, *sizes = REFUSED[name]
    kernel, contract = make(args, reference, **({"sizes": sizes[0]} if sizes else {}))
    with pytest.raises(Refused, match=reason):
        list(kernels_for(trace(contract, tmp_path), kernel, contract))


@pytest.mark.parametrize(
    "reference", ["x - x.sum(axis=1)", "(x / x.sum(axis=1, keepdims=True)).sum(axis=0)[:, None] + x"]
)
def test_reductions_along_different_axes_are_stages_of_a_block(reference: str, make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[rows, rows]", "y": "out float32[rows, rows]", **SIZES}
    assert schedules_for(*make(args, reference), tmp_path) == ["staged-block"]


def test_reductions_that_no_block_has_room_for_are_named_with_their_lines(make: Any, tmp_path: Path) -> None:
    args = {"x": "in float32[rows, cols]", "y": "out float32[rows, cols]", **SIZES}
    reference = "def reference(x):\n    a = x.mean(0)\n    return x - a - x.mean(1)[:, None]"
    kernel, contract = make(args, reference, sizes="{ rows = 9000, cols = 4000 }, { rows = 3, cols = 7 }")
    with pytest.raises(
        Refused,
        match=r"the sum along axis 0 of x\[rows, cols\] in line 5 and the sum along axis 1 of x.* in line 6, and its stages",
    ):
        list(kernels_for(trace(contract, tmp_path), kernel, contract))


def test_an_untraceable_reference_becomes_a_note_with_line_and_operation(make: Any, session: Session) -> None:
    kernel, _ = make(
        reduced(),
        "def reference(x):\n    return np.add.reduceat(x, [0], axis=1)[:, 0]",
        grid=BY_ROW,
        body=CASES["row sum"][2],
    )
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    # The kernel's text says what it computes, too; what is written from that is judged with the reference.
    assert found.candidates
    assert all(one.verdict.correct for one in found.candidates)
    assert any("reference.py:5: The reference cannot be traced: np.add.reduceat" in note for note in found.notes)


def test_a_size_that_only_the_grid_has_is_taken_from_it(make: Any, session: Session) -> None:
    args = {"x": "in float32[rows, cols]", "y": "out float32[rows, cols]", "cols": "int32"}
    body = "  for (int c = threadIdx.x; c < cols; c += blockDim.x) y[blockIdx.x * cols + c] = x[blockIdx.x * cols + c] * 2;"
    kernel, _ = make(args, "x * 2", body=body)
    (judged,) = search(session, kernel)
    assert judged.candidate.author == "synthesis:pointwise-rows"
    assert judged.verdict.correct


def test_rows_of_an_embedding_that_only_the_grid_counts_are_written(make: Any, session: Session) -> None:
    args = {
        "ids": "in int32[rows] ~ integers(0, 9)",
        "t": "in float32[9, cols]",
        "y": "out float32[rows, cols]",
        "cols": "int32",
    }
    body = "  for (int c = threadIdx.x; c < cols; c += blockDim.x) y[blockIdx.x * cols + c] = t[ids[blockIdx.x] * cols + c];"
    kernel, _ = make(args, "np.take(t, ids, axis=0)", body=body)
    (judged,) = search(session, kernel)
    assert judged.candidate.author == "synthesis:permutation-rows"
    assert judged.verdict.correct


def test_blocks_add_atomically_only_where_the_baseline_does_and_the_contract_allows_it(
    make: Any, tmp_path: Path
) -> None:
    def schedules(body: str, more: str = "") -> list[str]:
        args = {"x": "in float32[rows]", "y": "inout float32[1] ~ zeros", "rows": "int32"}
        kernel, contract = make(args, "y + x.sum()", body=body, more=more, sizes="{ rows = 4000 }")
        return [one.schedule for one in kernels_for(trace(contract, tmp_path), kernel, contract)]

    assert schedules("  atomicAdd(y, x[blockIdx.x]);") == ["total-atomic", "total"]
    assert schedules("  atomicAdd(y, x[blockIdx.x]);", "deterministic = true") == ["total"]
    assert schedules("  for (int i = 0; i < rows; ++i) y[0] += x[i];") == ["total"]


def test_a_product_of_sizes_is_computed_in_64_bits(make: Any, tmp_path: Path) -> None:
    assert "static_cast<long long>(rows) * cols" in "".join(written(make, tmp_path, "channel statistics"))


def test_launches_in_the_file_follow(make: Any, tmp_path: Path) -> None:
    kernel, contract = build(make, "silu float32")
    path = tmp_path / "kernel.cu"
    launch = "work<<<(rows * cols + 127) / 128, 128>>>(x, y, rows, cols);"
    path.write_text(f"{path.read_text()}\nvoid run(const float* x, float* y, int rows, int cols) {{ {launch} }}\n")
    from kernelmate.source import load_kernel

    kernel = load_kernel(path)
    text = next(kernels_for(trace(contract, tmp_path), kernel, contract))
    changed, new = placed(kernel, contract, text)
    assert (new.grid, new.block) == (("cdiv(rows * cols, block * 4)",), ("128",))
    assert re.search(r"work<<<.*128 \* kPack.*, 128>>>", changed.unit.text)


def test_the_files_braces_and_indentation_are_kept(make: Any, tmp_path: Path) -> None:
    args, reference, *_ = CASES["silu float32"]
    kernel, contract = make(args, reference, body="    int i = 0;\n    y[i] = x[i];", grid=BY_ITEM)
    (text,) = kernels_for(trace(contract, tmp_path), kernel, contract)
    assert "\n    constexpr int kPack = 4;" in text.definition
    assert "\n        return x_i" in text.definition
    assert text.definition.startswith("__global__ void work(const float* __restrict__ x, float* __restrict__ y,")


def test_names_of_the_file_are_not_taken(make: Any, session: Session) -> None:
    above = "__device__ float warp_sum(float value) { return value; }\nconstexpr int kPack = 3;\n"
    args, reference, body, grid, _ = CASES["row sum"]
    kernel, _ = make(args, reference, body=body, grid=grid, above=above)
    assert all(judged.verdict.correct for judged in search(session, kernel))


def test_other_objectives_get_no_such_candidates(make: Any, session: Session) -> None:
    kernel, _ = build(make, "row sum")
    found = session.optimize(kernel, "use fewer registers", suggesters=(Synthesis(),))
    assert found.candidates == ()


def test_candidates_say_what_is_different(make: Any, session: Session) -> None:
    kernel, _ = build(make, "softmax")
    candidates: list[Candidate] = [one.candidate for one in search(session, kernel)]
    assert all(one.why.startswith("Written from the reference: ") for one in candidates)


PROMISED = {
    "softmax": "At rows = 1000, cols = 500 it moves 4 MB.",
    "silu float16": "At rows = 1000, cols = 500 it moves 2 MB.",
    "linear layer": "it moves 4.7 MB. It computes 0.14 GFLOP, and reads 17.5 MB, most of it from L2.",
}


@pytest.mark.parametrize("name", PROMISED)
def test_candidates_promise_traffic_and_arithmetic_at_the_headline(name: str, make: Any, tmp_path: Path) -> None:
    kernel, contract = build(make, name, sizes="{ rows = 1000, cols = 500 }")
    first = next(kernels_for(trace(contract, tmp_path), kernel, contract))
    assert first.why.endswith(PROMISED[name]), first.why


MEASURED = {
    "rows": (reduced(), "x.sum(axis=1)", BY_ROW, {"rows-warp", "rows-block-128", "rows-block-512"}),
    "columns": (
        {"x": "in float32[rows, cols] ~ normal", "y": "out float32[cols]", **SIZES}, "x.max(axis=0)", BY_COLUMN,
        {"columns-8", "columns-8x1024", "columns-32x512"},
    ),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", MEASURED)
def test_more_choices_are_tried_where_they_can_be_measured(name: str, make: Any, session: Session) -> None:
    args, reference, grid, wanted = MEASURED[name]
    body = {"rows": f"{ROW}  float s = 0;\n  for (int c = 0; c < cols; ++c) s += x[r * cols + c];\n  y[r] = s;",
            "columns": f"{COLUMN}  float m = x[c];\n  for (int r = 1; r < rows; ++r) m = fmaxf(m, x[r * cols + c]);\n  y[c] = m;"}[name]  # fmt: skip
    kernel, _ = make(
        args,
        reference,
        body=body,
        grid=grid,
        sizes="{ rows = 33, cols = 2060 }, { rows = 5, cols = 7 }",
        more='require = ["rows > 0"]',
    )
    usual = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),)).candidates
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(most=9),)).candidates
    authors = {judged.candidate.author.removeprefix("synthesis:") for judged in found}
    assert len(usual) <= 3 < len(found)
    assert wanted <= authors
    assert all(judged.verdict.correct for judged in found)
