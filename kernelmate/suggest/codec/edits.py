"""Answers as edits of numbered lines: removed lines, and their replacement."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from kernelmate.suggest.codec.base import UndecodableAnswer

MOST_LINES = 320
"""Largest number of numbered lines."""
REPLACE, INSERT, DELETE, LINE = "@rep", "@ins", "@del", "@|"
MOST_NEW = 400
"""Maximum number of new lines in an answer."""

_NUMBER = re.compile(r"@(\d{1,4}):")
_PART = re.compile(r"(@rep|@ins|@del)((?:@\d{1,4}:){1,2})")


@dataclass(frozen=True, slots=True)
class Edit:
    """Replacement of lines `start` to `stop` (exclusive, counted from 0) by `lines`."""

    start: int
    stop: int
    lines: tuple[str, ...]


def line_token(number: int) -> str:
    """Returns the special token of a line's number, from 1; 0 denotes the place before the first line."""
    return f"@{number}:"


def edit_tokens() -> tuple[str, ...]:
    """Special tokens of edits, without line numbers."""
    return (REPLACE, INSERT, DELETE, LINE)


def difference(before: Sequence[str], after: Sequence[str]) -> list[Edit]:
    """Returns the edits that turn `before` into `after`, in order."""
    first = 0
    while first < min(len(before), len(after)) and before[first] == after[first]:
        first += 1
    last = 0
    while last < min(len(before), len(after)) - first and before[-1 - last] == after[-1 - last]:
        last += 1
    inner_before, inner_after = before[first : len(before) - last], after[first : len(after) - last]
    matcher = SequenceMatcher(None, inner_before, inner_after, autojunk=False)
    return [
        Edit(first + i1, first + i2, tuple(inner_after[j1:j2]))
        for kind, i1, i2, j1, j2 in matcher.get_opcodes()
        if kind != "equal"
    ]


def written(edits: Sequence[Edit]) -> str:
    """Formats edits as an answer's text."""
    parts = []
    for edit in edits:
        lines = "".join(LINE + line for line in edit.lines)
        if edit.start == edit.stop:
            parts.append(f"{INSERT}{line_token(edit.start)}{lines}")
            continue
        places = line_token(edit.start + 1)
        if edit.stop > edit.start + 1:
            places += line_token(edit.stop)
        parts.append(f"{REPLACE if edit.lines else DELETE}{places}{lines}")
    return "".join(parts)


def read(text: str, count: int) -> list[Edit]:
    """Parses the edits of an answer, in the order of the changed lines.

    Args:
        text: as `written` makes it.
        count: number of lines.

    Raises:
        UndecodableAnswer: the text is malformed, or edits overlap or lie outside the kernel.
    """
    edits = sorted(_edits(text, count), key=lambda edit: (edit.start, edit.stop))
    for one, other in itertools.pairwise(edits):
        if other.start < one.stop or (one.start, one.stop) == (other.start, other.stop):
            raise UndecodableAnswer(f"The answer changes line {other.start + 1} twice.")
    if sum(len(edit.lines) for edit in edits) > MOST_NEW:
        raise UndecodableAnswer(f"The answer adds more than {MOST_NEW} lines.")
    return edits


def _edits(text: str, count: int) -> Iterator[Edit]:
    position = 0
    while position < len(text):
        head = _PART.match(text, position)
        if head is None:
            raise UndecodableAnswer(f"The answer holds {text[position : position + 40]!r} where an edit should begin.")
        following = _PART.search(text, head.end())
        end = following.start() if following is not None else len(text)
        yield _edit(head[1], [int(number) for number in _NUMBER.findall(head[2])], text[head.end() : end], count)
        position = end


def _edit(kind: str, places: list[int], body: str, count: int) -> Edit:
    first, last = places[0], places[-1]
    if not (0 if kind == INSERT else 1) <= first <= last <= count:
        raise UndecodableAnswer(f"The answer names lines {first} to {last} of {count}.")
    lead, *lines = body.split(LINE)
    if lead.strip() or (kind == DELETE and lines) or (kind != DELETE and not lines):
        raise UndecodableAnswer(f"The edit at line {first} is malformed.")
    new = tuple(line.strip() for line in lines)
    if any(_NUMBER.search(line) for line in new):
        raise UndecodableAnswer(f"The edit at line {first} has line numbers in its text.")
    return Edit(first, first, new) if kind == INSERT else Edit(first - 1, last, new)
