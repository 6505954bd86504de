"""Warns of a speed-up larger than the change explains, as a request for review; it is no verdict."""

from __future__ import annotations

import math

from kernelmate.records import Counters, Speedup

FROM = 2.0
"""Speed-ups below this are never suspicious: caches, clocks and latencies alone make that much."""

FACTOR = 3.0
"""How many times more than explained: beyond the error of the prediction (`measure.statistics.MODEL_FACTOR`), both ways."""

EXPLAINING = (
    "global_load_requests", "global_load_sectors", "global_store_requests", "global_store_sectors",
    "global_atomic_requests", "shared_load_wavefronts", "shared_store_wavefronts", "local_sectors",
    "thread_instructions",
)  # fmt: skip
"""Quantities that a GPU spends time on. A large reduction of one of them may explain the whole speed-up."""


def find(
    measured: Speedup | None, predicted: Speedup | None, before: Counters | None, after: Counters | None
) -> str | None:
    """A sentence where a measured speed-up is beyond explanation.

    A change explains as much as it takes away of whatever it takes away most of, or as much as the prediction makes of
    it, which knows of occupancy and latency as well, whichever is more.

    Args:
        measured: of the candidate; its interval's lower end is what is held against the explanation.
        predicted: of the same two versions; None where one of them has no prediction.
        before: the baseline's counters.
        after: the candidate's. Without either, and without a prediction, nothing is said.
    """
    if measured is None or measured.kind != "measured" or measured.median < FROM:
        return None
    reasons = [explained(before, after)]
    if predicted is not None:
        reasons.append(predicted.median)
    known = [reason for reason in reasons if reason is not None]
    if not known or measured.ci95[0] <= FACTOR * max(*known, 1.0):
        return None
    return (
        f"{measured.median:.3g} times faster, where fewer bytes and instructions explain {max(*known, 1.0):.3g} times; "
        "look at what it does when it is launched again and again"
    )


def explained(before: Counters | None, after: Counters | None) -> float | None:
    """The largest ratio of what both versions ask for; infinite where the candidate does without something altogether."""
    if before is None or after is None:
        return None
    ratios = []
    for name in EXPLAINING:
        was, now = getattr(before, name), getattr(after, name)
        if was and now is not None:
            ratios.append(was / now if now else math.inf)
    return max(ratios, default=None)
