"""Long lines of written text, broken as clang-format's Google style breaks them, at the width that the file keeps."""

from __future__ import annotations

import itertools
import re
import textwrap
from collections.abc import Sequence

WIDTHS = (80, 100, 120)
"""Common line length limits."""

NARROW = 72
"""Columns that a file must use before its lines are assumed to keep the narrowest limit."""

_PLACE = re.compile(r" (?:&&|\|\||\||\+|\*|/|\?|:|-) |[,;] ")
"""Operators, commas and semicolons behind which a line may be broken."""

_TIGHTNESS = {";": 0, ",": 1, "?": 2, ":": 2, "||": 3, "&&": 4, "|": 5, "+": 6, "-": 6, "*": 7, "/": 7}


_CONTRACT = re.compile(r"^[ \t]*(?://|#) /// kernelmate$.*?^[ \t]*(?://|#) ///$", re.MULTILINE | re.DOTALL)


def without_contracts(text: str) -> str:
    """Returns a file's text without its contract blocks."""
    return _CONTRACT.sub("", text)


def width_of(text: str) -> int:
    """Returns the line length limit of a file: the common one that its longest line outside of contracts fits."""
    longest = max((len(line.rstrip()) for line in without_contracts(text).split("\n")), default=0)
    return next((limit for limit in WIDTHS[longest <= NARROW :] if longest <= limit), WIDTHS[-1])


def wrapped(front: str, parts: Sequence[str], width: int) -> str:
    """Returns a function's head with parameters wrapped to `width` columns, as clang-format has it.

    They are aligned with the first one, or are on lines of their own if that leaves too little room.
    """
    aligned = len(front) < 60 and len(front) + max(map(len, parts), default=0) + 2 <= width
    indent = len(front) if aligned else 4
    fits = len(front) + len(", ".join(parts)) + 3 <= width
    lines, line = ([], front) if fits or aligned else ([front], " " * indent)
    for number, part in enumerate(parts):
        piece = part + (", " if number + 1 < len(parts) else ")")
        if len(line) + len(piece.rstrip()) + 2 > width and line.strip():
            lines.append(line.rstrip())
            line = " " * indent
        line += piece
    return "\n".join([*lines, line])


def folded(line: str, width: int) -> list[str]:
    """Wraps a statement, or a comment, to `width` columns; a trailing comment goes above its statement.

    Lines break outside parentheses unless that leaves a short rest; continuation lines align with the innermost open
    parenthesis, or are indented by four columns.
    """
    if len(line) <= width or line.startswith("#"):
        return [line]
    lead = line[: len(line) - len(line.lstrip())]
    if line.startswith(f"{lead}// "):
        return textwrap.wrap(
            line, width, subsequent_indent=f"{lead}// ", break_long_words=False, break_on_hyphens=False
        )
    statement, mark, comment = line.partition("  //")
    if mark:
        comment = re.sub(r"^ [a-z](?=[a-z]* )", lambda first: first[0].upper(), comment)
        return [*folded(f"{lead}//{comment}", width), *(folded(statement.rstrip(), width) if statement.strip() else [])]
    condition = _condition_end(line)
    guarded = re.fullmatch(r" ([^;]+;)", line[condition:]) if condition else None
    if guarded is not None:
        return [f"{line[:condition]} {{", *folded(f"{lead}  {guarded[1]}", width), f"{lead}}}"]
    named = re.fullmatch(r"(\s*__shared__ .*\S) (\w+(?:\[[^\[\]]*\])+;)", line)
    if named is not None and len(named[1]) <= width and len(lead) + 4 + len(named[2]) <= width:
        return [named[1], f"{lead}    {named[2]}"]
    lines = _broken(line, lead + "    ", width)
    if _splits_operand(lines):
        early = _broken(line, lead + "    ", width, early=True)
        lines = early if not _splits_operand(early) and len(early) <= len(lines) else lines
    value = _value_start(line)
    if not value or value > width or not _splits_operand(lines):
        return lines
    below = _broken(f"{lead}    {line[value:]}", lead + "    ", width)
    return lines if _splits_operand(below) else [line[:value].rstrip(), *below]


def _value_start(line: str) -> int:
    """Returns the offset of the value that a statement assigns; 0 for another statement."""
    depth = 0
    for place, letter in enumerate(line):
        depth += (letter in "([{") - (letter in ")]}")
        if not depth and line.startswith(" = ", place):
            return place + 3
    return 0


def _splits_operand(lines: Sequence[str]) -> bool:
    """Returns True if a line ends at an operator within parentheses that an earlier part of the statement opens."""
    depth = 0
    for line in lines[:-1]:
        depth += sum((letter in "([") - (letter in ")]") for letter in line)
        if depth > 0 and line.endswith((" +", " -", " *", " /", " |")):
            return True
    return False


def _condition_end(line: str) -> int:
    """Returns the offset after the parenthesis that closes the head of an `if` or a loop; 0 for another statement."""
    begun = re.match(r"\s*(?:if|for|while) \(", line)
    if begun is None:
        return 0
    depth = 1
    for place in range(begun.end(), len(line)):
        depth += (line[place] == "(") - (line[place] == ")")
        if not depth:
            return place + 1
    return 0


def _broken(line: str, deeper: str, width: int, *, early: bool = False) -> list[str]:
    """Returns a statement's lines; with `early`, the first may be short."""
    lines: list[str] = []
    opened: list[int] = []
    assigned = re.match(r"[^(\[{]*?[\w\])>] (?:[-+*/|&]?=) (?=[^=])", line)
    lead = line[: len(line) - len(line.lstrip())]  # tabs stay tabs, and blanks align what follows them
    below = lead.ljust(assigned.end()) if assigned is not None and 2 * assigned.end() < width else deeper
    while len(line) > width:
        depths = list(itertools.accumulate(((one in "([{") - (one in ")]}") for one in line), initial=len(opened)))
        start = len(line) - len(line.lstrip())
        places = [one for one in _PLACE.finditer(line, start) if start + 12 < one.end() - 1 <= width]
        if not places:
            break
        least = 0 if early else start + (max(place.end() for place in places) - start) // 3
        far = [place for place in places if place.end() > least]
        best = min(far, key=lambda place: (depths[place.end()], _TIGHTNESS[place.group().strip()], -place.end()))
        for column, one in enumerate(line[: best.end()]):
            if one in "([{":
                opened.append(column + 1)
            elif one in ")]}" and opened:
                opened.pop()
        lines.append(line[: best.end()].rstrip())
        indent = below if not opened else lead.ljust(opened[-1]) if 2 * opened[-1] < width else deeper
        line = indent + line[best.end() :]
    return [*lines, line]


def filled(parts: Sequence[str], column: int, width: int, end: str) -> str:
    """Returns a list's elements over as many lines as they need, each below the first.

    Args:
        parts: the elements, each on one line.
        column: the column of the first element, and of each further line.
        width: columns of a line.
        end: the text directly after the list.
    """
    lines, at, broken = [""], column, False
    for number, part in enumerate(parts):
        piece = part + (end if number + 1 == len(parts) else ",")
        if number and (broken or at + 1 + len(piece) > width):
            lines.append(" " * column)
            at = column
        elif number:
            lines[-1] += " "
            at += 1
        pieces = folded(" " * at + piece, width)
        broken = len(pieces) > 1
        lines[-1] += pieces[0][at:]
        lines += pieces[1:]
        at = len(pieces[-1])
    return "\n".join(lines)
