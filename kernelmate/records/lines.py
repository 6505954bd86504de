"""Record of one source line's counters in one launch."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LineCounters:
    """Counters of one line, named as in `Counters`; code that was inlined counts for the line that it was written in.

    Attributes:
        line: in the user's file; None for instructions that belong to no line.
        thread_instructions: PTX instructions over all threads (hardware runs SASS).
        global_bytes_asked: by all three. global_bytes_stored: by stores alone.
        global_atomic_sectors: as L2 gets them. l1_lines: 128-byte lines that global loads and stores look up in L1.
        shared_atomic_wavefronts: passes over the banks by atomics of shared memory.
        barriers: how often blocks came to a barrier here.
        local_sectors: of arrays in local memory; what ptxas spills is not among them.
        footprint_bytes: different bytes of global memory that it touched, in whole sectors; None where lines are too many
            to tell apart.
        l1_load_hit_rate: share of the line's loaded sectors that L1 gives, by a model; None where there is none, or no loads.
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
    shared_atomic_wavefronts: int = 0
    bank_conflicts: int = 0
    divergent_branches: int = 0
    barriers: int = 0
    local_sectors: int = 0
    l1_load_hit_rate: float | None = None
    footprint_bytes: int | None = 0

    @property
    def global_bytes_moved(self) -> int:
        """Bytes of the sectors that loads and stores move; `global_bytes_asked` is what threads wanted of them."""
        return 32 * (self.global_load_sectors + self.global_store_sectors)
