"""Enlarges dynamic shared memory that the launch makes too small, in proportion to the block."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.suggest.base import SuggestRequest
from kernelmate.suggest.recipes.base import Rewrite, relaunch
from kernelmate.suggest.repairs.base import BOUNDS, Repair, findings
from kernelmate.suggest.syntax import ELEMENT_BYTES

_TIMES = (1, 2)
_ARRAY = re.compile(r"\bextern\s+__shared__\s+(?:__align__\(\d+\)\s*)?([\w\s]+?)\s+\w+\s*\[\s*\]")


def rewrites(request: SuggestRequest) -> Iterator[Rewrite]:
    """Yields shared bytes for one element per thread, then for two, then for one element more than now."""
    spots = [spot for spot in findings(request, BOUNDS, warnings=True) if "shared memory" in spot.message]
    arrays = {" ".join(found.split()) for found in _ARRAY.findall(request.kernel.unit.text)}
    if not spots or len(arrays) != 1 or not arrays <= set(ELEMENT_BYTES):
        return
    size = ELEMENT_BYTES[arrays.pop()]
    old = request.contract.shared
    for shared in (*(f"block * {size * times}" for times in _TIMES), f"{old} + {size}"):
        kernel, contract = relaunch(request, request.kernel, shared=shared)
        yield Rewrite(
            kernel,
            contract,
            f"The block accesses more than the {old} bytes of shared memory that it is launched with; it gets {shared}.",
        )


REPAIR = Repair("small-shared", ("correct",), (), rewrites, BOUNDS)
