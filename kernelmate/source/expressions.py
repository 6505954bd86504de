"""Arithmetic expressions of contracts: Python's grammar with a separate evaluator; integer results stay integers.

Supported are `+ - * / // % **`, unary signs, comparisons, `and`, `or`, `not`, `a if condition else b`, and the
functions `cdiv`, `min`, `max`; attributes, other calls, subscripts and strings are not. Values are bounded by 2^63 - 1,
so that no expression can use much time or memory.
"""

from __future__ import annotations

import ast
import difflib
import math
import operator
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache

from kernelmate.errors import ContractError

LARGEST = 2**63 - 1
LONGEST = 1000
DEEPEST = 50
FUNCTIONS = ("cdiv", "min", "max")
BLOCK_NAMES = ("block", "block_x", "block_y", "block_z")
"""Names of the block that grid and shared may use: its number of threads, and its dimensions."""

RESERVED = frozenset({*BLOCK_NAMES, *FUNCTIONS, "np", "inf", "nan", "seed"})
"""Names that are not allowed for sizes."""

Number = int | float

_ARITHMETIC: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_SIGNS: dict[type[ast.unaryop], Callable[[Number], Number]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Not: operator.not_,
}
_COMPARISONS: dict[type[ast.cmpop], Callable[[Number, Number], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class ExpressionError(ContractError):
    """An expression is invalid or has no value.

    `offset` counts characters from the expression's start; the caller, who knows its place in the file, adds that.
    """

    def __init__(self, message: str, *, offset: int = 0, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.offset = offset


def evaluate(expression: str, names: Mapping[str, Number]) -> Number:
    """Returns the value of an expression; comparisons give a bool.

    Raises:
        ContractError: it is invalid, uses an unknown name, divides by zero, or exceeds 64 bits.
    """
    tree = parse_expression(expression)
    check_names(expression, names)
    return _Evaluation(expression, names).value(tree)


def evaluate_integer(expression: str, names: Mapping[str, int], what: str) -> int:
    """Returns the value of an expression that must be an integer; `what` names it in the error.

    Raises:
        ContractError: as `evaluate`, or the value is not whole.
    """
    value = evaluate(expression, names)
    if isinstance(value, float):
        if not value.is_integer() or abs(value) > 2**53:
            hint = "Write a whole number."
            if "/" in expression:
                hint = "`/` divides exactly here: write `//`, or cdiv(a, b) to round up."
            raise ExpressionError(f"{what} is {value:g}, which is not a whole number.", hint=hint)
        return int(value)
    return int(value)


@lru_cache(maxsize=1024)
def parse_expression(expression: str) -> ast.expr:
    """Returns the syntax tree of an expression, checked to contain only arithmetic.

    Raises:
        ExpressionError: it contains something else, or is not an expression.
    """
    text = expression.lstrip()
    shift = len(expression) - len(text)
    if not text:
        raise ExpressionError("The expression is empty.", hint="Write a number or an expression over the sizes.")
    if len(text) > LONGEST:
        raise ExpressionError(f"The expression is over {LONGEST} characters long.", hint="Shorten it.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text, mode="eval").body
        _check(tree, text, shift)
    except SyntaxError as error:
        column = min(max((error.offset or 1) - 1, 0), len(text) - 1)
        raise ExpressionError(
            f"{text!r} is not an expression: {error.msg}.",
            offset=shift + column,
            hint="Write arithmetic over the sizes, such as cdiv(n, block).",
        ) from None
    except (ValueError, RecursionError, MemoryError):
        raise ExpressionError(f"{text[:40]!r} is not an expression.", offset=shift, hint="Simplify it.") from None
    return tree


@lru_cache(maxsize=1024)
def names_in(expression: str) -> tuple[tuple[str, int], ...]:
    """Returns the names that an expression uses, each with its offset in characters, in order.

    Raises:
        ExpressionError: it is not an expression.
    """
    tree = parse_expression(expression)
    shift = len(expression) - len(expression.lstrip())
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    found = [
        (node.id, shift + _characters(expression[shift:], node))
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and id(node) not in called
    ]
    return tuple(sorted(found, key=lambda pair: pair[1]))


def as_factor(text: str) -> str:
    """Returns an expression as a factor of a product: a name or a number as it is, another expression in parentheses."""
    return text if text.isidentifier() or text.isdecimal() else f"({text})"


def check_names(expression: str, known: Iterable[str]) -> None:
    """Refuses an unknown name.

    Raises:
        ExpressionError: at the first such name; the hint gives the nearest known one.
    """
    names = sorted(known)
    for name, offset in names_in(expression):
        if name not in names:
            raise ExpressionError(f"{name!r} is not defined here.", offset=offset, hint=nearest_hint(name, names))


def nearest_hint(name: str, known: Iterable[str]) -> str:
    """Returns `Did you mean X?`, or the list of known names."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    if near:
        return f"Did you mean {near[0]}?"
    return f"Known here: {', '.join(names)}." if names else "No name is known here: write a number."


def _characters(text: str, node: ast.expr) -> int:
    """Returns a node's offset in characters; `ast` counts UTF-8 bytes of its line."""
    lines = text.split("\n")
    before = sum(len(line) + 1 for line in lines[: node.lineno - 1])
    return before + len(lines[node.lineno - 1].encode()[: node.col_offset].decode(errors="ignore"))


def _check(node: ast.expr, text: str, shift: int, depth: int = 0) -> None:
    """Raises at the first construct that is not arithmetic."""
    if depth > DEEPEST:
        raise ExpressionError("The expression is nested too deeply.", offset=shift, hint="Simplify it.")
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        if not math.isfinite(node.value) or abs(node.value) > LARGEST:
            offset = shift + _characters(text, node)
            raise ExpressionError("The number is over 2^63 - 1.", offset=offset, hint="Write a smaller number.")
        return
    if isinstance(node, ast.Name):
        return
    for child in _operands(node, text, shift):
        _check(child, text, shift, depth + 1)


def _operands(node: ast.expr, text: str, shift: int) -> list[ast.expr]:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub | ast.Not):
        return [node.operand]
    if isinstance(node, ast.BinOp) and (type(node.op) in _ARITHMETIC or isinstance(node.op, ast.Pow)):
        return [node.left, node.right]
    if isinstance(node, ast.BoolOp):
        return node.values
    if isinstance(node, ast.Compare) and all(type(op) in _COMPARISONS for op in node.ops):
        return [node.left, *node.comparators]
    if isinstance(node, ast.IfExp):
        return [node.test, node.body, node.orelse]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        return _call_operands(node, node.func.id, shift + _characters(text, node))
    what = ast.get_source_segment(text, node) or text
    raise ExpressionError(
        f"{what!r} is not arithmetic.",
        offset=shift + _characters(text, node),
        hint="Known are + - * / // % **, comparisons, and, or, not, a if c else b, cdiv(a, b), min(...), max(...).",
    )


def _call_operands(node: ast.Call, name: str, offset: int) -> list[ast.expr]:
    if name not in FUNCTIONS:
        raise ExpressionError(f"{name!r} is not a function here.", offset=offset, hint=nearest_hint(name, FUNCTIONS))
    count = len(node.args)
    if (name == "cdiv" and count != 2) or count == 0:
        wants = "two arguments: cdiv(a, b)" if name == "cdiv" else "at least one argument"
        raise ExpressionError(f"{name} takes {wants}.", offset=offset, hint="Give these arguments.")
    return node.args


class _Evaluation:
    """Evaluates a checked tree with given names."""

    def __init__(self, expression: str, names: Mapping[str, Number]) -> None:
        self.text = expression.lstrip()
        self.shift = len(expression) - len(self.text)
        self.names = names

    def value(self, node: ast.expr) -> Number:
        result = self._value(node)
        if isinstance(result, complex) or not math.isfinite(result) or abs(result) > LARGEST:
            raise self.error(node, "goes over 2^63 - 1", "Write a smaller expression.")
        return result

    def _value(self, node: ast.expr) -> Number:
        match node:
            case ast.Constant(value=int() | float() as number):
                return number
            case ast.Name(id=name):
                return self.names[name]
            case ast.UnaryOp():
                return _SIGNS[type(node.op)](self.value(node.operand))
            case ast.BinOp():
                return self.binary(node)
            case ast.BoolOp():
                return self.logical(node)
            case ast.Compare():
                return self.comparison(node)
            case ast.IfExp():
                return self.value(node.body if self.value(node.test) else node.orelse)
            case ast.Call(func=ast.Name(id=name)):
                return self.call(node, name)
        raise AssertionError(f"unchecked node {node!r}")

    def binary(self, node: ast.BinOp) -> Number:
        left, right = self.value(node.left), self.value(node.right)
        if isinstance(node.op, ast.Pow):
            return self.power(node, left, right)
        if right == 0 and isinstance(node.op, ast.Div | ast.FloorDiv | ast.Mod):
            raise self.error(node, "divides by zero", "Change the divisor or the size.")
        try:
            return _ARITHMETIC[type(node.op)](left, right)
        except OverflowError:
            raise self.error(node, "goes over 2^63 - 1", "Write a smaller expression.") from None

    def power(self, node: ast.BinOp, base: Number, exponent: Number) -> Number:
        if base == 0 and exponent < 0:
            raise self.error(node, "divides by zero", "Change the exponent or the size.")
        if base < 0 and exponent != int(exponent):
            raise self.error(node, "is a root of a negative number", "Change the exponent or the size.")
        if abs(base) > 1 and abs(exponent) * math.log2(abs(base)) > 64:
            raise self.error(node, "goes over 2^63 - 1", "Write a smaller power.")
        if isinstance(base, int) and isinstance(exponent, int) and abs(base) <= 1:
            exponent = exponent % 2 + (2 if exponent > 0 else -2 if exponent < 0 else 0)
        result: Number = base**exponent
        return result

    def logical(self, node: ast.BoolOp) -> Number:
        stop_at = isinstance(node.op, ast.Or)
        result: Number = not stop_at
        for operand in node.values:
            result = self.value(operand)
            if bool(result) == stop_at:
                break
        return result

    def comparison(self, node: ast.Compare) -> bool:
        left = self.value(node.left)
        for op, comparator in zip(node.ops, node.comparators, strict=True):
            right = self.value(comparator)
            if not _COMPARISONS[type(op)](left, right):
                return False
            left = right
        return True

    def call(self, node: ast.Call, name: str) -> Number:
        arguments = [self.value(argument) for argument in node.args]
        if name == "min":
            return min(arguments)
        if name == "max":
            return max(arguments)
        numerator, divisor = arguments
        if divisor == 0:
            raise self.error(node, "divides by zero", "Change the divisor or the size.")
        return -(-numerator // divisor)

    def error(self, node: ast.expr, what: str, hint: str) -> ExpressionError:
        segment = ast.get_source_segment(self.text, node) or self.text
        values = ", ".join(
            f"{n.id} = {self.names[n.id]}" for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in self.names
        )
        at = f" at {values}" if values else ""
        return ExpressionError(f"{segment} {what}{at}.", offset=self.shift + _characters(self.text, node), hint=hint)
