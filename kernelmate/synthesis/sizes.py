"""Symbolic sizes: integers that record their expressions while a reference is traced."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Iterable
from typing import Any


class Untraceable(Exception):
    """The reference uses an operation without an equivalent in a graph; the message names it, without the line.

    Attributes:
        line: the line of the operation in the reference's file, if it is not the one that is being executed.
    """

    line: int | None = None


class Unequal(Untraceable):
    """Raised for extents that NumPy cannot broadcast at this size, where the reference has no result."""


class Dim(int):
    """An integer with its expression over the contract's sizes.

    Attributes:
        text: the expression.
        scalar: makes a traced scalar of an expression, for arithmetic whose result is not an integer.
    """

    text: str
    scalar: Callable[[str], Any]

    def __new__(cls, value: int, text: str, scalar: Callable[[str], Any]) -> Dim:
        """Creates a size from its value and expression."""
        made = super().__new__(cls, value)
        made.text, made.scalar = text, scalar
        return made

    def _with(self, other: Any, sign: str, compute: Callable[[int, int], int], *, swapped: bool = False) -> Any:
        if type(other) is float:
            return NotImplemented
        if not isinstance(other, int):
            return NotImplemented
        left, right = (other, self) if swapped else (self, other)
        return dim(compute(int(left), int(right)), joined(text_of(left), sign, text_of(right)), self.scalar)

    def __add__(self, other: Any) -> Any:
        return self._with(other, "+", int.__add__) if _whole(other) else self.scalar(self.text) + other

    def __radd__(self, other: Any) -> Any:
        return self._with(other, "+", int.__add__, swapped=True) if _whole(other) else other + self.scalar(self.text)

    def __sub__(self, other: Any) -> Any:
        return self._with(other, "-", int.__sub__) if _whole(other) else self.scalar(self.text) - other

    def __rsub__(self, other: Any) -> Any:
        return self._with(other, "-", int.__sub__, swapped=True) if _whole(other) else other - self.scalar(self.text)

    def __mul__(self, other: Any) -> Any:
        return self._with(other, "*", int.__mul__) if _whole(other) else self.scalar(self.text) * other

    def __rmul__(self, other: Any) -> Any:
        return self._with(other, "*", int.__mul__, swapped=True) if _whole(other) else other * self.scalar(self.text)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(other, "//", int.__floordiv__)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(other, "//", int.__floordiv__, swapped=True)

    def __mod__(self, other: Any) -> Any:
        return self._with(other, "%", int.__mod__)

    def __truediv__(self, other: Any) -> Any:
        return self.scalar(self.text) / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.scalar(self.text)

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        return self * self if other == 2 else self.scalar(self.text) ** other

    def __neg__(self) -> Any:
        return 0 - self

    def __float__(self) -> float:
        raise Untraceable(f"a function outside NumPy of the size {self.text}")

    def __bool__(self) -> bool:
        return int(self) != 0

    __hash__ = int.__hash__


class Real(float):
    """A floating-point number of the reference; an operation with a size gives a traced scalar."""


def real(value: Any) -> Any:
    """Wraps a floating-point number so that sizes stay symbolic; other values are unchanged."""
    return Real(value) if isinstance(value, float) else value


def _operation(name: str) -> Callable[[Real, Any], Any]:
    def operate(self: Real, other: Any) -> Any:
        if isinstance(other, Dim):
            return getattr(other.scalar(other.text), _REFLECTED[name])(float(self))
        return real(getattr(float, name)(self, other))

    return operate


_REFLECTED = {
    f"__{left}{name}__": f"__{right}{name}__"
    for name in ("add", "sub", "mul", "truediv", "pow")
    for left, right in (("", "r"), ("r", ""))
}
for _name in _REFLECTED:
    setattr(Real, _name, _operation(_name))
for _name in ("__neg__", "__abs__", "__pos__"):
    setattr(Real, _name, lambda self, _name=_name: Real(getattr(float, _name)(self)))


def _whole(other: Any) -> bool:
    return isinstance(other, int)


def dim(value: int, text: str, scalar: Callable[[str], Any]) -> int:
    """Returns an integer that records its expression; the plain integer if the expression is a number."""
    return value if _is_number(text) else Dim(value, text, scalar)


def text_of(value: Any) -> str:
    """Returns the expression of a size, or the number."""
    return value.text if isinstance(value, Dim) else str(int(value))


def product_text(sides: Iterable[str]) -> str:
    """Returns the product of expressions, without neutral operands."""
    return functools.reduce(lambda left, right: joined(left, "*", right), sides, "1")


def joined(left: str, sign: str, right: str) -> str:
    """Returns two expressions joined by an operator, without neutral operands."""
    if _is_number(left) and _is_number(right):
        a, b = int(left), int(right)
        return str({"+": a + b, "-": a - b, "*": a * b, "//": a // b if b else 0, "%": a % b if b else 0}[sign])
    if sign == "-" and left.endswith(f" + {right})") and left[1 : -len(f" + {right})")].isidentifier():
        return left[1 : -len(f" + {right})")]
    if sign == "//":
        left, right = _cancelled(left, right)
    if (sign == "*" and left == "1") or (sign == "+" and left == "0"):
        return right
    if (sign in ("*", "//") and right == "1") or (sign in ("+", "-") and right == "0"):
        return left
    return f"({left} {sign} {right})"


def _cancelled(left: str, right: str) -> tuple[str, str]:
    """Cancels the common factors of a quotient.

    Sizes are positive, so the integer quotient is unchanged.
    """
    above, below = _factors(ast.parse(left, mode="eval").body), _factors(ast.parse(right, mode="eval").body)
    for one in list(below):
        if one in above:
            above.remove(one)
            below.remove(one)
    numbers = [math.prod(int(one) for one in some if one.isdigit()) for some in (above, below)]
    common = math.gcd(*numbers)
    sides = []
    for some, number in zip((above, below), numbers, strict=True):
        sides.append(product_text([*(one for one in some if not one.isdigit()), str(number // common)]))
    return sides[0], sides[1]


def factors_of(expression: str) -> list[str]:
    """Returns the factors of a size's expression, or the expression itself if it is not a product."""
    return _factors(ast.parse(expression, mode="eval").body)


def _factors(node: ast.expr) -> list[str]:
    """Returns the factors of a product."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return [*_factors(node.left), *_factors(node.right)]
    text = ast.unparse(node)
    return [text if text.isalnum() or isinstance(node, ast.Name | ast.Call) else f"({text})"]


def extreme(name: str, values: tuple[Any, ...], scalar: Callable[[str], Any]) -> int:
    """Returns `max` or `min` of sizes and numbers, as a size."""
    compute: Callable[[list[int]], int] = max if name == "max" else min
    text = f"{name}({', '.join(text_of(value) for value in values)})"
    return dim(compute([int(value) for value in values]), text, scalar)


def product(values: tuple[int, ...], scalar: Callable[[str], Any]) -> int:
    """Returns the number of elements of a shape, as a size."""
    return dim(math.prod(int(value) for value in values), product_text(map(text_of, values)), scalar)


def _is_number(text: str) -> bool:
    return text.lstrip("-").isdigit()
