"""Terminal view of `sass --diff`: differences between two versions' SASS."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from kernelmate.compiler.code_diff import Change, CodeDiff
from kernelmate.records import Listing, SassInstruction
from kernelmate.report.code import Line, home_place
from kernelmate.report.console import Spans, heading, indented, table, toned
from kernelmate.report.versions import change_words
from kernelmate.report.words import byte_words, number, printable

CONTEXT = 3
"""Instructions shown before and after a change."""


def diff_view(diff: CodeDiff) -> list[RenderableType]:
    """Shows totals before and after, then every change with its context."""
    parts: list[RenderableType] = [heading(f"{_name(diff.old)} -> {_name(diff.new)}", (diff.new.arch, "plain"))]
    if diff.old.compiler != diff.new.compiler:
        parts += ["", indented(Text(f"old: {diff.old.compiler}\nnew: {diff.new.compiler}", style="dim"))]
    parts += ["", indented(_totals(diff)), ""]
    if diff.same:
        said = "The code is the same; registers and addresses may have other names."
        parts.append(indented(toned(said, "good")))
        return parts
    changed = [change for change in diff.changes if change.op != "equal"]
    gone = sum(change.old[1] - change.old[0] for change in changed)
    come = sum(change.new[1] - change.new[0] for change in changed)
    parts.append(indented(Text(f"{gone} instructions gone, {come} come; registers and addresses set aside")))
    parts += ["", Spans(list(_hunks(diff)))]
    return parts


def _name(listing: Listing) -> str:
    return f"{listing.files[0]}::{listing.instance or listing.kernel}"


def _totals(diff: CodeDiff) -> Table:
    """Shows resources and instructions by class; classes absent from both are left out."""
    made = table("", "old", "new", "change", right=(1, 2, 3))

    def row(name: str, old: int | None, new: int | None, *, in_bytes: bool = False) -> None:
        words = byte_words if in_bytes else number
        cells = ("unknown" if value is None else words(value) for value in (old, new))
        style = "" if old != new else "dim"
        made.add_row(*(Text(printable(cell), style=style) for cell in (name, *cells, change_words(old, new))))

    old, new = diff.old, diff.new
    row("registers per thread", old.registers, new.registers)
    row("most live registers", old.peak, new.peak)
    row("spills per thread", old.spill_bytes, new.spill_bytes, in_bytes=True)
    row("code", old.code_bytes, new.code_bytes, in_bytes=True)
    row("instructions", len(old.sass), len(new.sass))
    for kind, before, after in diff.mix:
        row(f"  {kind}", before, after)
    return made


def _hunks(diff: CodeDiff) -> Iterator[Line]:
    """Yields changes with `CONTEXT` equal instructions around each."""
    changes = diff.changes
    for index, change in enumerate(changes):
        if change.op == "equal":
            yield from _between(diff, change, first=index == 0, last=index == len(changes) - 1)
            continue
        yield from (_line("-", diff.old, one, "red") for one in diff.old.sass[slice(*change.old)])
        yield from (_line("+", diff.new, one, "green") for one in diff.new.sass[slice(*change.new)])


def _between(diff: CodeDiff, change: Change, *, first: bool, last: bool) -> Iterator[Line]:
    same = diff.new.sass[slice(*change.new)]
    head = 0 if first else CONTEXT
    tail = 0 if last else CONTEXT
    if len(same) > head + tail:
        yield from (_line(" ", diff.new, one, "") for one in same[:head])
        yield ((f"   ... {len(same) - head - tail} the same", "dim"),)
        same = same[len(same) - tail :]
    yield from (_line(" ", diff.new, one, "") for one in same)


def _line(mark: str, listing: Listing, one: SassInstruction, style: str) -> Line:
    place = home_place(one, listing)
    where = "" if place is None else f"line {place.line}"
    live = "" if one.live is None else str(one.live.general)
    return (
        (f"{mark} {one.address:04x}  ", style or "dim"),
        (f"{one.text:<52}", style),
        (f" {live:>4}  {where}", style or "dim"),
    )
