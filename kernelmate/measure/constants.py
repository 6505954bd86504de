"""Constants of the performance model that documents state, each with its source; `fit.json` has the fitted ones.

"Guide" is NVIDIA's CUDA C++ Programming Guide 13.0, "Tuning" its tuning guides. Entries marked "Assumption" have no
published source. `statistics.MODEL_FACTOR` bounds the error of all of them together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Constant:
    """A figure, its unit, and its source."""

    value: float
    unit: str
    source: str


SECTOR_BYTES = 32
WARP = 32

ISSUE_SLOTS = Constant(
    4, "warp instructions/clock/SM", "Guide, Compute Capabilities: four warp schedulers per SM, 7.x to 12.x"
)
SHARED_WAVEFRONTS = Constant(1, "wavefronts/clock/SM", "Guide, Shared Memory: 32 banks of 32 bits per clock per SM")
L1_BYTES = Constant(128, "bytes/clock/SM", "Tuning, Unified Shared Memory/L1: one 128-byte line per clock")
SFU_LANES = Constant(
    16, "results/clock/SM", "Guide, Throughput of Native Arithmetic Instructions: rcp, rsqrt, ex2, lg2, sin, cos"
)
INT_LANES = Constant(
    64, "results/clock/SM", "Guide, Throughput of Native Arithmetic Instructions: 32-bit integer add and logic"
)
SHUFFLE_LANES = Constant(32, "results/clock/SM", "Guide, Throughput of Native Arithmetic Instructions: warp shuffle")
ATOMIC_LATENCY = Constant(400, "clocks", "Assumption: an atomic whose old value is used")
L1_REUSE = Constant(
    0.5, "of repeated reads", "Assumption: what L1 catches of them even where all that lives exceeds it"
)
L2_KEEPS = Constant(
    0.5, "of L2", "Assumption: a footprint up to this share of L2 stays there from one launch to the next"
)


L2_BYTES_PER_SM: Mapping[tuple[int, int], Constant] = {
    (7, 5): Constant(16, "bytes/clock/SM", "Assumption"),
    (8, 0): Constant(47, "bytes/clock/SM", "A100 whitepaper, L2 cache: 5120 bytes/clock over 108 SMs"),
    (8, 6): Constant(20, "bytes/clock/SM", "Assumption"),
    (8, 7): Constant(20, "bytes/clock/SM", "Assumption"),
    (8, 9): Constant(16, "bytes/clock/SM", "Assumption"),
    (9, 0): Constant(27, "bytes/clock/SM", "Assumption; the fit goes before it"),
    (10, 0): Constant(40, "bytes/clock/SM", "Assumption"),
    (12, 0): Constant(16, "bytes/clock/SM", "Assumption"),
}
"""L2 bandwidth per SM, used relative to the GPU of the fit.

An architecture that is not listed uses the nearest lower one's.
"""

UNIFIED_L1_BYTES: Mapping[tuple[int, int], Constant] = {
    (7, 5): Constant(96 * 1024, "bytes/SM", "Guide, Technical Specifications per Compute Capability"),
    (8, 0): Constant(192 * 1024, "bytes/SM", "Guide, Technical Specifications per Compute Capability"),
    (8, 6): Constant(128 * 1024, "bytes/SM", "Guide, Technical Specifications per Compute Capability"),
    (8, 7): Constant(192 * 1024, "bytes/SM", "Guide, Technical Specifications per Compute Capability"),
    (8, 9): Constant(128 * 1024, "bytes/SM", "Guide, Technical Specifications per Compute Capability"),
    (9, 0): Constant(256 * 1024, "bytes/SM", "Guide, Technical Specifications per Compute Capability"),
    (10, 0): Constant(256 * 1024, "bytes/SM", "Guide, Technical Specifications per Compute Capability"),
    (12, 0): Constant(128 * 1024, "bytes/SM", "Guide, Technical Specifications per Compute Capability"),
}
"""Combined capacity of L1 and shared memory; the shared memory of resident blocks is not available as cache."""


def for_capability(table: Mapping[tuple[int, int], Constant], capability: tuple[int, int]) -> float:
    """Returns the table's value for an architecture, or for the nearest lower one (the lowest if none is lower)."""
    known = sorted(table)
    at = max((entry for entry in known if entry <= capability), default=known[0])
    return table[at].value
