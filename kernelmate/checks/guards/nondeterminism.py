"""Detects outputs that differ between equal launches, because they depend on the order of blocks and warps."""

from __future__ import annotations

import numpy as np

from kernelmate.checks.case_launches import LaunchOutcome, still_poisoned
from kernelmate.checks.evaluations import Expected
from kernelmate.checks.precision import is_inexact, same_bits, wide
from kernelmate.records import Contract


def find(
    contract: Contract, one: LaunchOutcome, two: LaunchOutcome, allowed: Expected | None
) -> tuple[str, str, bool] | None:
    """Returns the output that differs, a sentence, and whether it differs beyond the tolerance; None if there is none.

    Args:
        contract: defines the outputs.
        one: a launch.
        two: the same launch under another schedule, at other addresses, with outputs poisoned differently.
        allowed: the tolerance per element of each output.
    """
    for argument in contract.args:
        name = argument.name
        if argument.direction not in ("out", "inout") or one.result.arrays[name].size == 0:
            continue
        first, second = one.result.arrays[name], two.result.arrays[name]
        if same_bits(first, second):
            continue
        unwritten = still_poisoned(first, one.shot.poison) & still_poisoned(second, two.shot.poison)
        with np.errstate(all="ignore"):
            a, b = wide(first), wide(second)
            if not is_inexact(first.dtype):
                a, b = a.astype(np.float64), b.astype(np.float64)
            same = (first == second) | ((a != a) & (b != b)) | unwritten
            apart = np.where(same, 0.0, np.abs(a - b))
        if same.all():
            continue
        beyond = not is_inexact(first.dtype) or allowed is None or not bool((apart <= 2 * allowed[name]).all())
        largest = float(np.where(np.isfinite(apart), apart, 0.0).max())
        return name, f"{name} differs by up to {largest:.3g} between equal launches in another order", beyond
    return None
