"""Finds the arrays of a kernel whose subscripts depend on integers that it reads, which an inferred contract draws at random."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmate.records import Kernel
from kernelmate.source.tokens import Token, closing, lex

_ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "|=", "&=", "^=", "<<=", ">>="})
_ROUNDS = 6
"""Number of variables in a row through which a value is followed."""


def indexed_by_inputs(kernel: Kernel, integers: Sequence[str]) -> tuple[str, ...]:
    """Returns the names of arrays, those in shared memory too, with a subscript made of elements of the `integers` arrays."""
    tokens = lex(kernel.source).code
    if not integers:
        return ()
    loaded: set[str] = set()
    for _ in range(_ROUNDS):
        before = len(loaded)
        for at, token in enumerate(tokens):
            name = _assigned(tokens, at) if token.text in _ASSIGNMENTS and at else ""
            if name and _is_loaded(tokens[at + 1 : _statement_end(tokens, at)], loaded, integers):
                loaded.add(name)
        if len(loaded) == before:
            break
    found: dict[str, None] = {}
    for at, token in enumerate(tokens[:-1]):
        end = closing(tokens, at + 1) if token.kind == "word" and tokens[at + 1].text == "[" else None
        if end is not None and _is_loaded(tokens[at + 2 : end], loaded, integers):
            found[token.text] = None
    return tuple(found)


def _assigned(tokens: Sequence[Token], at: int) -> str:
    """Returns the variable before an assignment; an empty text for an element or a member."""
    name = tokens[at - 1]
    member = at > 1 and tokens[at - 2].text in (".", "->")
    return name.text if name.kind == "word" and not member else ""


def _statement_end(tokens: Sequence[Token], at: int) -> int:
    depth = 0
    for end in range(at + 1, len(tokens)):
        text = tokens[end].text
        depth += (text in "([{") - (text in ")]}")
        if depth < 0 or (depth == 0 and text in (";", ",")):
            return end
    return len(tokens)


def _is_loaded(tokens: Sequence[Token], loaded: set[str], integers: Sequence[str]) -> bool:
    """Returns True if an expression has a variable of a loaded value, or reads an element of one of the arrays."""
    return any(
        token.text in loaded or (token.text in integers and _is_read(tokens, at)) for at, token in enumerate(tokens)
    )


def _is_read(tokens: Sequence[Token], at: int) -> bool:
    follows = tokens[at + 1].text if at + 1 < len(tokens) else ""
    return follows == "[" or (at > 0 and tokens[at - 1].text == "*")
