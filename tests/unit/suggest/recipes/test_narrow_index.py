from __future__ import annotations

from kernelmate.suggest.recipes.narrow_index import RECIPE

SOURCE = """
// /// kernelmate
// sizes = [{ rows = 60, cols = 70 }, { rows = 1, cols = 1 }]
// grid = "cdiv(rows * cols, 64)"
// block = 64
// reference = "x[::-1, ::-1] * 2"
// [args]
// x = "in float32[rows, cols]"
// y = "out float32[rows, cols]"
// rows = "int64"
// cols = "int64"
// ///
__global__ void k(const float* x, float* y, long long rows, long long cols) {
  size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= rows * cols) return;
  const long long r = i / cols, c = i % cols;
  y[r * cols + c] = 2.0f * x[(rows - 1 - r) * cols + (long long)(cols - 1 - c)];
}
"""


def test_indices_of_small_arrays_take_32_bits(judged) -> None:
    (one,) = judged(SOURCE, RECIPE, "use fewer registers")
    text = one.candidate.kernel.source
    assert "int i = (int)blockIdx.x" in text
    assert "const int r = i / cols_32, c = i % cols_32;" in text
    assert one.verdict.objective.met is True
    assert "Larger problems than are listed would overflow" in one.candidate.why


def test_sums_of_64_bits_and_large_arrays_keep_theirs(ask) -> None:
    data = SOURCE.replace("const long long r", "long long total = 3;\n  y[0] = total;\n  const long long r")
    (one,) = RECIPE.candidates(ask(data, "use fewer registers"))
    assert "long long total = 3;" in one.kernel.source
    large = SOURCE.replace("rows = 60, cols = 70", "rows = 60000, cols = 70000")
    assert list(RECIPE.candidates(ask(large, "use fewer registers"))) == []


ADDRESSES = """
  __shared__ float tile[256];
  const size_t place = (size_t)(y + 4);
  size_t later;
  later = (size_t)&y[4];
  const size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
  if ((size_t)x % 4 == 0 && (unsigned long long)tile % 4 == 0 && place % 4 == 0 && later == place) {
    if (i < (size_t)n) y[i] = x[i] + x[(size_t)i];
  }
"""


def test_addresses_keep_their_64_bits(judged, x_to_y) -> None:
    (one,) = judged(x_to_y(ADDRESSES, grid="cdiv(n, 256)"), RECIPE, "make it faster")
    assert one.verdict.correct is True
    text = one.candidate.kernel.source
    assert "const int i = (int)blockIdx.x" in text
    assert "if (i < (int)n) y[i] = x[i] + x[(int)i];" in text
    assert "(size_t)x % 4 == 0 && (unsigned long long)tile % 4 == 0" in text
    assert "const size_t place = (size_t)(y + 4);" in text
    assert "size_t later;" in text
