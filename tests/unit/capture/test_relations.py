from __future__ import annotations

import numpy as np
import pytest

from kernelmate.capture.relations import find_fraction, find_relation

N = {"n": (1000, 4096, 333)}
ROWS = {"rows": (4, 7, 300), "cols": (10, 513, 64)}
BLOCK = {"block": (256, 256, 256)}


@pytest.mark.parametrize(
    ("wanted", "sizes", "block", "text"),
    [
        ((1000, 4096, 333), N, None, "n"),
        ((4, 16, 2), N, BLOCK, "cdiv(n, block)"),
        ((40, 3591, 19200), ROWS, None, "rows * cols"),
        ((4, 21, 300), ROWS, BLOCK, "rows * cdiv(cols, block)"),
        ((1, 15, 75), ROWS, BLOCK, "cdiv(rows * cols, block)"),
        ((4000, 16384, 1332), N, None, "n * 4"),
        ((1002, 4098, 335), N, None, "n + 2"),
        ((500, 2048, 166), N, None, "n // 2"),
        ((63, 256, 21), N, None, "cdiv(n, 16)"),
        ((1, 4, 1), N, BLOCK, "cdiv(n, 4 * block)"),
        ((4, 8, 2), N, BLOCK, "min(cdiv(n, block), 8)"),
        ((132, 132, 132), N, BLOCK, "132"),
        ((1, 1, 1), {"one": (1, 1, 1)}, None, "1"),
    ],
)
def test_the_simplest_expression_of_all_launches_is_found(wanted, sizes, block, text) -> None:
    found = find_relation(wanted, sizes, block)
    assert found is not None
    assert found.text == text


def test_no_expression_is_made_up_for_unrelated_values() -> None:
    assert find_relation((5, 11, 901), N, BLOCK) is None


def test_other_expressions_that_fit_are_named() -> None:
    found = find_relation((64, 64), {"m": (64, 64), "n": (64, 64), "k": (32, 16)})
    assert found is not None
    assert (found.text, found.others) == ("m", ("n",))


def test_floats_that_follow_sizes_are_expressions() -> None:
    def rounded(number: float) -> float:
        return float(np.float32(number))

    means = [rounded(1 / n) for n in N["n"]]
    scales = [rounded((rows * cols) ** -0.5) for rows, cols in zip(ROWS["rows"], ROWS["cols"], strict=True)]
    assert find_fraction(means, N, rounded) == "1 / n"
    assert find_fraction(scales, ROWS, rounded) == "(rows * cols) ** -0.5"
    assert find_fraction([0.1, 0.2, 0.4], N, rounded) is None
