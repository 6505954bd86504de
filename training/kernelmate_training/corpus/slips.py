"""Slips that a compiler finds: what is misspelt, left out, or never declared."""

from __future__ import annotations

import re
from collections.abc import Callable

Change = tuple[int, int, str, str]
"""Start, end, what stands there instead, and the explanation."""

_PARAMETER = re.compile(r"(\w+)(?=[,)])")
_DECLARED = re.compile(r"\b(?:int|float|double|size_t|unsigned int|__half2?)\s+(\w+)\s*=")


def each(pattern: str, text: str, start: int, make: Callable[[re.Match[str]], tuple[str, str] | None]) -> list[Change]:
    """Every match of a pattern from `start` on, as what `make` puts in its place and why; None leaves it."""
    changes = []
    for match in re.finditer(pattern, text[start:]):
        made = make(match)
        if made is not None:
            changes.append((start + match.start(), start + match.end(), made[0], made[1]))
    return changes


def misspelt(text: str, start: int) -> list[Change]:
    """Two letters of a name exchanged, or one left out."""
    names = set(_DECLARED.findall(text[start:])) | set(_PARAMETER.findall(text[:start]))
    long = [name for name in names if len(name) > 2]

    def slip(match: re.Match[str]) -> tuple[str, str] | None:
        name = match[0]
        if name not in long:
            return None
        wrong = name[:-2] + name[-1] + name[-2] if name[-1] != name[-2] else name[:-1]
        return (wrong, f"`{wrong}` is misspelt: it is called `{name}`.") if wrong not in names else None

    return each(r"[A-Za-z_]\w*", text, start, slip)


def no_semicolon(text: str, start: int) -> list[Change]:
    """A statement without its end."""
    return each(r";(?=\n)", text, start, lambda m: ("", "A semicolon is missing at the end of the statement."))


def no_bracket(text: str, start: int) -> list[Change]:
    """A call that is never closed."""
    return each(r"\);(?=\n)", text, start, lambda m: (";", "A closing bracket is missing."))


def no_brace(text: str, start: int) -> list[Change]:
    """A closing brace, or the closing bracket of an index, that was forgotten."""
    braces = each(r"(?<=\n) +\}\n", text, start, lambda m: ("", "A closing brace is missing."))
    indices = each(r"\](?=;| =)", text, start, lambda m: ("", "The closing bracket of an index is missing."))
    return braces + indices


def no_include(text: str, start: int) -> list[Change]:
    """A header that is used and not included."""
    found = re.finditer(r"^#include [^\n]*\n", text[:start], re.MULTILINE)
    return [(m.start(), m.end(), "", f"`{m[0].strip()}` is missing.") for m in found]


def no_declaration(text: str, start: int) -> list[Change]:
    """A variable without its type."""
    return each(
        r"(?<=\n)( +)(?:const )?(?:float|double|int|size_t|unsigned int) (\w+) = ",
        text,
        start,
        lambda m: (f"{m[1]}{m[2]} = ", f"`{m[2]}` is not declared: its type is missing."),
    )
