"""Notes reads of registers that differ in every launch, by which a kernel can distinguish launches."""

from __future__ import annotations

import re

WORDS = {
    "gridid": "the number of the launch", "globaltimer": "the time of day", "clock": "the clock", "smid": "which SM it is on",
    "warpid": "which slot of an SM it is on", "envreg": "what the driver left",
}  # fmt: skip
"""Contents of each special register (PTX ISA, Special Registers)."""

_READ = re.compile(r"%(gridid|globaltimer|clock|smid|warpid|envreg)(?:64|_hi|_lo|\d+)?\b")


def read(ptx: str) -> frozenset[str]:
    """The registers of this kind that a PTX text reads."""
    return frozenset(match[1] for match in _READ.finditer(ptx))


def find(ptx: str, baseline_ptx: str | None) -> str | None:
    """A sentence where a version reads some, and its baseline does not.

    What it does with them shows elsewhere, where it does another thing when it is timed; this says where to look.
    """
    new = sorted(read(ptx) - read(baseline_ptx or ""))
    if not new:
        return None
    names = " and ".join(f"%{name} ({WORDS[name]})" for name in new)
    return f"reads {names}, which differs from launch to launch: what it does may differ as well"
