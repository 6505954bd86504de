"""Compensated sums: they carry on what rounding loses, and have to make NaN of an infinity that a plain sum keeps.

Of an infinite element the lost part is infinity less infinity. A kernel that sums so is no less right for it, so it gets a note.
"""

from __future__ import annotations

import functools
import re

_SUM = re.compile(r"\b(add|sub)(?:\.rn)?\.(f32|f64)\s+(%\w+),\s*(%\w+),\s*(%\w+);")


@functools.lru_cache(maxsize=16)
def compensates(ptx: str) -> bool:
    """Whether code has `u = t + v` with the part of it that rounding lost: `(u - t) - v`, or `(t - u) + v`."""
    sums = _SUM.findall(ptx)
    operands = [(name, kind, result, frozenset((one, two))) for name, kind, result, one, two in sums]
    apart: dict[tuple[str, frozenset[str]], set[str]] = {}
    for name, kind, result, both in operands:
        if name == "sub":
            apart.setdefault((kind, both), set()).add(result)
    ends = {(kind, both) for _, kind, _, both in operands}
    for name, kind, result, both in operands:
        if name != "add" or len(both) != 2:
            continue
        one, two = sorted(both)
        for kept, other in ((one, two), (two, one)):
            moved = apart.get((kind, frozenset((result, kept))), ())
            if any((kind, frozenset((lost, other))) in ends for lost in moved):
                return True
    return False
