"""Model of L1, L2 and DRAM: the level that serves a launch's sectors.

L1 is sampled (`sampling`). L2 is empty at the start, as before each launch in Nsight Compute, and takes every store;
repeated requests hit it as far as the launch's footprint fits.
"""

from __future__ import annotations

from dataclasses import dataclass

from kernelmate.backends.base import RunResult
from kernelmate.records import CacheEstimate, Target

SECTOR_BYTES = 32


@dataclass(frozen=True, slots=True)
class Footprint:
    """Unique bytes of a launch: those that it must read, and those that it must write."""

    loaded: float
    stored: float


def footprint(result: RunResult, loaded: float, stored: float, unique: float) -> Footprint:
    """Return unique bytes read from memory, and unique bytes that must be written back.

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
    """Return L1's hit rate of load sectors, from each line's sample; None without a sample or loads.

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
