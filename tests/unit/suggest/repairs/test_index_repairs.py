"""Repairs of indices, bounds and launches: what each rewrites, and what it leaves alone."""

from __future__ import annotations

import pytest

from kernelmate.records import Anchor, Unit
from kernelmate.suggest.repairs.base import unit_position
from kernelmate.suggest.repairs.grid_rounding import REPAIR as GRID_ROUNDING
from kernelmate.suggest.repairs.index_order import REPAIR as INDEX_ORDER
from kernelmate.suggest.repairs.off_by_one import REPAIR as OFF_BY_ONE
from kernelmate.suggest.repairs.small_shared import REPAIR as SMALL_SHARED
from kernelmate.suggest.repairs.wide_index import REPAIR as WIDE_INDEX


def test_a_place_of_a_file_is_its_own_offset() -> None:
    unit = Unit("k.cu", "ab\ncdef\n")
    assert unit_position(unit, 2, 3) == (5, 2)
    assert unit_position(unit, 2, 90) == (7, 2)
    assert unit_position(unit, 9, 1) is None
    assert unit_position(unit, None, None) is None


def test_a_place_in_a_python_string_is_found_through_its_anchors() -> None:
    unit = Unit("k.py", "ab\ncdef\n", "python", (Anchor(1, 1, 7, 12), Anchor(2, 1, 8, 1)))
    assert unit_position(unit, 7, 13) == (1, 1)
    assert unit_position(unit, 8, 2) == (4, 2)
    assert unit_position(unit, 3, 1) is None


@pytest.mark.parametrize(
    ("right", "wrong"),
    [("c < cols", "c <= cols"), ("k > 0", "k > 1"), ("threadIdx.x < k", "threadIdx.x <= k")],
)
def test_the_comparison_is_put_right(texts, mended, right: str, wrong: str) -> None:
    best = mended(texts["row"].replace(right, wrong), OFF_BY_ONE)
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
    assert lines(mended(source, OFF_BY_ONE), source) == ["if (i >= n) return;"]


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
    best = mended(PLANES.format(body=body), INDEX_ORDER)
    assert line in best.candidate.kernel.source
    assert "in the other order in memory" in best.candidate.why


def test_an_index_of_one_variable_has_no_order(texts, search) -> None:
    broken = texts["map contract"] + "__global__ void k(const float *x, float *y, int n) { int i = threadIdx.x + blockIdx.x * blockDim.x; if (i < n) y[i] = x[i]; }\n"  # fmt: skip
    assert search(broken, INDEX_ORDER).candidates == ()


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
    text = mended(PERMUTED, WIDE_INDEX).candidate.kernel.source
    assert "const long long place = (long long)i * step % n;" in text


def test_products_that_fit_are_left_alone(texts, search) -> None:
    found = search(texts["row"].replace("+= part[threadIdx.x + k]", "+= 2.0f * part[threadIdx.x + k]"), WIDE_INDEX)
    assert found.baseline.correct is False
    assert all(one.verdict.accepted is False for one in found.candidates)


TWICE = """\
// /// kernelmate
// sizes = [{ n = 1000 }, { n = 300 }]
// grid = "n // block"
// block = 256
// require = ["n >= 256"]
// reference = "x * 2"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void twice(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] * 2.0f;
}
void run(const float *x, float *y, int n) { twice<<<n / 256, 256>>>(x, y, n); }
"""


def test_the_grid_rounds_up_in_the_contract_and_in_the_files_launch(mended) -> None:
    best = mended(TWICE, GRID_ROUNDING)
    assert best.candidate.contract.grid == ("cdiv(n, block)",)
    text = best.candidate.kernel.unit.text
    assert '// grid = "cdiv(n, block)"' in text
    assert "twice<<<n / 256, 256>>>" not in text


def test_a_grid_that_rounds_up_is_left_alone(texts, search) -> None:
    assert search(texts["row"].replace("k > 0", "k > 1"), GRID_ROUNDING).candidates == ()


def test_a_division_inside_another_function_rounds_up_too(mended) -> None:
    source = TWICE.replace('"n // block"', '"max(1, n // block)"').replace('// require = ["n >= 256"]\n', "")
    assert mended(source, GRID_ROUNDING).candidate.contract.grid == ("max(1, cdiv(n, block))",)


TURNED = """\
// /// kernelmate
// sizes = [{ n = 1024 }]
// grid = "n // 128"
// block = 128
// shared = "block * 2"
// require = ["n % 128 == 0"]
// reference = "x.reshape(-1, 128)[:, ::-1].reshape(-1)"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
extern __shared__ float row[];
__global__ void turned(const float* x, float* y, int n) {
  const int i = blockIdx.x * 128 + threadIdx.x;
  row[threadIdx.x] = x[i];
  __syncthreads();
  y[i] = row[127 - threadIdx.x];
}
"""


def test_the_launch_gives_each_thread_an_element(mended) -> None:
    best = mended(TURNED, SMALL_SHARED)
    assert best.candidate.contract.shared == "block * 4"
    assert '// shared = "block * 4"' in best.candidate.kernel.unit.text


def test_enough_shared_memory_is_left_alone(texts, search) -> None:
    assert search(texts["row"].replace("k > 0", "k > 1"), SMALL_SHARED).candidates == ()
