"""The constants that predictions are made of, each with where it comes from.

"Guide" is NVIDIA's CUDA C++ Programming Guide 13.0, "Tuning" its tuning guides. "Fitted" figures are chosen so that 194
launches of the examples and of their variants come out as timed on an H100 SXM (CUDA graph replay, L2 warm): 95 of 100 then
lie within a factor of 1.25, half of them within 1.08. On other GPUs they are assumptions, as is what says "Assumption": no
document states it. `statistics.MODEL_FACTOR` is what all of them together are allowed to be wrong by.
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

LAUNCH_FLOOR = Constant(1.0, "us", "Fitted: a launch that does nothing")
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
DRAM_EFFICIENCY = Constant(0.88, "of peak", "Fitted: the share of peak that a streaming kernel reaches")
DRAM_LATENCY = Constant(550, "clocks", "Fitted: a load that misses L2")
L2_LATENCY = Constant(310, "clocks", "Fitted: a load that hits L2")
L1_LATENCY = Constant(90, "clocks", "Fitted: a load that hits L1, with its waiting in line")
SHARED_LATENCY = Constant(20, "clocks", "Fitted: a load of shared memory without conflicts")
SHUFFLE_LATENCY = Constant(35, "clocks", "Fitted: a shuffle or another exchange within a warp")
ISSUE_LATENCY = Constant(3.4, "clocks", "Fitted: mean gap between two instructions of one warp")
BARRIER_LATENCY = Constant(20, "clocks", "Fitted: one barrier of a block, however small")
BARRIER_PER_WARP = Constant(4.4, "clocks", "Fitted: what each warp of the block adds to a barrier")
BLOCK_RATE = Constant(1.0, "blocks/clock", "Fitted: blocks that the whole GPU can start, whatever they do")
INT_SURVIVORS = Constant(
    0.33, "of PTX instructions", "Fitted: integer instructions left for the integer pipe after ptxas"
)
BLOCK_START = Constant(700, "clocks", "Fitted: from a block's slot becoming free to its successor's first instruction")
ATOMIC_RATE = Constant(2.7, "lanes/clock", "Fitted: atomics on few addresses, whole GPU; each lane of a request counts")
ATOMIC_LATENCY = Constant(400, "clocks", "Assumption: an atomic whose old value is used")
DIVERGENCE_COST = Constant(2.5, "clocks", "Fitted: extra issue slots of one warp whose threads part")
L1_REUSE = Constant(
    0.5, "of repeated reads", "Assumption: what L1 catches of them even where all that lives exceeds it"
)
L2_KEEPS = Constant(
    0.5, "of L2", "Assumption: a footprint up to this share of L2 stays there from one launch to the next"
)
OVERLAP_NORM = Constant(
    2.5, "", "Fitted: where blocks follow each other, parts of the GPU overlap; their times are joined by this norm"
)
ALONE_NORM = Constant(
    2.1, "", "Fitted: likewise where all blocks start together, so that their phases meet the same part at once"
)


L2_BYTES_PER_SM: Mapping[tuple[int, int], Constant] = {
    (7, 5): Constant(16, "bytes/clock/SM", "Assumption"),
    (8, 0): Constant(47, "bytes/clock/SM", "A100 whitepaper, L2 cache: 5120 bytes/clock over 108 SMs"),
    (8, 6): Constant(20, "bytes/clock/SM", "Assumption"),
    (8, 7): Constant(20, "bytes/clock/SM", "Assumption"),
    (8, 9): Constant(16, "bytes/clock/SM", "Assumption"),
    (9, 0): Constant(27, "bytes/clock/SM", "Fitted"),
    (10, 0): Constant(40, "bytes/clock/SM", "Assumption"),
    (12, 0): Constant(16, "bytes/clock/SM", "Assumption"),
}
"""What L2 gives, spread over the SMs; an architecture that is not listed takes the nearest lower one's."""

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
"""L1 and shared memory together; what resident blocks take as shared memory is not there as a cache."""


def for_capability(table: Mapping[tuple[int, int], Constant], capability: tuple[int, int]) -> float:
    """The table's value for an architecture, or for the nearest lower one (the lowest where there is none lower)."""
    known = sorted(table)
    at = max((entry for entry in known if entry <= capability), default=known[0])
    return table[at].value
