"""Preprocessor lines of CUDA text, and matching brackets in text that is not preprocessed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from kernelmate.compiler.words import words_of
from kernelmate.source.tokens import Token, lex

STATEMENTS = words_of("if else for while do switch case return break continue goto try catch asm")
"""Keywords that start a statement, not a declaration."""

OPENING = {"(": ")", "[": "]", "{": "}"}
BRACKETS = frozenset("()[]{}")
"""Opening and closing brackets."""


@dataclass(frozen=True, slots=True)
class Macro:
    """One `#define`: `words` are the identifiers in its body; `pastes` is True if it uses `##`."""

    name: str
    function: bool
    words: tuple[str, ...]
    pastes: bool


def directive_lines(text: str) -> tuple[tuple[Token, ...], ...]:
    """Returns the tokens of each preprocessor line of a text."""
    return _by_line(lex(text).tokens)


@lru_cache(maxsize=256)
def macros_of(text: str) -> tuple[Macro, ...]:
    """Returns the macros that a text defines, in order."""
    return tuple(macro for macro in map(_macro, directive_lines(text)) if macro is not None)


def _by_line(tokens: Sequence[Token]) -> tuple[tuple[Token, ...], ...]:
    lines: dict[int, list[Token]] = {}
    for token in tokens:
        if token.directive:
            lines.setdefault(token.directive, []).append(token)
    return tuple(tuple(line) for line in lines.values())


def _macro(line: Sequence[Token]) -> Macro | None:
    if len(line) < 3 or line[1].text != "define":
        return None
    function = len(line) > 3 and line[3].text == "(" and line[3].start == line[2].end
    body = line[3:]
    words = tuple(token.text for token in body if token.kind == "word")
    texts = [token.text for token in body]
    return Macro(line[2].text, function, words, ("#", "#") in pairwise(texts))


def find_closers(text: str, code: Sequence[Token], directives: Sequence[Sequence[Token]]) -> dict[int, int]:
    """Returns the index of the closing bracket for each opening one.

    An unclosed brace is assumed to end before the next line that starts with a word in the first column.
    """
    found: dict[int, int] = {}
    stack: list[int] = []
    saved: list[tuple[int, ...]] = []
    lost: list[int] = []
    conditions = iter(_conditions(code, directives))
    pending = next(conditions, None)
    for index in [index for index, token in enumerate(code) if token.text in BRACKETS]:
        while pending is not None and pending[0] <= index:
            stack = _branch(stack, saved, lost, pending[1])
            pending = next(conditions, None)
        if code[index].text in OPENING:
            stack.append(index)
        else:
            _close(code, stack, found, index)
    while pending is not None and pending[0] < len(code):
        stack = _branch(stack, saved, lost, pending[1])
        pending = next(conditions, None)
    for opening in (*stack, *lost):
        if code[opening].text == "{" and opening not in found:
            found[opening] = _next_at_margin(text, code, opening)
    return found


def _branch(stack: list[int], saved: list[tuple[int, ...]], lost: list[int], kind: str) -> list[int]:
    """Updates the stack of open brackets; each branch of an `#if` starts with those that were open before it."""
    if kind == "if":
        saved.append(tuple(stack))
    elif kind.startswith("el") and saved:
        lost.extend(stack[len(saved[-1]) :])
        return list(saved[-1])
    elif kind == "endif" and saved:
        saved.pop()
    return stack


def _conditions(code: Sequence[Token], directives: Sequence[Sequence[Token]]) -> Iterator[tuple[int, str]]:
    index = 0
    for line in directives:
        word = line[1].text if len(line) > 1 else ""
        if not word.startswith(("if", "el", "endif")):
            continue
        while index < len(code) and code[index].start < line[0].start:
            index += 1
        yield index, "if" if word.startswith("if") else word


def _close(code: Sequence[Token], stack: list[int], found: dict[int, int], index: int) -> None:
    text = code[index].text
    if text == "}":
        # A closing brace also closes round and square brackets left open before it.
        while stack and code[stack[-1]].text != "{":
            stack.pop()
    if stack and OPENING[code[stack[-1]].text] == text:
        found[stack.pop()] = index


def _next_at_margin(text: str, code: Sequence[Token], opening: int) -> int:
    for index in range(opening + 1, len(code)):
        start = code[index].start
        at_margin = start == 0 or text[start - 1] == "\n"
        if at_margin and code[index].kind == "word" and code[index].text not in STATEMENTS:
            return index
    return len(code)
