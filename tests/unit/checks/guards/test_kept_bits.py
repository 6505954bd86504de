"""Guards of values that must be kept: bits of zeros and NaN, single units, values flushed to zero."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from kernelmate.checks.answers import ExpectedOutputs
from kernelmate.checks.case_launches import LaunchOutcome, PlannedLaunch, RunResult
from kernelmate.checks.guards import directed_rounding, flushed, lost_bits, lost_nan, single_units
from kernelmate.checks.guards.lost_bits import find as find_lost_bits
from kernelmate.checks.guards.lost_bits import kept
from kernelmate.checks.styles import STRESS_STYLES
from kernelmate.checks.tolerances import STORE_UNITS, MaximumErrors
from kernelmate.records import Argument, Contract, Tolerance

MOVES = "ld.global.f32 %f1, [%rd1];\nst.global.f32 [%rd2], %f1;"
NEGATES = MOVES + "\nneg.f32 %f2, %f1;"
TAKES = MOVES + "\nabs.f32 %f2, %f1;"
ADDS = MOVES + "\nadd.f32 %f2, %f1, %f1;"
NAN = np.uint32(0xFFC12345).view(np.float32)
VALUES = np.array([1.0, -0.0, 0.0, NAN], np.float32)


def wanted(values):
    return values.astype(np.float64)


@pytest.mark.parametrize(
    ("ptx", "bound"),
    [
        (MOVES, [False, True, False, True]), (NEGATES, [False, True, False, False]), (ADDS, None), ("", None),
        (MOVES + "\nsetp.gt.f32 %p1, %f1, 0f00000000;", [False, True, False, True]),
    ],
)  # fmt: skip
def test_kernels_without_arithmetic_bind_zeros_and_nan_and_those_that_change_signs_zeros(ptx, bound) -> None:
    found = kept(ptx, VALUES, wanted(VALUES))
    assert (None if found is None else found.tolist()) == bound


@pytest.mark.parametrize(
    ("ptx", "bound"), [(TAKES, [True, True]), (TAKES + "\nselp.f32 %f3, %f2, %f1, %p1;", None), (NEGATES, None)]
)
def test_magnitudes_bind_positive_zeros_unless_a_comparison_chooses_some(ptx, bound) -> None:
    zeros = np.zeros(2, np.float32)
    found = kept(ptx, zeros, wanted(zeros))
    assert (None if found is None else found.tolist()) == bound


def test_a_baseline_that_loses_bits_itself_binds_nobody() -> None:
    lost = np.array([1.0, 0.0, 0.0, np.nan], np.float32)
    assert kept(MOVES, lost, wanted(VALUES)) is None


@pytest.mark.parametrize(
    ("place", "value", "code"), [(1, 0.0, "wrong-values"), (3, np.nan, "nan-handling"), (2, -0.0, None)]
)
def test_a_candidate_must_keep_bound_bits_alone(place, value, code) -> None:
    got = VALUES.copy()
    got[place] = value
    outcome = LaunchOutcome(PlannedLaunch(2, STRESS_STYLES[0], 0, 0), {}, RunResult({"y": got}))
    found = find_lost_bits(outcome, {"y": kept(MOVES, VALUES, wanted(VALUES))}, {"y": wanted(VALUES)})
    assert (None if found is None else found[0]) == code
    if found is not None:
        assert f"y[{place}] has the bits" in found[1][1]


CONTRACT = Contract(
    "k", ({"n": 8},), ("1",), ("8",), (Argument("x", "in", "float32", ("n",)), Argument("y", "out", "float32", ("n",)))
)
SMALL = np.array([1e-39, -3e-40, 2e-41, 0.0, 1.0])


def launch(name: str, got: np.ndarray[Any, Any]) -> Any:
    return SimpleNamespace(shot="some inputs", result=SimpleNamespace(arrays={name: got}))


def test_small_numbers_that_a_baseline_keeps_must_be_kept() -> None:
    kept = flushed.kept(CONTRACT, SMALL.astype(np.float32), SMALL)
    assert kept is not None
    assert kept.tolist() == [True, True, True, False, False]
    zeroed = np.where(np.abs(SMALL) < 5e-40, 0, SMALL).astype(np.float32)
    found = flushed.find(launch("y", zeroed), {"y": kept}, {"y": SMALL}, "")
    assert found is not None
    assert "y[1] is 0 and should be -3e-40" in found[1]
    assert flushed.find(launch("y", SMALL.astype(np.float32)), {"y": kept}, {"y": SMALL}, "") is None


@pytest.mark.parametrize(
    "contract",
    [
        replace(CONTRACT, options=("--use_fast_math",)),
        replace(CONTRACT, options=("--ftz=true",)),
        replace(CONTRACT, tolerance=Tolerance(1e-5, 1e-6)),
    ],
)
def test_contracts_that_allow_flushing_bind_nobody(contract: Contract) -> None:
    assert flushed.kept(contract, SMALL.astype(np.float32), SMALL) is None


def test_a_baseline_that_flushes_binds_nobody_nor_is_a_candidate_bound_whose_atomics_do() -> None:
    assert flushed.kept(CONTRACT, np.zeros(5, np.float32), SMALL) is None
    bound = {"y": SMALL != 1}
    zeros = launch("y", np.zeros(5, np.float32))
    assert flushed.find(zeros, bound, {"y": SMALL}, "red.global.add.f32 [%rd1], %f1;") is None
    assert flushed.find(zeros, bound, {"y": SMALL}, "red.shared.add.u32 [%rd1], %r1;") is not None


def rounded(dtype: Any, terms: float = 1.0) -> tuple[np.ndarray[Any, Any], MaximumErrors]:
    want = np.linspace(1.0, 7.0, 4096) * 1.0001
    unit = float(ml_dtypes.finfo(dtype).eps) / 2
    return want, MaximumErrors({"y": STORE_UNITS * unit * want + 1e-7}, {}, terms)


def off(got: np.ndarray[Any, Any], places: list[int]) -> np.ndarray[Any, Any]:
    changed = got.copy()
    changed.view(np.uint16)[places] += 1
    return changed


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16])
def test_few_elements_a_unit_off_are_found_where_all_others_are_rounded(dtype: Any) -> None:
    want, allowed = rounded(dtype)
    exactly = want.astype(dtype)
    computed = single_units.exact(exactly, want, allowed, "y")
    assert computed is not None
    assert single_units.find(launch("y", exactly), {"y": computed}, {"y": want}) is None
    places = [int(place) for place in np.argsort(exactly.astype(float) - want)[-3:]]
    found = single_units.find(launch("y", off(exactly, places)), {"y": computed}, {"y": want})
    assert found is not None
    assert "3 of 4096 elements are a unit in the last place off" in found[1]


def test_conversions_that_truncate_and_narrower_arithmetic_pass() -> None:
    want, allowed = rounded(np.float16)
    computed = single_units.exact(want.astype(np.float16), want, allowed, "y")
    assert computed is not None
    nearest = want.astype(np.float16)
    down = np.where(nearest > want, np.nextafter(nearest, np.float16(0)), nearest)
    assert single_units.find(launch("y", down), {"y": computed}, {"y": want}) is None
    for error in (1e-5, 5e-5, 6.5e-5, 7e-5, 8e-5, 1e-4, 2e-4):
        scaled = (want * (1 + error)).astype(np.float16)
        assert single_units.find(launch("y", scaled), {"y": computed}, {"y": want}) is None, error


@pytest.mark.parametrize(("terms", "size"), [(64.0, 4096), (float("inf"), 4096), (1.0, 100)])
def test_sums_and_small_outputs_are_not_held_to_rounding(terms: float, size: int) -> None:
    want, allowed = rounded(np.float16, terms)
    cut = MaximumErrors({"y": allowed.error["y"][:size]}, {}, terms)
    assert single_units.exact(want[:size].astype(np.float16), want[:size], cut, "y") is None


def test_a_baseline_that_truncates_binds_nobody_to_rounding() -> None:
    want, allowed = rounded(np.float16)
    nearest = want.astype(np.float16)
    down = np.where(nearest > want, np.nextafter(nearest, np.float16(0)), nearest)
    assert single_units.exact(down, want, allowed, "y") is None


@pytest.mark.parametrize(
    ("instruction", "bound"),
    [("cvt.rmi.f32.f32 %f2, %f1;", True), ("cvt.rni.ftz.f16.f16 %h2, %h1;", True), ("cvt.rzi.s32.f32 %r2, %f1;", False),
     ("cvt.rn.f16.f32 %h2, %f1;", False), ("cvt.rmi.f32.f32 %f2, %f1; add.f32 %f3, %f2, %f1;", False)],
)  # fmt: skip
def test_rounding_to_whole_numbers_keeps_the_sign_of_zero(instruction: str, bound: bool) -> None:
    want = np.array([-0.0, 1.0, np.nan])
    kept = lost_bits.kept(f"ld.global.f32 %f1, [%rd1]; {instruction}", want.astype(np.float32), want)
    assert (kept is not None) is bound
    if kept is not None:
        assert kept.tolist() == [True, False, False]


def test_positions_that_nan_decides_bind_where_both_agree_and_conversions_of_nan_do_not() -> None:
    x = np.zeros((3, 8), np.float32)
    want, got = np.array([0, 5, 2]), np.array([0, 3, 2], np.int32)
    bound = lost_nan.agreed({"x": x}, got, want)
    assert bound.tolist() == [True, False, True]
    answer = ExpectedOutputs({"y": want}, MaximumErrors({"y": np.zeros(3)}, {"y": np.zeros(3)}))
    found = lost_nan.find(launch("y", np.array([4, 7, 2], np.int32)), {"y": bound}, answer, lambda *_: None)
    assert found is not None
    assert "y[0] is a number where" in found[1]
    assert lost_nan.find(launch("y", np.array([0, 7, 2], np.int32)), {"y": bound}, answer, lambda *_: None) is None
    assert not lost_nan.agreed({"x": x}, np.zeros((3, 8), np.int32), np.zeros((3, 8))).any()
    assert not lost_nan.agreed({"x": x}, np.zeros(3, np.int8), np.zeros(3)).any()


def test_either_position_passes_near_a_tie() -> None:
    bound, want = np.array([True]), np.array([2])
    answer = ExpectedOutputs({"y": want}, MaximumErrors({"y": np.zeros(1)}, {"y": np.zeros(1)}))
    closer = replace(answer, ties={"y": (np.array([1]), want)})
    assert lost_nan.find(launch("y", np.array([1], np.int32)), {"y": bound}, answer, lambda *_: closer) is None
    assert lost_nan.find(launch("y", np.array([0], np.int32)), {"y": bound}, answer, lambda *_: closer) is not None


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn])
def test_results_rounded_in_one_direction_are_found(dtype: Any) -> None:
    want, allowed = rounded(dtype)
    want = np.where(np.arange(want.size) % 2, want, -want)
    nearest = want.astype(dtype)
    computed = single_units.nearest(nearest, want, allowed, "y")
    assert computed is not None
    assert directed_rounding.find(launch("y", nearest), {"y": computed}, {"y": want}) is None
    magnitudes = np.abs(nearest.astype(float))
    unit = 2 * float(ml_dtypes.finfo(dtype).eps) * 2.0 ** np.floor(np.log2(np.abs(want)))
    inwards = np.where(magnitudes > np.abs(want), magnitudes - unit / 2, magnitudes)
    cut = (np.sign(want) * inwards).astype(dtype)
    found = directed_rounding.find(launch("y", cut), {"y": computed}, {"y": want})
    assert found is not None
    assert "rounded towards zero" in found[1]
    assert single_units.nearest(cut, want, allowed, "y") is None


def test_narrower_arithmetic_is_not_taken_for_directed_rounding() -> None:
    want, allowed = rounded(np.float16)
    computed = single_units.nearest(want.astype(np.float16), want, allowed, "y")
    assert computed is not None
    for error in (1e-5, 1e-4, 2e-4, 3e-4, 4e-4, 6e-4):
        for sign in (-1, 1):
            scaled = (want * (1 + sign * error)).astype(np.float16)
            assert directed_rounding.find(launch("y", scaled), {"y": computed}, {"y": want}) is None, error
