"""Memory traffic at each level: a small model of L1, L2 and DRAM over counted sectors and footprints.

The emulator counts L1 sector requests and unique bytes touched, and samples L1's hits. Without a sample, the L1 hit
rate of repeated reads is estimated from the resident working set relative to L1's size.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelmate.backends.base import RunResult
from kernelmate.backends.emulator.caches import footprint, load_hits, read_again
from kernelmate.measure import constants
from kernelmate.records import LaunchShape, Target


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of one launch at each level.

    Attributes:
        l1: through L1, loads and stores, in whole sectors.
        l2: through L2.
        dram_cold: DRAM traffic with a cold L2.
        dram_warm: DRAM traffic directly after an equal launch.
        unique: distinct bytes touched.
        l1_hits: L1 hit rate of load sectors.
        l2_hits: hit rate of the remaining sectors in a warm L2.
    """

    l1: float
    l2: float
    dram_cold: float
    dram_warm: float
    unique: float
    l1_hits: float
    l2_hits: float


def traffic(target: Target, shape: LaunchShape, result: RunResult, blocks_per_sm: int, shared_bytes: int) -> Traffic:
    """Computes the bytes that a launch moves at each level.

    Args:
        target: the GPU.
        shape: the launch.
        result: an emulated run with counters.
        blocks_per_sm: blocks resident on one SM.
        shared_bytes: shared memory of one block, static and dynamic.
    """
    counters = result.counters
    loaded = constants.SECTOR_BYTES * float((counters and counters.global_load_sectors) or 0)
    stored = constants.SECTOR_BYTES * float((counters and counters.global_store_sectors) or 0)
    unique = float(result.footprint_bytes if result.footprint_bytes is not None else loaded + stored)
    found = footprint(result, loaded, stored, unique)
    missed = _missed(target, shape, result, loaded, found.loaded, blocks_per_sm, shared_bytes)
    again = read_again(target, unique, missed, found.loaded)
    cold = found.loaded + found.stored + again
    kept = constants.L2_KEEPS.value * target.l2_bytes
    stays = min(1.0, max(0.0, 2 - unique / kept)) if kept else 0.0
    return Traffic(
        l1=loaded + stored,
        l2=missed + stored,
        dram_cold=cold,
        dram_warm=(1 - stays) * cold,
        unique=unique,
        l1_hits=1 - missed / loaded if loaded else 0.0,
        l2_hits=1 - min(1.0, (1 - stays) * (found.loaded + again) / missed) if missed else 1.0,
    )


def _missed(
    target: Target, shape: LaunchShape, result: RunResult, loaded: float, unique_loaded: float, blocks_per_sm: int,
    shared_bytes: int,
) -> float:  # fmt: skip
    """Returns loaded bytes that miss L1, from the sample of an SM's accesses if there is one."""
    given = load_hits(result)
    if given is not None:
        return max(loaded * (1 - given), unique_loaded)
    resident = max(1, min(blocks_per_sm, -(-shape.blocks // target.sms)))
    unified = constants.for_capability(constants.UNIFIED_L1_BYTES, target.capability)
    cache = max(unified - resident * shared_bytes, unified / 16)
    alive = max(min(unique_loaded, resident * loaded / max(shape.blocks, 1)), 1.0)
    caught = constants.L1_REUSE.value + (1 - constants.L1_REUSE.value) * min(1.0, cache / alive)
    return loaded - caught * max(loaded - unique_loaded, 0.0)
