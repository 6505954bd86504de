"""Detects a kernel that does its work only in the first of many equal launches and is timed in the others.

Such a kernel may count launches, recognise inputs or addresses, or detect that its output is already filled. A launch
over its own results is then much faster than one after a reset.
"""

from __future__ import annotations

from kernelmate.backends.timed import RepeatedLaunch
from kernelmate.records import Timing

SHARE = 0.5
LEAST_US = 3.0
"""Fraction, and microseconds, by which a launch over its own results must be shorter than a fresh one for a finding.

Caches and launch gaps explain neither.
"""

LEAST_SCRUBBED_US = 10.0
"""`LEAST_US` if another kernel overwrote shared memory before the fresh launch.

It is larger because the SM may have to repartition its memory.
"""


def find(repeats: RepeatedLaunch | None, timing: Timing | None = None) -> str | None:
    """Returns a sentence if launches over their own results do not do the work, else None.

    Args:
        repeats: results of many equal launches; None if not measured.
        timing: the version's time. If it is far below the period of equal launches replayed in a graph, only some of
            them do the work.
    """
    if timing is not None and timing.replay_period_us is not None and timing.kind == "measured":
        alone, period = timing.ci95_us[1], timing.replay_period_us
        if alone < SHARE * period and period - alone >= LEAST_SCRUBBED_US:
            return _sentence(alone, period, "it was replayed in a graph, where blocks find other multiprocessors,")
    if repeats is None:
        return None
    own, afresh, scrubbed = repeats.over_own_us, repeats.afresh_us, repeats.scrubbed_us
    if own is None:
        return None
    if afresh is not None and own < SHARE * afresh and afresh - own >= LEAST_US:
        return _sentence(own, afresh, "outputs and the kernel's own variables were reset")
    if scrubbed is not None and own < SHARE * scrubbed and scrubbed - own >= LEAST_SCRUBBED_US:
        return _sentence(own, scrubbed, "shared memory was overwritten")
    return None


def _sentence(own: float, afresh: float, what: str) -> str:
    return (
        f"a launch takes {max(own, 0.0):.3g} us right after an equal one, and {afresh:.3g} us where {what} before: "
        "it uses what earlier launches left"
    )
