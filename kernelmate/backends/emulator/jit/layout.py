"""Memory layout of a launch's state for native code: slots of 64 bits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Slot(IntEnum):
    """Slots of the table passed to native code; names ending in _AT hold addresses."""

    PLACES_AT = 0
    """int32 per lane: its position, see `Places`."""
    WARPS_AT = 1
    """int64 per warp to run."""
    WARPS = 2
    REGISTERS_AT = 3
    """Address of each register's array."""
    UNIFORMS_AT = 4
    """Values that are equal in all lanes."""
    CACHES_AT = 5
    """Per group of global accesses: the buffer it met last, as the address of its `Field` table."""
    BUFFERS_AT = 6
    """Per address slot a `Field` table."""
    BUFFERS = 7
    SHARED_AT = 8
    SHARED_STRIDE = 9
    SHARED_LIMIT = 10
    LOCAL_AT = 11
    LOCAL_STRIDE = 12
    LOCAL_LIMIT = 13
    ENTERED_AT = 14
    """Per piece: threads that entered it."""
    DIVERGED_AT = 15
    """Per piece: warps that disagreed about its branch."""
    SITES_AT = 16
    """Per step: its counters, see `Count`."""
    CHANGES = 17
    """Incremented by stores."""
    TURN = 18
    """Backward branches that a warp may take before it yields."""
    STEPS_AT = 19
    """Per warp: instructions issued in this batch."""
    WARPS_PER_BLOCK = 20
    GRANULE_SHIFT = 21
    STAMPS_AT = 22
    """Per warp: the stamp of its first lane, see `Stamp`."""
    SHARED_WRITERS_AT = 23
    """Per granule of every block's shared memory: stamp of the last writer."""
    SHARED_READERS_AT = 24
    LOCAL_WRITTEN_AT = 25
    """Per byte of local memory: whether it was written."""
    SUSPECT = 26
    """Non-zero if anything suspicious was seen that the exact checks must examine."""
    LANE_STEPS_AT = 27
    """int64 per lane: instructions that it took in this batch."""


class Field(IntEnum):
    """One buffer of global memory."""

    START = 0
    """Address of the array's first byte."""
    SIZE = 1
    DATA_AT = 2
    WRITABLE = 3
    NOTED = 4
    """Non-zero as long as it is unknown whether the kernel reads the buffer before writing."""
    STORED_AT = 5
    TOUCHED_AT = 6
    LEAD = 7
    WRITERS_AT = 8
    """Per granule: stamp of the last writer."""
    READERS_AT = 9


class Count(IntEnum):
    """Counts of one memory instruction."""

    REQUESTS = 0
    """Warps that executed it; for shared memory, the groups of lanes that are served together."""
    PASSES = 1
    """Sectors of global memory, wavefronts of shared memory."""
    LANES = 2
    LINES = 3
    """128-byte lines of global memory."""


SLOT_BYTES = 8
FIELD_BYTES = 8 * len(Field)
COUNT_BYTES = 8 * len(Count)


@dataclass(frozen=True, slots=True)
class Checks:
    """The checks: memory in granules of 1 << shift bytes, and steps of index arithmetic that must not wrap."""

    shared_shift: int
    global_shift: int
    indices: frozenset[int]


class Places:
    """Positions of a lane in a kernel of `pieces` pieces: the start of a piece, or one of the attributes plus the piece's number."""

    def __init__(self, pieces: int) -> None:
        self.pieces = pieces
        self.ended = pieces
        """Plus the piece: its steps are done, and the scheduler executes the instruction that ends it."""
        self.again = 2 * pieces
        """Plus the piece: none of its steps is done, because one of its accesses is wrong."""
        self.turned = 3 * pieces
        """Plus the piece: its steps are done, and its backward branch has been taken for a very long time."""
        self.partly = 4 * pieces
        """Plus the piece: none of its steps is done, because it begins with an exchange that only part of the warp has reached."""


class Stamp:
    """Stamp of an access to a granule, 64 bits: thread in its block, barriers its block had passed, its block + 1.

    The highest bit marks a reader's stamp if several threads have read since the barrier, and a writer's if it was
    atomic. All bits set: several blocks.
    """

    THREAD = (1 << 10) - 1
    TIME_SHIFT = 10
    MOST_TIMES = (1 << 21) - 1
    TIME = MOST_TIMES << TIME_SHIFT
    BLOCK_SHIFT = 31
    MOST_BLOCKS = (1 << 32) - 2
    BLOCK = ((1 << 32) - 1) << BLOCK_SHIFT
    MANY = 1 << 63


NOWHERE = -1
"""Position of a lane that does not run."""
