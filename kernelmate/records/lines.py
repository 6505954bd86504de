"""Records of one source line's counters during one launch, and of the factors that limit a kernel, with remedies."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LineCounters:
    """Counters of one source line, named as in `Counters`; inlined code counts for the line that it was written on.

    Attributes:
        line: line of the user's file; None for instructions without a source line.
        thread_instructions: PTX instructions over all threads (hardware runs SASS).
        global_bytes_asked: bytes requested by loads, stores and atomics.
        global_bytes_stored: bytes requested by stores.
        global_atomic_sectors: sectors of atomics as L2 receives them.
        l1_lines: 128-byte cache lines that global loads and stores look up in L1.
        shared_atomic_requests: shared-memory atomics of warps.
        shared_atomic_wavefronts: wavefronts (passes over the banks) of shared-memory atomics.
        atomic_contention: lanes of a warp that update its most frequent address, on average over the line's atomics;
            sampled on one SM. None without atomics, or without a sample.
        barriers: barrier executions, counted per block.
        local_sectors: sectors of arrays in local memory, without ptxas's spills.
        footprint_bytes: distinct global memory touched, in whole sectors; None if the kernel has too many lines to
            track.
        l1_load_hit_rate: L1 hit rate of the line's load sectors, by the cache model; None without a model or loads.
    """

    line: int | None
    thread_instructions: int = 0
    global_load_requests: int = 0
    global_load_sectors: int = 0
    global_store_requests: int = 0
    global_store_sectors: int = 0
    global_atomic_requests: int = 0
    global_atomic_sectors: int = 0
    global_bytes_asked: int = 0
    global_bytes_stored: int = 0
    l1_lines: int = 0
    shared_load_wavefronts: int = 0
    shared_store_wavefronts: int = 0
    shared_atomic_requests: int = 0
    shared_atomic_wavefronts: int = 0
    bank_conflicts: int = 0
    divergent_branches: int = 0
    barriers: int = 0
    local_sectors: int = 0
    l1_load_hit_rate: float | None = None
    atomic_contention: float | None = None
    footprint_bytes: int | None = 0

    @property
    def atomic_repeats(self) -> int:
        """Returns the updates that wait for another lane of their warp at the same address."""
        requests = self.shared_atomic_requests + self.global_atomic_requests
        return round(max((self.atomic_contention or 1.0) - 1.0, 0.0) * requests)

    @property
    def global_bytes_moved(self) -> int:
        """Returns the bytes of all sectors that loads and stores move.

        `global_bytes_asked` counts the bytes that threads requested.
        """
        return 32 * (self.global_load_sectors + self.global_store_sectors)


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
