"""A kernel that does its work only in the first of many equal launches, and is timed in the others.

It may count launches, recognise inputs or addresses that it has seen, or find its output already filled. Whatever it goes
by, a launch over its own results is then much faster than one that finds nothing of the earlier ones.
"""

from __future__ import annotations

from kernelmate.backends.timed import Repeats

SHARE = 0.5
LEAST_US = 3.0
"""A launch over its own results is suspicious below this share of one that starts afresh, and this many microseconds less:
what caches and gaps between launches alone could make is far from both."""


def find(repeats: Repeats) -> str | None:
    """A sentence where launches over their own results do not do the work."""
    own, afresh = repeats.over_own_us, repeats.afresh_us
    if own is None or afresh is None or own >= SHARE * afresh or afresh - own < LEAST_US:
        return None
    return (
        f"a launch takes {max(own, 0.0):.3g} us over the results of an equal one, and {afresh:.3g} us where outputs and the "
        "kernel's own variables were reset before: it uses what earlier launches left"
    )
