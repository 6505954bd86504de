"""Python string literals: positions of decoded characters, and replacement of the value."""

from __future__ import annotations

import ast
import re
import warnings
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from kernelmate.records import Anchor
from kernelmate.source.tokens import line_starts

_ADJACENT = re.compile(
    r"""\s+|\#[^\n]*|\\\n
      | (?P<prefix>[A-Za-z]{0,2})(?P<quote>\"\"\"|\'\'\'|"|')
        (?P<body>(?:\\[\s\S]|(?!(?P=quote))[^\\])*)(?P=quote)""",
    re.VERBOSE,
)
_ESCAPE = re.compile(r"\\(?:\n|N\{[^}]*\}|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8}|[0-7]{1,3}|[\s\S])")
_PLAIN_END = re.compile(r"[\\\n]")


@dataclass(frozen=True, slots=True)
class LiteralPiece:
    """One of the adjacent literals that form a string; offsets are into the file's text.

    `start` and `end` enclose the text between the quotes.
    """

    prefix: str
    quote: str
    start: int
    end: int

    @property
    def raw(self) -> bool:
        """Returns True for a raw string, in which backslashes are literal."""
        return "r" in self.prefix.lower()


@dataclass(frozen=True, slots=True)
class TextRun:
    """Decoded text `[unit, unit + length)` at `[file, file + width)` of the file.

    For an escape, `width` differs from `length`.
    """

    unit: int
    length: int
    file: int
    width: int
    piece: int


@dataclass(frozen=True, slots=True)
class Literal:
    """A string literal of a file: its extent (all adjacent pieces), its value, and the mapping between them."""

    start: int
    end: int
    value: str
    pieces: tuple[LiteralPiece, ...]
    runs: tuple[TextRun, ...]


def read_literal(text: str, start: int, end: int, value: str) -> Literal | None:
    """Maps the literal at `text[start:end]`, whose value is known; None if its spelling is not supported."""
    pieces = _pieces(text, start, end)
    runs: list[TextRun] = []
    decoded: list[str] = []
    position = 0
    for number, piece in enumerate(pieces):
        index = piece.start
        while index < piece.end:
            chunk, width = _next(text, index, piece)
            runs.append(TextRun(position, len(chunk), index, width, number))
            decoded.append(chunk)
            position += len(chunk)
            index += width
    if "".join(decoded) != value:
        return None
    return Literal(start, end, value, tuple(pieces), tuple(runs))


def _pieces(text: str, start: int, end: int) -> list[LiteralPiece]:
    """Returns the adjacent literals between two offsets; none if there is anything else between them."""
    pieces = []
    index = start
    while index < end:
        match = _ADJACENT.match(text, index, end)
        if match is None:
            return []
        if match.group("quote"):
            pieces.append(
                LiteralPiece(match.group("prefix"), match.group("quote"), match.start("body"), match.end("body"))
            )
        index = match.end()
    return pieces


def _next(text: str, index: int, piece: LiteralPiece) -> tuple[str, int]:
    """Returns the next run of decoded characters, and its length in the file."""
    if text[index] == "\n":
        return "\n", 1
    if piece.raw or text[index] != "\\":
        stop = text.find("\n", index, piece.end) if piece.raw else _plain_end(text, index, piece.end)
        end = stop if stop >= 0 else piece.end
        return text[index:end], end - index
    match = _ESCAPE.match(text, index, piece.end)
    if match is None:
        return text[index], 1
    return _decode(match.group()), len(match.group())


def _plain_end(text: str, start: int, end: int) -> int:
    match = _PLAIN_END.search(text, start, end)
    return match.start() if match else -1


def _decode(escape: str) -> str:
    if escape == "\\\n":
        return ""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            value = ast.literal_eval(f'"{escape}"')
    except (SyntaxError, ValueError):
        return escape
    return value if isinstance(value, str) else escape


def anchors_of(text: str, literal: Literal) -> tuple[Anchor, ...]:
    """Returns anchors that map every decoded character to the file: one wherever the mapping changes."""
    starts = line_starts(text)
    line, column = 1, 1
    found: list[Anchor] = []
    for run in literal.runs:
        place = _place(starts, run.file)
        if run.length and (not found or _predicted(found[-1], line, column) != place):
            found.append(Anchor(line, column, *place))
        ends_line = run.length == 1 and literal.value[run.unit] == "\n"
        line, column = (line + 1, 1) if ends_line else (line, column + run.length)
    if not found:
        found.append(Anchor(1, 1, *_place(starts, literal.pieces[0].start if literal.pieces else literal.start)))
    return tuple(found)


def _place(starts: Sequence[int], offset: int) -> tuple[int, int]:
    row = bisect_right(starts, offset) - 1
    return row + 1, offset - starts[row] + 1


def _predicted(anchor: Anchor, line: int, column: int) -> tuple[int, int]:
    """Returns the position that `Unit.locate` would give after this anchor."""
    if line != anchor.unit_line:
        return anchor.file_line + line - anchor.unit_line, column
    return anchor.file_line, anchor.file_column + column - anchor.unit_column


# --------------------------------------------------------------------------------------------------- writing


def replace_literal(text: str, literal: Literal, value: str) -> str:
    """Returns the file's text with the literal changed so that its value is `value`.

    Only changed parts are rewritten, in the style of their piece; if that is impossible (a raw string cannot contain
    its own quotes), the whole literal is replaced.
    """
    edited = _edited(text, literal, value)
    if edited is not None:
        return edited
    return text[: literal.start] + spelled(value) + text[literal.end :]


def spelled(value: str) -> str:
    """Returns a literal with this value: raw and triple-quoted if possible, else with escapes."""
    for quote in ('"""', "'''"):
        if _fits_raw(value, quote) and not value.endswith((quote[0], "\\")):
            return f"r{quote}{value}{quote}"
    return '"""' + _escaped(value, '"""') + '"""'


def _edited(text: str, literal: Literal, value: str) -> str | None:
    result, position = [], 0
    for start, end, new in changes(literal.value, value):
        place = _file_span(literal, start, end)
        if place is None:
            return None
        first, last, piece = place
        written = _encoded(new, piece)
        if written is None:
            return None
        result.append(text[position:first] + written)
        position = last
    return "".join(result) + text[position:]


def _encoded(new: str, piece: LiteralPiece) -> str | None:
    if not piece.raw:
        return _escaped(new, piece.quote)
    if len(piece.quote) == 1 and "\n" in new:
        return None
    return new if _fits_raw(new, piece.quote) and piece.quote[0] not in new[-1:] and new[-1:] != "\\" else None


def _fits_raw(value: str, quote: str) -> bool:
    if "\r" in value or "\0" in value:
        return False
    return quote[0] not in value if len(quote) == 1 else quote not in value


def _escaped(value: str, quote: str) -> str:
    value = value.replace("\\", "\\\\").replace("\r", "\\r").replace("\0", "\\x00")
    if len(quote) == 1:
        return value.replace("\n", "\\n").replace(quote, f"\\{quote}")
    value = value.replace(quote, "\\" + "\\".join(quote))
    return value[:-1] + f"\\{quote[0]}" if value.endswith(quote[0]) else value


def _file_span(literal: Literal, start: int, end: int) -> tuple[int, int, LiteralPiece] | None:
    """Returns the position in the file of decoded text `[start, end)` if it lies within one piece."""
    first = _file_offset(literal, start, opening=True)
    last = _file_offset(literal, end, opening=False) if end > start else first
    if first is None or last is None or first[1] != last[1] or last[0] < first[0]:
        return None
    return first[0], last[0], literal.pieces[first[1]]


def _file_offset(literal: Literal, offset: int, *, opening: bool) -> tuple[int, int] | None:
    """Returns the file offset of a decoded offset, and its piece; `opening` prefers the piece that starts there."""
    best: tuple[int, int] | None = None
    for run in literal.runs:
        if not run.unit <= offset <= run.unit + run.length or not run.length:
            continue
        if offset == run.unit + run.length:
            best = (run.file + run.width, run.piece)
        elif offset == run.unit:
            if best is None or opening:
                best = (run.file, run.piece)
        elif run.length == run.width:
            best = (run.file + offset - run.unit, run.piece)
        else:
            return None
    if best is None and literal.pieces and not literal.value:
        return literal.pieces[0].start, 0
    return best


def changes(old: str, new: str) -> list[tuple[int, int, str]]:
    """Returns replacements `(start, end, text)` that turn `old` into `new`, line by line, in order."""
    old_lines, new_lines = old.splitlines(keepends=True), new.splitlines(keepends=True)
    head = 0
    while head < min(len(old_lines), len(new_lines)) and old_lines[head] == new_lines[head]:
        head += 1
    tail = 0
    while tail < min(len(old_lines), len(new_lines)) - head and old_lines[-1 - tail] == new_lines[-1 - tail]:
        tail += 1
    offsets = [0]
    for line in old_lines:
        offsets.append(offsets[-1] + len(line))
    middle = (old_lines[head : len(old_lines) - tail], new_lines[head : len(new_lines) - tail])
    found = []
    for kind, first, last, new_first, new_last in SequenceMatcher(None, *middle, autojunk=False).get_opcodes():
        if kind != "equal":
            replacement = "".join(middle[1][new_first:new_last])
            found.append(_trimmed(old, offsets[head + first], offsets[head + last], replacement))
    return found


def _trimmed(old: str, start: int, end: int, new: str) -> tuple[int, int, str]:
    """Removes equal text at both ends of a replacement."""
    while start < end and new and old[start] == new[0]:
        start, new = start + 1, new[1:]
    while end > start and new and old[end - 1] == new[-1]:
        end, new = end - 1, new[:-1]
    return start, end, new
