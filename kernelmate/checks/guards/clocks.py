"""Launches that take far longer by the host's clock than by the GPU's: what keeps the GPU's time was written to.

A kernel can write to all memory of its context, where the driver keeps the stamps of events too. The host's clock lies out of
its reach, and is only too slow: it sees the launching besides.
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
