"""Translates expressions of contracts to C++ host code, and finds the integers of that code that hold parts of them."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kernelmate.source.expressions import ExpressionError, parse_expression

_COMPARED: dict[type[ast.cmpop], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip


INTEGRAL = r"(?:unsigned\s+int|unsigned|int|auto|size_t|u?int(?:32|64)_t|(?:unsigned\s+)?long(?:\s+long)?)"
"""Types of the integers that hold a launch's sides, as a pattern."""


DIVIDED = re.compile(r"\b\w*(?:ceil|div|DIV|Div|CEIL|Ceil)\w*\(")
"""The beginning of a call of a function or macro of the user that divides and rounds up, such as `CEIL_DIV(n, 256)`."""


class Untranslatable(Exception):
    """The expression has no equivalent in the other language."""


def to_host(expression: str, names: Mapping[str, str]) -> str:
    """Translates a contract's expression to C++, over the host's own expressions for the names.

    Args:
        expression: over sizes and block names.
        names: the host expression for each name; for `cdiv` the user's function, if there is one; a variable of the host code for each value that it holds, by
            `plain_arithmetic` of the value.

    Raises:
        Untranslatable: a name has no host counterpart, or an operation has none in whole numbers of C++.
    """
    try:
        tree = parse_expression(expression)
    except ExpressionError as error:
        raise Untranslatable(error.message) from None
    return _bare(_host(tree, names))


def _host(node: ast.expr, names: Mapping[str, str]) -> str:
    match node:
        case ast.Constant(value=int() as number):
            return str(number)
        case ast.Name(id=name):
            if name not in names:
                raise Untranslatable(f"the host code does not say what {name} is")
            return _grouped(names[name])
        case ast.BinOp(
            left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() | ast.Mod() as op, right=second
        ):
            symbol = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/", ast.Mod: "%"}[type(op)]
            first = _host(left, names)
            if isinstance(left, ast.BinOp) and isinstance(left.op, type(op)) and isinstance(op, ast.Add | ast.Mult):
                first = _bare(first)
            text = f"({first} {symbol} {_host(second, names)})"
            return names.get(plain_arithmetic(text), text)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"(-{_host(operand, names)})"
        case ast.Call(func=ast.Name(id="cdiv"), args=[numerator, divisor]):
            return _quotient(numerator, divisor, names)
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[first, *rest]):
            text = _host(first, names)
            for other in rest:
                one, right = _bare(text), _bare(_host(other, names))
                text = f"({one} {'<' if name == 'min' else '>'} {right} ? {one} : {right})"
            return text
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return f"({_condition(test, names)} ? {_host(body, names)} : {_host(orelse, names)})"
    raise Untranslatable(f"{ast.unparse(node)} has no counterpart in a launch")


def _quotient(numerator: ast.expr, divisor: ast.expr, names: Mapping[str, str]) -> str:
    """Translates a division that rounds up."""
    by = _times(divisor, names) or _host(divisor, names)
    factors = factors_of(numerator)
    times = factors[-1].value if len(factors) > 1 and isinstance(factors[-1], ast.Constant) else 1
    if by.isdigit() and isinstance(times, int) and times > 1 and int(by) % times == 0:
        # 32 threads for each row, in blocks of 256: a block has 8 rows, whose number needs no wider type.
        numerator, by = product_of(factors[:-1]), str(int(by) // times)
        if by == "1":
            return _host(numerator, names)
        divisor = ast.Constant(int(by))
    if "cdiv" in names:
        return f"{names['cdiv']}({_bare(_host(numerator, names))}, {_bare(_host(divisor, names))})"
    whole = _bare(_widened(numerator, names))
    if by.isdigit():
        return f"(({whole} + {int(by) - 1}) / {by})"
    return f"(({whole} + {_product(by)} - 1) / {by})"


WIDE = "static_cast"
"""Key of the conversion to `size_t`, such as `(size_t){}`, among the names of host code."""
SMALL = 8
"""Number from which on the product with a size is computed in `size_t`: it is a number of threads per row or the like."""


def _widened(numerator: ast.expr, names: Mapping[str, str]) -> str:
    """Translates the numerator of a quotient; a product that `int` may not hold is computed in `size_t`."""
    text = _host(numerator, names)
    if WIDE not in names or not may_overflow(numerator) or plain_arithmetic(text) in names or "*" not in text:
        return text
    first, *rest = factors_of(numerator)
    return " * ".join([names[WIDE].format(_host(first, names)), *(_host(one, names) for one in rest)])


def may_overflow(node: ast.expr) -> bool:
    """Returns True for a product of several sizes, and of a size and a number of threads or elements."""
    factors = factors_of(node)
    numbers = [one.value for one in factors if isinstance(one, ast.Constant) and isinstance(one.value, int)]
    sizes = len(factors) - len(numbers)
    return sizes > 1 or (sizes == 1 and math.prod(numbers) >= SMALL)


def factors_of(node: ast.expr) -> list[ast.expr]:
    """Returns the factors of a product, in order; the node itself if it is none."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*factors_of(node.left), *factors_of(node.right)]
    return [node]


def product_of(factors: Sequence[ast.expr]) -> ast.expr:
    """Returns the product of some factors."""
    first, *rest = factors
    for one in rest:
        first = ast.BinOp(first, ast.Mult(), one)
    return first


def _condition(node: ast.expr, names: Mapping[str, str]) -> str:
    """Translates the condition of `a if condition else b`.

    Comparisons of two numbers, joined by one kind of `and` and `or`.
    """
    match node:
        case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARED:
            return f"{_host(left, names)} {_COMPARED[type(op)]} {_host(right, names)}"
        case ast.BoolOp(op=op, values=values) if all(isinstance(value, ast.Compare) for value in values):
            sign = " && " if isinstance(op, ast.And) else " || "
            return sign.join(_condition(value, names) for value in values)
    raise Untranslatable(f"{ast.unparse(node)} has no counterpart in a launch")


def _times(node: ast.expr, names: Mapping[str, str]) -> str:
    """Returns the product of a numeric name and the expression's numbers as one number; else an empty string."""
    match node:
        case ast.Name(id=name) if names.get(name, "").isdigit():
            return names[name]
        case ast.BinOp(left=left, op=ast.Mult(), right=ast.Constant(value=int() as times)):
            count = _times(left, names)
            return str(int(count) * times) if count else ""
    return ""


def _product(text: str) -> str:
    """Returns a product as a term of a sum, without parentheses."""
    inner = strip_parentheses(text)
    return inner if re.fullmatch(r"[A-Za-z_]\w* [*/] \d+", inner) else text


def plain_arithmetic(text: str) -> str:
    """Returns arithmetic of host code with the parentheses and spaces that it needs; empty for other expressions."""
    if re.search(r"[^\w\s()+*/%-]|\w\s*\(|//|\*\*", text):
        return ""
    try:
        return ast.unparse(ast.parse(text.strip(), mode="eval"))
    except SyntaxError:
        return ""


def _grouped(text: str) -> str:
    grouped = re.fullmatch(r"\w+(?:(?:\.|->|::)\w+)*", text) or strip_parentheses(text) != text
    return text if grouped else f"({text})"


def _bare(text: str) -> str:
    """Removes parentheses around a sum, product or name that has no weaker binding context."""
    inner = strip_parentheses(text)
    return inner if re.fullmatch(r"(?:[\w\s.()+*/%-]|::|static_cast<\w+>)*", inner) else text


def strip_parentheses(text: str) -> str:
    """Removes one pair of parentheses around the whole; the text may contain `//`, so the lexer cannot be used."""
    depth = 0
    for index, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if depth == 0:
            return text[1:-1] if index and index == len(text) - 1 else text
    return text


def function_around(text: str, place: int) -> tuple[int, int]:
    """Returns the offsets between the lines with a closing brace in the first column before and after an offset."""
    end = text.find("\n}", place)
    return text.rfind("\n}", 0, place) + 1, len(text) if end < 0 else end


def seen_at(text: str, place: int) -> set[str]:
    """Returns the parameters and the numbers declared before an offset in its function, in a text without comments."""
    start, _ = function_around(text, place)
    return set(re.findall(rf"\b{INTEGRAL}[ \t]+(\w+)[ \t]*(?=[,)=;])", text[start:place]))


def changes(text: str, names: Iterable[str]) -> bool:
    """Returns True if a text assigns to one of the variables."""
    each = rf"\b(?:{'|'.join(names)})\b"
    return (
        re.search(rf"{each}\s*(?:[-+*/%|&^]|<<|>>)?=[^=]|(?:\+\+|--)\s*{each}|{each}\s*(?:\+\+|--)", text) is not None
    )


def held_at(text: str, place: int) -> dict[str, str]:
    """Returns the names of integers declared before an offset in its function, by the products and sums that they hold."""
    start, _ = function_around(text, place)
    found: dict[str, str] = {}
    for declared in re.finditer(rf"\b{INTEGRAL}[ \t]+(\w+)[ \t]*=([^;{{}}]*);", text[start:place]):
        name, value = declared[1], plain_arithmetic(declared[2])
        after = text[start + declared.end() : place]
        left = re.sub(r"\{[^{}]*\}", "", after).count("}")  # the block of the declaration has ended
        words = [name, *re.findall(r"[A-Za-z_]\w*", value)]
        if re.search(r"[+*/%-]", value) and not left and not changes(after, words):
            found[value] = name
    return found


@dataclass(frozen=True, slots=True)
class LaunchVariable:
    """The declaration of a variable that a launch has as its grid or block.

    Attributes:
        head: the offset of the declaration.
        start, end: offsets of the initialiser.
        vector: True for a `dim3`.
    """

    head: int
    start: int
    end: int
    vector: bool


def side_declared(text: str, name: str, place: int) -> LaunchVariable | None:
    """Returns the only declaration of a launch's grid or block in a text without comments; None if there is none.

    An integer's initialiser contains no call but of a division, and nothing assigns to it later.

    Args:
        text: the text.
        name: the variable.
        place: the offset of the launch; a declaration in its function hides others.
    """
    if not name.isidentifier():
        return None
    first, last = function_around(text, place)
    if first and re.search(rf"\b(?:dim3|{INTEGRAL})\s[^;{{}}]*\b{name}\s*[=({{]", text[first:place]):
        found = _declared_in(text[first:last], name)
        return None if found is None else replace(found, head=found.head + first, start=found.start + first, end=found.end + first)  # fmt: skip
    return _declared_in(text, name)


def _declared_in(text: str, name: str) -> LaunchVariable | None:
    vectors = list(re.finditer(rf"\bdim3\s(?:[^;{{}}]*[,\s])?{name}\s*[({{](?=[^;]*[)}}]\s*[;,])", text))
    integers = list(re.finditer(rf"\b{INTEGRAL}\s+(?:const\s+)?{name}\s*=\s*(?=[^;]*;)", text))
    if len(vectors) + len(integers) != 1:
        return None
    (declared,) = [*vectors, *integers]
    if vectors:
        start, end = _initialiser(text, declared.end())
        return LaunchVariable(declared.start(), start, end - 1, vector=True)
    value = text[declared.end() : text.index(";", declared.end())].rstrip()
    plain = DIVIDED.sub("(", value) if DIVIDED.match(value) else value
    if re.search(r"\w\s*\(|[,{}]|[^<>=!]=[^=]", plain.replace(",", "", plain != value)) or changes(
        text[declared.end() :], [name]
    ):
        return None
    return LaunchVariable(declared.start(), declared.end(), declared.end() + len(value), vector=False)


def _initialiser(text: str, start: int) -> tuple[int, int]:
    """Returns offsets of an initialiser between the parenthesis that ends at `start` and its closing one."""
    end, depth = start, 1
    while depth and end < len(text):
        depth += (text[end] in "({") - (text[end] in ")}")
        end += 1
    return start, end


def in_braces(old: str, sides: str) -> str:
    """Returns the sides of a `dim3` that is initialised in braces, which convert no `int`; `old` are the earlier sides."""
    if re.fullmatch(r"[\d, ]+", sides):
        return sides
    parts, depth = [""], 0
    for letter in sides:
        depth += (letter == "(") - (letter == ")")
        parts = [*parts, ""] if letter == "," and depth == 0 else [*parts[:-1], parts[-1] + letter]
    given = re.search(r"static_cast<(\w+)>", old)
    kind = "unsigned" if given is None else given[1]
    return ", ".join(one.strip() if one.strip().isdigit() else f"static_cast<{kind}>({one.strip()})" for one in parts)


def in_own_cast(before: str, now: str) -> str:
    """Returns the new value of an integer in the conversion in which the file has the old one, if it has one."""
    cast = re.match(r"static_cast<[\w: ]+>\((?=.*\)$)|\((?:int|unsigned|uint32_t|unsigned int)\)(?=\(.*\)$)", before, re.DOTALL)  # fmt: skip
    if (
        cast is None
        or now.startswith(cast[0])
        or strip_parentheses(before[cast.end() - 1 :]) == before[cast.end() - 1 :]
    ):
        return now
    return f"{cast[0]}{now})" if cast[0].endswith(">(") else f"{cast[0]}({now})"


def constant_edit(
    text: str, place: int, name: str, was: str, now: str, own: Sequence[tuple[int, int]]
) -> list[tuple[int, int, str]] | None:
    """Returns the edit that gives one side of a block, a number or a constant's name, its new value; None if impossible.

    The constant may change if all its uses lie within the spans `own`.
    """
    if name.isdigit() and name == now:
        return []
    if not name.isidentifier() or not now.isdigit():
        return None
    first, last = function_around(text, place)
    given = re.compile(
        rf"(?:\b(?:int|unsigned|size_t|auto)[ \t]+{name}[ \t]*=[ \t]*|#[ \t]*define[ \t]+{name}[ \t]+)(\d+)"
    )
    if not given.search(text, first, place):  # not of the function
        first, last = 0, len(text)
    found = list(given.finditer(text, first, last))
    if len(found) != 1 or re.search(rf"\b{name}\s*(?:[-+*/]?=[^=]|\+\+|--)", text[found[0].end() : last]):
        return None
    if found[0][1] == now:
        return []
    uses = [first + match.start() for match in re.finditer(rf"\b{name}\b", text[first:last])]
    alone = all(any(start <= use < end for start, end in [found[0].span(), *own]) for use in uses)
    return [(*found[0].span(1), now)] if alone and found[0][1] == was else None
