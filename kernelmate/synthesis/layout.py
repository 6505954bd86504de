"""Lines of a generated function: blank ones between its parts, and constants that it does not use."""

from __future__ import annotations

import re
from collections.abc import Sequence

LONG = 24
"""Number of lines from which a function has blank lines between its parts."""


def in_paragraphs(body: Sequence[str]) -> list[str]:
    """Returns a long function's lines, without its braces, with blank lines around its loops and above its comments.

    A function that has blank lines already stays as it is, and so does a barrier that follows a loop.
    """
    if len(body) < LONG or "" in body:
        return list(body)
    lines: list[str] = []
    within = False
    for number, line in enumerate(body):
        begins = line.startswith("//") or _begins_loop(body, number)
        if not within and begins and lines and lines[-1] and not _leads(lines[-1]):
            lines.append("")
        lines.append(line)
        within = within or (
            not line.startswith((" ", "}")) and line.startswith(("for (", "while (")) and line.endswith("{")
        )
        after = body[number + 1] if number + 1 < len(body) else "}"
        if within and line == "}":
            within = False
            if not after.startswith(("}", "__sync")):
                lines.append("")
        elif line.startswith("__sync") and number > 0 and body[number - 1] == "}" and after != "}":
            lines.append("")
    return lines


def _begins_loop(body: Sequence[str], number: int) -> bool:
    """Returns True for the first line of a loop with a body in braces: a comment above it, a pragma, or its head."""
    while number < len(body) and _leads(body[number]):
        number += 1
    return number < len(body) and body[number].startswith(("for (", "while (")) and body[number].endswith("{")


def _leads(line: str) -> bool:
    return line.startswith(("//", "#pragma"))


def without_unused(body: Sequence[str]) -> list[str]:
    """Returns a function's lines without constants that no other line uses."""
    named = [re.match(r"constexpr int (\w+) = [^,]+;(?:  //.*)?$", line) for line in body]
    text = "\n".join(body)
    return [
        line
        for line, found in zip(body, named, strict=True)
        if found is None or len(re.findall(rf"\b{found[1]}\b", text)) > 1
    ]
