"""Evaluation of the GPU's time stamps, and detection of unreliable ones."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

LEAST_US = 0.001
"""Microseconds assigned to a launch whose time is below the time stamps' resolution."""


STEP_US = 0.25
"""Difference of empty kernels' spans in microseconds that separates two kinds.

A step is 0.35 us, and the middle half of one kind lies within 0.2.
"""


TAIL = 6
"""Pairs of time stamps at the end of the stream that are ignored.

On an H100 the last five lie 0.7 us closer together than all before, in every chunk of every process
(`benchmarks/gpu_spread.py`).
"""


def kept_ahead(took_ns: int, waited_ns: int, spans_us: Sequence[float]) -> bool:
    """Return True if the host was always ahead of the GPU, so that no gap between stamps is the host's.

    That holds if the host had submitted everything before the GPU started, or if each launch takes the GPU longer than
    the host.

    Args:
        took_ns: host time of all submissions.
        waited_ns: time that the GPU spun before the first launch.
        spans_us: between the stamps of each launch.
    """
    return took_ns < waited_ns or took_ns / len(spans_us) < 1e3 * min(spans_us)


def durations_of(spans_us: Sequence[float], empty_spans_us: Sequence[float], empty_us: float) -> list[float]:
    """Return durations from the spans between time stamps of launches and of empty kernels.

    Args:
        spans_us: one for each launch.
        empty_spans_us: spans of empty kernels; see `empty_of`.
        empty_us: duration of an empty kernel.
    """
    empty = empty_of(empty_spans_us)
    return [max(span - empty + empty_us, LEAST_US) for span in spans_us]


def empty_of(spans_us: Sequence[float], tail: int = TAIL) -> float:
    """Return the span of an empty kernel whose code placement is ordinary.

    Copies next to the code that ran just before are faster by a step. So the middle half of the spans counts, and if
    the step lies within it, the part above the step.

    Args:
        spans_us: of empty kernels that were the last in the stream, in their order.
        tail: number of last spans to ignore, if there are at least three times as many.
    """
    ordered = sorted(spans_us[: len(spans_us) - tail] if len(spans_us) >= 3 * tail else spans_us)
    cut = len(ordered) // 4
    inner = ordered[cut : len(ordered) - cut]
    if inner[-1] - inner[0] > STEP_US:
        inner = [span for span in inner if span >= (inner[0] + inner[-1]) / 2]
    return statistics.fmean(inner)
