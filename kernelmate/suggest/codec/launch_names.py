"""Replacement of a kernel's local names in launch expressions by the parameters that they derive from.

A contract's expressions can only contain parameters.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence

from kernelmate.suggest.codec.known_words import is_type
from kernelmate.suggest.codec.tokens import is_number, is_word

MOST_DEPTH = 3
"""Largest depth of nested replacements."""

_WORD = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_SUFFIX = re.compile(r"[uUlL]+\Z")
_CHANGES = frozenset({"=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "++", "--"})
_OPERATORS = frozenset("+-*/%()")


def values_of(lines: Iterable[Sequence[str]]) -> dict[str, list[str]]:
    """Return the values of names that are assigned once, at their declaration: constants, macros, local variables.

    Args:
        lines: the tokens of each line.
    """
    found: dict[str, list[str]] = {}
    spoiled: set[str] = set()
    for line in lines:
        name, value = _declared(line)
        for place, text in enumerate(line):
            changes = {*line[place + 1 : place + 2]} & _CHANGES or {*line[max(place - 1, 0) : place]} & {"++", "--"}
            if is_word(text) and changes and text != name:
                spoiled.add(text)
        if name is not None:
            if name in found:
                spoiled.add(name)
            found[name] = value
    return {name: value for name, value in found.items() if name not in spoiled}


def in_parameters(expression: str, values: dict[str, list[str]], known: Collection[str], depth: int = MOST_DEPTH) -> str:  # fmt: skip
    """Replace a kernel's own names in a launch expression; names without a simple value stay.

    Args:
        expression: the expression, as in a contract.
        values: tokens of the value of each name.
        known: names that a contract defines, which stay.
        depth: levels of nested names to replace.
    """

    def value(found: re.Match[str]) -> str:
        tokens = values.get(found[0])
        if found[0] in known or tokens is None or not depth:
            return found[0]
        text = " ".join(_SUFFIX.sub("", one) if is_number(one) else one.replace("/", "//") for one in tokens)
        inner = in_parameters(text, values, known, depth - 1)
        return inner if len(tokens) == 1 else f"({inner})"

    return _WORD.sub(value, expression)


def _declared(line: Sequence[str]) -> tuple[str | None, list[str]]:
    """Returns the name that a line declares with a simple value, and the value's tokens."""
    if line[:2] == ["#", "define"] and len(line) > 3:
        name, value = line[2], list(line[3:])
    elif len(line) > 4 and line[-1] == ";" and "=" in line:
        at = list(line).index("=")
        name, value = line[at - 1], list(line[at + 1 : -1])
        if at < 2 or not all(is_type(word) or word in ("const", "constexpr", "static") for word in line[: at - 1]):
            return None, []
    else:
        return None, []
    simple = all(token in _OPERATORS or (is_number(token) and "." not in token) or is_word(token) for token in value)
    return (name, value) if is_word(name) and simple and value else (None, [])
