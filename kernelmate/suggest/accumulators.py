"""Sums and extremes of a replaced kernel and of the one in its place: the same name and the same comment above each."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelmate.records import Kernel
from kernelmate.source import apply_edits
from kernelmate.suggest.recipes.comments import Comment
from kernelmate.synthesis.names import without_comments

_BEGUN = re.compile(
    r"^(?P<indent>[ \t]*)(?:float|double|int|long long|unsigned int) (?P<name>\w+) = "
    r"(?:(?P<sum>0(?:\.0?f?)?u?)|(?P<low>-(?:INFINITY|FLT_MAX|DBL_MAX|1e3\df?)|[\w\[\] *+]+\[[^;]*\]));",
    re.MULTILINE,
)
"""Declarations of variables that a loop adds to, or in which it keeps the greatest value."""


@dataclass(frozen=True, slots=True)
class AccumulatorVariable:
    """A variable that holds a sum or the greatest value so far.

    Attributes:
        start: offset of the line of its declaration.
        kind: `sum` or `max`.
    """

    start: int
    name: str
    kind: str


def accumulators(text: str, start: int, end: int) -> list[AccumulatorVariable]:
    """Returns the accumulators that are declared between two offsets of a text, in order."""
    found: list[AccumulatorVariable] = []
    for one in _BEGUN.finditer(text, start, end):
        name, rest = one["name"], without_comments(text[one.end() : end])
        added = re.search(rf"\b{name} \+= ", rest) is not None
        greatest = re.search(rf"\b{name} = f?max\w*\({name}, |> {name}\)", rest) is not None
        if one["sum"] and added and not greatest:
            found.append(AccumulatorVariable(one.start(), name, "sum"))
        elif one["low"] and greatest and not added:
            found.append(AccumulatorVariable(one.start(), name, "max"))
    return found


def with_own_accumulators(old: Kernel, new: Kernel, stays: list[Comment]) -> Kernel:
    """Returns the new kernel, whose accumulators have the names and the comments of the old one's.

    They are matched in order, if both kernels have the same kinds of them. A name stays if the new text uses the old one
    for something else.

    Args:
        old: the kernel before the change.
        new: the kernel in its place.
        stays: comments of the old kernel that are true of any method.
    """
    text = new.unit.text
    first = _first_difference(old.unit.text, text)
    before = accumulators(old.unit.text, old.start, old.end)
    after = accumulators(text, first, new.end)
    if not before or [one.kind for one in before] != [one.kind for one in after]:
        return new
    edits: list[tuple[int, int, str]] = []
    for was, now in zip(before, after, strict=True):
        comment = next((one for one in stays if _is_above(old.unit.text, one, was.start)), None)
        if comment is not None and comment.text not in text:
            indent = re.match(r"[ \t]*", text[now.start :])
            edits.append((now.start, now.start, f"{indent[0] if indent else ''}{comment.text}\n"))
        own = text[first : new.end]
        free = re.search(rf"\b{was.name}\b", without_comments(own)) is None
        if free and len(was.name) > 1 and was.name not in {"acc", "tmp", "temp", "val", "res", "result"}:
            edits += [
                (first + found.start(), first + found.end(), was.name) for found in re.finditer(rf"\b{now.name}\b", own)
            ]
    return apply_edits(new, sorted(edits)) if edits else new


def _is_above(text: str, comment: Comment, place: int) -> bool:
    """Returns True if a comment of one line is directly above a line that begins at an offset."""
    return not comment.trailing and "\n" not in comment.text and text[comment.end : place] == "\n"


def _first_difference(old: str, new: str) -> int:
    """Returns the offset of the first line in which two texts differ."""
    place = next((number for number, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]), len(new))
    return new.rfind("\n", 0, place) + 1
