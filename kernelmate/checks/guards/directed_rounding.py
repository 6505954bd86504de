"""Finds narrow results that a version rounds in one direction, where the baseline rounds to nearest.

The tolerance of a stored result lets conversions truncate, so an error of one unit passes. Truncated results are all on
one side of the exact ones, and their errors add up in what is computed from them. Narrower arithmetic is off by as much,
but to both sides.
"""

from __future__ import annotations

import numpy as np

from kernelmate.checks.case_launches import LaunchOutcome
from kernelmate.checks.guards.single_units import MOST_ELSEWHERE, half_unit
from kernelmate.checks.precision import Arrays, limits, wide

FEWEST = 64
"""Minimum number of elements with rounding errors."""

LEAST_SHARE = 1 / 8
"""Minimum share of them that is off by more than half a unit; truncation of random digits is at about one half."""


def find(outcome: LaunchOutcome, computed: Arrays, want: Arrays) -> tuple[str, str] | None:
    """Returns the output that is rounded in one direction, and a sentence about it; None if there is none.

    Args:
        outcome: the candidate's launch.
        computed: results of `single_units.nearest`, by output.
        want: the reference's outputs.
    """
    for name, some in computed.items():
        got, expected = outcome.result.arrays[name], want[name]
        found = wide(got)
        with np.errstate(all="ignore"):
            unit = 2 * half_unit(got.dtype, expected)
            inside = np.isfinite(found) & (np.abs(expected) <= limits(got.dtype).top)
            upwards, outwards = (
                np.where(inside, error, 0.0) for error in (found - expected, np.abs(found) - np.abs(expected))
            )
        size, least = np.abs(upwards), some + MOST_ELSEWHERE * unit
        rounded, off = size > least, size > least + unit / 2
        count = int(rounded.sum())
        if count < FEWEST or int(off.sum()) < LEAST_SHARE * count or bool((size > least + unit).any()):
            continue
        ways = {"towards zero": -outwards, "away from zero": outwards, "down": -upwards, "up": upwards}
        way = next((said for said, error in ways.items() if bool((error[rounded] > 0).all())), None)
        if way is not None:
            place = tuple(int(one) for one in np.argwhere(off)[0])
            return name, (
                f"on {outcome.shot}, {name}{list(place)} is {float(got[place]):.6g} and should be "
                f"{float(expected[place].astype(got.dtype)):.6g}: all {count} elements that need rounding are rounded {way}, "
                "and the baseline rounds each to nearest"
            )
    return None
