"""Canonical form of a unit: the lines that a model sees, one statement each, every body in braces.

Host code, other kernels and comments are hidden. Each line is a list of items; an item is a token of the unit or a
brace that its author omitted, so that changed lines can be merged with hidden and unchanged code.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kernelmate.suggest.codec.tokens import Tokens


class Item(NamedTuple):
    """One token of a line; `place` is its index among the unit's tokens, -1 for a brace that its author omitted."""

    text: str
    place: int


@dataclass(slots=True)
class CanonicalLine:
    """One line of the canonical form; `hidden` lines are not shown to a model."""

    items: list[Item]
    hidden: bool = False
    directive: bool = False

    @property
    def texts(self) -> list[str]:
        """Returns the texts of its tokens."""
        return [item.text for item in self.items]


@dataclass(slots=True)
class Canonical:
    """A unit in canonical form, with its tokens."""

    tokens: Tokens
    lines: list[CanonicalLine]

    @property
    def shown(self) -> list[CanonicalLine]:
        """Returns the lines that a model sees, numbered from 1."""
        return [line for line in self.lines if not line.hidden]


def mark_object_macros(tokens: Tokens) -> None:
    """Marks object-like macros whose text begins with a parenthesis.

    Only a blank distinguishes them from function-like ones.
    """
    for index in range(3, len(tokens.texts)):
        if (
            tokens.texts[index] == "("
            and tokens.gaps[index]
            and tokens.texts[index - 2] == "define"
            and tokens.texts[index - 3] == "#"
            and tokens.directives[index]
        ):
            tokens.texts[index] = " ("


class Unbalanced(Exception):
    """Braces do not match statements, because of preprocessor branches or incomplete text."""


def flat(tokens: Tokens) -> Iterator[CanonicalLine]:
    """Yields lines that end at semicolons and braces outside of parentheses, and at preprocessor lines."""
    items: list[Item] = []
    depth = directive = 0
    for index, text in enumerate(tokens.texts):
        if tokens.directives[index] != directive:
            if items:
                yield CanonicalLine(items, directive=bool(directive))
            items, directive = [], tokens.directives[index]
        items.append(Item(text, index))
        depth = max(depth + (text in ("(", " (", "[")) - (text in (")", "]")), 0)
        if not directive and text in ("{", "}", ";") and not (depth and text == ";"):
            yield CanonicalLine(items)
            items = []
    if items:
        yield CanonicalLine(items, directive=bool(directive))
