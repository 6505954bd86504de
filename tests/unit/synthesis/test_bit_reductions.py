"""Reductions of bits by xor, and, or: right by the judge along rows, columns and whole arrays, for words of every width."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernelmate.errors import ReferenceFailed
from kernelmate.session import Session
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.trace import trace
from kernelmate.synthesis.write import kernels_for
from tests.unit.synthesis.judging import assert_judged_right

LENGTHS = {"rows": "int32", "cols": "int32"}
ROW = "  int r = blockIdx.x * blockDim.x + threadIdx.x;\n  if (r >= rows) return;\n"
OVER = "  for (int c = 0; c < cols; ++c) "

CASES: dict[str, tuple[dict[str, str], str, str]] = {
    "xor of rows": ({"x": "in uint32[rows, cols]", "y": "out uint32[rows]"}, "np.bitwise_xor.reduce(x, axis=1)", f"{ROW}  unsigned s = 0;\n{OVER}s ^= x[r * cols + c];\n  y[r] = s;"),
    "and of bytes": ({"x": "in uint8[rows, cols]", "y": "out uint8[rows]"}, "np.bitwise_and.reduce(x | 16, axis=-1)", f"{ROW}  int s = 255;\n{OVER}s &= x[r * cols + c] | 16;\n  y[r] = s;"),
    "or of columns": ({"x": "in int32[rows, cols]", "y": "out int32[cols]"}, "np.bitwise_or.reduce(x)", "  int c = blockIdx.x * blockDim.x + threadIdx.x;\n  if (c >= cols) return;\n  int s = 0;\n  for (int r = 0; r < rows; ++r) s |= x[r * cols + c];\n  y[c] = s;"),
    "xor of a whole array": ({"x": "in int32[rows, cols]", "y": "out int32[1]"}, "np.bitwise_xor.reduce(x, axis=None)", "  if (blockIdx.x + threadIdx.x > 0) return;\n  int s = 0;\n  for (int i = 0; i < rows * cols; ++i) s ^= x[i];\n  y[0] = s;"),
    "parity of conditions beside a sum": (
        {"x": "in int32[rows, cols] ~ integers(-9, 9)", "y": "out int32[rows]"}, "np.bitwise_xor.reduce(x > 2, axis=1) + x.sum(axis=1)",
        f"{ROW}  int s = 0, t = 0;\n{OVER}s ^= x[r * cols + c] > 2, t += x[r * cols + c];\n  y[r] = s + t;",
    ),
    "rows without their common bits": (
        {"x": "in int32[rows, cols]", "y": "out int32[rows, cols]"}, "x ^ np.bitwise_and.reduce(x, axis=1, keepdims=True)",
        f"{ROW}  int s = -1;\n{OVER}s &= x[r * cols + c];\n{OVER}y[r * cols + c] = x[r * cols + c] ^ s;",
    ),
}  # fmt: skip


@pytest.mark.exhaustive(share=0.25)
@pytest.mark.parametrize("name", CASES)
def test_reductions_of_bits_are_right(name: str, make: Any, session: Session) -> None:
    args, reference, body = CASES[name]
    grid = "1" if "whole" in name else "cdiv(max(rows, cols), block)"
    kernel, _ = make(args | LENGTHS, reference, body=body, grid=grid)
    assert assert_judged_right(session, kernel)


@pytest.mark.parametrize(
    ("args", "reference", "error"),
    [
        ({"x": "in float32[rows, cols]", "y": "out int32[rows]"}, "np.bitwise_xor.reduce(x, axis=1)", ReferenceFailed),
        ({"x": "in int32[rows, cols]", "y": "out int32[rows]"}, "np.bitwise_xor.reduce(np.cumsum(x, axis=1), axis=1)", Refused),
    ],
    ids=["of floats", "of a scan"],
)  # fmt: skip
def test_other_reductions_of_bits_are_refused(
    args: dict[str, str], reference: str, error: type[Exception], make: Any, tmp_path: Path
) -> None:
    kernel, contract = make(args | LENGTHS, reference)
    with pytest.raises(error):
        list(kernels_for(trace(contract, tmp_path), kernel, contract))
