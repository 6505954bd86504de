"""Model of one SM's L1 cache: the hits of a trace of accesses.

The cache is set-associative with LRU replacement, with 128-byte lines of four 32-byte sectors that are filled
separately. Stores are written through, and stored sectors are kept half as long as loaded ones. Nsight Compute
describes L1TEX this way; sets, ways, hash and the age of stores are assumptions, and accesses in flight count as hits.
`python -m benchmarks.caches` compares the model with hardware.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelmate.backends.emulator.types import Array

LINE_BYTES = 128
_SETS = 64
_SECTORS = 4
_BITS = (1 << np.arange(_SECTORS)).astype(np.uint8)
_SECTORS_IN = np.array([bin(mask).count("1") for mask in range(1 << _SECTORS)], np.uint8)


@dataclass(frozen=True, slots=True)
class AccessTrace:
    """Accesses in the order in which an SM makes them.

    Attributes:
        lines: numbers of 128-byte lines.
        sectors: bits of the requested sectors of each.
        stores: True for stores.
    """

    lines: Array
    sectors: Array
    stores: Array


def hits(trace: AccessTrace, cache_bytes: int) -> Array:
    """Returns, for each access, the number of its sectors that are in the cache."""
    wanted = _SECTORS_IN[trace.sectors]
    if not len(trace.lines):
        return wanted
    ways = max(cache_bytes // LINE_BYTES // _SETS, 1)
    sets = _set_of(trace.lines)
    order = np.argsort(sets, kind="stable")
    runs = _Runs(sets[order], trace.lines[order], trace.sectors[order], trace.stores[order])
    missing = _missing(runs, ways)
    missed = np.zeros(len(order), np.uint8)
    missed[order] = runs.missed(missing)
    found: Array = wanted - missed
    return found


def _set_of(lines: Array) -> Array:
    """Returns the set of a line: its number's bits folded, so that power-of-two strides use all sets."""
    folded: Array = lines ^ (lines >> 6) ^ (lines >> 12) ^ (lines >> 18)
    sets: Array = folded & (_SETS - 1)
    return sets


class _Runs:
    """Accesses ordered by set, with consecutive ones to one line combined.

    Nothing is replaced within such a run, so only the first access to a sector can miss.
    """

    def __init__(self, sets: Array, lines: Array, sectors: Array, stores: Array) -> None:
        new = np.ones(len(lines), bool)
        new[1:] = (lines[1:] != lines[:-1]) | (sets[1:] != sets[:-1])
        self._starts = np.flatnonzero(new)
        self._run = np.cumsum(new) - 1
        self._wanted = sectors
        self.sets = sets[self._starts]
        self.lines = lines[self._starts]
        self.sectors = np.bitwise_or.reduceat(sectors, self._starts)
        self.stored = np.logical_and.reduceat(stores, self._starts)

    def missed(self, missing: Array) -> Array:
        """Returns the missed sectors of each access from those of each run."""
        place = np.arange(len(self._wanted))
        missed = np.zeros(len(place), np.uint8)
        for bit in _BITS:
            first = np.minimum.reduceat(np.where(self._wanted & bit, place, len(place)), self._starts)
            missed[first[(missing & bit) != 0]] += 1
        return missed


def _missing(runs: _Runs, ways: int) -> Array:
    """Returns the sectors that are missing when a run begins. All sets advance together, one run of each at a time."""
    tags = np.full((_SETS, ways), -1, np.int64)
    valid = np.zeros((_SETS, ways), np.uint8)
    used = np.zeros((_SETS, ways), np.int64)
    found = np.empty(len(runs.lines), np.uint8)
    sizes = np.bincount(runs.sets, minlength=_SETS)
    begins = np.cumsum(sizes) - sizes
    # The fullest sets come first, so that sets with remaining runs are always a slice.
    fullest = np.argsort(-sizes, kind="stable")
    sizes, begins = sizes[fullest], begins[fullest]
    for turn in range(int(sizes[0])):
        left = int(np.searchsorted(-sizes, -turn, side="left"))
        at = begins[:left] + turn
        row = np.arange(left)
        same = tags[:left] == runs.lines[at][:, None]
        there = same.any(axis=1)
        way = np.where(there, same.argmax(axis=1), used[:left].argmin(axis=1))
        held = np.where(there, valid[row, way], 0)
        wanted = runs.sectors[at]
        found[at] = wanted & ~held
        tags[row, way] = runs.lines[at]
        valid[row, way] = held | wanted
        used[row, way] = np.where(runs.stored[at], np.maximum(used[row, way] * there, turn + 1 - ways // 2), turn + 1)
    return found
