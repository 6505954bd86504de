"""Terminal view of `bench --lines`: counters by source line, the most expensive lines first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from kernelmate.measure.weights import line_cost
from kernelmate.records import LineCounters
from kernelmate.report.console import table
from kernelmate.report.excerpt import SourceLines
from kernelmate.report.words import percent, printable

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
