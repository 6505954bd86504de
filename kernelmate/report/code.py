"""Terminal views of `sass`: SASS and PTX beside their source lines, and differences between two versions' SASS."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernelmate.compiler.code_diff import Change, CodeDiff
from kernelmate.records import Listing, PtxInstruction, SassInstruction, SourcePlace
from kernelmate.report.console import Spans, heading, indented, table, toned
from kernelmate.report.excerpt import SourceLines
from kernelmate.report.versions import change_words
from kernelmate.report.words import byte_words, listed, number, plural, printable

SIDE_BY_SIDE_FROM = 110
"""Terminal width from which SASS is shown beside its PTX instead of below it."""

Span = tuple[str, str]
Line = tuple[Span, ...]
_PEAK = " <- peak"
_PTX_NUMBER = 6
_ADDRESS = 7
_LIVE = 5
_CONTROL = 17
_WAITED = 26
MOST_WAITED = 4
"""Maximum number of instructions named in a dependency."""

CONTROL_HEAD = (
    "before SASS: scoreboards 0 to 5 waited for, one set by its result, one by its reading, y to yield, clocks to stall"
)


@dataclass(frozen=True, slots=True)
class ListingView:
    """The parts of a listing to show.

    Attributes:
        ptx: show PTX.
        sass: show SASS.
        wanted: returns True for lines of the kernel's file to show; None shows all code, also code without a line.
        by_address: order by address, not by source line.
        control: also show scheduling information and dependencies.
        width: terminal width in columns.
    """

    ptx: bool = True
    sass: bool = True
    wanted: Callable[[int], bool] | None = None
    by_address: bool = False
    control: bool = False
    width: int = 80


@dataclass(frozen=True, slots=True)
class CodePiece:
    """Code of one source line; `place` is None for code without a line, `inlined` the call site of inlined code."""

    place: SourcePlace | None
    inlined: tuple[SourcePlace, ...]
    ptx: tuple[PtxInstruction, ...]
    sass: tuple[SassInstruction, ...]


def listing_head(listing: Listing) -> Group:
    """Shows the kernel's name, its code size, and the register peak."""
    name = printable(listing.instance or listing.kernel)
    size = f"{plural(len(listing.sass), 'instruction')}, {byte_words(listing.code_bytes)}"
    spills = {None: "spills unknown", 0: "no spills"}.get(listing.spill_bytes, f"{listing.spill_bytes} B spilled")
    mix = ", ".join(f"{kind} {count}" for kind, count in listing.mix.items())
    return Group(
        heading(name, (listing.arch, "plain")),
        indented(Text(printable(listing.compiler), style="dim")),
        indented(Text(f"{size}; {listing.registers} registers per thread, {spills}")),
        indented(Text(f"right column: live registers; {peak_words(listing)}")),
        indented(Text(f"mix: {mix}")),
    )


def peak_words(listing: Listing) -> str:
    """Formats the register peak: `at most 18 live, first at 0x0730, line 34`."""
    peak = listing.peak
    if peak is None:
        return "live registers unknown"
    first = next(one for one in listing.sass if one.live is not None and one.live.general == peak)
    line = user_line(first, listing)
    where = "" if line is None else f", line {line.line}"
    return f"at most {peak} live, first at 0x{first.address:04x}{where}"


def user_line(instruction: SassInstruction | PtxInstruction, listing: Listing) -> SourcePlace | None:
    """Returns the line of the user's files that an instruction belongs to.

    Inlined code from other files belongs to its caller.
    """
    chain = (*(() if instruction.place is None else (instruction.place,)), *instruction.inlined_at)
    return next((place for place in chain if place.file in listing.files), instruction.place)


def code_view(listing: Listing, sources: SourceLines, shown: ListingView) -> Spans:
    """Shows the code, each piece below its source line."""
    pieces = by_address(listing) if shown.by_address else by_line(listing)
    chosen = [piece for piece in pieces if _wanted(piece, listing, shown)]
    writer = _CodeWriter(listing, sources, shown)
    return Spans([line for piece in chosen for line in writer.piece(piece)])


_Key = tuple[int, str, int, tuple[tuple[str, int], ...]]
"""Sort key of pieces: the file's rank, its name, the line, and the place of inlining."""


def by_line(listing: Listing) -> list[CodePiece]:
    """Returns pieces by file and line, the kernel's file first, code without a line last."""
    homes: dict[_Key, tuple[SourcePlace | None, tuple[SourcePlace, ...]]] = {}
    ptx: dict[_Key, list[PtxInstruction]] = {}
    sass: dict[_Key, list[SassInstruction]] = {}

    def key_of(instruction: PtxInstruction | SassInstruction) -> _Key:
        home = _home(instruction, listing)
        key = _key(*home, listing)
        homes[key] = home
        return key

    for one in listing.ptx:
        ptx.setdefault(key_of(one), []).append(one)
    for other in listing.sass:
        sass.setdefault(key_of(other), []).append(other)
    return [CodePiece(*homes[key], tuple(ptx.get(key, ())), tuple(sass.get(key, ()))) for key in sorted(homes)]


def _home(
    instruction: SassInstruction | PtxInstruction, listing: Listing
) -> tuple[SourcePlace | None, tuple[SourcePlace, ...]]:
    place = user_line(instruction, listing)
    outer = instruction.inlined_at
    if place is None:
        return None, ()
    if place != instruction.place and place in outer:
        outer = outer[outer.index(place) + 1 :]
    return place, outer


def _key(place: SourcePlace | None, inlined: tuple[SourcePlace, ...], listing: Listing) -> _Key:
    if place is None:
        return len(listing.files) + 1, "", 0, ()
    rank = listing.files.index(place.file) if place.file in listing.files else len(listing.files)
    return rank, place.file, place.line, tuple((one.file, one.line) for one in inlined)


def by_address(listing: Listing) -> list[CodePiece]:
    """Returns pieces in address order; a new piece starts where the source line or the function changes."""
    ptx = {one.line: one for one in listing.ptx}
    runs = groupby(listing.sass, lambda one: (_home(one, listing), one.function))
    return [
        CodePiece(*home, tuple(_made_from(sass, ptx)), sass) for (home, _), run in runs for sass in [tuple(run)]
    ]  # fmt: skip


def _made_from(sass: Sequence[SassInstruction], ptx: dict[int, PtxInstruction]) -> Iterator[PtxInstruction]:
    for line in dict.fromkeys(one.ptx_line for one in sass if one.ptx_line is not None):
        if line in ptx:
            yield ptx[line]


def _wanted(piece: CodePiece, listing: Listing, shown: ListingView) -> bool:
    if not (piece.sass and shown.sass) and not (piece.ptx and shown.ptx):
        return False
    if shown.wanted is None:
        return True
    places = (*(() if piece.place is None else (piece.place,)), *piece.inlined)
    return any(place.file == listing.files[0] and shown.wanted(place.line) for place in places)


class _CodeWriter:
    """Renders pieces as lines; marks every instruction at the register peak."""

    def __init__(self, listing: Listing, sources: SourceLines, shown: ListingView) -> None:
        self._listing = listing
        self._sources = sources
        self._shown = shown
        self._peak = listing.peak
        self._ptx = {one.line: one for one in listing.ptx}
        needed = SIDE_BY_SIDE_FROM + (_CONTROL + _WAITED if shown.control else 0)
        self._beside = shown.ptx and shown.sass and shown.width >= needed
        room = shown.width - _PTX_NUMBER - _ADDRESS - _LIVE - len(_PEAK) - 6
        longest = max((len(self._text(one)) for one in listing.ptx), default=0)
        self._ptx_width = min(longest, room * 9 // 20)
        self._sass_width = min(max((len(one.text) for one in listing.sass), default=0), 52)
        self._function = ""
        self._setters = setters(listing.sass) if shown.control else {}
        before = _PTX_NUMBER + 4 + self._ptx_width if self._beside else 10 if shown.ptx else 4
        self._live_at = before + 6 + (_CONTROL if shown.control else 0) + self._sass_width

    def piece(self, piece: CodePiece) -> Iterator[Line]:
        """Yields the source line, then its code."""
        yield from self._head(piece)
        rows = self._rows(piece)
        for ptx, foreign, sass in rows:
            yield from self._row(ptx, foreign, sass)
        yield ()

    def _head(self, piece: CodePiece) -> Iterator[Line]:
        live = [one.live.general for one in piece.sass if one.live is not None]
        live = live if self._shown.sass else []
        most = f" {max(live):>{_LIVE - 1}}" if live else ""
        mark = _PEAK if live and max(live) == self._peak else ""
        if piece.place is None:
            yield (f"{'(no source line)':<{self._live_at}}", "bold"), (most, "bold"), (mark, "bold red")
            return
        place, home = piece.place, self._listing.files[0]
        where = str(place.line) if place.file == home else f"{place.file}:{place.line}"
        text = (self._sources.line(place.file, place.line) or "").strip()
        margin = f"{where:>4} | "
        room = max(self._live_at, self._shown.width - _LIVE - len(_PEAK)) - len(margin)
        text = text if len(text) <= room else f"{text[: room - 4]} ..."
        text = f"{text:<{self._live_at - len(margin)}}" if live else text
        yield (margin, "dim"), (text, "bold"), (most, "bold"), (mark, "bold red")
        if piece.inlined:
            calls = ", in ".join(
                f"line {one.line}" if one.file == home else f"{one.file}:{one.line}" for one in piece.inlined
            )
            yield ((f"     | inlined at {calls}", "dim"),)

    def _rows(self, piece: CodePiece) -> Iterator[tuple[PtxInstruction | None, bool, tuple[SassInstruction, ...]]]:
        """Yields each PTX instruction with its SASS in this piece; the flag is True for PTX of another source line."""
        if self._shown.by_address or not self._shown.ptx:
            previous: int | None = -1
            for one in piece.sass:
                new = one.ptx_line != previous
                previous = one.ptx_line
                ptx = self._ptx.get(one.ptx_line or 0) if new else None
                yield ptx, False, (one,)
            return
        own = {one.line for one in piece.ptx}
        made: dict[int, list[SassInstruction]] = {}
        for one in piece.sass:
            made.setdefault(one.ptx_line or 0, []).append(one)
        order = [(line, False) for line in sorted(own)] + [(line, True) for line in sorted(set(made) - own)]
        for line, foreign in order:
            yield self._ptx.get(line), foreign, tuple(made.get(line, ()))

    def _row(self, ptx: PtxInstruction | None, foreign: bool, sass: Sequence[SassInstruction]) -> Iterator[Line]:
        left: list[str] = []
        if ptx is not None and self._shown.ptx:
            text = self._text(ptx)
            left = [f"{ptx.line:>{_PTX_NUMBER}}  ({text})" if foreign else f"{ptx.line:>{_PTX_NUMBER}}  {text}"]
        right = [line for one in sass for line in self._sass(one)] if self._shown.sass else []
        if not self._beside:
            yield from (((text, "dim"),) for text in left)
            indent = "          " if self._shown.ptx else "    "
            yield from (((indent, ""), *line) for line in right)
            return
        width = _PTX_NUMBER + 2 + self._ptx_width
        left = [part for text in left for part in _folded(text, width)]
        for index in range(max(len(left), len(right))):
            cell = left[index] if index < len(left) else ""
            if index < len(right):
                yield ((f"{cell:<{width}}  ", "dim"), *right[index])
            else:
                yield ((cell, "dim"),)

    def _text(self, ptx: PtxInstruction) -> str:
        """Returns PTX without the prefix that the kernel's mangled name adds to its parameters."""
        return ptx.text.replace(f"{self._listing.symbol}_param_", "param_")

    def _sass(self, one: SassInstruction) -> Iterator[Line]:
        if one.function != self._function:
            if self._function or one.function != self._listing.symbol:
                yield ((f"{one.function}:", "cyan"),)
            self._function = one.function
        yield from (((f"{label}:", "cyan"),) for label in one.labels)
        live = "" if one.live is None else str(one.live.general)
        control, waited = self._control(one)
        at_peak = one.live is not None and one.live.general == self._peak
        yield (
            (f"{one.address:04x}  {control}", "dim"),
            (f"{one.text:<{self._sass_width}}", ""),
            (f" {live:>{_LIVE - 1}}", "bold red" if at_peak else "dim"),
            (_PEAK if at_peak else "", "bold red"),
            (waited, "magenta"),
        )

    def _control(self, one: SassInstruction) -> tuple[str, str]:
        """Returns control information as columns, and the dependencies.

        The dependencies name, for each awaited scoreboard, the instructions that have set it since the previous wait.
        """
        if not self._shown.control or one.control is None:
            return "", ""
        control = one.control
        boards = "".join(str(board) if board in control.waits else "-" for board in range(6))
        sets, reads = ("-" if board is None else str(board) for board in (control.sets, control.reads))
        columns = f"{boards} {sets} {reads} {'y' if control.yields else '-'} {control.stall:>2}  "
        return columns, "".join(f"  waits for {self._setters[one.address, board]}" for board in control.waits
                                if (one.address, board) in self._setters)  # fmt: skip


def setters(sass: Sequence[SassInstruction]) -> dict[tuple[int, int], str]:
    """Returns the instructions that set an awaited scoreboard, by address and scoreboard, such as `LDG.E at 0140`.

    An instruction sets it "before" in address order: at a loop's head the awaited instruction may be below. A
    scoreboard is a counter: a wait covers every instruction that has set it since the previous wait.
    """
    pending: dict[tuple[str, int], list[SassInstruction]] = {}
    waited: set[tuple[str, int]] = set()
    found: dict[tuple[int, int], str] = {}
    for one in sass:
        if one.control is None:
            continue
        for board in one.control.waits:
            key = (one.function, board)
            if key in pending:
                found[one.address, board] = _named(pending[key])
                waited.add(key)
        for taken in (one.control.sets, one.control.reads):
            if taken is not None:
                key = (one.function, taken)
                if key in waited:
                    waited.discard(key)
                    pending[key] = []
                pending.setdefault(key, []).append(one)
    return found


def _named(instructions: Sequence[SassInstruction]) -> str:
    """Formats at most `MOST_WAITED` instructions: `LDG.E at 0140 and 0150`, `S2R at 0010 and LDC at 0020`."""
    by_opcode: dict[str, list[str]] = {}
    for one in instructions[:MOST_WAITED]:
        by_opcode.setdefault(one.opcode, []).append(f"{one.address:04x}")
    rest = len(instructions) - MOST_WAITED
    more = f" and {rest} more" if rest > 0 else ""
    return listed(f"{opcode} at {' and '.join(places)}" for opcode, places in by_opcode.items()) + more


def _folded(text: str, width: int) -> Iterator[str]:
    """Splits a line into pieces of at most this width, after a comma if possible."""
    while len(text) > width:
        cut = text.rfind(", ", _PTX_NUMBER + 2, width)
        cut = width if cut < 0 else cut + 2
        yield text[:cut].rstrip()
        text = " " * (_PTX_NUMBER + 4) + text[cut:].lstrip()
    yield text


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
    place = user_line(one, listing)
    where = "" if place is None else f"line {place.line}"
    live = "" if one.live is None else str(one.live.general)
    return (
        (f"{mark} {one.address:04x}  ", style or "dim"),
        (f"{one.text:<52}", style),
        (f" {live:>4}  {where}", style or "dim"),
    )
