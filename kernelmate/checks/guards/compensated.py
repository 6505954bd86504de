"""Detects compensated sums, which turn an infinity that a plain sum keeps into NaN.

For an infinite element the rounding error is computed as infinity minus infinity. Such a kernel is not wrong, so it
gets a note.
"""

from __future__ import annotations

import functools
import re

_SUM = re.compile(r"\b(add|sub)(?:\.rn)?\.(f32|f64)\s+(%\w+),\s*(%\w+),\s*(%\w+);")


@functools.lru_cache(maxsize=16)
def compensates(ptx: str) -> bool:
    """Returns True if code computes `u = t + v` and its rounding error: `(u - t) - v`, or `(t - u) + v`.

    These are the sums of Kahan (Further Remarks on Reducing Truncation Errors, CACM 8(1), 1965) and Dekker (A Floating-Point
    Technique for Extending the Available Precision, Numerische Mathematik 18, 1971).
    """
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
