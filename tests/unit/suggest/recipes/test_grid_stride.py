from __future__ import annotations

from collections.abc import Callable

import pytest

from kernelmate.suggest.recipes.grid_stride import RECIPE

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
    several = judged(one_each("", "y[i] = x[i] + 1.0f;"), RECIPE)
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
    assert list(RECIPE.candidates(ask(one_each(before, body)))) == []


def test_a_grid_that_is_small_already_stays(ask, one_each) -> None:
    source = one_each("", "y[i] = x[i];", n=(320, 77, 1))
    assert list(RECIPE.candidates(ask(source))) == []


def test_a_grid_that_was_capped_low_gets_more_blocks(judged, capped) -> None:
    several = judged(capped(""), RECIPE)
    assert [one.candidate.contract.grid[0] for one in several] == [
        "min(cdiv(n, block), 528)",
        "min(cdiv(n, block), 132)",
        "min(cdiv(n, block), 2112)",
    ]
    assert several[0].verdict.speedup.median > 1.2


def test_a_kernel_that_stores_by_block_keeps_its_number_of_blocks(ask, capped) -> None:
    assert list(RECIPE.candidates(ask(capped("if (n < 0) y[blockIdx.x] = 0.0f;")))) == []
