"""Values that ordinary draws hardly ever hold."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

from kernelmate.checks.values import (
    KINDS,
    close,
    every_byte,
    every_pattern,
    mixed_floats,
    offset_floats,
    plant,
    plant_constants,
    plantable,
    repeated,
    strided,
    tie,
    wide_integers,
    with_infinite_halves,
)
from kernelmate.records import Argument, Contract


def rng():
    return np.random.default_rng(5)


@pytest.mark.parametrize("dtype", [f"{kind}{8 * size}" for kind in ("int", "uint") for size in (2, 4, 8)])
def test_integers_reach_the_ends_of_their_type_and_all_magnitudes_between(dtype) -> None:
    values, info = wide_integers(np.dtype(dtype), (4000,), rng(), 64, signed=True), np.iinfo(dtype)
    assert values.dtype == dtype
    assert {int(info.min), int(info.max), 0, 1} <= {int(one) for one in values}
    lengths = {abs(int(one)).bit_length() for one in values}
    assert lengths >= set(range(int(info.max).bit_length()))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
@pytest.mark.parametrize("shape", [(36, 40), (1440,)])
def test_some_rows_of_integers_are_equal_sorted_or_of_neighbours(dtype, shape) -> None:
    values = wide_integers(np.dtype(dtype), shape, rng(), 64, signed=True)
    rows = values.reshape(-1, 40 if len(shape) == 2 else 80).astype(object)
    spreads = [int(row.max()) - int(row.min()) for row in rows]
    info = np.iinfo(dtype)
    span = int(info.max) - int(info.min)
    assert 0 in spreads
    assert any(0 < spread < 64 for spread in spreads)
    assert any(all(a <= b for a, b in itertools.pairwise(row)) and row[0] != row[-1] for row in rows)
    assert sum(spread > span // 2 for spread in spreads) >= len(rows) // 3


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64])
def test_rows_of_equal_integers_with_single_bits_flipped(dtype: type) -> None:
    bits = 8 * np.dtype(dtype).itemsize
    seen = set()
    for row in wide_integers(np.dtype(dtype), (600, 40), rng(), 64, signed=True)[9::12].view(f"u{bits // 8}"):
        values, counts = np.unique(row, return_counts=True)
        usual = values[counts.argmax()]
        seen |= {int(one ^ usual).bit_length() - 1 for one in values if int(one ^ usual).bit_count() == 1}
    assert len(seen) > bits / 2
    assert bits - 1 in seen


def test_narrower_integers_stay_within_their_bits_and_sign() -> None:
    values = wide_integers(np.dtype(np.int64), (4000,), rng(), 15, signed=False)
    assert (values.min(), values.max()) == (0, 2**15 - 1)
    assert wide_integers(np.dtype(np.int32), (4000,), rng(), 10, signed=True).min() == -1023


@pytest.mark.parametrize("dtype", [np.int16, np.uint16])
def test_an_array_with_room_for_them_holds_every_value_of_16_bits(dtype) -> None:
    assert np.unique(wide_integers(np.dtype(dtype), (70_000,), rng(), 64, signed=True)).size == 1 << 16


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_256_bytes_hold_every_value(dtype) -> None:
    assert np.unique(every_byte(np.zeros(300, dtype), rng())).size == 256


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e5m2"])
def test_patterns_are_finite_and_all_there_where_there_is_room(dtype) -> None:
    dtype = np.dtype(dtype if dtype == "float16" else getattr(ml_dtypes, dtype))
    values = every_pattern(dtype, (1 << 16,), rng())
    assert np.isfinite(values.astype(np.float64)).all()
    words = np.arange(1 << 8 * dtype.itemsize).astype(f"u{dtype.itemsize}").view(dtype)
    with np.errstate(all="ignore"):
        assert np.unique(values.view(f"u{dtype.itemsize}")).size == np.isfinite(words.astype(np.float64)).sum()


def test_few_patterns_are_spread_over_all_magnitudes() -> None:
    values = np.abs(every_pattern(np.dtype(np.float16), (512,), rng()).astype(np.float64))
    exponents = np.unique(np.frexp(values[values > 0])[1])
    assert exponents.size > 25


def test_mixed_arrays_hold_a_kind_per_row() -> None:
    rows = mixed_floats(np.dtype(np.float32), (64, 100), rng(), 0)
    assert np.isfinite(rows).all()
    deviations, means = rows.std(axis=1), np.abs(rows.mean(axis=1))
    assert ((means > 900) & (deviations < 2)).any()
    assert (deviations == 0).any()
    assert any((np.diff(row) >= 0).all() and row.std() > 0.5 for row in rows)
    assert any((np.abs(row) > 5000).sum() == 1 for row in rows)
    assert any(len(set(row)) < 12 and row.std() > 0 for row in rows)
    assert np.abs(rows).max() > 1e25
    assert 0 < np.abs(rows[rows != 0]).min() < 1e-25


def test_mixed_vectors_hold_several_kinds_and_milder_ones_no_extremes() -> None:
    values = np.abs(mixed_floats(np.dtype(np.float32), (1021,), rng(), 0))
    assert values.max() > 1e20
    assert ((values > 900) & (values < 1100)).any()
    milder = [np.abs(mixed_floats(np.dtype(np.float32), (1021,), rng(), step)) for step in (1, 2)]
    assert max(one.max() for one in milder) < 2e4
    assert milder[0][milder[0] > 0].min() < 1e-25
    assert milder[1][milder[1] > 0].min() > 1e-6
    assert len(KINDS) == 9


def test_large_means_are_a_thousand_deviations_from_zero() -> None:
    values = offset_floats(np.dtype(np.float32), (1000,), rng())
    assert abs(abs(values.mean()) - 1000) < 1
    assert values.std() == pytest.approx(1, rel=0.2)


def planted(dtype, distribution=None, scalars=(0.5,), size=None):
    argument = Argument("x", "in", dtype, ("n",), distribution)
    return plant(argument, np.full(400, 0, dtype), size or {"n": 400}, scalars, rng())


def test_the_largest_numbers_of_a_row_are_a_stride_apart() -> None:
    rows = strided(rng().standard_normal((4, 100)), (32, 7))
    for place, stride in enumerate((32, 7, 32, 7)):
        columns = np.argsort(rows[place])[::-1]
        held = -(-100 // stride)
        assert len(set(columns[: held - 1] % stride)) == 1
    before = rng().standard_normal(31)
    assert sorted(strided(before, (8,))) == sorted(before)
    assert strided(np.zeros((3, 0)), (8,)).shape == (3, 0)


def test_elements_of_a_row_equal_its_first_its_largest_or_its_smallest_one() -> None:
    rows = repeated(rng().standard_normal((6, 160)), rng())
    for place, row in enumerate(rows):
        assert (row == (row[0], row.max(), row.min())[place % 3]).sum() > 5
    assert repeated(np.zeros((3, 0)), rng()).shape == (3, 0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_elements_of_a_row_are_a_few_units_of_the_last_place_from_its_largest_or_smallest(dtype) -> None:
    rows = close(rng().uniform(-1, 1, (4, 160)).astype(dtype), rng())
    assert rows.dtype == dtype
    for place, row in enumerate(rows):
        extreme = row.min() if place % 2 else row.max()
        apart = np.abs(row - extreme) / np.spacing(np.abs(extreme))
        assert ((apart > 0) & (apart <= 16)).sum() > 4
    assert close(np.zeros((3, 0), dtype), rng()).shape == (3, 0)


def test_some_rows_lie_just_farther_below_their_largest_element_than_a_constant() -> None:
    x = Argument("x", "in", "float32", ("rows", "cols"))
    planted = plant_constants(x, np.ones((6, 64), np.float32), {}, (-14.0, 0.5, 1e9), rng())
    below = np.sort(planted[0])[::-1]
    assert below[0] - below[1] > 14
    assert below[0] - below[-1] < 15
    whole = plant_constants(
        Argument("x", "in", "int32", ("rows", "cols")), np.ones((6, 64), np.int32), {}, (14,), rng()
    )
    assert set(np.unique(whole)) <= {1, 13, 14, 15}


def test_scalars_their_negatives_and_neighbours_are_planted() -> None:
    values, half = planted("float32"), np.float32(0.5)
    assert {half, -half, np.nextafter(half, np.float32(1)), np.nextafter(half, np.float32(0))} <= set(values)
    assert (values == 0).mean() > 0.9


def test_quotients_by_a_scalar_that_rounding_decides_are_planted() -> None:
    values = planted("float32", scalars=(0.25,))
    assert {0.125, -0.375, 0.625, 2.0, -6.0, 10.0} <= set(values.tolist())
    # What the type does not hold exactly is no tie.
    assert {one for one in np.abs(planted("float32", scalars=(0.1,))).tolist() if 0.2 < one < 4} == set()


def test_what_a_distribution_cannot_give_is_not_planted() -> None:
    assert not planted("float32", "uniform(0.6, 0.7)").any()
    assert (planted("float32", "uniform(0, 1)") >= 0).all()
    assert planted("float32", "uniform(0, 1)").any()
    assert not planted("float32", "normal(19, 1)").any()
    assert set(planted("int32", "integers(3, n)", scalars=(), size={"n": 9})) == {0, 3, 8}


def test_scalars_that_stand_for_infinity_are_not_planted() -> None:
    assert not planted("float32", scalars=(1e30,)).any()
    assert set(planted("int32", scalars=(7,))) == {0, 6, 7, 8}


def test_arrays_of_a_kind_meet_at_some_elements() -> None:
    one, two = (wide_integers(np.dtype(np.uint32), (4000,), rng(), 64, signed=True) for _ in range(2))
    two = tie(two[::-1].copy(), one, rng())
    assert (one == two).any()
    assert (one == two + np.uint32(1)).any()


def test_nothing_is_planted_without_a_scalar_or_into_what_a_function_makes() -> None:
    def contract(*arguments, **more):
        return Contract("k", ({"n": 4},), ("1",), ("32",), arguments, **more)

    x, n, t = (
        Argument("x", "in", "float32", ("n",)), Argument("n", None, "int32"), Argument("t", None, "float32", value="2"),
    )  # fmt: skip
    assert not plantable(contract(x, n))
    assert plantable(contract(x, n, t))
    assert not plantable(contract(x, n, t, inputs="f.py:make"))
    assert plantable(contract(Argument("x", "in", "int32", ("n",), "integers(0, n)")))


def test_one_side_of_an_array_is_minus_infinity_and_the_other_infinity() -> None:
    sides = with_infinite_halves((2, 5))
    assert sides.tolist() == [[-np.inf] * 2 + [np.inf] * 3] * 2
    assert with_infinite_halves(()).shape == ()
    assert with_infinite_halves((3, 0)).shape == (3, 0)
