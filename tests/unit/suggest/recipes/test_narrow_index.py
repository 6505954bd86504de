from __future__ import annotations

import math

import pytest

from kernelmate.suggest.recipes.narrow_index import RECIPE, Bounds

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


def test_without_a_bound_the_candidate_writes_one_into_its_contract(judged) -> None:
    (one,) = judged(SOURCE, RECIPE, "use fewer registers")
    text = one.candidate.kernel.source
    assert "int i = blockIdx.x * blockDim.x" in text
    assert "const int r = i / cols_32, c = i % cols_32;" in text
    assert one.verdict.objective.met is True
    assert one.candidate.contract.require == ("rows * cols < 2**31",)
    assert '// require = ["rows * cols < 2**31"]' in one.candidate.kernel.unit.text
    assert "the contract now requires rows * cols < 2**31" in one.candidate.why


def test_what_require_bounds_already_narrows_nothing(judged) -> None:
    bounded = SOURCE.replace("// [args]", '// require = ["rows <= 4096", "cols < 2**19"]\n// [args]')
    (one,) = judged(bounded, RECIPE, "use fewer registers")
    assert one.candidate.contract.require == ("rows <= 4096", "cols < 2**19")
    assert "contract's require bounds every array" in one.candidate.why
    (too_large,) = judged(bounded.replace("2**19", "2**20"), RECIPE, "use fewer registers")
    assert too_large.candidate.contract.require[2:] == ("rows * cols < 2**31",)


def test_an_index_that_strides_past_the_end_needs_half_of_that(judged) -> None:
    strided = SOURCE.replace("size_t i =", "for (size_t i =").replace(
        "threadIdx.x;\n  if (i >= rows * cols) return;",
        "threadIdx.x; i < rows * cols; i += (size_t)gridDim.x * blockDim.x) {",
    )
    (one,) = judged(strided.replace("c)];\n}", "c)];\n  }\n}"), RECIPE, "use fewer registers")
    assert one.candidate.contract.require == ("rows * cols < 2**30",)


@pytest.mark.parametrize(
    ("require", "expression", "most"),
    [
        (["n < 100"], "n", 99),
        (["n <= 2**20 - 1"], "2 * n + 4", 2**21 + 2),
        (["a * b < 50", "c <= 3"], "c * b * a", 147),
        (["a < 10 and b < 20"], "a * (b + 1)", 180),
        (["n <= 64"], "cdiv(n, 32) + min(n, m) + max(n, 7) + n // 2", 256),
        (["n > 4", "n == 8", "2 * n < 9"], "n", math.inf),
        (["n < 100"], "n * m", math.inf),
    ],
)
def test_require_bounds_what_is_made_of_sizes(require: list[str], expression: str, most: float) -> None:
    assert Bounds(require).largest(expression) == most


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
    assert "const int i = blockIdx.x * blockDim.x" in text
    assert "if (i < n) y[i] = x[i] + x[i];" in text
    assert "(size_t)x % 4 == 0 && (unsigned long long)tile % 4 == 0" in text
    assert "const size_t place = (size_t)(y + 4);" in text
    assert "size_t later;" in text
