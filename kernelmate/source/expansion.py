"""Expands calls of macros, and of helper functions that state assumptions to the compiler."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

MOST_PIECES = 20_000
DEEPEST_CALL = 4
"""Limits of an expanded text: its number of tokens, and the depth of nested calls."""

TELLING = frozenset(
    {"__builtin_assume", "__assume", "assume", "__builtin_unreachable", "unreachable", "__builtin_assume_aligned"}
)
"""Names of functions that state an assumption to the compiler."""

_OPENING, _CLOSED = frozenset("([{"), frozenset(")]}")


class ExpressionToken(NamedTuple):
    """A token of an expression; operators of two characters are joined."""

    text: str
    kind: str
    start: int
    end: int
    directive: int


class CalledDefinition(NamedTuple):
    """A macro or function: its parameter names and the tokens of its body."""

    parameters: tuple[str, ...]
    body: tuple[ExpressionToken, ...]


def macros_in(lines: Iterable[Sequence[ExpressionToken]]) -> dict[str, CalledDefinition]:
    """Returns function-like macros by name, from preprocessor lines."""
    found: dict[str, CalledDefinition] = {}
    for line in lines:
        if len(line) > 4 and line[1].text == "define" and line[3].text == "(" and line[2].end == line[3].start:
            closed = next((place for place in range(4, len(line)) if line[place].text == ")"), None)
            if closed is not None and not any(piece.text == "#" for piece in line[closed:]):
                named = tuple(piece.text for piece in line[4:closed] if piece.kind == "word")
                found[line[2].text] = CalledDefinition(named, tuple(line[closed + 1 :]))
    return found


def helpers_in(code: Sequence[ExpressionToken]) -> dict[str, CalledDefinition]:
    """Returns functions whose body states an assumption to the compiler, by name."""
    found: dict[str, CalledDefinition] = {}
    for at, piece in enumerate(code[:-1]):
        if piece.kind != "word" or code[at + 1].text != "(":
            continue
        closed = closing(code, at + 1)
        if closed + 1 < len(code) and code[closed + 1].text == "{":
            body = code[closed + 2 : closing(code, closed + 1)]
            if any(one.text in TELLING for one in body) and piece.text not in ("if", "for", "while", "switch"):
                found[piece.text] = CalledDefinition(_parameters(code[at + 2 : closed]), tuple(body))
    return found


def _parameters(some: Sequence[ExpressionToken]) -> tuple[str, ...]:
    """Returns the last word of each parameter, before its default value."""
    names: list[str] = []
    for part in _split(some):
        words = []
        for piece in part:
            if piece.text == "=":
                break
            words += [piece.text] if piece.kind == "word" else []
        names += words[-1:]
    return tuple(names)


def expanded(code: Sequence[ExpressionToken], macros: Mapping[str, CalledDefinition]) -> list[ExpressionToken]:
    """Expands macro calls in code; the replacement has the call's position."""
    found = list(code)
    for _ in range(DEEPEST_CALL):
        if not any(piece.text in macros for piece in found):
            break
        found, before = [], found
        at = 0
        while at < len(before):
            called = macros.get(before[at].text) if at + 1 < len(before) and before[at + 1].text == "(" else None
            if called is None:
                found.append(before[at])
                at += 1
                continue
            closed = closing(before, at + 1)
            found += substituted(called, before, at, closed)
            at = closed + 1
        if len(found) > MOST_PIECES:
            return list(code)
    return found


def substituted(
    called: CalledDefinition, code: Sequence[ExpressionToken], at: int, closed: int
) -> list[ExpressionToken]:
    """Returns the body of the macro or function called at `at`, with its parameters replaced by the bracketed arguments."""
    arguments = dict(zip(called.parameters, _split(code[at + 2 : closed]), strict=False))
    start, end = code[at].start, code[min(closed, len(code) - 1)].end
    found: list[ExpressionToken] = []
    for piece in called.body:
        given = arguments.get(piece.text) if piece.kind == "word" else None
        some = [piece] if given is None else given
        if len(some) != 1:
            some = [ExpressionToken("(", "symbol", 0, 0, 0), *some, ExpressionToken(")", "symbol", 0, 0, 0)]
        found += [ExpressionToken(one.text, one.kind, start, end, 0) for one in some]
    return found


def _split(some: Sequence[ExpressionToken]) -> list[list[ExpressionToken]]:
    """Returns the tokens between commas outside brackets."""
    parts: list[list[ExpressionToken]] = [[]]
    depth = 0
    for piece in some:
        depth += (piece.text in _OPENING) - (piece.text in _CLOSED)
        if piece.text == "," and depth == 0:
            parts.append([])
        else:
            parts[-1].append(piece)
    return parts if parts != [[]] else []


def closing(code: Sequence[ExpressionToken], at: int) -> int:
    """Returns the index of the bracket that closes the one at `at`; the last index if there is none."""
    depth = 0
    for place in range(at, len(code)):
        depth += (code[place].text in _OPENING) - (code[place].text in _CLOSED)
        if depth == 0:
            return place
    return len(code) - 1
