from __future__ import annotations

import pytest

from kernelmate.suggest.recipes.private_histogram import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{{ n = 3000 }}, {{ n = 77 }}, {{ n = 1 }}]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "counts + np.bincount(x, minlength=16).astype(np.uint32)"
// [args]
// x = "in int32[n] ~ integers(0, 16)"
// counts = "inout uint32[{bins}] ~ zeros"
// n = "int32"
// ///
__global__ void hist(const int* x, unsigned int* counts, int n) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  {body}  // one sample
}}
"""


def test_blocks_count_for_themselves_and_add_once(judged) -> None:
    (one,) = judged(SOURCE.format(body="atomicAdd(&counts[x[i]], 1u);", bins=16), RECIPE)
    text = one.candidate.kernel.source
    assert "__shared__ unsigned int block_counts[kBins];" in text
    assert "constexpr int kBins = 16;  // length of counts\n" in one.candidate.kernel.unit.text
    assert "if (i < n) {\n    atomicAdd(&block_counts[x[i]], 1u);  // one sample" in text
    assert "return" not in text
    assert "64 bytes of shared memory" in one.candidate.why


@pytest.mark.parametrize(
    ("body", "bins"),
    [
        ("atomicAdd(&counts[x[i]], counts[0]);", "16"),
        ("unsigned int old = atomicAdd(&counts[x[i]], 1u);", "16"),
        ("atomicAdd(&counts[i % 16], 1u);", "16"),
        ("atomicAdd(&counts[x[i]], 1u);", "n"),
        ("atomicAdd(&counts[x[i]], 1u);", "20000"),
        ("atomicMax(&counts[x[i]], 1u);", "16"),
        ("if (x[i] > 3) return;\n  atomicAdd(&counts[x[i]], 1u);\n  for (;;) { if (n) return; }", "16"),
    ],
)
def test_counts_that_are_used_otherwise_or_too_many_stay(ask, body: str, bins: str) -> None:
    assert list(RECIPE.candidates(ask(SOURCE.format(body=body, bins=bins)))) == []


def test_a_table_of_pairs_is_counted_like_a_row_of_bins(judged) -> None:
    source = """
// /// kernelmate
// sizes = [{ n = 3000 }, { n = 1 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "counts + np.bincount(a * 6 + b, minlength=48).reshape(8, 6).astype(np.int32)"
// [args]
// a = "in int32[n] ~ integers(0, 8)"
// b = "in int32[n] ~ integers(0, 6)"
// counts = "inout int32[8, 6] ~ zeros"
// n = "int32"
// ///
__global__ void pairs(const int* a, const int* b, int* counts, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&counts[a[i] * 6 + b[i]], 1);
}
"""
    (one,) = judged(source, RECIPE)
    assert "__shared__ int block_counts[kBins];" in one.candidate.kernel.source
    assert "constexpr int kBins = 48;" in one.candidate.kernel.unit.text


ANY_BINS = """
// /// kernelmate
// sizes = [{ n = 3000, bins = 40 }, { n = 77, bins = 1 }, { n = 64, bins = 12289 }]
// grid = "cdiv(n, 256)"
// block = 256
// reference = "counts + np.bincount(x, minlength=bins).astype(np.int32)"
// [args]
// x = "in int32[n] ~ integers(0, bins)"
// counts = "inout int32[bins]"
// n = "int32"
// bins = "int32"
// ///
__global__ void hist(const int* x, int* counts, int n, int bins) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) {
    int b = x[i];
    if (b >= 0 && b < bins) atomicAdd(&counts[b], 1);
  }
}
"""


def test_any_number_of_bins_is_counted_in_shared_memory_if_it_fits_and_else_as_before(judged) -> None:
    (one,) = judged(ANY_BINS, RECIPE)
    assert one.candidate.contract.shared == "bins * 4 if bins <= 12288 else 0"
    text = one.candidate.kernel.source
    assert "extern __shared__ int block_counts[];" in text
    assert "const bool fits = bins <= kMostBins;" in text
    assert "atomicAdd(&block_counts[b], 1);" in text
    assert "atomicAdd(&counts[b], 1);" in text


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('"cdiv(n, 256)"', '"cdiv(n + bins, 256)"'),  # a block for some of the bins each
        ("int n, int bins) {", "int n, int bins) {\n  extern __shared__ int own[];"),
        ("bins = 40 }", "bins = 20000 }"),
    ],
)
def test_bins_that_grow_with_the_grid_or_have_no_room_stay(ask, before: str, after: str) -> None:
    assert list(RECIPE.candidates(ask(ANY_BINS.replace(before, after)))) == []
