"""Comments in a kernel's parameter list, which a generated kernel keeps at the same parameters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


@dataclass(slots=True)
class ParameterNotes:
    """Comments of one parameter: those on separate lines above it, and the one after it."""

    above: list[str] = field(default_factory=list)
    behind: list[str] = field(default_factory=list)


def parameter_notes(source: str, names: Sequence[str]) -> list[ParameterNotes]:
    """Returns the comments of each parameter; empty if there are none, or if the list cannot be parsed.

    Args:
        source: the text that follows the list's opening parenthesis.
        names: the names of the parameters, in order.
    """
    plain = _COMMENT.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), source)
    end = _closing(plain)
    places, start = [], 0
    for name in names:
        found = re.compile(rf"\b{re.escape(name)}\b(?=[^\w]*?(?:,|\)))").search(plain, start, end + 1)
        if found is None:
            return []
        places.append(found.start())
        start = found.end()
    notes = [ParameterNotes() for _ in names]
    for comment in _COMMENT.finditer(source, 0, end):
        line = source.rfind("\n", 0, comment.start()) + 1
        before = [number for number, place in enumerate(places) if line <= place < comment.start()]
        following = [number for number, place in enumerate(places) if place > comment.start()]
        if before or not following:
            notes[before[-1] if before else -1].behind.append(comment[0].rstrip())
        elif "\n" in source[comment.end() : places[following[0]]]:
            notes[following[0]].above.append(comment[0].rstrip())
        else:
            notes[following[0]].behind.append(comment[0].rstrip())
    return notes if any(one.above or one.behind for one in notes) else []


def noted_parameters(front: str, parts: Sequence[str], notes: Sequence[ParameterNotes]) -> str:
    """Returns a function's head with one parameter per line, and the comments after them aligned."""
    indent = " " * (len(front) - front.rfind("\n") - 1)
    codes = [f"{part}{',' if number + 1 < len(parts) else ')'}" for number, part in enumerate(parts)]
    column = max((len(code) for code, note in zip(codes, notes, strict=True) if note.behind), default=0)
    lines: list[str] = []
    for code, note in zip(codes, notes, strict=True):
        lines += [f"{indent}{one}" for one in note.above]
        lines.append(f"{indent}{code.ljust(column)}  {' '.join(note.behind)}" if note.behind else f"{indent}{code}")
    if notes[0].above:
        return f"{front}\n" + "\n".join(lines)
    return front + "\n".join(lines)[len(indent) :]


def _closing(plain: str) -> int:
    """Returns the offset of the list's closing parenthesis in a text without comments."""
    depth = 0
    for place, letter in enumerate(plain):
        depth += (letter == "(") - (letter == ")")
        if depth < 0:
            return place
    return len(plain)
