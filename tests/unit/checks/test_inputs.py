"""Inputs of kernels: exactly the declared distribution, else several; and arrays given by a notebook."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from kernelmate.checks.inputs import draw
from kernelmate.checks.precision import Array
from kernelmate.checks.styles import (
    COUNTED,
    MADE_STYLES,
    NORMAL,
    STRESS_STYLES,
    UNIFORM,
    WIDE_INTEGERS,
    InputStyle,
    styles_of,
)
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Argument, Contract

SIZE = {"n": 4000}


def contract(*arguments, inputs=None):
    return Contract("k", (SIZE,), ("1",), ("32",), arguments, inputs=inputs)


def one(dtype="float32", distribution=None, style=NORMAL, directory=None, seed=(1,), size=SIZE, direction="in"):
    argument = Argument("x", direction, dtype, ("n",), distribution)
    return draw(contract(argument), size, seed, style, directory)["x"]


@pytest.mark.parametrize("distribution", ["normal", "uniform(-1, 1)"])
def test_counted_inputs_of_a_declared_distribution_are_one_of_its_values(distribution) -> None:
    usual = one(distribution=distribution)
    for style, extreme in zip(COUNTED, (usual.max(), usual.min()), strict=True):
        assert set(one(distribution=distribution, style=style)) == {extreme}
    assert len(set(one(distribution="integers(0, 9)", style=COUNTED[0]))) > 1


def test_equal_seeds_give_equal_inputs_and_others_others() -> None:
    assert np.array_equal(one(seed=(1, 2)), one(seed=(1, 2)))
    assert not np.array_equal(one(seed=(1, 2)), one(seed=(1, 3)))


def test_two_arguments_get_different_values() -> None:
    arrays = draw(contract(*(Argument(n, "in", "float32", ("n",)) for n in "ab")), SIZE, (1,), NORMAL, None)
    assert not np.array_equal(arrays["a"], arrays["b"])


@pytest.mark.parametrize("style", [NORMAL, UNIFORM, *STRESS_STYLES, WIDE_INTEGERS])
def test_a_declared_distribution_is_never_varied(style) -> None:
    values = one(distribution="uniform(2, 3)", style=style)
    assert values.min() >= 2
    assert values.max() <= 3


def test_declared_integers_leave_the_upper_end_out_and_may_use_sizes() -> None:
    values = one("int32", "integers(5, n)", size={"n": 9}, seed=(3,))
    assert values.dtype == np.int32
    assert set(values) <= {5, 6, 7, 8}


def test_declared_zeros_and_ones() -> None:
    assert not one(distribution="zeros").any()
    assert (one(distribution="ones") == 1).all()


def test_an_empty_range_of_integers_is_the_contracts_mistake() -> None:
    with pytest.raises(ReferenceFailed, match=r"integers\(0, n - 4000\).* of x cannot be drawn at n = 4000"):
        one("int32", "integers(0, n - 4000)")


def test_an_empty_array_needs_no_range() -> None:
    assert one("int32", "integers(0, n)", size={"n": 0}).size == 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float32", "float64"])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e3])
def test_ordinary_inputs_are_finite_in_every_type(dtype, scale) -> None:
    assert np.isfinite(one(dtype, style=InputStyle("normal", scale)).astype(np.float64)).all()


def test_scales_are_scales() -> None:
    assert one(style=InputStyle("normal", 1e3)).std() == pytest.approx(1e3, rel=0.1)
    assert one(style=InputStyle("normal", 1e-3)).std() == pytest.approx(1e-3, rel=0.1)


def test_special_values_are_planted_and_leave_most_elements_alone() -> None:
    with_nan = one(style=InputStyle("normal", specials=(np.nan,)))
    assert 1 <= np.isnan(with_nan).sum() <= 10
    with_infinities = one(style=InputStyle("normal", specials=(np.inf, -np.inf)))
    assert {np.inf, -np.inf} <= set(with_infinities[np.isinf(with_infinities)])
    assert 0.1 < (with_infinities == 0).mean() < 0.4


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_denormals_are_below_the_smallest_normal_number(dtype) -> None:
    values = np.abs(one(dtype, style=InputStyle("denormals")).astype(np.float64))
    assert values.max() <= float(
        ml_dtypes.finfo(np.dtype(dtype) if dtype != "bfloat16" else ml_dtypes.bfloat16).smallest_normal
    )
    assert values.max() > 0


def test_undeclared_bytes_take_every_value() -> None:
    assert set(one("uint8").tolist()) == set(range(256))
    assert one("int8").min() == -128


def test_undeclared_integers_stay_below_every_size_since_they_may_be_positions() -> None:
    values = draw(contract(Argument("x", "in", "int32", ("m",))), {"m": 500, "n": 3}, (1,), NORMAL, None)["x"]
    assert values.min() >= 0
    assert values.max() < 3


def test_out_arrays_are_not_drawn() -> None:
    assert not one(direction="out").any()


def test_complex_inputs_have_two_parts() -> None:
    values = one("complex64")
    assert values.dtype == np.complex64
    assert values.imag.std() > 0.5


def test_styles_differ_only_where_something_is_left_open() -> None:
    declared = Argument("x", "in", "float32", ("n",), "normal")
    assert styles_of(contract(declared)) == ()
    assert UNIFORM in styles_of(contract(declared, Argument("z", "inout", "float16", ("n",))))
    assert styles_of(contract(Argument("x", "out", "float32", ("n",)))) == ()
    assert styles_of(contract(Argument("x", "in", "int32", ("n",)))) == (WIDE_INTEGERS,)
    assert styles_of(contract(Argument("x", "in", "float32", ("n",)), inputs="f.py:make")) == MADE_STYLES
    assert styles_of(contract(Argument("x", "in", "int32", ("n",)), inputs="f.py:make")) == ()


def test_inputs_come_from_files(tmp_path) -> None:
    np.savez(tmp_path / "x.npz", x=np.arange(4000.0), other=np.zeros(3))
    assert one(distribution="file('x.npz')", directory=tmp_path).tolist() == list(range(4000))


def test_a_file_of_another_shape_or_without_the_name_is_refused(tmp_path) -> None:
    np.savez(tmp_path / "short.npz", x=np.arange(3.0))
    np.savez(tmp_path / "other.npz", y=np.arange(4000.0))
    with pytest.raises(ReferenceFailed, match=r"shape \[3\].*\[4000\]"):
        one(distribution="file('short.npz')", directory=tmp_path)
    with pytest.raises(ReferenceFailed, match="cannot be read"):
        one(distribution="file('other.npz')", directory=tmp_path)
    with pytest.raises(ReferenceFailed, match="cannot be read"):
        one(distribution="file('absent.npz')", directory=tmp_path)


MAKERS = """
import numpy as np

def as_dict(n, seed):
    print("never seen")
    return {"a": np.sort(np.random.default_rng(seed).random(n)), "b": np.arange(n)}

def as_tuple(n, seed):
    return np.zeros(n), np.ones(n)

def short(n, seed):
    return {"a": np.zeros(n)}

def many(n):
    return np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n)

def shapeless(n):
    return {"a": np.zeros(n + 1), "b": np.zeros(n)}

def parity(n, seed):
    return np.full(n, seed % 2), np.arange(n)

def raises(n):
    return [][n]
"""


@pytest.fixture
def made(tmp_path):
    (tmp_path / "makers.py").write_text(MAKERS)

    def make(name, seed=1, first=False):
        arguments = (
            Argument("a", "in", "float32", ("n",)),
            Argument("b", "inout", "int32", ("n",)),
            Argument("c", "out", "float32", ("n",)),
        )
        return draw(contract(*arguments, inputs=f"makers.py:{name}"), {"n": 5}, (seed,), NORMAL, tmp_path, first=first)

    return make


def test_the_seed_is_even_for_the_first_set_of_inputs_and_odd_for_the_others(made) -> None:
    assert all(not made("parity", seed, first=True)["a"].any() for seed in range(8))
    assert all(made("parity", seed)["a"].all() for seed in range(8))


def test_the_contracts_own_function_makes_the_inputs(made, capsys, tmp_path) -> None:
    arrays = made("as_dict")
    assert (np.diff(arrays["a"]) > 0).all()
    assert arrays["a"].dtype == np.float32
    assert arrays["b"].tolist() == [0, 1, 2, 3, 4]
    assert not arrays["c"].any()
    assert not np.array_equal(arrays["a"], made("as_dict", seed=2)["a"])
    assert capsys.readouterr().out == ""
    assert not (tmp_path / "__pycache__").exists()


def test_arrays_without_names_go_to_in_and_inout_arguments_in_order(made) -> None:
    arrays = made("as_tuple")
    assert not arrays["a"].any()
    assert (arrays["b"] == 1).all()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("short", "no array for b"),
        ("many", "4 arrays"),
        ("shapeless", r"shape \[6\]"),
        ("raises", "IndexError"),
        ("absent", "holds no function absent"),
    ],
)
def test_a_function_that_makes_something_else_is_refused(made, name, says) -> None:
    with pytest.raises(ReferenceFailed, match=says):
        made(name)


def test_a_failure_names_the_users_line(made) -> None:
    with pytest.raises(ReferenceFailed) as caught:
        made("raises")
    assert caught.value.line == MAKERS[: MAKERS.index("return [][n]")].count("\n") + 1
    assert caught.value.file.endswith("makers.py")


LIVE_SIZE = {"n": 64}


def live_contract(array: Array, folder: Path, rest: str = "", shape: str = "n") -> Contract:
    path = folder / "live.npz"
    held = np.frombuffer(array.tobytes(), np.uint8)
    np.savez(path, **{"x": held, "x.shape": np.asarray(array.shape)})
    argument = Argument("x", "in", array.dtype.name, (shape,), f"live('{path}'){rest}")
    return Contract("k", (LIVE_SIZE,), ("1",), ("64",), (argument,))


def drawn(of: Contract, number: int, size: dict[str, int] = LIVE_SIZE) -> Array:
    return draw(of, size, (7, number, size["n"]), NORMAL, Path(), first=number == 0)["x"]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.complex64])
def test_the_first_set_is_the_array_bit_for_bit_and_others_hold_its_values_in_another_order(dtype, tmp_path) -> None:
    array = np.random.default_rng(1).standard_normal(64).astype(dtype)
    of = live_contract(array, tmp_path)
    assert drawn(of, 0).tobytes() == array.tobytes()
    other = drawn(of, 1)
    assert other.tobytes() != array.tobytes()
    assert sorted(map(bytes, other.view(np.uint8).reshape(64, -1))) == sorted(
        map(bytes, array.view(np.uint8).reshape(64, -1))
    )
    assert drawn(of, 1).tobytes() == other.tobytes(), "equal seeds give equal inputs"


def test_values_that_no_order_changes_are_drawn_anew(tmp_path) -> None:
    assert len(np.unique(drawn(live_contract(np.zeros(64, np.float32), tmp_path), 1))) > 32


def test_whole_numbers_that_rise_stay_where_they_are_and_others_are_shuffled(tmp_path) -> None:
    starts = np.arange(0, 192, 3, dtype=np.int32)
    assert (drawn(live_contract(starts, tmp_path), 1) == starts).all()
    positions = np.random.default_rng(1).permutation(64).astype(np.int32)
    other = drawn(live_contract(positions, tmp_path), 1)
    assert (np.sort(other) == np.arange(64)).all()
    assert (other != positions).any()


def test_whole_numbers_that_repeat_are_drawn_anew_from_their_values(tmp_path) -> None:
    codes = np.random.default_rng(1).integers(3, 20, 64).astype(np.int32)
    first, other = codes, drawn(live_contract(codes, tmp_path), 1)
    assert set(other) <= set(codes)
    assert first.sum() != other.sum()
    assert other.max() < first.max()
    assert (np.bincount(first, minlength=20) != np.bincount(other, minlength=20)).any()
    flags = np.resize(np.array([1, 0, 0], np.int32), 64)
    assert set(drawn(live_contract(flags, tmp_path), 1)) == {0, 1}, "extreme values are kept where there are no others"


def test_other_sizes_take_the_contracts_distribution_else_values_of_the_array(tmp_path) -> None:
    array = np.full(64, 5, np.float32)
    assert (drawn(live_contract(array, tmp_path, " | uniform(1, 2)"), 0, {"n": 9}) < 2).all()
    assert (drawn(live_contract(array, tmp_path), 0, {"n": 9}) == 5).all()


def test_a_copy_that_is_gone_says_what_to_do(tmp_path) -> None:
    of = live_contract(np.zeros(64, np.float32), tmp_path)
    (tmp_path / "live.npz").unlink()
    with pytest.raises(ReferenceFailed, match="Run the cell again"):
        drawn(of, 0)


def test_one_row_begins_with_minus_infinity_where_infinities_are_among_the_inputs() -> None:
    """A running maximum that begins with it subtracts infinities."""
    contract = Contract("k", ({"r": 8, "c": 33},), ("1",), ("64",), (Argument("x", "in", "float32", ("r", "c")),))
    for seed in range(20):
        style = InputStyle("normal", specials=(np.inf, -np.inf), stress=True)
        drawn = draw(contract, {"r": 8, "c": 33}, (1, seed), style, None)["x"]
        assert np.isneginf(drawn[:, 0]).any()
