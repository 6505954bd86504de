"""Repairs: rewrites that fix one kind of fault each, located by the compiler's messages or the judge's findings.

They need no model. Their results are judged like any candidate, and offered only if they are correct.
"""

from __future__ import annotations

from kernelmate.suggest.repairs import (
    divergent_barrier,
    grid_rounding,
    index_order,
    integer_ratio,
    lost_update,
    missing_barrier,
    missing_guard,
    missing_include,
    missing_token,
    misspelt_name,
    neutral_start,
    off_by_one,
    sign,
    small_shared,
    unset_start,
    wide_index,
)
from kernelmate.suggest.repairs.base import Repair

ALL: tuple[Repair, ...] = (
    missing_include.REPAIR,
    missing_token.REPAIR,
    misspelt_name.REPAIR,
    unset_start.REPAIR,
    grid_rounding.REPAIR,
    integer_ratio.REPAIR,
    neutral_start.REPAIR,
    wide_index.REPAIR,
    off_by_one.REPAIR,
    missing_guard.REPAIR,
    small_shared.REPAIR,
    divergent_barrier.REPAIR,
    lost_update.REPAIR,
    missing_barrier.REPAIR,
    index_order.REPAIR,
    sign.REPAIR,
)
"""All repairs in the order in which they are tried: the most specific ones with the smallest changes first."""

__all__ = ["ALL", "Repair"]
