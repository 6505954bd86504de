from __future__ import annotations

import pytest

from kernelmate.suggest.repairs.off_by_one import REPAIR


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("c < cols", "c <= cols"), ("k > 0", "k > 1"), ("threadIdx.x < k", "threadIdx.x <= k")],
)
def test_the_comparison_is_put_right(texts, mended, right: str, wrong: str) -> None:
    best = mended(texts["row"].replace(right, wrong), REPAIR)
    assert "in line" in best.candidate.why
    assert wrong not in best.candidate.kernel.source


def test_an_early_exit_that_is_one_too_late_is_put_right(texts, mended, lines) -> None:
    source = (
        texts["map contract"]
        + """\
__global__ void twice(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i > n) return;
    y[i] = x[i] * 2.0f;
}
"""
    )
    assert lines(mended(source, REPAIR), source) == ["if (i >= n) return;"]
