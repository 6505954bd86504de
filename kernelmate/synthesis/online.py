"""Online softmax: sums of exp(x - maximum of the row), computed in the same pass as the maximum.

Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from kernelmate.synthesis.plan import Key, Plan, behind, walk

LOWEST = {"float": float(np.finfo(np.float32).min), "double": float(np.finfo(np.float64).min)}
"""Initial value of a maximum by C++ type; finite, since the difference of two infinities is NaN."""


def online_of(plan: Plan, levels: Sequence[Sequence[Key]]) -> dict[int, int]:
    """Returns the maximum for each sum that can be computed in the same pass, as node indices.

    Args:
        plan: a plan of rows.
        levels: the plan's reductions, by pass.
    """
    found: dict[int, int] = {}
    for before, keys in itertools.pairwise(levels):
        largest = {key[0]: behind(plan, plan.operands(key)[0]) for key in before if _is_real(plan, key, "max")}
        needing = _following(plan, {*largest})
        maxima = [_maximum(plan, key, largest, needing) for key in keys]
        if all(one is not None for one in maxima) and not any(key[0] in found for key in before):
            found |= {key[0]: one for key, one in zip(keys, maxima, strict=True) if one is not None}
    return found


def _is_real(plan: Plan, key: Key, kind: str) -> bool:
    node = plan.node(key)
    return node.op == "reduce" and node.data[0] == kind and node.dtype.startswith("float")


def _maximum(plan: Plan, key: Key, largest: dict[int, Key], needing: set[Key]) -> int | None:
    """Returns the maximum that is subtracted in the only exponential of a sum; None if other factors need one."""
    if not _is_real(plan, key, "sum"):
        return None
    factors = _factors(plan, plan.operands(key)[0])
    found = [_subtracted(plan, factor, largest) for factor in factors]
    maxima = [one for one in found if one is not None]
    others = [factor for factor, one in zip(factors, found, strict=True) if one is None]
    return maxima[0] if len(maxima) == 1 and needing.isdisjoint(others) else None


def _factors(plan: Plan, key: Key) -> list[Key]:
    key = behind(plan, key)
    if plan.node(key).op == "map" and plan.node(key).data[0] == "multiply":
        return [factor for one in plan.operands(key) for factor in _factors(plan, one)]
    return [key]


def _subtracted(plan: Plan, key: Key, largest: dict[int, Key]) -> int | None:
    """Returns the maximum in `exp(x - maximum)` if it is the maximum of `x`; else None."""
    if plan.node(key).op != "map" or plan.node(key).data[0] != "exp":
        return None
    difference = behind(plan, plan.operands(key)[0])
    if plan.node(difference).op != "map" or plan.node(difference).data[0] != "subtract":
        return None
    value, maximum = (behind(plan, one) for one in plan.operands(difference))
    return maximum[0] if largest.get(maximum[0]) == value else None


def _following(plan: Plan, reductions: set[int]) -> set[Key]:
    """Returns all values that depend on some reductions, including these."""
    found: set[Key] = set()
    for key in walk(plan):
        if key[0] in reductions or not found.isdisjoint(plan.operands(key)):
            found.add(key)
    return found
