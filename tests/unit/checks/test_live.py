"""Inputs that a notebook's arrays stand in for."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from kernelmate.checks.inputs import draw
from kernelmate.checks.precision import Array
from kernelmate.checks.styles import NORMAL
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Argument, Contract

SIZE = {"n": 64}


def contract(array: Array, folder: Path, rest: str = "", shape: str = "n") -> Contract:
    path = folder / "live.npz"
    held = np.frombuffer(array.tobytes(), np.uint8)
    np.savez(path, **{"x": held, "x.shape": np.asarray(array.shape)})
    argument = Argument("x", "in", array.dtype.name, (shape,), f"live('{path}'){rest}")
    return Contract("k", (SIZE,), ("1",), ("64",), (argument,))


def drawn(of: Contract, number: int, size: dict[str, int] = SIZE) -> Array:
    return draw(of, size, (7, number, size["n"]), NORMAL, Path(), first=number == 0)["x"]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, np.complex64])
def test_the_first_set_is_the_array_bit_for_bit_and_others_hold_its_values_in_another_order(dtype, tmp_path) -> None:
    array = np.random.default_rng(1).standard_normal(64).astype(dtype)
    of = contract(array, tmp_path)
    assert drawn(of, 0).tobytes() == array.tobytes()
    other = drawn(of, 1)
    assert other.tobytes() != array.tobytes()
    assert sorted(map(bytes, other.view(np.uint8).reshape(64, -1))) == sorted(
        map(bytes, array.view(np.uint8).reshape(64, -1))
    )
    assert drawn(of, 1).tobytes() == other.tobytes(), "equal seeds give equal inputs"


def test_values_that_no_order_changes_are_drawn_anew(tmp_path) -> None:
    assert len(np.unique(drawn(contract(np.zeros(64, np.float32), tmp_path), 1))) > 32


def test_whole_numbers_that_rise_stay_where_they_are_and_others_are_shuffled(tmp_path) -> None:
    starts = np.arange(0, 192, 3, dtype=np.int32)
    assert (drawn(contract(starts, tmp_path), 1) == starts).all()
    positions = np.random.default_rng(1).permutation(64).astype(np.int32)
    other = drawn(contract(positions, tmp_path), 1)
    assert (np.sort(other) == np.arange(64)).all()
    assert (other != positions).any()


def test_other_sizes_take_the_contracts_distribution_else_values_of_the_array(tmp_path) -> None:
    array = np.full(64, 5, np.float32)
    assert (drawn(contract(array, tmp_path, " | uniform(1, 2)"), 0, {"n": 9}) < 2).all()
    assert (drawn(contract(array, tmp_path), 0, {"n": 9}) == 5).all()


def test_a_copy_that_is_gone_says_what_to_do(tmp_path) -> None:
    of = contract(np.zeros(64, np.float32), tmp_path)
    (tmp_path / "live.npz").unlink()
    with pytest.raises(ReferenceFailed, match="Run the cell again"):
        drawn(of, 0)
