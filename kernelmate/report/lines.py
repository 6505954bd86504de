"""Counters by source line for the terminal: what `bench --lines` shows, the lines that cost most first."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from kernelmate.records import LineCounters
from kernelmate.report.console import table
from kernelmate.report.excerpt import SourceLines
from kernelmate.report.words import byte_words, number, percent, printable

MOST_LINES = 12
_TEXT_WIDTH = 44
_ISSUED_PER_CLOCK = 4 * 32
"""Thread instructions that the four schedulers of an SM start in a clock."""


def line_cost(line: LineCounters) -> float:
    """Clocks that one SM would need for the line, its parts one after the other: a weight to sort by, not a time.

    Instructions go through the schedulers, 128-byte lines of global memory and passes over the shared banks one per clock.
    """
    passes = line.shared_load_wavefronts + line.shared_store_wavefronts + line.shared_atomic_wavefronts
    memory = line.l1_lines + line.global_atomic_sectors + passes
    return line.thread_instructions / _ISSUED_PER_CLOCK + memory


def line_table(lines: Sequence[LineCounters], file: str, sources: SourceLines) -> Table:
    """The lines that cost most, with their text and the counters that any of them has."""
    shown = sorted(lines, key=line_cost, reverse=True)[:MOST_LINES]
    total = sum(map(line_cost, lines)) or 1.0
    columns = [column for column in _COLUMNS if any(column[1](line) for line in shown)]
    made = table("line", "share", *(column[0] for column in columns), "source", right=range(2 + len(columns)))
    made.columns[-1].no_wrap = True
    made.columns[-1].overflow = "ellipsis"
    for line in shown:
        text = sources.line(file, line.line) or ""
        made.add_row(
            "" if line.line is None else str(line.line),
            percent(line_cost(line) / total),
            *(column[1](line) for column in columns),
            Text(printable(text, keep="").strip()[:_TEXT_WIDTH], style="dim"),
        )
    if len(lines) > len(shown):
        rest = sum(map(line_cost, lines)) - sum(map(line_cost, shown))
        made.add_row("", percent(rest / total), *("" for _ in columns), f"{len(lines) - len(shown)} more lines")
    return made


def _instructions(line: LineCounters) -> str:
    return number(line.thread_instructions) if line.thread_instructions else ""


def _requests(line: LineCounters) -> str:
    requests = line.global_load_requests + line.global_store_requests
    return number(requests) if requests else ""


def _sectors(line: LineCounters) -> str:
    requests = line.global_load_requests + line.global_store_requests
    sectors = line.global_load_sectors + line.global_store_sectors
    return f"{sectors / requests:.1f}" if requests else ""


def _moved(line: LineCounters) -> str:
    return byte_words(line.global_bytes_moved) if line.global_bytes_moved else ""


def _used(line: LineCounters) -> str:
    # Lanes that want the same bytes ask for more than is moved.
    return percent(min(line.global_bytes_asked / line.global_bytes_moved, 1.0)) if line.global_bytes_moved else ""


def _wavefronts(line: LineCounters) -> str:
    passes = line.shared_load_wavefronts + line.shared_store_wavefronts + line.shared_atomic_wavefronts
    return number(passes) if passes else ""


def _conflicts(line: LineCounters) -> str:
    return number(line.bank_conflicts) if line.bank_conflicts else ""


def _atomics(line: LineCounters) -> str:
    return number(line.global_atomic_requests) if line.global_atomic_requests else ""


def _divergent(line: LineCounters) -> str:
    return number(line.divergent_branches) if line.divergent_branches else ""


def _barriers(line: LineCounters) -> str:
    return number(line.barriers) if line.barriers else ""


_COLUMNS = (
    ("PTX instr.", _instructions), ("requests", _requests), ("sectors/req.", _sectors), ("moved", _moved), ("used", _used),
    ("atomics", _atomics), ("shared passes", _wavefronts), ("conflicts", _conflicts), ("divergent", _divergent),
    ("barriers", _barriers),
)  # fmt: skip
