"""Whole numbers near a tie may be either of two; exact ties, and what no rounding explains, may not."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmate.checks import perturbation

BLOCK = 'sizes = [{ n = 6 }]\ngrid = 1\nblock = 32\nreference = "x"\n[args]\nx = "in float32[n]"\ny = "out int32[n]"\nn = "int32"\n'
X = np.array([2.5, 2.5 * (1 + 2**-23), 7.1, -0.5, 3.4999998, 1e6 + 0.25], np.float32)


@pytest.fixture
def pair(contract_of):
    """The two values of each element for a function of X."""

    def measured(function):
        contract = contract_of(BLOCK, parameters="const float* x, int* y, int n")

        def reference(arrays, size, working=None):
            return {"y": function(arrays["x"].astype(working or np.float64)).astype(np.int64)}

        arrays, size = {"x": X}, {"n": X.size}
        want = reference(arrays, size)
        return want["y"], perturbation.measured_ties(
            contract, reference, arrays, size, want, ["y"], (3,), perturbation.DRAWS
        )["y"]

    return measured


def test_a_value_near_a_tie_may_be_rounded_to_either_neighbour(pair) -> None:
    want, (low, high) = pair(np.rint)
    assert [low[1], high[1]] == [2, 3]
    assert [low[4], high[4]] == [3, 4]
    assert low[2] == high[2] == want[2] == 7


def test_an_exact_tie_is_rounded_as_the_reference_does(pair) -> None:
    want, (low, high) = pair(np.rint)
    assert low[0] == high[0] == want[0] == 2
    assert low[3] == high[3] == want[3] == 0


def test_whole_numbers_without_floating_inputs_stay_exact(contract_of) -> None:
    contract = contract_of(BLOCK.replace("in float32", "in int32"), parameters="const int* x, int* y, int n")
    arrays = {"x": np.arange(6, dtype=np.int32)}
    want = {"y": np.arange(6)}
    found = perturbation.measured_ties(contract, lambda *_: want, arrays, {"n": 6}, want, ["y"], (3,), 6)
    np.testing.assert_array_equal(found["y"][0], want["y"])
    np.testing.assert_array_equal(found["y"][1], want["y"])


def test_either_value_is_taken_as_wanted_and_no_other() -> None:
    want, low, high = np.array([2, 2, 2]), np.array([2, 2, 2]), np.array([3, 3, 2])
    got = np.array([3, 4, 3], np.int8)
    np.testing.assert_array_equal(perturbation.wanted_of_ties(got, want, (low, high)), [3, 2, 2])
    assert perturbation.wanted_of_ties(got, want, None) is want


def test_many_different_elements_are_no_near_ties() -> None:
    want = np.zeros(1000)
    assert perturbation.few_differ(np.where(np.arange(1000) < 10, 1, 0), want)
    assert not perturbation.few_differ(np.where(np.arange(1000) < 11, 1, 0), want)


def test_ascending_arrays_stay_ascending_and_others_move_freely() -> None:
    rng = np.random.default_rng(3)
    arrays = {"table": np.sort(rng.normal(size=(3, 5000)), axis=-1), "x": rng.normal(size=5000), "one": np.ones(1) / 3}
    moved = perturbation.PerturbedInputs.of(arrays, [*arrays]).moved(1e-3, rng)
    assert (np.diff(moved["table"], axis=-1) >= 0).all()
    assert all((moved[name] != arrays[name]).mean() > 0.9 for name in arrays)
    assert (np.argsort(moved["x"]) != np.argsort(arrays["x"])).any()
    shifted = perturbation.with_one_moved(arrays["table"], 7)
    assert (np.diff(shifted, axis=-1) >= 0).all()
    assert (shifted != arrays["table"]).any()
