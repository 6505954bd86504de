from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.stage_records import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ n = 700, m = 8 }}, {{ n = 1, m = 8 }}]
// grid = "cdiv(n, 64)"
// block = 64
// reference = "{reference}"
// [args]
// x = "in {dtype}[n, {length}]{draw}"
// y = "out float32[{out}]"
// n = "int32"
// m = "int32"
// ///
__global__ void k(const {type}* x, float* y, int n, int m) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  {body}
}}
"""
NORM = "y[i] = x[3 * i] * x[3 * i] + x[3 * i + 1] * x[3 * i + 1] + x[i * 3 + 2] * x[i * 3 + 2];"
CHANGED = "for (int e = 0; e < 8; ++e) y[i * 8 + e] = x[i * 8 + e] + x[i * 8 + (e + 1) % 8];"
HASH = "unsigned h = 5u;\n  for (int e = 0; e < 8; ++e) h = h * 31u + x[8 * i + e];\n  y[i] = h % 1000u;"


@pytest.mark.parametrize(
    ("body", "reference", "length", "out", "dtype", "kind"),
    [
        (NORM, "(x * x).sum(axis=1)", "3", "n", "float32", "float"),
        (CHANGED, "x + np.roll(x, -1, axis=1)", "8", "n, 8", "float32", "float"),
        (HASH, "((5 * 31**8 + x.astype(np.int64) @ 31 ** np.arange(7, -1, -1)) % 2**32 % 1000).astype(np.float32)", "8", "n", "uint8", "unsigned char"),
    ],
)  # fmt: skip
def test_a_block_moves_its_records_in_the_order_of_memory(judged, body, reference, length, out, dtype, kind) -> None:
    source = SOURCE.format(body=body, reference=reference, length=length, out=out, dtype=dtype, type=kind, draw="")
    (one,) = judged(source, RECIPE, "move fewer bytes through global memory")
    assert f"__shared__ {kind} own_x[" in one.candidate.kernel.source
    assert one.verdict.objective.after < 0.6 * one.verdict.objective.before


@pytest.mark.parametrize(
    "body", ["y[i] = x[i];", "y[i] = x[i * m + 1] + x[7];", "y[i] = x[i * m] + x[(i + 1) % n * m];"]
)
def test_other_accesses_stay(ask, body: str) -> None:
    source = SOURCE.format(body=body, reference="x", length="m", out="n", dtype="float32", type="float", draw="")
    assert list(RECIPE.candidates(ask(source, "move fewer bytes through global memory"))) == []
