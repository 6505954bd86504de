"""Records of the factors that limit a kernel, and remedies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cause:
    """One thing that costs time or room.

    Attributes:
        code: in kebab case: `uncoalesced`, `bank-conflicts`, `occupancy`, ...
        what: what was seen, with its figures. why: why it costs. remedy: what to do, in one sentence.
        line: in the user's file; None for what belongs to no line.
        share: of the kernel's cost that this line has, by a weight of instructions and memory passes; None without a line.
    """

    code: str
    what: str
    why: str
    remedy: str
    line: int | None = None
    share: float | None = None
