"""Scalars have other values than the contract's, where that makes sense."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelmate.checks.scalars import counted_names, has_switches, loops, varied, varied_names, varied_scalar_values
from kernelmate.records import Argument, Contract

SIZE = {"n": 64}


def contract(*scalars, reference=None, kind=None):
    arguments = (Argument("x", "in", "float32", ("n",)), *scalars)
    return Contract("k", (SIZE,), ("1",), ("32",), arguments, reference=reference, reference_kind=kind)


def scalar(value, dtype="float32", *, fixed=False, name="a"):
    return Argument(name, None, dtype, value=value, fixed=fixed)


@pytest.mark.parametrize(
    ("argument", "varies"),
    [
        (scalar("0.5"), True),
        (scalar("-3", "int32"), True),
        (scalar("0.5", fixed=True), False),
        (scalar("n / 2"), False),
        (scalar(None, "int32", name="n"), False),
        (scalar("0"), True),
        (scalar("-inf"), False),
        (scalar("1", "bool"), True),
    ],
)
def test_literals_vary_and_nothing_else_does(argument, varies) -> None:
    assert bool(varied_names(contract(argument), Path())) is varies


def test_a_scalar_that_the_reference_does_not_take_stays(tmp_path) -> None:
    (tmp_path / "f.py").write_text("def f(x, a):\n    return a * x\n\ndef g(x):\n    return 2 * x\n")
    both = (scalar("2"), scalar("3", name="b"))
    assert varied_names(contract(*both, reference="f.py:f", kind="function"), tmp_path) == ("a",)
    assert varied_names(contract(*both, reference="f.py:g", kind="function"), tmp_path) == ()
    assert varied_names(contract(*both, reference="b * x", kind="expression"), tmp_path) == ("b",)


@pytest.mark.parametrize("value", [1.5, -0.25, 0.9, 0.999, 1e-5, 4000.0])
def test_floats_keep_their_sign_within_half_and_twice_and_fractions_stay_fractions(value) -> None:
    for seed in range(200):
        other = float(varied(contract(scalar(repr(value), "float64")), SIZE, ["a"], (seed,))["a"])
        assert 0.5 <= other / value <= 2
        assert other != value
        assert abs(other) < 1 or abs(value) >= 1


@pytest.mark.parametrize(("value", "near"), [(3, {1, 2, 4, 6}), (1, {2}), (-2, {-1, -3, -4}), (127, {126, 63})])
def test_whole_numbers_move_to_near_ones_of_the_same_sign_that_fit(value, near) -> None:
    got = {int(varied(contract(scalar(str(value), "int8")), SIZE, ["a"], (seed,))["a"]) for seed in range(100)}
    assert got == near


@pytest.mark.parametrize("value", [1, -1])
def test_a_flag_is_also_switched_off(value) -> None:
    some = [varied(contract(scalar(str(value), "int32")), SIZE, ["a"], (seed,), zeros=True) for seed in range(100)]
    assert {int(one["a"]) for one in some} == {0, 2 * value}


@pytest.mark.parametrize(("value", "dtype", "others"), [("0", "int32", {1}), ("1", "bool", {0}), ("0", "bool", {1})])
def test_flags_that_are_off_are_switched_on_and_the_other_way_round(value, dtype, others) -> None:
    some = [varied(contract(scalar(value, dtype)), SIZE, ["a"], (seed,)) for seed in range(20)]
    assert {int(one["a"]) for one in some} == others


def test_a_floating_zero_becomes_a_positive_fraction() -> None:
    some = [float(varied(contract(scalar("0.0")), SIZE, ["a"], (seed,))["a"]) for seed in range(100)]
    assert 0.25 <= min(some) < max(some) < 1


@pytest.mark.parametrize(
    ("argument", "has"), [(scalar("1", "int32"), True), (scalar("2", "int32"), False), (scalar("1.0"), False)]
)
def test_whole_scalars_of_one_may_be_flags(argument, has) -> None:
    assert has_switches(contract(argument), ["a"]) is has


def test_only_what_differs_is_said() -> None:
    one = contract(scalar("2"), scalar("3", name="b"))
    given = varied(one, SIZE, ["b"], (1,))
    assert varied_scalar_values(one, SIZE, given) == {"b": (float(given["b"]), 3.0)}


def test_references_that_loop_or_count_are_told_from_those_that_do_not(tmp_path) -> None:
    (tmp_path / "f.py").write_text(
        "import numpy as np\n\ndef plain(x):\n    return x[0] + x\n\ndef looped(x):\n    return np.array([v for v in x])\n\n"
        "def counted(x):\n    return np.bincount(x)\n"
    )
    kinds = {name: loops(contract(reference=f"f.py:{name}", kind="function"), tmp_path)
             for name in ("plain", "looped", "counted")}  # fmt: skip
    assert kinds == {"plain": False, "looped": True, "counted": True}
    assert loops(contract(reference="np.repeat(x, 2)", kind="expression"), tmp_path)


def test_scalars_that_decide_how_often_a_reference_loops_are_known(tmp_path) -> None:
    (tmp_path / "f.py").write_text(
        "import numpy as np\n\ndef f(x, steps, seed, width):\n    last = int(steps)\n    w = last + 1\n"
        "    for _ in range(10):\n        x = x + seed\n    while w:\n        w -= 1\n    return x + np.arange(width)\n"
    )
    names = ("steps", "seed", "width")
    assert counted_names(contract(reference="f.py:f", kind="function"), tmp_path, names) == {"steps", "width"}
    assert counted_names(contract(reference="other", kind="kernel"), tmp_path, names) == set(names)
    assert counted_names(contract(), tmp_path, names) == frozenset()
