"""Got against wanted."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.checks.compare import GLANCED, compare, is_right, is_within_tolerance


def against(got, want, allowed=1e-3, dtype=np.float32):
    got, want = np.asarray(got, dtype), np.asarray(want)
    return compare("y", got, want, np.full(got.shape, allowed), np.full(got.shape, 10 * allowed))


def test_error_is_in_tolerances() -> None:
    assert against([1.0, 2.0005], [1.0, 2.0]).error == pytest.approx(0.5, rel=1e-3)
    assert against([1.0, 2.004], [1.0, 2.0]).error == pytest.approx(4, rel=1e-3)


def test_the_first_wrong_element_is_told_with_its_index() -> None:
    first = against([[1, 2], [3, 9]], [[1.0, 2.0], [3.0, 4.0]]).first
    assert (first.argument, first.index, first.want, first.got) == ("y", (1, 1), 4.0, 9.0)


def test_right_has_no_first_wrong_element() -> None:
    difference = against([1.0], [1.0])
    assert difference.right
    assert difference.first is None


@pytest.mark.parametrize(
    ("got", "want", "right"),
    [
        (np.nan, np.nan, True),
        (np.nan, 1.0, False),
        (1.0, np.nan, False),
        (np.inf, np.inf, True),
        (-np.inf, np.inf, False),
        (np.inf, 3.0, False),
        (3.0, np.inf, False),
        (np.inf, np.nan, False),
    ],
)
def test_nan_and_infinities_must_be_where_they_are_wanted(got, want, right) -> None:
    difference = against([got, 5.0], [want, 5.0])
    assert difference.right is right
    assert difference.not_finite is not right
    assert difference.error == (0 if right else np.inf)


def test_values_beyond_the_outputs_type_are_infinite_there() -> None:
    assert against([np.inf], [70000.0], dtype=np.float16).right
    assert not against([65504.0], [1e6], dtype=np.float16).right


def test_a_tolerance_of_zero_asks_for_equality() -> None:
    assert against([1.5], [1.5], allowed=0.0).right
    assert against([1.5], [1.25], allowed=0.0).error == np.inf


def test_small_errors_look_like_lost_precision_and_large_ones_do_not() -> None:
    assert against([1.005], [1.0]).coarse
    assert not against([1.5], [1.0]).coarse
    assert not against([1.005, 1.5], [1.0, 1.0]).coarse
    assert not against([1.005, np.nan], [1.0, 1.0]).coarse
    assert not against([1.0], [1.0]).coarse


@pytest.mark.parametrize("dtype", [np.int32, np.uint8, np.int64, np.bool_])
def test_integers_are_exact_whatever_the_tolerance(dtype) -> None:
    assert against([0, 1], np.array([0, 1]), allowed=100.0, dtype=dtype).right
    assert against([0, 1], np.array([0, 0]), allowed=100.0, dtype=dtype).error == np.inf


def test_large_integers_are_not_rounded_on_the_way() -> None:
    large = 2**60 + 1
    assert not against([large], np.array([large - 1]), dtype=np.int64).right


def test_complex_numbers_are_compared_as_numbers() -> None:
    assert against([1 + 2j], [1 + 2.0005j], dtype=np.complex64).right
    wrong = against([1 + 2j], [1 - 2j], dtype=np.complex64)
    assert not wrong.right
    assert wrong.first.want is None


def test_an_empty_output_is_right() -> None:
    assert against(np.zeros((0, 4)), np.zeros((0, 4))).right


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=20), st.floats(1e-6, 1.0))
def test_right_means_that_no_element_is_further_off_than_allowed(values, allowed) -> None:
    want = np.array(values)
    got = (want + np.resize([0.0, 0.5, -2.0], want.size) * allowed).astype(np.float32)
    off = np.abs(got.astype(np.float64) - want)
    assert against(got, want, allowed).right == bool((off <= allowed).all())


@pytest.mark.parametrize("place", [0, GLANCED - 1, GLANCED, 3 * GLANCED - 1])
@pytest.mark.parametrize("dtype", [np.float32, np.complex64])
def test_one_wrong_element_is_seen_wherever_it_lies(place, dtype) -> None:
    want = np.ones((3, GLANCED), np.complex128 if dtype is np.complex64 else np.float64)
    got, allowed = want.astype(dtype), np.full(want.shape, 1e-3)
    assert is_right("y", got, want, allowed)
    assert is_within_tolerance(want, want + 1e-4, allowed)
    other = want.copy()
    got.flat[place] = other.flat[place] = 1.01
    assert not is_right("y", got, want, allowed)
    assert not is_within_tolerance(want, other, allowed)


def test_what_is_no_number_is_near_nothing() -> None:
    assert not is_within_tolerance(np.array([np.nan]), np.array([np.nan]), np.array([1.0]))
