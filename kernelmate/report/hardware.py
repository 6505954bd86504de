"""Hardware counters of a launch, beside its emulated counters."""

from __future__ import annotations

from collections.abc import Callable

from rich.table import Table

from kernelmate.records import CacheEstimate, Counters, HardwareProfile
from kernelmate.report.console import table, toned
from kernelmate.report.mix import mix_rows
from kernelmate.report.words import (
    BYTE_COUNTERS,
    COUNTER_WORDS,
    SECTOR_BYTES,
    byte_words,
    global_bytes,
    number,
    percent,
)


def hardware_table(hardware: HardwareProfile, counters: Counters | None) -> Table:
    """Shows hardware counters of one launch beside its emulated counters; hardware-only counters come last."""
    made = table("counted per launch", "emulated", f"hardware ({hardware.tool})", right=(1, 2))

    def show(name: str, words: Callable[[int], str], ours: int | None, theirs: int | None) -> None:
        if ours is not None or theirs is not None:
            made.add_row(name, *("-" if value is None else words(value) for value in (ours, theirs)))

    show("global memory moved", byte_words, global_bytes(counters), global_bytes(hardware.counters))
    for name, words in COUNTER_WORDS.items():
        ours = None if counters is None else getattr(counters, name)
        show(words, byte_words if name in BYTE_COUNTERS else number, ours, getattr(hardware.counters, name))
    modelled = {
        HARDWARE_NAMES.get(name): value for name, value in cache_rows(None if counters is None else counters.caches)
    }
    for name, value in hardware_rows(hardware):
        made.add_row(name, modelled.get(name, "-"), value)
    for name, value in mix_rows(counters):
        made.add_row(name, toned(value), "-")
    return made


HARDWARE_NAMES = {
    "L1 hit rate, modelled": "L1 hits", "L2 hit rate, modelled": "L2 hits", "read from DRAM, modelled": "read from DRAM",
}  # fmt: skip
"""Names of hardware counters by the rows of the cache model that they correspond to."""


def cache_rows(caches: CacheEstimate | None) -> list[tuple[str, str]]:
    """Returns estimates of the cache model, name and value, labelled as estimates."""
    if caches is None:
        return []
    rates = (("L1 hit rate, modelled", caches.l1_sector_hit_rate), ("L2 hit rate, modelled", caches.l2_sector_hit_rate))
    rows = [(name, f"~{percent(rate)}") for name, rate in rates if rate is not None]
    rows.append(("through L2, modelled", f"~{byte_words(SECTOR_BYTES * caches.l2_sectors)}"))
    return [*rows, ("read from DRAM, modelled", f"~{byte_words(caches.dram_bytes_read)}")]


def hardware_rows(hardware: HardwareProfile) -> list[tuple[str, str]]:
    """Returns hardware-only counters of a launch, name and value, without missing ones."""
    rows: list[tuple[str, str | None]] = [
        ("read from DRAM", _known(hardware.dram_read_bytes, byte_words)),
        ("written to DRAM", _known(hardware.dram_written_bytes, byte_words)),
        ("L1 hits", _known(hardware.l1_hit_rate, percent)),
        ("L2 hits", _known(hardware.l2_hit_rate, percent)),
        ("achieved occupancy", _known(hardware.achieved_occupancy, percent)),
        ("SM busy", _known(hardware.sm_busy, percent)),
        ("DRAM busy", _known(hardware.dram_busy, percent)),
        ("duration, caches empty", _known(hardware.duration_us, lambda us: f"{number(us)} us")),
    ]
    return [(name, value) for name, value in rows if value is not None]


def _known(value: float | None, words: Callable[[float], str]) -> str | None:
    return None if value is None else words(value)
