"""Index maps of windows: positions in the source of an element of a slice, of a padded or of a joined array."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

ORDINARY, OTHERWISE, ABOVE, EDGE, WRAP = "inside", "otherwise", "above", "edge", "wrap"
REFLECT, SYMMETRIC = "reflect", "symmetric"
"""Behaviours for positions beyond the ends of an axis.

In order: positions never leave the axis; the second operand is used; the second operand is used, and positions leave
only above the end; the nearest element is used; positions wrap around; positions are mirrored at the border element, or
at its outer side, within one length of the axis.
"""


@dataclass(frozen=True, slots=True)
class Linear:
    """A sum of integer multiples of terms, and an integer constant.

    Terms are size expressions that are not sums, and variables, whose names begin with two underscores.
    """

    terms: tuple[tuple[str, int], ...] = ()
    constant: int = 0

    @staticmethod
    def sum(terms: Iterable[tuple[str, int]], constant: int = 0) -> Linear:
        """Returns a sum in normal form: sorted terms, each once."""
        found: dict[str, int] = {}
        for name, factor in terms:
            found[name] = found.get(name, 0) + factor
        return Linear(tuple(sorted((name, factor) for name, factor in found.items() if factor)), constant)

    def plus(self, other: Linear | int, times: int = 1) -> Linear:
        """Returns this sum plus a multiple of another."""
        if isinstance(other, int):
            return Linear(self.terms, self.constant + other * times)
        more = ((name, factor * times) for name, factor in other.terms)
        return Linear.sum((*self.terms, *more), self.constant + other.constant * times)

    def times(self, factor: int) -> Linear:
        """Returns this sum times an integer."""
        return Linear().plus(self, factor)

    def text(self) -> str:
        """Returns the expression, in parentheses if it has more than one term."""
        single = not self.constant and len(self.terms) == 1 and self.terms[0][1] == 1
        return self.bare() if single or not self.terms else f"({self.bare()})"

    def bare(self) -> str:
        """Returns the expression without parentheses around it."""
        text = ""
        for name, factor in sorted(self.terms, key=lambda term: term[1] < 0):
            sign = " - " if factor < 0 else " + "
            text += ("-" if factor < 0 else "") if not text else sign
            text += name if abs(factor) == 1 else f"{abs(factor)} * {name}"
        if not text:
            return str(self.constant)
        if self.constant:
            text += f" {'-' if self.constant < 0 else '+'} {abs(self.constant)}"
        return text


def linear(text: str) -> Linear:
    """Parses an expression of sizes as a sum."""
    return _linear(ast.parse(text.strip(), mode="eval").body)


def _linear(node: ast.expr) -> Linear:
    match node:
        case ast.Constant(value=int() as number):
            return Linear((), number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return _linear(operand).times(-1)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as sign, right=right):
            return _linear(left).plus(_linear(right), 1 if isinstance(sign, ast.Add) else -1)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            sides = _linear(left), _linear(right)
            for one, other in (sides, sides[::-1]):
                if not one.terms:
                    return other.times(one.constant)
        case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Mod() as sign, right=right):
            above, below = _linear(left), _linear(right)
            if not above.terms and not below.terms and below.constant > 0:
                divided = divmod(above.constant, below.constant)
                return Linear((), divided[0 if isinstance(sign, ast.FloorDiv) else 1])
    text = ast.unparse(node)
    return Linear(((text if isinstance(node, ast.Name | ast.Call) else f"({text})", 1),))


def joined_again(value: Linear) -> Linear:
    """Returns a sum in which `(a // n) * n + a % n` is replaced by `a`."""
    terms = dict(value.terms)
    for name, factor in value.terms:
        found = re.fullmatch(r"\((.+) % (\d+)\)", name)
        quotient = f"({found[1]} // {found[2]})" if found else ""
        if found and terms.get(quotient) == factor * int(found[2]):
            rest = Linear.sum([one for one in value.terms if one[0] not in (name, quotient)], value.constant)
            return joined_again(rest.plus(linear(found[1]), factor))
    return value


def existing(side: str) -> Linear:
    """Returns the length of an axis as if it is not empty: `n` for `max(n, 0)`."""
    node = ast.parse(side.strip(), mode="eval").body
    match node:
        case ast.Call(func=ast.Name(id="max"), args=[first, ast.Constant(value=0)]):
            return _linear(first)
    return _linear(node)


def never_negative(value: Linear, ranges: Mapping[str, Linear] | None = None) -> bool:
    """Returns True if a sum is provably at least zero.

    Args:
        value: the sum; sizes are at least zero.
        ranges: the exclusive upper bound of each variable, which is at least 0.
    """
    ranges = ranges or {}
    lowest = Linear((), value.constant)
    for name, factor in value.terms:
        if not name.startswith("__"):
            lowest = lowest.plus(Linear(((name, factor),)))
        elif factor < 0:
            if name not in ranges:
                return False
            lowest = lowest.plus(ranges[name].plus(-1), factor)
    facts = [Linear(), *(side.plus(-1) for side in ranges.values())]
    return any(_adds_up(lowest.plus(fact, -1), exact=exact) for fact in facts for exact in (False, True))


def _adds_up(value: Linear, *, exact: bool) -> bool:
    """Returns True if no term of a sum is negative.

    Quotients are replaced by their bounds in real division. Unless `exact`, added quotients are also taken to be at
    least zero.
    """
    total: dict[str, Fraction] = {}
    constant = Fraction(value.constant)
    for name, factor in value.terms:
        node = ast.parse(name, mode="eval").body
        match node:
            case ast.BinOp(left=left, op=ast.FloorDiv(), right=ast.Constant(value=int() as by)) if by > 0 and (
                exact or factor < 0
            ):
                inner = _linear(left)
                share = Fraction(factor, by)
                # x // k lies between (x - k + 1) / k and x / k.
                constant += share * inner.constant - (share * (by - 1) if factor > 0 else 0)
                for one, count in inner.terms:
                    total[one] = total.get(one, Fraction(0)) + share * count
            case _:
                total[name] = total.get(name, Fraction(0)) + factor
    return constant >= 0 and all(factor >= 0 for factor in total.values())


@dataclass(frozen=True, slots=True)
class AxisMap:
    """Index map along one axis of a source: `(offset + sum of step * position) / every`, where that is an integer.

    Attributes:
        offset: a size expression.
        terms: axes of the result, with the step along each.
        beyond: one of the constants above.
    """

    offset: str = "0"
    terms: tuple[tuple[int, int], ...] = ()
    beyond: str = ORDINARY
    every: int = 1

    def text(self) -> str:
        """Returns the map's text, an entry of a node's data."""
        terms = ",".join(f"{axis}*{step}" for axis, step in self.terms)
        return f"{self.beyond}|{self.every}|{self.offset}|{terms}"

    @staticmethod
    def of(text: Any) -> AxisMap:
        """Parses a map from the result of `text`."""
        beyond, every, offset, terms = str(text).split("|")
        pairs = (one.split("*") for one in terms.split(",") if one)
        return AxisMap(offset, tuple((int(axis), int(step)) for axis, step in pairs), beyond, int(every))

    def position(self, at: Mapping[int, Linear]) -> Linear:
        """Returns the sum before the division by `every`, for positions along the result's axes."""
        result = linear(self.offset)
        for axis, step in self.terms:
            result = result.plus(at[axis], step)
        return result


def length_of(start: Linear, stop: Linear, step: int) -> str:
    """Returns the number of positions from `start` to before `stop` by `step`, as a non-negative expression."""
    apart = stop.plus(start, -1) if step > 0 else start.plus(stop, -1)
    size = abs(step)
    whole = apart if size == 1 else _divided(apart.plus(size - 1), size)
    if never_negative(apart):
        return whole.text()
    return f"max({whole.bare()}, 0)"


def _divided(value: Linear, by: int) -> Linear:
    """Returns a sum divided by an integer, rounded down."""
    common = math.gcd(by, *(factor for _, factor in value.terms))
    if common == by:
        return Linear(tuple((name, factor // by) for name, factor in value.terms), value.constant // by)
    return Linear(((f"({value.text()} // {by})", 1),))
