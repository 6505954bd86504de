from __future__ import annotations

import pytest

from kernelmate.suggest.repairs.integer_ratio import REPAIR


def source(texts, body: str) -> str:
    contract = texts["map contract"].replace('"x * 2"', '"x * np.arange(n) / n"')
    return f"""{contract}__global__ void ramp(const float *x, float *y, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {{ {body} }}
}}
"""


@pytest.mark.parametrize(
    ("body", "mended_to"),
    [
        ("y[i] = x[i] * (i / n);", "x[i] * ((float)i / n)"),
        ("float part = i / n; y[i] = part * x[i];", "float part = (float)i / n;"),
    ],
)
def test_the_fraction_is_kept(texts, mended, body: str, mended_to: str) -> None:
    best = mended(source(texts, body), REPAIR)
    assert mended_to in best.candidate.kernel.source
    assert "drops the fraction" in best.candidate.why


def test_quotients_in_an_index_stay_whole(texts, search) -> None:
    assert search(source(texts, "y[i] = x[i / 2];"), REPAIR).candidates == ()
