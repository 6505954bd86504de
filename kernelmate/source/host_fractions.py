"""Quotients in floating point within host code's arithmetic, such as `ceil(n / 256.0)`, which contracts express only in whole numbers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from kernelmate.source.expressions import parse_expression
from kernelmate.source.host_code import Untranslatable
from kernelmate.source.host_places import HostPlace
from kernelmate.source.host_syntax import MOST_NESTED, chain_end, deepest, is_cast, operand_end
from kernelmate.source.host_values import value_before
from kernelmate.source.tokens import Token, closing

_REAL_TYPES = frozenset(["float", "double"])


def refuse_fractions(tokens: Sequence[Token], place: HostPlace) -> None:
    """Refuses arithmetic on a floating-point quotient, whose value differs from that on the integer quotient.

    Raises:
        Untranslatable: it has more than one of them, or one that is multiplied, divided or subtracted.
    """
    steps = list(_steps(tokens, place, 0))
    at = next((number for number, (_, sign) in enumerate(steps) if sign == "/"), None)
    if at is None:
        return
    outer = [sign for depth, sign in steps[:at] if depth <= steps[at][0] and (sign == "-" or depth < steps[at][0])]
    if {"-", "*", "//", "%"} & set(outer) or {"/", "*", "//", "%"} & {sign for _, sign in steps[at + 1 :]}:
        raise Untranslatable("a fraction is not supported in a launch")


def divides(tokens: Sequence[Token], place: HostPlace) -> bool:
    """Returns True for an expression with a quotient in floating point."""
    return any(sign == "/" for _, sign in _steps(tokens, place, 0))


def _steps(tokens: Sequence[Token], place: HostPlace, depth: int) -> Iterator[tuple[int, str]]:
    """Yields the operators outside of calls, each with the number of parentheses around it; `//` divides whole numbers."""
    if not depth and deepest(tokens) > MOST_NESTED:
        raise Untranslatable("the expression is nested too deeply")
    index = 0
    while index < len(tokens):
        token, end = tokens[index], index + 1
        if token.text == "(" and (last := closing(tokens, index)) is not None:
            inside, end = tokens[index + 1 : last], last + 1
            if not is_cast(inside):
                yield from _steps(inside, place, depth + 1)
            elif not _REAL_TYPES & {one.text for one in inside}:
                end = operand_end(tokens, end)
        elif token.kind == "word":
            end = chain_end(tokens, index)
            if end == index + 1 and _is_fraction(token.text, place):
                yield depth, "/"
        elif token.text == "/":
            yield depth, "/" if _is_real(tokens, place) else "//"
        elif token.text in ("+", "-", "*", "%"):
            yield depth, token.text
        index = end


def _is_fraction(name: str, place: HostPlace) -> bool:
    """Returns True for a variable in floating point whose value has a quotient."""
    if not _is_real_variable(name, place):
        return False
    value = value_before(place, name)
    return value is not None and divides(value.tokens, value.place)


def _is_real_variable(name: str, place: HostPlace) -> bool:
    value, function = value_before(place, name), place.function()
    if value is not None:
        return value.place.host.tokens[value.place.index - 1].text in _REAL_TYPES
    parameters = function.parameters if function is not None else ()
    return any(one.name == name and re.search(r"\b(?:float|double)\b", one.text) for one in parameters)


def _is_real(tokens: Sequence[Token], place: HostPlace) -> bool:
    """Returns True for arithmetic in floating point: one of its operands is a number with a point, or has such a type."""
    index = 0
    while index < len(tokens):
        token, end = tokens[index], index + 1
        if token.kind == "number" and re.match(r"(?!0[xX]).*[.eEfF]", token.text):
            return True
        if token.text == "(" and (last := closing(tokens, index)) is not None:
            inside, end = tokens[index + 1 : last], last + 1
            if is_cast(inside):
                if _REAL_TYPES & {one.text for one in inside}:
                    return True
                end = operand_end(tokens, end)
            elif _is_real(inside, place):
                return True
        elif token.kind == "word":
            end = chain_end(tokens, index)
            head = {one.text for one in tokens[index : index + 3]} if end > index + 1 else set()
            if _REAL_TYPES & head or (end == index + 1 and _is_real_variable(token.text, place)):
                return True
        index = end
    return False


def ceiling(text: str) -> str:
    """Returns a translated quotient rounded up.

    Raises:
        Untranslatable: the expression is none.
    """
    tree = parse_expression(text)
    if isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.FloorDiv):
        return f"cdiv({ast.unparse(tree.left)}, {ast.unparse(tree.right)})"
    raise Untranslatable("the argument of ceil() is not a quotient")
