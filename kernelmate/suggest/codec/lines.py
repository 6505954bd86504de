"""Canonical form of a unit: its tokens, and the lines that a model sees, one statement each, every body in braces.

Operators are whole tokens, and the gaps before tokens contain comments and layout; this serves for the user's text and
for a model's lines. `kernelmate.source.tokens` differs: it separates comments from layout, and splits operators so that
template brackets can be matched.

Host code, other kernels and comments are hidden. Each line is a list of items; an item is a token of the unit or a
brace that its author omitted, so that changed lines can be merged with hidden and unchanged code. Answers change the
kernel's head by tokens and its body by lines.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kernelmate.suggest.codec.base import NotEncodable

_TOKEN = re.compile(
    r"""
    (?P<gap>(?:[^\S\n]+|\n|\\\r?\n|//(?:[^\\\n]|\\\n|\\(?!\n))*|/\*[\s\S]*?(?:\*/|\Z))*)
    (?P<token>
        (?:u8|[uUL])?R"(?P<delimiter>[^()\\\s"]{0,16})\([\s\S]*?(?:\)(?P=delimiter)"|\Z)
      | (?:u8|[uUL])?"(?:[^"\\\n]|\\[\s\S])*"?
      | (?:u8|[uUL])?'(?:[^'\\\n]|\\.)*'?
      | @[vk]\d+[A-Za-z]?\w*
      | \.?\d(?:[eEpP][+-]|'\w|[\w.])*
      | [^\W\d]\w*
      | <<=|>>=|\.\.\.|->|\+\+|--|&&|\|\||::|\#\#|<<|>>|[-+*/%&|^!=<>]=
      | .
      | \Z
    )
    """,
    re.VERBOSE,
)
_JOINED = re.compile(r"\\\r?\n")
_COMMENT = re.compile(r"//(?:[^\\\n]|\\\n|\\(?!\n))*|/\*[\s\S]*?(?:\*/|\Z)")


@dataclass(slots=True)
class Tokens:
    """The tokens of a text; `gaps[i] + texts[i]` over all i, followed by `tail`, is the text.

    Attributes:
        texts: the texts of the tokens.
        gaps: layout and comments before each token.
        directives: number of the preprocessor line that each token is part of; 0 for code.
        tail: the gap after the last token.
    """

    texts: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)
    directives: list[int] = field(default_factory=list)
    tail: str = ""


def read_tokens(text: str) -> Tokens:
    """Splits a text into tokens. Raises no errors: unknown characters become single tokens."""
    found = Tokens()
    texts, gaps, directives = found.texts, found.gaps, found.directives
    number = current = 0
    for gap, written, _ in _TOKEN.findall(text):
        if not written:
            found.tail = gap
            break
        fresh = not texts or ("\n" in gap and breaks_line(gap))
        if fresh:
            current = 0
            if written == "#":
                number += 1
                current = number
        texts.append(written)
        gaps.append(gap)
        directives.append(current)
    return found


def breaks_line(gap: str) -> bool:
    """Returns True if the gap ends a line, not counting continuations and line ends in comments."""
    return "\n" in _COMMENT.sub(" ", _JOINED.sub(" ", gap))


def is_word(token: str) -> bool:
    """Returns True if the token is a name or a keyword."""
    first = token[0]
    return (first.isalpha() or first == "_") and token[-1] not in "\"'"


def is_number(token: str) -> bool:
    """Returns True if the token is a number."""
    return token[0].isdigit() or (token[0] == "." and len(token) > 1 and token[1].isdigit())


def is_string(token: str) -> bool:
    """Returns True for a string or character literal, even if unclosed."""
    return '"' in token or ("'" in token and not is_number(token))


class Item(NamedTuple):
    """One token of a line; `place` is its index among the unit's tokens, -1 for a brace that the text omits."""

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
class CanonicalUnit:
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


@dataclass(frozen=True, slots=True)
class Regions:
    """Indices into the shown lines, from 0.

    Attributes:
        head: the line that ends with the kernel's opening brace.
        start, stop: the lines of the body, without a last line that is only its closing brace.
    """

    head: int
    start: int
    stop: int


def regions(shown: Sequence[CanonicalLine], kernel: str) -> Regions:
    """Returns the regions of a unit's shown lines.

    Raises:
        NotEncodable: the kernel is not among them.
    """
    heads = [number for number, line in enumerate(shown) if "__global__" in line.texts]
    opened = [number for number in heads if shown[number].texts[-1] == "{"]
    if not heads:
        raise NotEncodable(f"The kernel {kernel} is not in the text.")
    head = (opened or heads)[0]
    return Regions(head, head + 1, _end(shown, head))


def _end(shown: Sequence[CanonicalLine], head: int) -> int:
    """Returns the line that closes the body; one past the last line if there is none."""
    depth = 0
    for number in range(head, len(shown)):
        texts = shown[number].texts
        depth += texts.count("{") - texts.count("}")
        if depth <= 0 and number > head:
            return number if texts == ["}"] else number + 1
    return len(shown)
