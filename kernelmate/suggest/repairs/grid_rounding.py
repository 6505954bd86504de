"""A grid that is rounded down leaves the last elements to nobody: the division rounds up instead."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Rewrite, relaunch
from kernelmate.suggest.repairs.base import VALUES, Repair

_DOWN = re.compile(r"\s*(?P<over>\w+|\([^()]*\))\s*//?\s*(?P<under>\w+|\([^()]*\))\s*\Z")


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """One candidate: every side of the grid that is divided down is divided up."""
    sides = tuple(_up(side) for side in request.contract.grid)
    if sides != request.contract.grid:
        kernel, contract = relaunch(request, request.kernel, grid=sides)
        old, new = (" x ".join(each) for each in (request.contract.grid, sides))
        yield Rewrite(
            kernel, contract, f"The grid {old} rounds down, so the last elements have no thread; {new} rounds up."
        )


REPAIR = Repair("grid-rounding", ("correct",), (), rewrites, VALUES | {"launch-failure"})


def _up(side: str) -> str:
    found = _DOWN.match(side)
    if found is None:
        return side
    over, under = (found[part].removeprefix("(").removesuffix(")") for part in ("over", "under"))
    return f"cdiv({over}, {under})"
