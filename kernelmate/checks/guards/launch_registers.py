"""Reports reads of special registers whose values differ between launches, so that a kernel can distinguish them."""

from __future__ import annotations

import re

WORDS = {
    "gridid": "the number of the launch", "globaltimer": "the time of day", "clock": "the clock", "smid": "which SM it is on",
    "warpid": "which slot of an SM it is on", "envreg": "what the driver left",
}  # fmt: skip
"""Meaning of each special register (PTX ISA, Special Registers)."""

_READ = re.compile(r"%(gridid|globaltimer|clock|smid|warpid|envreg)(?:64|_hi|_lo|\d+)?\b")


def read(ptx: str) -> frozenset[str]:
    """Returns the registers of this kind that a PTX text reads."""
    return frozenset(match[1] for match in _READ.finditer(ptx))


def find(ptx: str, baseline_ptx: str | None) -> str | None:
    """Returns a sentence if a version reads such registers and its baseline does not, else None.

    Other guards detect their misuse, for instance different work when timed; this note identifies the registers.
    """
    new = sorted(read(ptx) - read(baseline_ptx or ""))
    if not new:
        return None
    names = " and ".join(f"%{name} ({WORDS[name]})" for name in new)
    return f"reads {names}, which differs from launch to launch: its results may differ as well"
