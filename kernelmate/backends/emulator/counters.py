"""Memory requests of a launch, counted as the hardware counts them.

A request is one memory instruction of one warp with at least one active lane; its sectors are the distinct 32-byte
pieces of global memory that its lanes touch. A shared-memory wavefront is one pass over the 32 banks of 4 bytes: lanes
with different words of one bank need further ones. Accesses of 8 and 16 bytes are served by half and quarter warps; two
neighbouring parts are combined if every lane has the address of its neighbour, or of its next but one (observed on an
H100).

An access to shared memory of a cluster counts for each block that a warp addresses, with the lanes that address it, like
their access to shared memory of their own; the network between the SMs is not counted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from kernelmate.backends.emulator.lanes import Lanes
from kernelmate.backends.emulator.machine import MemoryInstruction
from kernelmate.backends.emulator.spaces import PART_MASK, parts_of
from kernelmate.backends.emulator.types import Array
from kernelmate.records import Counters

_SECTOR_SHIFT = np.uint64(5)
_LINE = 128
_LINE_SHIFT = np.uint64(7)
_MOST_ATOMIC_SECTORS = 1 << 16
_BANKS = 32


class BranchCounter:
    """Conditional branches that a warp's lanes disagree about, by the step that branches."""

    def __init__(self, lanes: Lanes) -> None:
        self._warps = lanes.warps
        self.divergent: Counter[int] = Counter()

    def split(self, step: int, taken: Array, staying: Array) -> None:
        """Records a branch that splits lanes into two groups."""
        here = np.zeros(self._warps, bool)
        there = np.zeros(self._warps, bool)
        here[taken >> 5] = True
        there[staying >> 5] = True
        self.divergent[step] += int(np.count_nonzero(here & there))


@dataclass(slots=True)
class SiteCount:
    """Counts of one memory instruction.

    Attributes:
        action: `load`, `store` or `atomic`.
        size: bytes that one lane accesses.
        requests: warps that executed it; for shared memory the groups of lanes that are served together.
        passes: sectors of global memory, wavefronts of shared memory.
        lines: 128-byte lines of global memory.
    """

    action: str
    size: int
    requests: int = 0
    passes: int = 0
    lanes: int = 0
    lines: int = 0

    def add(self, requests: int, passes: int, lanes: int, lines: int = 0) -> None:
        """Add to all figures."""
        self.requests += requests
        self.passes += passes
        self.lanes += lanes
        self.lines += lines


class _Sites:
    """Counts of memory instructions, by number."""

    def __init__(self) -> None:
        self.sites: dict[int, SiteCount] = {}

    def at(self, number: int, action: str, size: int) -> SiteCount:
        """Returns the counts of one instruction."""
        found = self.sites.get(number)
        if found is None:
            found = self.sites[number] = SiteCount(action, size)
        return found

    def total(self, figure: str, *actions: str) -> int:
        """Returns the sum of a counter over instructions with one of the actions."""
        return sum(getattr(site, figure) for site in self.sites.values() if site.action in actions)


@dataclass(frozen=True, slots=True)
class _Alike:
    """Equal access patterns of several warps.

    Attributes:
        lanes: lane numbers, ascending.
        offsets: byte offsets of the first warp.
        warps: number of warps.
    """

    lanes: Array
    offsets: Array
    warps: int


def _alike(lanes: Array, offsets: Array, grain: int) -> _Alike | None:
    """Returns the common pattern if the same lanes of every warp access memory alike; else None.

    From warp to warp the pattern may move by multiples of `grain` bytes.
    """
    first = lanes[: np.searchsorted(lanes, ((int(lanes[0]) >> 5) + 1) << 5)]
    each = len(first)
    if not each or len(lanes) % each:
        return None
    theirs = lanes.reshape(-1, each)
    warp, last = theirs[:, 0] >> 5, theirs[:, -1] >> 5
    if (warp != last).any() or (warp[1:] <= warp[:-1]).any() or ((theirs ^ first) & 31).any():
        return None
    rows = offsets.reshape(-1, each)
    starts = rows[:, :1]
    pattern = rows[0]
    if ((starts ^ starts[0]) & starts.dtype.type(grain - 1)).any() or ((rows - starts) != pattern - pattern[0]).any():
        return None
    return _Alike(first & 31, pattern.astype(np.int64), len(theirs))


class GlobalCounter(_Sites):
    """Requests, sectors and bytes of global memory.

    Attributes:
        atomic_sectors: sector numbers that atomics touched, as long as they are few.
    """

    def __init__(self) -> None:
        super().__init__()
        self.atomic_sectors: set[int] = set()

    @property
    def bytes_asked(self) -> int:
        """Returns the bytes that threads requested."""
        return sum(site.size * site.lanes for site in self.sites.values())

    def access(self, site: MemoryInstruction, lanes: Array, offsets: Array, values: Array | None) -> None:
        """Counts one instruction of some lanes; `offsets` are addresses."""
        del values
        count = self.at(site.number, site.action, site.size)
        if site.action == "atomic" and len(self.atomic_sectors) < _MOST_ATOMIC_SECTORS:
            self.atomic_sectors.update(np.unique(offsets >> _SECTOR_SHIFT).tolist())
        alike = _alike(lanes, offsets, _LINE)
        if alike is not None:
            warps, sectors, lines = alike.warps, *(len(np.unique(alike.offsets >> shift)) for shift in (5, 7))
            count.add(warps, warps * sectors, len(lanes), warps * lines)
            return
        warp = lanes >> 5
        new_warp = warp[1:] != warp[:-1]
        sectors = _distinct(offsets >> _SECTOR_SHIFT, warp, new_warp)
        lines = _distinct(offsets >> _LINE_SHIFT, warp, new_warp)
        count.add(1 + int(np.count_nonzero(new_warp)), sectors, len(lanes), lines)


class LocalCounter(_Sites):
    """Requests and sectors of local memory, which is interleaved by lanes, four bytes each.

    CUDA C++ Programming Guide, Device Memory Accesses, Local Memory: "accesses are therefore fully coalesced as long as
    all threads in a warp access the same relative address".

    Args:
        passed: instructions that only pass call arguments, which are registers in hardware.
    """

    def __init__(self, passed: frozenset[int]) -> None:
        super().__init__()
        self._passed = passed

    def access(self, site: MemoryInstruction, lanes: Array, offsets: Array, values: Array | None) -> None:
        """Counts one instruction of some lanes; `offsets` are in each thread's frame."""
        del values
        if site.number in self._passed:
            return
        warp = lanes >> 5
        places = ((offsets.astype(np.int64) >> 2) << 2) | ((lanes.astype(np.int64) & 31) >> 3)
        new_warp = warp[1:] != warp[:-1]
        sectors = _distinct(places, warp, new_warp) * rows_of(site.size)
        self.at(site.number, site.action, site.size).add(1 + int(np.count_nonzero(new_warp)), sectors, len(lanes))


def rows_of(size: int) -> int:
    """Returns the rows of four bytes per lane that an access to local memory takes."""
    return max(1, size // 4)


def _distinct(places: Array, warp: Array, new_warp: Array) -> int:
    """Returns the number of different addresses that each warp touches, summed over all warps."""
    # Along a warp addresses mostly rise: then counting the changes is enough.
    rising = new_warp | (places[1:] >= places[:-1])
    if not rising.all():
        places = places[np.lexsort((places, warp))]
    return 1 + int(np.count_nonzero(new_warp | (places[1:] != places[:-1])))


class SharedCounter(_Sites):
    """Wavefronts and bank conflicts of shared memory."""

    def __init__(self) -> None:
        super().__init__()
        self._patterns: dict[tuple[int, bytes, bytes], tuple[int, int]] = {}

    def access(self, site: MemoryInstruction, lanes: Array, offsets: Array, values: Array | None) -> None:
        """Counts one instruction of some lanes; `offsets` are in the block's window."""
        del values
        size = site.size if site.served is None else site.served
        if not size:
            return
        if int(offsets.max()) <= PART_MASK:
            self._count(site, size, lanes, offsets)
            return
        parts = parts_of(offsets)
        for part in np.unique(parts):
            chosen = parts == part
            self._count(site, size, lanes[chosen], offsets[chosen] & offsets.dtype.type(PART_MASK))

    def _count(self, site: MemoryInstruction, size: int, lanes: Array, offsets: Array) -> None:
        alike = _alike(lanes, offsets, 4) if size >= 4 else None
        if alike is None:
            passes, groups = _accessed(size, lanes, offsets.astype(np.int64))
        else:
            # Shifting a pattern by whole words rotates the banks and changes no conflict.
            pattern = alike.offsets - alike.offsets.min() // 4 * 4
            key = (size, alike.lanes.tobytes(), pattern.tobytes())
            if key not in self._patterns:
                self._patterns[key] = _accessed(size, alike.lanes, pattern)
            passes, groups = (alike.warps * figure for figure in self._patterns[key])
        self.at(site.number, site.action, site.size).add(groups, passes, len(lanes))


def _accessed(size: int, lanes: Array, offsets: Array) -> tuple[int, int]:
    """Returns the wavefronts of an access, and the number without conflicts."""
    wide = max(1, size // 4)
    # Half warps for 8 bytes, quarter warps for 16: the lanes that are served in one pass over the banks.
    parts = (lanes >> 5) * wide + (((lanes & 31) * wide) >> 5)
    words = offsets >> 2
    if wide > 1:
        parts -= (parts & 1) & _together(wide, lanes, offsets)
        parts = np.repeat(parts, wide)
        words = (words[:, None] + np.arange(wide)).ravel()
    return _passes(parts, words)


def _together(wide: int, lanes: Array, offsets: Array) -> Array:
    """Returns 1 for lanes whose part of the warp is served in one wavefront with the neighbouring part, else 0."""
    warps, row = np.unique(lanes >> 5, return_inverse=True)
    wanted = np.full((len(warps), 32), -1, np.int64)
    wanted[row, lanes & 31] = offsets
    pairs = np.zeros((len(warps), wide // 2), bool)
    for step in (1, 2):
        other = wanted[:, np.arange(32) ^ step]
        alike = (wanted < 0) | (other < 0) | (wanted == other)
        pairs |= alike.reshape(len(warps), wide // 2, -1).all(axis=2)
    found: Array = pairs[row, ((lanes & 31) * wide) >> 6].astype(np.int64)
    return found


def _passes(parts: Array, words: Array) -> tuple[int, int]:
    """Returns the wavefronts of all parts of warps that are served separately, and the number of these parts."""
    keys = np.sort((parts << 34) | words)
    keys = keys[np.append(True, keys[1:] != keys[:-1])]
    part, word = keys >> 34, keys & ((1 << 34) - 1)
    bank_keys = np.sort((part << 5) | (word & (_BANKS - 1)))
    first = np.ones(len(bank_keys), bool)
    first[1:] = bank_keys[1:] != bank_keys[:-1]
    starts = np.flatnonzero(first)
    depth = np.diff(np.append(starts, len(bank_keys)))
    owner = bank_keys[starts] >> 5
    new_owner = np.ones(len(owner), bool)
    new_owner[1:] = owner[1:] != owner[:-1]
    owners = np.flatnonzero(new_owner)
    return int(np.maximum.reduceat(depth, owners).sum()), len(owners)


def as_record(
    memory: GlobalCounter,
    shared: SharedCounter,
    branches: BranchCounter,
    local: LocalCounter,
    footprint_bytes: int,
    barriers: int,
) -> Counters:
    """Returns the counters of a launch as the verdict's record.

    Instructions are None, because hardware runs SASS and only PTX was counted. Local sectors are those of PTX, which
    has no spills.
    """
    return Counters(
        source="emulated",
        global_load_requests=memory.total("requests", "load"),
        global_load_sectors=memory.total("passes", "load"),
        global_store_requests=memory.total("requests", "store"),
        global_store_sectors=memory.total("passes", "store"),
        global_atomic_requests=memory.total("requests", "atomic"),
        global_bytes_asked=memory.bytes_asked,
        shared_load_wavefronts=shared.total("passes", "load"),
        shared_store_wavefronts=shared.total("passes", "store"),
        bank_conflicts=sum(site.passes - site.requests for site in shared.sites.values()),
        local_sectors=local.total("passes", "load", "store", "atomic"),
        divergent_branches=branches.divergent.total(),
        thread_instructions=None,
        global_atomic_sectors=memory.total("passes", "atomic"),
        footprint_bytes=footprint_bytes,
        barriers=barriers,
    )
