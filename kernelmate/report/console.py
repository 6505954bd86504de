"""Terminal console that is safe with any text, and building blocks of all views.

Colour never carries information alone, and is never black or white, so that light and dark terminals stay readable.
KernelMate's own text is ASCII; only ruled lines depend on the terminal's encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from rich.box import Box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from kernelmate.records import Diagnostic, Finding
from kernelmate.report.diff import Diff
from kernelmate.report.excerpt import SourceLines
from kernelmate.report.words import Tone, printable

STYLES: Mapping[Tone, str] = {"good": "green", "bad": "bold red", "doubt": "magenta", "plain": ""}
SEVERITY_TONES: Mapping[str, Tone] = {"error": "bad", "warning": "doubt", "note": "plain"}
INDENT = 2
MOST_MESSAGES = 20
"""Largest number of a verdict's diagnostics or findings to show; `--json` contains all of them."""


class _RuledHead(Box):
    """A table style with only a line below the head, in ASCII if the terminal's encoding requires it."""

    def substitute(self, options: ConsoleOptions, safe: bool = True) -> Box:
        return _ASCII_HEAD if options.ascii_only else self


_ASCII_HEAD = Box("    \n    \n -- \n    \n    \n    \n    \n    \n", ascii=True)
_HEAD = _RuledHead("    \n    \n ── \n    \n    \n    \n    \n    \n")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raises the error again for the caller, which knows the exit code."""
        raise


def make_console(file: IO[str], *, color: bool | None = None, width: int | None = None) -> Console:
    """Creates a console that prints markup in text literally and uses colours only on terminals.

    Args:
        file: the stream.
        color: False for none; None leaves it to the terminal, `NO_COLOR` and `FORCE_COLOR`.
        width: columns; None for the terminal's width, or 80 without a terminal.
    """
    return _Console(
        file=file, no_color=True if color is False else None, width=width, markup=False, emoji=False, highlight=False
    )


@dataclass(frozen=True, slots=True)
class Verbatim:
    """Text to be copied: `show` writes it without wrapping."""

    text: str

    def __rich__(self) -> Text:
        """Returns the text, for use within another view."""
        return Text(printable(self.text))


@dataclass(frozen=True, slots=True)
class Spans:
    """Lines of code, each a sequence of (text, style) pairs; `show` writes them without wrapping."""

    lines: Sequence[Sequence[tuple[str, str]]]

    def __rich__(self) -> Text:
        """Returns the text without styles, for use within another view."""
        return Text("\n".join("".join(text for text, _ in line) for line in self.lines))


def show(console: Console, *parts: RenderableType) -> None:
    """Prints parts one after another; diffs are never wrapped."""
    for part in parts:
        if isinstance(part, Diff):
            _write(console, part.lines())
        elif isinstance(part, Spans):
            segments = (
                Segment(printable(text), console.get_style(style) if style else None)
                for line in part.lines
                for text, style in (*line, ("\n", ""))
            )
            console.print(Segments(segments), soft_wrap=True, end="")
        elif isinstance(part, Verbatim):
            _write(console, [(printable(line, keep="\t"), "") for line in part.text.rstrip("\n").split("\n")])
        else:
            console.print(part)


def show_lines(console: Console, *texts: Text) -> None:
    """Prints each text as one line, however wide."""
    for text in texts:
        console.print(text, soft_wrap=True)


def _write(console: Console, styled: Sequence[tuple[str, str]]) -> None:
    """Writes styled lines directly, because rich's `Text` would expand tabs and wrap at the terminal's width."""
    segments = [Segment(line + "\n", console.get_style(style) if style else None) for line, style in styled]
    console.print(Segments(segments), soft_wrap=True, end="")


def toned(text: str, tone: Tone = "plain") -> Text:
    """Returns text in the colour of a tone."""
    return Text(printable(text), style=STYLES[tone])


def heading(text: str, standing: tuple[str, Tone] | None = None) -> Text:
    """Returns a title, followed by the decision in its colour."""
    line = Text(printable(text), style="bold")
    if standing is not None:
        word, tone = standing
        line.append("  ")
        line.append(word, style=f"not bold {STYLES[tone]}")
    return line


def indented(item: RenderableType) -> Padding:
    """Indents by two columns."""
    return Padding(item, (0, 0, 0, INDENT), expand=False)


def table(*heads: str, right: Iterable[int] = ()) -> Table:
    """Creates an empty table with a ruled head.

    Args:
        heads: column titles.
        right: indices of right-aligned columns.
    """
    rightwards = set(right)
    made = Table(box=_HEAD, show_edge=False, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for index, head in enumerate(heads):
        made.add_column(head, justify="right" if index in rightwards else "left", overflow="fold")
    return made


def pairs(rows: Sequence[tuple[str, Text | str]]) -> Table:
    """Creates a table of names and values."""
    grid = Table.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in rows:
        grid.add_row(Text(name, style="dim"), value if isinstance(value, Text) else Text(printable(value)))
    return grid


def lines(texts: Iterable[str], bullet: str = "- ") -> Group:
    """Creates one line per text, with a hanging indent."""
    grids = []
    for text in texts:
        grid = Table.grid(padding=0)
        grid.add_column(no_wrap=True)
        grid.add_column(overflow="fold")
        grid.add_row(bullet, Text(printable(text)))
        grids.append(grid)
    return Group(*grids)


def place(file: str | None, line: int | None, column: int | None) -> str:
    """Formats a place, as far as known: `softmax.cu:12:5`."""
    return ":".join(str(part) for part in (file, line, column) if part is not None)


@dataclass(frozen=True, slots=True)
class Message:
    """A diagnostic or a finding: place, severity, text, and the source line with a caret.

    Attributes:
        severity: `error`, `warning`, `note`.
        code: a finding's code or the compiler's; may be empty.
    """

    severity: str
    code: str
    message: str
    file: str | None
    line: int | None
    column: int | None
    sources: SourceLines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yields the message, then its excerpt at the width of the console."""
        where = place(self.file, self.line, self.column)
        first = Text(printable(where) + ": " if where else "")
        first.append(self.severity, style=STYLES[SEVERITY_TONES.get(self.severity, "plain")])
        if self.code:
            first.append(f" {printable(self.code)}", style="bold")
        first.append(": ")
        first.append(printable(self.message))
        yield first
        excerpt = self.sources.excerpt(self.file, self.line, self.column, options.max_width)
        for text, style in zip(excerpt, ("", STYLES[SEVERITY_TONES.get(self.severity, "plain")]), strict=False):
            yield Text(text, style=style, no_wrap=True, overflow="crop")


def diagnostics_view(diagnostics: Sequence[Diagnostic], sources: SourceLines) -> Group:
    """Shows the compiler's messages, each once."""
    messages = [
        Message(item.severity, item.code or "", item.message, item.file, item.line, item.column, sources)
        for item in dict.fromkeys(diagnostics)
    ]
    return _first_of(messages, "diagnostic")


def findings_view(findings: Sequence[Finding], sources: SourceLines) -> Group:
    """Shows the findings, with buffer and threads if known."""
    messages = [
        Message(item.severity, item.code, _with_threads(item), item.file, item.line, item.column, sources)
        for item in findings
    ]
    return _first_of(messages, "finding")


def _with_threads(finding: Finding) -> str:
    if not finding.threads or "thread" in finding.message:
        return finding.message
    named = ", ".join(map(str, finding.threads[:4])) + (", ..." if len(finding.threads) > 4 else "")
    return f"{finding.message} (thread{'s' if len(finding.threads) > 1 else ''} {named})"


def _first_of(messages: Sequence[Message], word: str) -> Group:
    shown: list[RenderableType] = list(messages[:MOST_MESSAGES])
    if len(messages) > MOST_MESSAGES:
        rest = len(messages) - MOST_MESSAGES
        shown.append(Text(f"... and {rest} more {word}{'s' if rest > 1 else ''}; --json lists them all", style="dim"))
    return Group(*shown)
