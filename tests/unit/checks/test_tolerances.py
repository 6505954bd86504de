"""Honest arithmetic passes the derived tolerance; arithmetic in a narrower type does not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from kernelmate.checks.compare import compare
from kernelmate.checks.inputs import draw
from kernelmate.checks.precision import unit_roundoff
from kernelmate.checks.reference import python_reference
from kernelmate.checks.styles import InputStyle
from kernelmate.checks.tolerances import MaximumErrors, accumulating_dtype, derive, with_baseline_error, with_vanished
from kernelmate.source import numpy_dtype

ROWS = """
sizes = [{ rows = 4, cols = 4096 }]
grid = "rows"
block = 256
reference = "REFERENCE"
[args]
x = "in float32[rows, cols]"
y = "out float32[SHAPE]"
rows = "int32"
cols = "int32"
"""
PARAMETERS = "const float* x, float* y, int rows, int cols"
SOFTMAX = (
    "np.exp(x - x.max(axis=1, keepdims=True)) / np.exp(x - x.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True)"
)
SUM = "x.sum(axis=1)"
RMSNORM = "x / np.sqrt((x * x).mean(axis=1, keepdims=True) + 1e-6)"


def sequential_sum(x, dtype):
    """One after another, every partial sum rounded: the worst of the honest orders."""
    return np.add.accumulate(x.astype(dtype), axis=1, dtype=dtype)[:, -1]


def softmax(x, dtype):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return (e / sequential_sum(e, dtype).astype(np.float32)[:, None]).astype(np.float32)


def rmsnorm(x, dtype):
    mean = sequential_sum(x * x, dtype).astype(np.float32) / np.float32(x.shape[1])
    return (x / np.sqrt(mean + np.float32(1e-6))[:, None]).astype(np.float32)


def row_sum(x, dtype):
    return sequential_sum(x, dtype).astype(np.float32)


CASES = {
    "softmax": (SOFTMAX, "rows, cols", softmax),
    "sum": (SUM, "rows", row_sum),
    "rmsnorm": (RMSNORM, "rows, cols", rmsnorm),
}


def error_of(contract_of, name, dtype, scale, size, seed=0):
    expression, shape, body = CASES[name]
    contract = contract_of(ROWS.replace("REFERENCE", expression).replace("SHAPE", shape), PARAMETERS)
    reference = python_reference(contract, Path())
    arrays = draw(contract, size, (seed, 1), InputStyle("normal", scale), Path())
    want = reference(arrays, size)
    allowed = derive(contract, reference, arrays, size, want, (seed,))
    with np.errstate(all="ignore"):
        return compare("y", body(arrays["x"], dtype), want["y"], allowed.error["y"], allowed.coarse["y"])


@pytest.mark.parametrize("cols", [1, 2, 37, 853, 4096, 32768])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("name", CASES)
def test_a_sequential_float32_sum_passes(contract_of, name, scale, cols) -> None:
    for seed in range(3):
        found = error_of(contract_of, name, np.float32, scale, {"rows": 3, "cols": cols}, seed)
        assert found.right, found


@pytest.mark.parametrize("cols", [37, 853, 4096])
@pytest.mark.parametrize("name", CASES)
def test_a_float16_accumulator_fails(contract_of, name, cols) -> None:
    assert not error_of(contract_of, name, np.float16, 1.0, {"rows": 3, "cols": cols}).right


@pytest.mark.parametrize("name", CASES)
def test_an_error_of_a_few_per_mille_looks_like_lost_precision(contract_of, name) -> None:
    assert error_of(contract_of, name, np.float16, 1.0, {"rows": 3, "cols": 853}).coarse


def test_an_element_wise_kernel_gets_no_room_for_sums(contract_of) -> None:
    contract = contract_of(ROWS.replace("REFERENCE", "x * 2.0").replace("SHAPE", "rows, cols"), PARAMETERS)
    size = {"rows": 4, "cols": 4096}
    reference = python_reference(contract, Path())
    arrays = draw(contract, size, (1,), InputStyle("normal"), Path())
    want = reference(arrays, size)
    allowed = derive(contract, reference, arrays, size, want, (1,)).error["y"]
    assert (allowed < 64 * 2.0**-24 * np.abs(want["y"]) + 1e-30).all()


def test_a_dropped_element_fails(contract_of) -> None:
    expression, shape, _ = CASES["sum"]
    contract = contract_of(ROWS.replace("REFERENCE", expression).replace("SHAPE", shape), PARAMETERS)
    size = {"rows": 3, "cols": 4096}
    reference = python_reference(contract, Path())
    arrays = draw(contract, size, (1,), InputStyle("normal"), Path())
    want = reference(arrays, size)
    allowed = derive(contract, reference, arrays, size, want, (1,)).error
    short = arrays["x"][:, :-1].astype(np.float64).sum(axis=1).astype(np.float32)
    assert not compare("y", short, want["y"], allowed["y"]).right


def test_small_results_are_held_to_as_many_digits_as_large_ones(contract_of) -> None:
    contract = contract_of(ROWS.replace("REFERENCE", "x * 2.0").replace("SHAPE", "rows, cols"), PARAMETERS)
    size = {"rows": 1, "cols": 64}
    reference = python_reference(contract, Path())
    arrays = {"x": np.full((1, 64), 1e-20, np.float32), "y": np.zeros((1, 64), np.float32)}
    want = reference(arrays, size)
    allowed = derive(contract, reference, arrays, size, want, (1,)).error
    assert compare("y", arrays["x"] * np.float32(2), want["y"], allowed["y"]).right
    assert not compare("y", arrays["x"] * np.float32(2.001), want["y"], allowed["y"]).right


def test_the_contracts_tolerance_is_taken_as_it_is(contract_of) -> None:
    block = ROWS.replace("REFERENCE", "x * 2.0").replace("SHAPE", "rows, cols")
    contract = contract_of(block.replace("[args]", "tolerance = { rtol = 0.1, atol = 0.5 }\n[args]"), PARAMETERS)
    arrays = {"x": np.ones((1, 1), np.float32), "y": np.zeros((1, 1), np.float32)}
    size = {"rows": 1, "cols": 1}
    reference = python_reference(contract, Path())
    want = reference(arrays, size)
    assert derive(contract, reference, arrays, size, want, (1,)).error["y"][0, 0] == pytest.approx(0.7)


def test_the_baselines_error_loosens_only_up_to_the_bound() -> None:
    allowed = {"y": np.array([1.0, 1.0, 1.0])}
    assert with_baseline_error(allowed, {"y": np.array([0.1, 1.5, 1000.0])})["y"].tolist() == [1.0, 6.0, 8.0]


@pytest.mark.parametrize(
    ("dtype", "unit"),
    [("float16", 2.0**-11), ("bfloat16", 2.0**-8), ("float32", 2.0**-24), ("float64", 2.0**-53), ("int32", 0.0)],
)
def test_unit_roundoffs(dtype, unit) -> None:
    assert unit_roundoff(numpy_dtype(dtype)) == unit


def test_the_accumulating_dtype_is_float32_but_for_float64_and_where_the_contract_says(contract_of) -> None:
    block = ROWS.replace("REFERENCE", "x * 2.0").replace("SHAPE", "rows, cols")
    plain = contract_of(block, PARAMETERS)
    told = contract_of(block.replace("[args]", 'accumulate = "float16"\n[args]'), PARAMETERS)
    assert accumulating_dtype(plain, "float16") == np.float32
    assert accumulating_dtype(plain, "float64") == np.float64
    assert accumulating_dtype(told, "float16") == np.float16


def test_where_a_reference_gives_exactly_zero_a_rounding_of_the_input_there_passes(contract_of) -> None:
    contract = contract_of(ROWS.replace("REFERENCE", "x").replace("SHAPE", "rows, cols"), PARAMETERS)
    x = np.array([[-40.0, -1e-20, np.inf, 3.0]], np.float32)
    want = {"y": np.array([[0.0, 0.0, 0.0, 3.0]])}
    none = MaximumErrors({"y": np.full((1, 4), 1e-30)}, {"y": np.zeros((1, 4))})
    found = with_vanished(contract, none, want, {"x": x}).error["y"][0]
    assert found[0] == 40 * 2.0**-53
    assert found[1:].tolist() == [1e-30, 1e-30, 1e-30]
    without = with_vanished(contract, none, want, {"x": x[:, :2]}).error["y"][0]
    assert without.tolist() == [3 * 2.0**-53] * 3 + [1e-30]


def test_a_gelu_of_a_product_far_below_zero_may_vanish_in_float32(contract_of) -> None:
    """1 + tanh(v) has no digit left in float32 below -9, and few in float64: zero is right there."""
    block = ROWS.replace("REFERENCE", "0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))")
    contract = contract_of(block.replace("SHAPE", "rows, cols"), PARAMETERS)
    x = np.linspace(-7.3, -7.0, 4096, dtype=np.float32).reshape(4, 1024)
    size = {"rows": 4, "cols": 1024}
    reference = python_reference(contract, Path())
    want = reference({"x": x}, size)
    allowed = with_vanished(contract, derive(contract, reference, {"x": x}, size, want, (1,)), want, {})
    assert (np.abs(want["y"]) <= allowed.error["y"]).all()


@pytest.mark.parametrize(
    "expression", ["d * w - (d * w).mean(axis=1, keepdims=True)", "d * w + (0 - (d * w).mean(axis=1, keepdims=True))"]
)
def test_a_product_that_cancels_its_own_rounding_may_be_fused(contract_of, expression) -> None:
    """The mean of one element is that element, and a fused multiply-add leaves the rounding of the product."""
    contract = contract_of(
        f'sizes = [{{ n = 64, m = 1 }}]\ngrid = 1\nblock = 32\nreference = "300 * ({expression})"\n[args]\n'
        'd = "in float32[n, m] ~ normal"\nw = "in float32[m] ~ normal"\ny = "out float32[n, m]"\nn = "int32"\nm = "int32"\n',
        "const float* d, const float* w, float* y, int n, int m",
    )
    size = {"n": 64, "m": 1}
    arrays = draw(contract, size, (4,), InputStyle("normal"), Path())
    reference = python_reference(contract, Path())
    want = reference(arrays, size)
    assert not want["y"].any()
    d, w = arrays["d"], arrays["w"]
    fused = (d.astype(np.float64) * w - (d * w)).astype(np.float32) * np.float32(300)
    allowed = derive(contract, reference, arrays, size, want, (1,)).error["y"]
    assert fused.any()
    assert (np.abs(fused) <= allowed).all()
    assert (allowed < 1e-3).all()


def test_an_output_of_truth_values_beside_a_floating_one_needs_no_tolerance(contract_of) -> None:
    text = ROWS.replace("REFERENCE", "x.sum(axis=1), x[:, 0] > 0").replace("SHAPE", "rows")
    contract = contract_of(
        text.replace('rows = "int32"', 'above = "out bool[rows]"\nrows = "int32"'),
        "const float* x, float* y, bool* above, int rows, int cols",
    )
    size = contract.sizes[0]
    reference = python_reference(contract, Path())
    arrays = draw(contract, size, (7,), InputStyle("normal"), Path())
    allowed = derive(contract, reference, arrays, size, reference(arrays, size), (7,)).error
    assert (allowed["y"] > 0).all()
    assert not np.any(allowed.get("above", 0))
