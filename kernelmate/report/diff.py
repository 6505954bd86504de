"""Unified diff between a candidate and the user's file."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from rich.text import Text

from kernelmate.records import Candidate, Kernel
from kernelmate.report.words import printable

LineKind = Literal["file", "hunk", "added", "removed", "same"]
STYLES: dict[LineKind, str] = {"file": "bold", "hunk": "cyan", "added": "green", "removed": "red", "same": ""}


def whole_text(kernel: Kernel) -> str:
    r"""Returns the text of the user's file with this version of the kernel, with `\n` line ends."""
    from kernelmate.source import file_text

    if kernel.unit.language != "python":
        return kernel.unit.text
    return file_text(kernel).replace("\r\n", "\n")


def diff_lines(before: str, after: str, path: str) -> list[str]:
    """Returns a unified diff without line ends, with three lines of context; empty when nothing changed.

    The file name suits `patch -p1`: relative to the current folder if the file is below it, else to the root.
    """
    name = printable(_named(path), keep="")
    # Split at \n only: a compiler treats the other line ends of str.splitlines as part of a line.
    old, new = before.split("\n"), after.split("\n")
    return list(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", lineterm=""))


def _named(path: str) -> str:
    place = Path(path)
    if not place.is_absolute():
        return path
    here = Path.cwd()
    return (place.relative_to(here) if place.is_relative_to(here) else place.relative_to(place.anchor)).as_posix()


def line_kind(line: str, index: int) -> LineKind:
    """Returns the kind of a diff's line; the first two lines name the files."""
    if index < 2:
        return "file"
    kinds: dict[str, LineKind] = {"@": "hunk", "+": "added", "-": "removed"}
    return kinds.get(line[:1], "same")


@dataclass(frozen=True, slots=True)
class Diff:
    """A diff to show; `kernelmate.report.console.show` writes it without wrapping and with tabs, so that it can be applied.

    Attributes:
        before: the original text.
        after: the changed text.
        path: the file's name.
    """

    before: str
    after: str
    path: str

    def lines(self) -> list[tuple[str, str]]:
        """Returns each line with its style; the signs carry the same information without colour."""
        numbered = enumerate(diff_lines(self.before, self.after, self.path))
        return [(printable(line, keep="\t"), STYLES[line_kind(line, index)]) for index, line in numbered]

    def __rich__(self) -> Text:
        """Returns the diff as text for use within another view."""
        return Text("\n").join(Text(line, style=style) for line, style in self.lines())


def other_diffs(candidate: Candidate) -> list[Diff]:
    r"""Returns the diffs of the other files that a candidate changes, with `\n` line ends."""
    changes = (
        (one.path, *(text.replace("\r\n", "\n") for text in (one.before, one.after))) for one in candidate.other_files
    )
    return [Diff(before, after, path) for path, before, after in changes]
