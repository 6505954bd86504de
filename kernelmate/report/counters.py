"""Views of a launch's counters: executed SASS by opcode, hardware counters beside emulated ones, and counters by source line."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.table import Table
from rich.text import Text

from kernelmate.measure.weights import line_cost
from kernelmate.records import CacheEstimate, Counters, HardwareProfile, InstructionMix, LineCounters
from kernelmate.report.console import table, toned
from kernelmate.report.excerpt import SourceLines
from kernelmate.report.words import (
    BYTE_COUNTERS,
    COUNTER_WORDS,
    SECTOR_BYTES,
    byte_words,
    global_bytes,
    number,
    percent,
    printable,
)

MOST_NAMED = 5
MOST_OPCODES = 16


def mix_rows(counters: Counters | None) -> list[tuple[str, str]]:
    """Returns names and values of the most frequent instructions of a launch, or the reason that they are unknown."""
    if counters is None or (counters.instruction_mix is None and counters.instruction_mix_unknown is None):
        return []
    mix = counters.instruction_mix
    if mix is None:
        return [("instruction mix", f"unknown: {counters.instruction_mix_unknown}")]
    most = ", ".join(f"{one.opcode} {percent(one.warps / mix.warps)}" for one in mix.opcodes[:MOST_NAMED])
    return [("warp instructions", number(mix.warps)), ("most of them", most)]


def mix_table(mix: InstructionMix) -> Table:
    """Shows the most executed opcodes, each with the average number of active threads per warp."""
    made = table("opcode", "class", "warp instructions", "share", "active", right=(2, 3, 4))
    for one in mix.opcodes[:MOST_OPCODES]:
        active = f"{one.threads / one.warps:.3g}" if one.warps else ""
        made.add_row(one.opcode, one.kind, number(one.warps), percent(one.warps / mix.warps), active)
    rest = mix.opcodes[MOST_OPCODES:]
    if rest:
        warps = sum(one.warps for one in rest)
        made.add_row(f"{len(rest)} more", "", number(warps), percent(warps / mix.warps), "")
    return made


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


MOST_LINES = 12
LEAST_SHARE = 0.005


def line_table(lines: Sequence[LineCounters], file: str, sources: SourceLines) -> Table:
    """Shows the most expensive lines, with their text and the counters that any of them has."""
    total = sum(map(line_cost, lines)) or 1.0
    dearest = sorted(lines, key=line_cost, reverse=True)[:MOST_LINES]
    shown = [line for line in dearest if line_cost(line) >= LEAST_SHARE * total]
    columns = [column for column in _COLUMNS if any(column[1](line) for line in shown)]
    rows = [
        (
            "" if line.line is None else str(line.line),
            percent(line_cost(line) / total),
            *(show(line) for _, show in columns),
        )
        for line in shown
    ]
    heads = ("line", "share", *(head for head, _ in columns))
    made = table(*heads, "source", right=range(len(heads)))
    for index, (column, head) in enumerate(zip(made.columns, heads, strict=False)):
        # In a narrow terminal the source text is shortened, not the figures.
        column.min_width = max(len(head), *(len(row[index]) for row in rows), 0)
    made.columns[-1].min_width = 10
    for line, row in zip(shown, rows, strict=True):
        text = printable(sources.line(file, line.line) or "", keep="").strip()
        made.add_row(*row, Text(text, style="dim", no_wrap=True, overflow="ellipsis"))
    if len(lines) > len(shown):
        rest = sum(map(line_cost, lines)) - sum(map(line_cost, shown))
        made.add_row("", percent(rest / total), *("" for _ in columns), f"{len(lines) - len(shown)} more lines")
    return made


def _short(value: int) -> str:
    """Formats a figure in at most five characters, empty for zero: `8.91M`."""
    if not value:
        return ""
    for unit, name in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "K")):
        if value >= unit:
            return f"{value / unit:.3g}{name}"
    return str(value)


def _instructions(line: LineCounters) -> str:
    return _short(line.thread_instructions)


def _sectors(line: LineCounters) -> str:
    requests = line.global_load_requests + line.global_store_requests
    sectors = line.global_load_sectors + line.global_store_sectors
    return f"{sectors / requests:.1f}" if requests else ""


def _moved(line: LineCounters) -> str:
    return _short(line.global_bytes_moved)


def _used(line: LineCounters) -> str:
    # Lanes that read the same bytes request more than is moved.
    return percent(min(line.global_bytes_asked / line.global_bytes_moved, 1.0)) if line.global_bytes_moved else ""


def _cached(line: LineCounters) -> str:
    return "" if line.l1_load_hit_rate is None else percent(line.l1_load_hit_rate)


def _passes(line: LineCounters) -> str:
    return _short(line.shared_load_wavefronts + line.shared_store_wavefronts + line.shared_atomic_wavefronts)


_COLUMNS = (
    ("PTX", _instructions), ("moved", _moved), ("unique", lambda line: _short(line.footprint_bytes or 0)), ("sect/rq", _sectors), ("used", _used), ("~L1", _cached),
    ("atomics", lambda line: _short(line.global_atomic_requests)), ("passes", _passes),
    ("conflict", lambda line: _short(line.bank_conflicts)), ("diverge", lambda line: _short(line.divergent_branches)),
    ("barriers", lambda line: _short(line.barriers)), ("local", lambda line: _short(line.local_sectors)),
)  # fmt: skip
"""Column heads and cells.

`PTX` counts instructions over threads, `moved` and `unique` are bytes, `passes` are shared-memory wavefronts, `~L1` is
the modelled hit rate of load sectors.
"""
