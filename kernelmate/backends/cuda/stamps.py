"""What becomes of the GPU's time stamps, and when they are not to be believed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

LEAST_US = 0.001
"""What is left of a launch that takes no longer than nothing, within the stamps' steps."""


def kept_ahead(took_ns: int, waited_ns: int, spans_us: Sequence[float]) -> bool:
    """Whether the host was ahead of the GPU all the time, so that no gap between stamps is the host's.

    It was where it had put everything into the stream before the GPU began, and is where each launch takes the GPU
    longer than it takes the host.

    Args:
        took_ns: what the host took for all launches.
        waited_ns: how long the GPU spun before the first.
        spans_us: between the stamps of each launch.
    """
    return took_ns < waited_ns or took_ns / len(spans_us) < 1e3 * min(spans_us)


def durations_of(spans_us: Sequence[float], empty_spans_us: Sequence[float], empty_us: float) -> list[float]:
    """Durations from what lies between the stamps of launches, and between those of empty kernels.

    Args:
        spans_us: one for each launch.
        empty_spans_us: of empty kernels, of which the mean of the middle half counts.
        empty_us: what an empty kernel takes.
    """
    cut = len(empty_spans_us) // 4
    empty = statistics.fmean(sorted(empty_spans_us)[cut : len(empty_spans_us) - cut])
    return [max(span - empty + empty_us, LEAST_US) for span in spans_us]
