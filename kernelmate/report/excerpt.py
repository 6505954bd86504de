"""Excerpts: a line of the user's source with a caret below the column of a message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from rich.cells import cell_len

from kernelmate.compiler.project_headers import HEADERS
from kernelmate.records import Kernel
from kernelmate.report.words import printable
from kernelmate.source.tokens import assignment, closing, lex

LARGEST_FILE = 16 * 2**20
"""Size in bytes of the largest file that is read for an excerpt."""

_QUOTED = HEADERS | {".py", ".ipynb", ".cpp", ".cc", ".c", ".toml"}
"""Suffixes of files whose lines may be quoted."""


class SourceLines:
    """Lines of files, each file read once.

    Args:
        texts: texts by path that replace those on disk, such as cells and candidates.
        folder: where relative paths start from; the current folder when not given.
        moved: maps a line of a given text to its present line; None if it was changed since.
    """

    def __init__(
        self,
        texts: Mapping[str, str] | None = None,
        folder: Path | None = None,
        moved: Callable[[int], int | None] = lambda line: line,
    ) -> None:
        self._folder, self._moved = folder or Path(), moved
        self._lines = {path: text.split("\n") for path, text in (texts or {}).items()}
        self._given = frozenset(self._lines)

    def line(self, file: str | None, line: int | None) -> str | None:
        """Returns one line without its line end; None if it is unavailable."""
        if file is None or line is None:
            return None
        lines = self._of(file)
        return lines[line - 1] if 0 < line <= len(lines) else None

    def _of(self, file: str) -> list[str]:
        if file not in self._lines:
            self._lines[file] = _read_lines(self._folder / file)
        return self._lines[file]

    def given(self, file: str | None) -> bool:
        """Returns True if the file's text was given instead of read."""
        return file in self._given

    def present(self, file: str | None, line: int | None) -> int | None:
        """Returns the present line of a line of a given text; None if it was changed, or the text was not given."""
        return None if line is None or not self.given(file) else self._moved(line)

    def last_store(self, file: str | None, kernel: str, argument: str) -> tuple[int, int] | None:
        """Returns line and column of a kernel's last assignment to an element of an argument; None if there is none."""
        if file is None:
            return None
        lexed = lex("\n".join(self._of(file)))
        tokens = lexed.code
        heads = [i for i, token in enumerate(tokens[:-1]) if token.text == kernel.rpartition("::")[2] and tokens[i + 1].text == "("]  # fmt: skip
        for head in heads:
            after = closing(tokens, head + 1)
            if after is None or after + 1 >= len(tokens) or tokens[after + 1].text != "{":
                continue
            end = closing(tokens, after + 1)
            places = [
                i
                for i in range(after, (end or len(tokens)) - 1)
                if tokens[i].text == argument and tokens[i + 1].text == "[" and assignment(tokens, i + 1) is not None
            ]
            if places:
                return lexed.position(tokens[places[-1]].start)
        return None

    def excerpt(self, file: str | None, line: int | None, column: int | None, width: int = 76) -> tuple[str, ...]:
        """Returns the source line and a caret line, at most `width` cells wide; empty if the line is unavailable."""
        text = self.line(file, line)
        if text is None or not text.strip():
            return ()
        margin = f"{line:>5} | "
        room = max(width - len(margin), 20)
        if column is None:
            return (margin + _cut(printable(text, keep="\t").expandtabs(4), 0, room),)
        before = printable(text[: column - 1], keep="\t").expandtabs(4)
        shown = printable(text, keep="\t").expandtabs(4)
        # A caret beyond the width shifts the line to the left.
        start = max(0, len(before) - room * 2 // 3) if len(shown) > room and len(before) >= room else 0
        caret = " " * cell_len(before[start:]) + "^"
        return margin + _cut(shown, start, room), " " * (len(margin) - 2) + "| " + caret


def sources_of(kernel: Kernel, moved: Callable[[int], int | None] = lambda line: line) -> SourceLines:
    """Returns a kernel's own text with the line numbers of messages, which for a cell start at its magic.

    Args:
        kernel: the kernel.
        moved: maps a line of its text to its present line; None if it was changed since.
    """
    unit = kernel.unit
    return SourceLines({unit.path: "\n" * (unit.locate(1, 1)[0] - 1) + unit.text}, moved=moved)


def _cut(text: str, start: int, room: int) -> str:
    return text.rstrip()[start : start + room]


def _read_lines(path: Path) -> list[str]:
    try:
        # A message may name any file that the text made the compiler read.
        if path.resolve().suffix.lower() not in _QUOTED or not path.is_file() or path.stat().st_size > LARGEST_FILE:
            return []
        return path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []
