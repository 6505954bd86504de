"""Records of the factors that limit a kernel, and remedies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """One performance limiter of a kernel, with its remedy.

    Attributes:
        code: in kebab case: `uncoalesced`, `bank-conflicts`, `occupancy`, ...
        what: the observation, with its figures.
        why: the reason that it costs time or memory.
        remedy: the advice, in one sentence.
        line: line of the user's file; None for a cause that no single line has.
        share: fraction of the kernel's cost on this line, weighted by instructions and memory passes; None without a
            line.
        estimated_us: estimate of the time that the cause takes in microseconds; None without a line or without a time.
    """

    code: str
    what: str
    why: str
    remedy: str
    line: int | None = None
    share: float | None = None
    estimated_us: float | None = None
