from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.bit_intrinsics import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ n = 900 }}, {{ n = 1 }}]
// grid = "cdiv(n, 64)"
// block = 64
// reference = "{reference}"
// [args]
// x = "in uint32[n]"
// y = "out uint32[n]"
// n = "int32"
// ///
__global__ void k(const unsigned* x, unsigned* y, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  unsigned v = x[i], c = 0;
  {body}
  y[i] = c;
}}
"""


@pytest.mark.parametrize(
    ("body", "reference", "written"),
    [
        ("while (v) { c += v & 1u; v >>= 1; }", "np.bitwise_count(x).astype(np.uint32)", "__popc(v)"),
        ("while (v != 0) { v &= v - 1; ++c; }", "np.bitwise_count(x).astype(np.uint32)", "__popc(v)"),
        ("for (int b = 0; b < 32; ++b) c += (v >> b) & 1u;", "np.bitwise_count(x).astype(np.uint32)", "__popc(v)"),
        ("for (int b = 0; b < 16; ++b) if (v & (1u << b)) c++;", "np.bitwise_count(x & np.uint32(0xffff)).astype(np.uint32)", "__popc(v & 0xffffu)"),
        ("for (int b = 0; b < 32; ++b) { c = (c << 1) | (v & 1u); v >>= 1; }", "((x[:, None] >> np.arange(32, dtype=np.uint32) & np.uint32(1)) << (31 - np.arange(32)).astype(np.uint32)).sum(axis=1).astype(np.uint32)", "__brev(v)"),
    ],
)  # fmt: skip
def test_loops_over_bits_are_one_instruction(judged, body: str, reference: str, written: str) -> None:
    (one,) = judged(SOURCE.format(body=body, reference=reference), RECIPE)
    assert written in one.candidate.kernel.source
    assert "while" not in one.candidate.kernel.source
    assert "for (" not in one.candidate.kernel.source


@pytest.mark.parametrize("body", ["for (int b = 0; b < 32; ++b) c += v >> b;", "while (v) { c += v & 2u; v >>= 1; }"])
def test_other_loops_stay(ask, body: str) -> None:
    assert list(RECIPE.candidates(ask(SOURCE.format(body=body, reference="x")))) == []
