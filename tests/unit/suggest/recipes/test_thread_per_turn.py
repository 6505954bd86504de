from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.thread_per_turn import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ n = 300, w = 24 }}, {{ n = 1, w = 1 }}]
// grid = "cdiv(n, 64)"
// block = 64
// reference = "{reference}"
// [args]
// x = "in uint32[n]"
// y = "out {dtype}[n, {width}]"
// n = "int32"
// w = "int32"
// ///
__global__ void k(const unsigned* x, {type}* y, int n, int w) {{
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  {body}
}}
"""
UNPACK = "const unsigned word = x[i];\n  for (int k = 0; k < 8; ++k) y[i * 8 + k] = (word >> (4 * k)) & 15u;"
ROW = "for (int k = 0; k < w; ++k) {\n    const unsigned v = x[i] + k;\n    y[i * w + k] = v;\n  }"


@pytest.mark.parametrize(
    ("body", "reference", "width", "dtype", "kind", "line"),
    [
        (UNPACK, "(x[:, None] >> np.arange(0, 32, 4, dtype=np.uint32) & np.uint32(15)).astype(np.uint8)", "8", "uint8", "unsigned char", "const int i = turn / 8;"),
        (ROW, "x[:, None] + np.arange(w, dtype=np.uint32)", "w", "uint32", "unsigned", "const int i = turn / w;"),
    ],
)  # fmt: skip
def test_turns_that_do_not_need_each_other_get_a_thread_each(judged, body, reference, width, dtype, kind, line) -> None:
    source = SOURCE.format(body=body, reference=reference, width=width, dtype=dtype, type=kind)
    (one,) = judged(source, RECIPE, "move fewer bytes through global memory")
    assert line in one.candidate.kernel.source
    assert "for (" not in one.candidate.kernel.source
    assert one.candidate.contract.grid == (f"cdiv((n) * {width}, 64)",)
    assert one.verdict.objective.after < 0.6 * one.verdict.objective.before


@pytest.mark.parametrize(
    "body",
    [
        "unsigned s = 0;\n  for (int k = 0; k < w; ++k) { s += k; y[i * w + k] = s; }",
        "for (int k = 0; k < w; ++k) y[i * w + k] = k > 0 ? y[i * w + k - 1] : x[i];",
        "for (int k = 0; k < (int)x[i]; ++k) y[i * w + k] = k;",
        "for (int k = 0; k < w; ++k) y[i * w + k] = k;\n  y[i] = 3;",
    ],
)
def test_other_loops_stay(ask, body: str) -> None:
    source = SOURCE.format(body=body, reference="x", width="w", dtype="uint32", type="unsigned")
    assert list(RECIPE.candidates(ask(source, "move fewer bytes through global memory"))) == []
