"""Finds launches that take far longer by the host's clock than by the GPU's, because the GPU's time stamps were overwritten.

A kernel can write to all memory of its context, including the driver's time stamps of events. The host's clock is out
of its reach; its only error is the additional time of the launch.
"""

from __future__ import annotations

from kernelmate.backends.timed import RepeatedLaunch

TIMES = 5.0
LEAST_US = 100.0
"""How many times, and by how many microseconds for each launch, the host must be later: no launching takes that long."""


def find(repeats: RepeatedLaunch) -> str | None:
    """A sentence where the two clocks do not agree."""
    if repeats.clocks_us is None:
        return None
    gpu, host = repeats.clocks_us
    if host <= TIMES * max(gpu, 0.0) + LEAST_US:
        return None
    return (
        f"a launch takes {host:.3g} us by the host's clock and {gpu:.3g} us by the GPU's: its time stamps are not what "
        "they should be"
    )
