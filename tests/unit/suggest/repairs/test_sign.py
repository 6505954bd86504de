from __future__ import annotations

from kernelmate.suggest.repairs.sign import REPAIR

ROTATE = """\
// /// kernelmate
// sizes = [{ n = 70 }, { n = 1 }]
// grid = "cdiv(n, 64)"
// block = 64
// reference = "(a * c - b * d, a * d + b * c)"
// [args]
// a = "in float32[n]"
// b = "in float32[n]"
// c = "in float32[n]"
// d = "in float32[n]"
// re = "out float32[n]"
// im = "out float32[n]"
// n = "int32"
// ///
__global__ void product(const float *a, const float *b, const float *c, const float *d, float *re, float *im, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    re[i] = a[i] * c[i] + b[i] * d[i];
    im[i] = a[i] * d[i] + b[i] * c[i];
}
"""


def test_the_wrong_sign_of_a_product_is_turned(mended) -> None:
    best = mended(ROTATE, REPAIR)
    assert "re[i] = a[i] * c[i] - b[i] * d[i];" in best.candidate.kernel.source
    assert "im[i] = a[i] * d[i] + b[i] * c[i];" in best.candidate.kernel.source


def test_sums_in_indices_are_no_formula(texts, search) -> None:
    broken = texts["map contract"] + "__global__ void k(const float *x, float *y, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) y[i] = x[i]; }\n"  # fmt: skip
    assert search(broken, REPAIR).candidates == ()
