"""Finds launches that take far longer by the host's clock than by the GPU's: its time stamps were overwritten.

A kernel can write to all memory of its context, including the driver's time stamps of events. It cannot change the
host's clock, whose only error is the launch overhead.
"""

from __future__ import annotations

from kernelmate.backends.timed import RepeatedLaunch

TIMES = 5.0
LEAST_US = 100.0
"""Factor, and microseconds per launch, by which the host's time must exceed the GPU's for a finding.

Launch overhead stays below both.
"""


def find(repeats: RepeatedLaunch) -> str | None:
    """Returns a sentence if the two clocks disagree, else None."""
    if repeats.clocks_us is None:
        return None
    gpu, host = repeats.clocks_us
    if host <= TIMES * max(gpu, 0.0) + LEAST_US:
        return None
    return (
        f"a launch takes {host:.3g} us by the host's clock and {gpu:.3g} us by the GPU's: its time stamps are not what "
        "they should be"
    )
