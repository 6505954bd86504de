"""Positions of extremes, and other reductions of whole numbers and truth values: right by the judge at odd sizes."""

from __future__ import annotations

from typing import Any

import pytest

from kernelmate.session import Session
from kernelmate.suggest.synthesis import Synthesis

SIZES = "{ rows = 5, cols = 1032 }, { rows = 37, cols = 61 }, { rows = 1, cols = 1 }"
INTS = {"rows": "int32", "cols": "int32"}
ROW = "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= rows) return;\n  x += (size_t)r * cols;\n"
COLUMN = "  int c = blockIdx.x * blockDim.x + threadIdx.x;\n  if (c >= cols) return;\n"
BY_ROW, BY_COLUMN = "cdiv(rows, block)", "cdiv(cols, block)"
ROWS = {"x": "in float32[rows, cols] ~ normal", "y": "out int32[rows]", **INTS}
UP = "for (int c = 1; c < cols; ++c)"

CASES: dict[str, tuple[dict[str, str], str, str, str]] = {
    "largest of a row": (
        ROWS, "np.argmax(x, axis=1).astype(np.int32)", f"{ROW}  int b = 0;\n  {UP} if (x[c] > x[b]) b = c;\n  y[r] = b;", BY_ROW,
    ),
    "smallest of a row of halves": (
        {**ROWS, "x": "in float16[rows, cols] ~ normal"}, "x.argmin(-1)",
        f"{ROW}  int b = 0;\n  {UP} if (__half2float(x[c]) < __half2float(x[b])) b = c;\n  y[r] = b;", BY_ROW,
    ),
    "the first of equal ones": (
        {**ROWS, "x": "in int32[rows, cols] ~ integers(-2, 2)"}, "np.argmax(x, axis=1)",
        f"{ROW}  int b = 0;\n  {UP} if (x[c] > x[b]) b = c;\n  y[r] = b;", BY_ROW,
    ),
    "position and value": (
        {"x": "in float32[rows, cols] ~ normal", "y": "out int32[rows]", "v": "out float32[rows]", **INTS},
        "def reference(x):\n    return x.argmax(axis=1), x.max(axis=1)",
        f"{ROW}  int b = 0;\n  {UP} if (x[c] > x[b]) b = c;\n  y[r] = b;\n  v[r] = x[b];", BY_ROW,
    ),
    "nearest to a scalar": (
        {**ROWS, "t": "float32 = 0.25"}, "np.argmin(np.abs(x - t), axis=1)",
        f"{ROW}  int b = 0;\n  {UP} if (fabsf(x[c] - t) < fabsf(x[b] - t)) b = c;\n  y[r] = b;", BY_ROW,
    ),
    "smallest of a column": (
        {"x": "in float32[rows, cols] ~ normal", "y": "out int64[cols]", **INTS}, "np.argmin(x, axis=0)",
        f"{COLUMN}  int b = 0;\n  for (int r = 1; r < rows; ++r) if (x[r * cols + c] < x[b * cols + c]) b = r;\n  y[c] = b;", BY_COLUMN,
    ),
    "position times a number": (
        {**ROWS, "y": "out float32[rows]"}, "np.argmax(x, axis=1) * 0.5",
        f"{ROW}  int b = 0;\n  {UP} if (x[c] > x[b]) b = c;\n  y[r] = 0.5f * b;", BY_ROW,
    ),
    "fractions": (
        {**ROWS, "y": "out float32[rows, cols]"}, "x * 2.5 - (x * 2.5).astype(np.int64)",
        f"{ROW}  for (int c = 0; c < cols; ++c) {{\n    float at = x[c] * 2.5f;\n    y[(size_t)r * cols + c] = at - (long long)at;\n  }}", BY_ROW,
    ),
    "largest whole number": (
        {**ROWS, "x": "in int32[rows, cols] ~ integers(-70000, 70000)"}, "x.max(axis=1)", f"{ROW}  int m = x[0];\n  {UP} m = max(m, x[c]);\n  y[r] = m;", BY_ROW,
    ),
    "smallest byte": (
        {**ROWS, "x": "in uint8[rows, cols]"}, "x.min(axis=1)", f"{ROW}  int m = x[0];\n  {UP} m = min(m, x[c]);\n  y[r] = m;", BY_ROW,
    ),
    "any": (ROWS, "np.any(x < -3, axis=1)", f"{ROW}  int f = 0;\n  for (int c = 0; c < cols; ++c) f |= x[c] < -3.0f;\n  y[r] = f;", BY_ROW),
    "all": (ROWS, "(x < 3).all(axis=1)", f"{ROW}  int f = 1;\n  for (int c = 0; c < cols; ++c) f &= x[c] < 3.0f;\n  y[r] = f;", BY_ROW),
    "count": (
        ROWS, "np.count_nonzero(x > 0.5, axis=1)", f"{ROW}  int f = 0;\n  for (int c = 0; c < cols; ++c) f += x[c] > 0.5f;\n  y[r] = f;", BY_ROW,
    ),
    "sum of sizes": (
        {**ROWS, "y": "out float32[rows]"}, "np.linalg.norm(x, ord=1, axis=1)",
        f"{ROW}  float f = 0;\n  for (int c = 0; c < cols; ++c) f += fabsf(x[c]);\n  y[r] = f;", BY_ROW,
    ),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_reductions_to_whole_numbers_are_right(name: str, make: Any, session: Session) -> None:
    args, reference, body, grid = CASES[name]
    declared = {"x": {"float16": "const __half*", "uint8": "const unsigned char*", "int32": "const int*"}}
    kinds = {"float32": "float", "int32": "int", "int64": "long long"}
    parameters = []
    for argument, entry in args.items():
        dtype = entry.partition("=")[0].partition("[")[0].split()[-1]
        if "[" not in entry:
            parameters.append(f"{kinds[dtype]} {argument}")
        elif argument == "x":
            parameters.append(f"{declared['x'].get(dtype, 'const float*')} x")
        else:
            parameters.append(f"{kinds[dtype]}* {argument}")
    kernel, _ = make(
        args, reference, body=body, grid=grid, sizes=SIZES, parameters=", ".join(parameters),
        above="#include <cuda_fp16.h>\n", more='require = ["cols > 0", "rows > 0"]',
    )  # fmt: skip
    found = session.optimize(kernel, "make it faster", suggesters=(Synthesis(),))
    assert found.candidates, found.notes
    for judged in found.candidates:
        assert judged.verdict.correct, (
            judged.candidate.author,
            judged.verdict.findings,
            judged.candidate.kernel.source,
        )
        assert judged.verdict.diagnostics == ()
