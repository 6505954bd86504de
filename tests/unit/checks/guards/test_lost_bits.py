"""Bits of zeros and NaN that a kernel which only moves values must keep."""

from __future__ import annotations

import numpy as np
import pytest

from kernelmate.checks.guards.lost_bits import find, kept
from kernelmate.checks.styles import STRESS_STYLES
from kernelmate.checks.trials import LaunchOutcome, PlannedLaunch, RunResult

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
    found = find(outcome, {"y": kept(MOVES, VALUES, wanted(VALUES))}, {"y": wanted(VALUES)})
    assert (None if found is None else found[0]) == code
    if found is not None:
        assert f"y[{place}] has the bits" in found[1][1]
