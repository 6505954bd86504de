"""Models of L1, L2 and DRAM: the level that serves a launch's sectors.

L1 is set-associative with LRU replacement, with 128-byte lines of four 32-byte sectors that are filled separately.
Stores are written through, and stored sectors are kept half as long as loaded ones. Nsight Compute describes L1TEX this
way; sets, ways, hash and the age of stores are assumptions, and accesses in flight count as hits. L1 is sampled
(`sampling`). L2 is empty at the start, as before each launch in Nsight Compute, and takes every store; repeated requests
hit it as far as the launch's footprint fits. `python -m benchmarks.caches` compares the models with hardware.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kernelmate.backends.base import RunResult
from kernelmate.backends.emulator.types import Array
from kernelmate.records import CacheEstimate, Target

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


def l1_hits(trace: AccessTrace, cache_bytes: int) -> Array:
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


SECTOR_BYTES = 32


@dataclass(frozen=True, slots=True)
class Footprint:
    """Unique bytes of a launch: those that it must read, and those that it must write."""

    loaded: float
    stored: float


def footprint(result: RunResult, loaded: float, stored: float, unique: float) -> Footprint:
    """Returns unique bytes read from memory, and unique bytes that must be written back.

    Stores are attributed first to arrays that the run did not read before writing; all else that was touched was
    loaded.

    Args:
        result: the launch's result.
        loaded: bytes of all loaded sectors.
        stored: bytes of all stored sectors.
        unique: distinct bytes touched.
    """
    only_written = float(sum(data.nbytes for name, data in result.arrays.items() if name not in result.reads))
    unique_stored = min(stored, only_written or unique, unique)
    unique_loaded = min(loaded, unique - (unique_stored if only_written else 0.0))
    return Footprint(unique_loaded, unique_stored)


def read_again(target: Target, unique: float, missed: float, loaded: float) -> float:
    """Returns bytes read from DRAM more than once because L2 cannot hold the launch's footprint."""
    fits = min(1.0, target.l2_bytes / max(unique, 1.0))
    return (1 - fits) * max(missed - loaded, 0.0)


def load_hits(result: RunResult) -> float | None:
    """Returns L1's hit rate of load sectors, from each line's sample; None without a sample or loads.

    A sample of a launch's beginning underrepresents its loops; weighting by the counts corrects that.
    """
    overall = None if result.l1 is None else result.l1.load_hits
    asked = sum(line.global_load_sectors for line in result.lines)
    if overall is None or not asked:
        return overall
    rates = ((line.global_load_sectors, line.l1_load_hit_rate) for line in result.lines)
    return sum(sectors * (overall if rate is None else rate) for sectors, rate in rates) / asked


def estimated(target: Target, result: RunResult) -> CacheEstimate | None:
    """Returns the model's figures for a counted launch; None if L1 could not be sampled."""
    counters, sample = result.counters, result.l1
    if counters is None or sample is None or result.footprint_bytes is None:
        return None
    loads, stores = counters.global_load_sectors or 0, counters.global_store_sectors or 0
    atomics = sum(line.global_atomic_sectors for line in result.lines)
    found = footprint(result, SECTOR_BYTES * loads, SECTOR_BYTES * stores, result.footprint_bytes)
    given = loads * (load_hits(result) or 0.0)
    missed = max(SECTOR_BYTES * (loads - given), found.loaded)
    from_dram = found.loaded + read_again(target, result.footprint_bytes, missed, found.loaded)
    through = missed / SECTOR_BYTES + stores + atomics
    hits = max(through - from_dram / SECTOR_BYTES, 0.0)
    return CacheEstimate(
        l1_bytes=sample.cache_bytes,
        l1_sector_hit_rate=_rate(given + stores * (sample.store_hits or 0.0), loads + stores),
        l1_load_hit_rate=_rate(given, loads),
        l2_sectors=round(through),
        l2_sector_hit_rate=_rate(hits, through),
        dram_bytes_read=round(from_dram),
    )


def _rate(hits: float, asked: float) -> float | None:
    return hits / asked if asked else None
