"""Rounds up a grid whose division rounds down and leaves the last elements uncomputed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.records import WRONG_OUTPUTS, FindingCode
from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Rewrite, relaunch
from kernelmate.suggest.repairs.base import Repair

_OPERAND = r"(?:\w+|\([^()]*\))"
_DOWN = re.compile(rf"(?P<over>{_OPERAND}(?:\s*\*\s*{_OPERAND})*)\s*//?\s*(?P<under>{_OPERAND})")
_UP_ALREADY = re.compile(r"[+-]\s*\w+\s*-\s*1|\+\s*\d*[1357]\b|-\s*1\b")
"""A dividend such as `n + block - 1` or `n + 255`, whose division already rounds up."""


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields one candidate in which the divisions in every side of the grid round up."""
    sides = tuple(_up(side) for side in request.contract.grid)
    if sides != request.contract.grid:
        kernel, contract = relaunch(request, request.kernel, grid=sides)
        old, new = (" x ".join(each) for each in (request.contract.grid, sides))
        yield Rewrite(
            kernel, contract, f"The grid {old} rounds down, so the last elements have no thread; {new} rounds up."
        )


REPAIR = Repair("grid-rounding", ("correct",), (), rewrites, WRONG_OUTPUTS | {FindingCode.LAUNCH_FAILURE})


def _up(side: str) -> str:
    """Returns a side of the grid in which every division rounds up, also inside `max(1, n // block)`."""

    def up(found: re.Match[str]) -> str:
        if _UP_ALREADY.search(found["over"]):
            return found[0]
        alone = "*" not in found["over"]
        over = found["over"].removeprefix("(").removesuffix(")") if alone else found["over"]
        return f"cdiv({over}, {found['under'].removeprefix('(').removesuffix(')')})"

    return _DOWN.sub(up, side)
