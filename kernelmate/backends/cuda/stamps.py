"""Evaluation of the GPU's time stamps, and detection of unreliable ones."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

LEAST_US = 0.001
"""Remainder of a launch that takes no measurable time, within the stamps' steps."""


STEP_US = 0.25
"""Empty kernels whose spans are this far apart are of two kinds: a step is 0.35 us, and the middle half of one kind lies
within 0.2."""


TAIL = 6
"""Pairs of stamps at the end of the stream that count for nothing: on an H100 the last five lie 0.7 us closer together than
all before them, in every chunk of every process (`benchmarks/gpu_spread.py`)."""


def kept_ahead(took_ns: int, waited_ns: int, spans_us: Sequence[float]) -> bool:
    """True if the host was ahead of the GPU all the time, so that no gap between stamps is the host's.

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
        empty_spans_us: of empty kernels; see `empty_of`.
        empty_us: what an empty kernel takes.
    """
    empty = empty_of(empty_spans_us)
    return [max(span - empty + empty_us, LEAST_US) for span in spans_us]


def empty_of(spans_us: Sequence[float], tail: int = TAIL) -> float:
    """Time between the stamps of an empty kernel whose code is no nearer than any other kernel's.

    Copies that lie beside the code which ran just before them are faster than all others, and by a step. So the middle half
    of the spans counts, and where a step goes through it what is above the step.

    Args:
        spans_us: of empty kernels that were the last in the stream, in their order.
        tail: how many of the last count for nothing, where there are three times as many or more.
    """
    ordered = sorted(spans_us[: len(spans_us) - tail] if len(spans_us) >= 3 * tail else spans_us)
    cut = len(ordered) // 4
    inner = ordered[cut : len(ordered) - cut]
    if inner[-1] - inner[0] > STEP_US:
        inner = [span for span in inner if span >= (inner[0] + inner[-1]) / 2]
    return statistics.fmean(inner)
