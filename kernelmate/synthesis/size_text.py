"""C++ text of sizes and numbers of blocks, from expressions in the contract's language."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Callable, Mapping

from kernelmate.source import evaluate
from kernelmate.synthesis.names import without_comments
from kernelmate.synthesis.plan import Refused

ATOM, PRODUCT, SUM, LOOSE = 3, 2, 1, 0
"""Precedence of an expression's outermost operator: names and calls, products, sums, and any other operator."""


class MissingSize(Refused):
    """Raised if no parameter of the kernel holds a size that is needed; `size` is its name."""

    def __init__(self, size: str) -> None:
        super().__init__(f"the kernel does not get the size {size}")
        self.size = size


def size_text(expression: str, parameters: Mapping[str, str]) -> str:
    """Returns a size's expression in C++.

    Args:
        expression: an expression in the contract's language.
        parameters: the kernel's parameters that hold sizes, by size.

    Raises:
        MissingSize: the kernel does not get a size.
    """
    return _size_text(ast.parse(expression, mode="eval").body, parameters)[0]


def _size_text(node: ast.expr, parameters: Mapping[str, str]) -> tuple[str, int]:
    match node:
        case ast.Constant(value=int() as number):
            return str(number), ATOM
        case ast.Name(id=name):
            if name not in parameters:
                raise MissingSize(name)
            return parameters[name], ATOM
        case ast.BinOp(left=left, op=op, right=right):
            sign = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.FloorDiv: "/", ast.Mod: "%"}.get(type(op))
            level = SUM if sign in ("+", "-") else PRODUCT
            if sign == "%" and falls(left):
                value, by = _size_text(left, parameters), bound(_size_text(right, parameters), ATOM)
                return f"({bound(value, PRODUCT)} % {by} + {by}) % {by}", PRODUCT
            if sign is not None:
                return (
                    f"{bound(_size_text(left, parameters), level)} {sign} {bound(_size_text(right, parameters), level + 1)}",
                    level,
                )
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"-{bound(_size_text(operand, parameters), ATOM)}", PRODUCT
        case ast.Call(func=ast.Name(id="cdiv"), args=[left, ast.Constant(value=int() as by)]) if by > 1:
            return f"({bound(_size_text(left, parameters), SUM)} + {by - 1}) / {by}", PRODUCT
        case ast.Call(func=ast.Name(id="cdiv"), args=[left, right]):
            by, divisor = (bound(_size_text(right, parameters), level) for level in (SUM, ATOM))
            return f"({bound(_size_text(left, parameters), SUM)} + {by} - 1) / {divisor}", PRODUCT
        case ast.Call(func=ast.Name(id="max" | "min" as name), args=args):
            return f"{name}({', '.join(_size_text(arg, parameters)[0] for arg in args)})", ATOM
    raise Refused("a size's expression cannot be written in C++")


def falls(node: ast.expr) -> bool:
    """Returns True if an expression falls as a size grows, as `-n`: its remainder in C++ may then be negative."""
    match node:
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return not isinstance(operand, ast.Constant)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return falls(left) or not isinstance(right, ast.Constant)
        case ast.BinOp(left=left, op=ast.Add() | ast.Mult(), right=right):
            negative = isinstance(node.op, ast.Mult) and any(isinstance(one, ast.UnaryOp) for one in (left, right))
            return negative or falls(left) or falls(right)
    return False


_LOCAL = re.compile(r"\bconst (?:int|unsigned|unsigned int|size_t|long long|int64_t|auto) (\w+) = ([\w\s+*/%()-]+);")
"""Declarations of constant integers that are computed from others."""


def _without_casts(text: str) -> str:
    """Returns C++ text without casts of names to integer types."""
    text = re.sub(r"\bstatic_cast<[\w ]+>\((\w+)\)", r"\1", text)
    return re.sub(r"\((?:size_t|int|unsigned|long long|u?int(?:32|64)_t)\)(?=\w)", "", text)


def size_locals(source: str) -> dict[str, str]:
    """Returns the names of a kernel's constant locals by their expressions, normalised as by `plain_size`."""
    held: dict[str, str] = {}
    for name, text in _LOCAL.findall(_without_casts(without_comments(source))):
        for one, value in held.items():
            text = re.sub(rf"\b{one}\b", f"({value})", text)
        held[name] = text
    return {plain: name for name, text in reversed(held.items()) if (plain := plain_size(text))}


def plain_size(text: str) -> str:
    """Returns an expression of sizes in C++ without needless parentheses; empty if it is none, or only a name."""
    try:
        tree = ast.parse(" ".join(_without_casts(text).split()), mode="eval").body
    except SyntaxError:
        return ""
    return ast.unparse(tree) if isinstance(tree, ast.BinOp) else ""


def blocks_text(grid: str, size: Callable[[str], str]) -> str:
    """Returns a number of blocks in C++.

    Args:
        grid: a side of a grid, of sizes, products, `cdiv` by products of numbers, and `min`.
        size: gives the text of an expression of sizes.

    Raises:
        Refused: it cannot be written, or the kernel does not get a size.
    """
    return _blocks_text(ast.parse(grid, mode="eval").body, size)[0]


def _blocks_text(node: ast.expr, size: Callable[[str], str]) -> tuple[str, int]:
    match node:
        case ast.Call(func=ast.Name(id="min"), args=[one, other]):
            return f"min({_blocks_text(one, size)[0]}, {_blocks_text(other, size)[0]})", ATOM
        case ast.Call(func=ast.Name(id="cdiv"), args=[length, by]) if not any(
            isinstance(one, ast.Name) for one in ast.walk(by)
        ):
            step = int(evaluate(ast.unparse(by), {}))
            return f"({_blocks_text(length, size)[0]} + {step - 1}) / {step}", PRODUCT
        case ast.BinOp(left=left, op=ast.Mult(), right=right) if "cdiv" in ast.unparse(node):
            # A quotient on the right would be multiplied before it is divided.
            first, second = (_blocks_text(one, size) for one in (left, right))
            return f"{bound(first, PRODUCT)} * {bound(second, ATOM)}", PRODUCT
        case _ if "cdiv" not in ast.unparse(node):
            text = size(ast.unparse(node))
            return text, ATOM if text.isidentifier() or text.isdigit() else LOOSE
    raise Refused("a number of blocks cannot be written in C++")


def bound(text: tuple[str, int], level: int) -> str:
    """Returns an expression, in parentheses if its operator has a lower precedence than `level`."""
    return text[0] if text[1] >= level else f"({text[0]})"


def without_parentheses(text: str) -> str:
    """Returns an expression without parentheses around the whole expression."""
    return text[1:-1] if text.startswith("(") and closes_last(text) else text


def closes_last(text: str) -> bool:
    """Returns True if the first parenthesis of a text is closed by its last character."""
    depth = [*itertools.accumulate((one == "(") - (one == ")") for one in text[text.find("(") :])]
    return text.endswith(")") and 0 not in depth[:-1]


_WIDENED = (
    re.compile(r"static_cast<size_t>\(static_cast<long long>\(([\w\[\]]+)\)\)"),
    re.compile(r"\(static_cast<size_t>\(0\) \* \w+ \+ \(?([\w + ]+)\)?\)"),
    re.compile(r"static_cast<size_t>\(1\) \* (\w+)"),
)
"""Patterns of an integer that is cast twice, and of a row's number in the first or second part of an array."""


def plain_widening(line: str) -> str:
    """Returns a line with the outer one of two casts, and without products by the numbers 0 and 1 of an array's parts."""
    for pattern in _WIDENED:
        line = pattern.sub(r"static_cast<size_t>(\1)", line)
    return line
