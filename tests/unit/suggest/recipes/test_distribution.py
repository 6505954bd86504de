"""Recipes that distribute work over threads and blocks."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmate.suggest.recipes.grid_stride import RECIPE as GRID_STRIDE
from kernelmate.suggest.recipes.spread_over_grid import RECIPE as SPREAD_OVER_GRID
from kernelmate.suggest.recipes.thread_per_turn import RECIPE as THREAD_PER_TURN

THREAD_PER_TURN_SOURCE = """
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
    source = THREAD_PER_TURN_SOURCE.format(body=body, reference=reference, width=width, dtype=dtype, type=kind)
    (one,) = judged(source, THREAD_PER_TURN, "move fewer bytes through global memory")
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
    source = THREAD_PER_TURN_SOURCE.format(body=body, reference="x", width="w", dtype="uint32", type="unsigned")
    assert list(THREAD_PER_TURN.candidates(ask(source, "move fewer bytes through global memory"))) == []


SPREAD_OVER_GRID_SOURCE = """
// /// kernelmate
// sizes = [{{ n = 2000 }}, {{ n = 1 }}]
// grid = 1
// block = {block}
// reference = "x * 3"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void k(const float* x, float* y, int n) {{
  {head} {{
    {body}
  }}
}}
void run(const float* x, float* y, int count) {{ k<<<1, {block}>>>(x, y, count); }}
"""
STRIDED = "for (int i = threadIdx.x; i < n; i += blockDim.x)"


def source(head: str = STRIDED, body: str = "y[i] = 3 * x[i];", block: int = 128) -> str:
    return SPREAD_OVER_GRID_SOURCE.format(head=head, body=body, block=block)


def test_one_block_becomes_as_many_as_there_is_work_for(judged) -> None:
    (one,) = judged(source(), SPREAD_OVER_GRID)
    text = one.candidate.kernel.unit.text
    assert one.candidate.contract.grid == ("cdiv(n, block)",)
    assert "for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)" in text
    assert "k<<<(count + 127) / 128, 128>>>" in text
    assert one.verdict.speedup.median > 1.5


def test_one_thread_becomes_blocks_of_threads(judged) -> None:
    (one,) = judged(source("for (int i = 0; i < n; ++i)", block=1), SPREAD_OVER_GRID)
    assert one.candidate.contract.block == ("256",)


@pytest.mark.parametrize(
    "body",
    [
        "y[i] = x[i] + (i > 0 ? y[i - 1] : 0.0f);",
        "y[0] += x[i];",
        "if (x[i] < 0.0f) break; y[i] = x[i];",
        "y[i] = x[i] * threadIdx.x;",
        "y[i] = shared_sum(x[i]);",
        "__syncthreads(); y[i] = x[i];",
    ],
)
def test_turns_that_depend_on_each_other_or_on_the_block_stay(ask, body: str) -> None:
    assert list(SPREAD_OVER_GRID.candidates(ask(source(body=body)))) == []


def test_a_grid_that_is_spread_already_stays(ask) -> None:
    assert list(SPREAD_OVER_GRID.candidates(ask(source().replace("grid = 1", 'grid = "cdiv(n, 128)"')))) == []


LENGTHS = (20000, 77, 1)


@pytest.fixture
def one_each(x_to_y) -> Callable[..., str]:
    """`one_each(before, body, n=LENGTHS)`: a thread for every element, with something before the guard and behind it."""

    def made(before: str, body: str, n: tuple[int, ...] = LENGTHS) -> str:
        text = f"""
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  {before}if (i >= n) return;  // beyond the end
  {body}
"""
        return x_to_y(text, n=n, grid="cdiv(n, 32)", block=32, reference="x + 1")

    return made


@pytest.fixture
def capped(x_to_y) -> Callable[[str], str]:
    """`capped(before)`: 16 blocks go through the data in strides."""

    def made(before: str) -> str:
        text = f"""
  {before}
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i] + 1.0f;
"""
        return x_to_y(text, n=LENGTHS, grid="min(cdiv(n, block), 16)", block=32, reference="x + 1")

    return made


def test_fewer_blocks_go_through_the_data_in_strides(judged, one_each) -> None:
    several = judged(one_each("", "y[i] = x[i] + 1.0f;"), GRID_STRIDE)
    assert [one.candidate.contract.grid for one in several] == [("min(cdiv(n, 32), 528)",), ("min(cdiv(n, 32), 132)",)]
    text = several[0].candidate.kernel.source
    assert "int i = blockIdx.x * blockDim.x + threadIdx.x;\n  const int stride = gridDim.x * blockDim.x;" in text
    assert "for (; i < n; i += stride) {" in text
    assert "    y[i] = x[i] + 1.0f;" in text


@pytest.mark.parametrize(
    ("before", "body"),
    [
        ("", "__syncthreads(); y[i] = x[i];"),
        ("float s = 0.0f; ", "s = x[i]; y[i] = s;"),
        ("const int j = i + 1; ", "y[i] = x[j];"),
        ("", "if (x[i] < 0.0f) return; y[i] = x[i];"),
        ("", "y[i] = exchanged(x[i]);"),
    ],
)
def test_work_that_is_not_independent_stays(ask, one_each, before: str, body: str) -> None:
    assert list(GRID_STRIDE.candidates(ask(one_each(before, body)))) == []


def test_a_grid_that_is_small_already_stays(ask, one_each) -> None:
    source = one_each("", "y[i] = x[i];", n=(320, 77, 1))
    assert list(GRID_STRIDE.candidates(ask(source))) == []


def test_a_grid_that_was_capped_low_gets_more_blocks(judged, capped) -> None:
    several = judged(capped(""), GRID_STRIDE)
    assert [one.candidate.contract.grid[0] for one in several] == [
        "min(cdiv(n, block), 528)",
        "min(cdiv(n, block), 132)",
        "min(cdiv(n, block), 2112)",
    ]
    assert several[0].verdict.speedup.median > 1.2


def test_a_kernel_that_stores_by_block_keeps_its_number_of_blocks(ask, capped) -> None:
    assert list(GRID_STRIDE.candidates(ask(capped("if (n < 0) y[blockIdx.x] = 0.0f;")))) == []
