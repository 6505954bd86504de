"""Results along rows and sums down columns in one kernel: right by the judge at odd sizes, and refused where parts depend on each other."""

from __future__ import annotations

from typing import Any

import pytest

from kernelmate.session import Session
from kernelmate.suggest.synthesis import Synthesis

SIZES = "{ rows = 21, cols = 264 }, { rows = 7, cols = 37 }, { rows = 1, cols = 1 }"
SHAPES = {"rows": "int32", "cols": "int32"}
ROW = "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= rows) return;\n"
BY_ROW = "cdiv(rows, block)"

CASES: dict[str, tuple[dict[str, str], str, str]] = {
    "gradients of a normalisation": (
        {
            "dx": "out float32[rows, cols]", "dw": "inout float32[cols] ~ normal", "dy": "in float32[rows, cols] ~ normal",
            "x": "in float32[rows, cols] ~ normal", "w": "in float32[cols] ~ normal", **SHAPES,
        },
        "def reference(dw, dy, x, w):\n    g = dy * w\n    return g - x * (g * x).mean(axis=1, keepdims=True), dw + (dy * x).sum(axis=0)",
        f"{ROW}  float s = 0;\n  for (int c = 0; c < cols; ++c) s += dy[r * cols + c] * w[c] * x[r * cols + c];\n  s /= cols;\n"
        "  for (int c = 0; c < cols; ++c) {\n    int i = r * cols + c;\n    dx[i] = dy[i] * w[c] - x[i] * s;\n    atomicAdd(&dw[c], dy[i] * x[i]);\n  }",
    ),
    "gradients of a bias and a rectifier": (
        {
            "dx": "out float32[rows, cols]", "db": "inout float32[cols] ~ zeros", "dy": "in float32[rows, cols] ~ normal",
            "x": "in float32[rows, cols] ~ normal", **SHAPES,
        },
        "def reference(db, dy, x):\n    dx = np.where(x > 0, dy, 0)\n    return dx, db + dx.sum(axis=0)",
        f"{ROW}  for (int c = 0; c < cols; ++c) {{\n    int i = r * cols + c;\n    float g = x[i] > 0 ? dy[i] : 0;\n"
        "    dx[i] = g;\n    atomicAdd(&db[c], g);\n  }",
    ),
    "halves, in place": (
        {"x": "inout float16[rows, cols] ~ normal", "m": "inout float32[cols] ~ normal", "y": "in float16[rows, cols] ~ normal", **SHAPES},
        "def reference(x, m, y):\n    return x / (1 + np.abs(x).sum(axis=1, keepdims=True)), m + (y * y).sum(axis=0)",
        f"{ROW}  float s = 1;\n  for (int c = 0; c < cols; ++c) s += fabsf(__half2float(x[r * cols + c]));\n"
        "  for (int c = 0; c < cols; ++c) {\n    int i = r * cols + c;\n    x[i] = __float2half(__half2float(x[i]) / s);\n"
        "    float v = __half2float(y[i]);\n    atomicAdd(&m[c], v * v);\n  }",
    ),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_both_are_right_in_one_kernel(name: str, make: Any, session: Session) -> None:
    args, reference, body = CASES[name]
    kernel, _ = make(
        args,
        reference,
        body=body,
        grid=BY_ROW,
        sizes=SIZES,
        above="#include <cuda_fp16.h>\n",
        more='require = ["cols > 0"]',
    )
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert [one.candidate.author for one in found.candidates] == ["synthesis:rows-and-columns"], found.notes
    for judged in found.candidates:
        assert judged.verdict.correct, (judged.verdict.findings, judged.candidate.kernel.source)
        assert judged.verdict.diagnostics == ()
        assert "atomicAdd" not in judged.candidate.kernel.source


def test_columns_of_what_rows_write_are_refused(make: Any, session: Session) -> None:
    args = {"x": "inout float32[rows, cols] ~ normal", "m": "inout float32[cols] ~ normal", **SHAPES}
    body = (
        f"{ROW}  float s = 1;\n  for (int c = 0; c < cols; ++c) s += fabsf(x[r * cols + c]);\n"
        "  for (int c = 0; c < cols; ++c) {\n    int i = r * cols + c;\n    atomicAdd(&m[c], x[i]);\n    x[i] /= s;\n  }"
    )
    reference = "def reference(x, m):\n    return x / (1 + np.abs(x).sum(axis=1, keepdims=True)), m + x.sum(axis=0)"
    kernel, _ = make(args, reference, body=body, grid=BY_ROW, sizes=SIZES)
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert found.candidates == ()
    assert "different axes" in " ".join(found.notes)
