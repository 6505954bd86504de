from __future__ import annotations

from kernelmate.suggest.repairs.wide_index import REPAIR

PERMUTED = """\
// /// kernelmate
// sizes = [{ n = 1000, step = 40000001 }]
// grid = "cdiv(n, 128)"
// block = 128
// reference = "right"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// step = "int32"
// n = "int32"
// ///
__global__ void permute(const float* x, float* y, int step, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const int place = i * step % n;
  y[i] = x[place + (place < 0 ? n : 0)];
}
__global__ void right(const float* x, float* y, int step, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[(long long)i * step % n];
}
"""


def test_the_product_is_computed_in_64_bits(mended) -> None:
    text = mended(PERMUTED, REPAIR).candidate.kernel.source
    assert "const long long place = (long long)i * step % n;" in text


def test_products_that_fit_are_left_alone(texts, search) -> None:
    found = search(texts["row"].replace("+= part[threadIdx.x + k]", "+= 2.0f * part[threadIdx.x + k]"), REPAIR)
    assert found.baseline.correct is False
    assert all(one.verdict.accepted is False for one in found.candidates)
