"""Qualifiers of generated device functions, such as `static __device__ __forceinline__`: those of the file's own functions."""

from __future__ import annotations

import re
from collections import Counter

from kernelmate.source.folding import wrapped
from kernelmate.synthesis.file_style import closing_bracket, parts_of
from kernelmate.synthesis.names import without_comments

_FRONT = (
    r"(?:(?:static|inline|__inline__|__forceinline__) )*__device__(?: (?:static|inline|__inline__|__forceinline__))*"
)
_FUNCTION = re.compile(rf"^({_FRONT}) (?=[\w:<>,*& ]+\()", re.MULTILINE)
GENERATED = "static __device__ __forceinline__"
"""Qualifiers of a generated function."""


def own_qualifiers(text: str) -> str:
    """Returns the qualifiers that the device functions of a file have; empty if they differ, or if it has none."""
    found = Counter(_FUNCTION.findall(without_comments(text)))
    return next(iter(found)) if len(found) == 1 else ""


def with_qualifiers(text: str, qualifiers: str, width: int, before: str = GENERATED) -> str:
    """Returns a text whose generated functions have other qualifiers, with their heads wrapped anew.

    Args:
        text: the text.
        qualifiers: the new qualifiers.
        width: columns of a line.
        before: the qualifiers that are replaced.
    """
    place = 0
    while (found := re.compile(rf"^{re.escape(before)} ", re.MULTILINE).search(text, place)) is not None:
        opening = text.find("(", found.end())
        end = closing_bracket(text, opening)
        head = text[found.start() : end + 1]
        new = f"{qualifiers} {text[found.end() : opening + 1]}"
        place = found.start() + len(qualifiers)
        if "//" in head or "/*" in head or "\n" in new:
            text = f"{text[: found.start()]}{qualifiers} {text[found.end() :]}"
            continue
        again = wrapped(new, parts_of(" ".join(text[opening + 1 : end].split())), width)
        text = text[: found.start()] + again + text[end + 1 :]
    return text
