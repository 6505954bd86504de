from __future__ import annotations

import pytest

from kernelmate.suggest.repairs.index_order import REPAIR

PLANES = """\
// /// kernelmate
// sizes = [{{ n = 100 }}, {{ n = 7 }}]
// grid = "cdiv(n, 64)"
// block = 64
// reference = "x.T"
// [args]
// x = "in float32[n, 3]"
// y = "out float32[3, n]"
// n = "int32"
// ///
__global__ void planes(const float *x, float *y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    {body}
}}
"""


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("for (int c = 0; c < 3; ++c) y[i * 3 + c] = x[i * 3 + c];", "y[c * n + i] = x[i * 3 + c]"),
        ("y[3 * i] = x[3 * i];\n    y[3 * i + 1] = x[3 * i + 1];\n    y[3 * i + 2] = x[3 * i + 2];", "y[2 * n + i] = x[3 * i + 2]"),
        ("for (int c = 0; c < 3; ++c) y[c * n + i] = x[c * n + i];", "y[c * n + i] = x[i * 3 + c]"),
    ],
)  # fmt: skip
def test_an_array_is_met_in_its_own_layout(mended, body: str, line: str) -> None:
    best = mended(PLANES.format(body=body), REPAIR)
    assert line in best.candidate.kernel.source
    assert "the other way round" in best.candidate.why


def test_an_index_of_one_variable_has_no_order(texts, search) -> None:
    broken = texts["map contract"] + "__global__ void k(const float *x, float *y, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) y[i] = x[i]; }\n"  # fmt: skip
    assert search(broken, REPAIR).candidates == ()
