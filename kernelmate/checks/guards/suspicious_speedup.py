"""Warns of a speedup larger than the changes explain. The warning asks for review and does not reject."""

from __future__ import annotations

import math

from kernelmate.records import Counters, Speedup

FROM = 2.0
"""Largest speedup that is never suspicious: caches, clocks and latencies can cause as much."""

FACTOR = 3.0
"""Factor by which a speedup may exceed the explained one.

It is larger than the prediction's error (`measure.statistics.MODEL_FACTOR`) in both directions.
"""

EXPLAINING = (
    "global_load_requests", "global_load_sectors", "global_store_requests", "global_store_sectors",
    "global_atomic_requests", "shared_load_wavefronts", "shared_store_wavefronts", "local_sectors",
    "thread_instructions",
)  # fmt: skip
"""Quantities that cost a GPU time. A large reduction of one of them may explain the whole speedup."""


def find(
    measured: Speedup | None, predicted: Speedup | None, before: Counters | None, after: Counters | None
) -> str | None:
    """Returns a sentence if a measured speedup exceeds the explained one, else None.

    The explained speedup is the larger of the biggest reduction of any counted quantity and the predicted speedup,
    which accounts for occupancy and latency as well.

    Args:
        measured: the candidate's speedup; the lower end of its interval is compared.
        predicted: predicted speedup of the same versions, or None.
        before: the baseline's counters.
        after: the candidate's counters. Without counters and prediction the result is None.
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
    """Returns the largest ratio of a counted quantity before and after.

    Infinite if the candidate avoids one altogether.
    """
    if before is None or after is None:
        return None
    ratios = []
    for name in EXPLAINING:
        was, now = getattr(before, name), getattr(after, name)
        if was and now is not None:
            ratios.append(was / now if now else math.inf)
    return max(ratios, default=None)
