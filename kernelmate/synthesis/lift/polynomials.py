"""Index arithmetic of kernels: polynomials in sizes and variables, with quotients, remainders and bounds."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kernelmate.source.expressions import parse_expression


class NotLifted(Exception):
    """Raised if a kernel, or a part of it, cannot be lifted.

    Attributes:
        reason: completes "it is not lifted: ...".
        line: the line of the unit's text; None if the reason concerns the whole kernel.
    """

    def __init__(self, reason: str, line: int | None = None) -> None:
        super().__init__(reason)
        self.reason, self.line = reason, line


class NeedsSplit(Exception):
    """Raised if a variable must be split in two: `variable = by * outer + inner`."""

    def __init__(self, variable: str, by: Poly) -> None:
        super().__init__(variable)
        self.variable, self.by = variable, by


@dataclass(frozen=True)
class Atom:
    """A factor of a monomial that is not a name.

    Kinds are `quotient` and `remainder` of two polynomials, `least` and `most` (minimum and maximum) of two, and `data`
    for the value of an array element.
    """

    kind: str
    args: tuple[Any, ...]

    @cached_property
    def key(self) -> str:
        """Sorts key of the atom."""
        return repr(self)


Factor = str | Atom
Monomial = tuple[Factor, ...]


def is_variable(factor: Factor) -> bool:
    """Returns True for variables of threads, blocks or iterations; other names are sizes."""
    return isinstance(factor, str) and factor.startswith(("%", "?"))


def _key(factor: Factor) -> str:
    return factor if isinstance(factor, str) else factor.key


@dataclass(frozen=True)
class Poly:
    """A sum of monomials with non-zero integer coefficients."""

    terms: frozenset[tuple[Monomial, int]]

    @staticmethod
    def of(terms: Mapping[Monomial, int]) -> Poly:
        """Returns a polynomial from coefficients by monomial."""
        return Poly(frozenset((key, value) for key, value in terms.items() if value))

    @staticmethod
    def number(value: int) -> Poly:
        """Returns a constant polynomial."""
        return Poly.of({(): value})

    @staticmethod
    def name(factor: Factor) -> Poly:
        """Returns a polynomial of one factor."""
        return Poly.of({(factor,): 1})

    def __add__(self, other: Poly | int) -> Poly:
        found = dict(self.terms)
        for key, value in _poly(other).terms:
            found[key] = found.get(key, 0) + value
        return Poly.of(found)

    def __neg__(self) -> Poly:
        return Poly.of({key: -value for key, value in self.terms})

    def __sub__(self, other: Poly | int) -> Poly:
        return self + -_poly(other)

    def __mul__(self, other: Poly | int) -> Poly:
        found: dict[Monomial, int] = {}
        for mine, value in self.terms:
            for theirs, factor in _poly(other).terms:
                key = tuple(sorted((*mine, *theirs), key=_key))
                found[key] = found.get(key, 0) + value * factor
        return Poly.of(found)

    @property
    def constant(self) -> int | None:
        """The polynomial's value if it is a number; else None."""
        if not self.terms:
            return 0
        return next(iter(self.terms))[1] if all(not key for key, _ in self.terms) else None

    @property
    def lone(self) -> Factor | None:
        """The polynomial's factor if it is a single factor with coefficient 1; else None."""
        if len(self.terms) != 1:
            return None
        key, value = next(iter(self.terms))
        return key[0] if len(key) == 1 and value == 1 else None

    def coefficient(self, name: str) -> Poly:
        """Returns the coefficient of a variable that does not occur in powers or atoms."""
        found = {tuple(one for one in key if one != name): value for key, value in self.terms if name in key}
        return Poly.of(found)

    def ordered(self) -> list[tuple[Monomial, int]]:
        """Returns the terms in a fixed order, the constant last."""
        return sorted(self.terms, key=lambda term: (not term[0], term[1] < 0, tuple(map(_key, term[0]))))

    def factors(self) -> Iterator[Factor]:
        """Yields every factor of every monomial, without those inside atoms."""
        for key, _ in self.terms:
            yield from key

    def divided(self, by: Poly) -> tuple[Poly, Poly]:
        """Divides by a monomial, term by term; returns the exact quotient and the terms that are not divisible."""
        if len(by.terms) != 1:
            return self._divided_by_sum(by)
        (factors, scale), exact, rest = next(iter(by.terms)), {}, {}
        for key, value in self.terms:
            left = _without(key, factors)
            if left is None or value % scale:
                rest[key] = value
            else:
                exact[left] = value // scale
        return Poly.of(exact), Poly.of(rest)

    def _divided_by_sum(self, by: Poly) -> tuple[Poly, Poly]:
        """Divides by a sum as `divided` does; the coefficient of each product of variables is divided separately."""
        groups: dict[Monomial, dict[Monomial, int]] = {}
        for key, value in self.terms:
            moving = tuple(one for one in key if is_variable(one))
            groups.setdefault(moving, {})[tuple(one for one in key if not is_variable(one))] = value
        exact = rest = Poly.number(0)
        for moving, held in groups.items():
            quotient, left = _long_division(Poly.of(held), by)
            product = Poly.of({moving: 1})
            exact, rest = exact + quotient * product, rest + left * product
        return exact, rest


def _long_division(numerator: Poly, by: Poly) -> tuple[Poly, Poly]:
    """Divides two polynomials exactly; returns 0 and the numerator if that is impossible."""
    lead, scale = max(by.terms, key=lambda term: (len(term[0]), tuple(map(_key, term[0]))))
    quotient, rest = Poly.number(0), numerator
    for _ in range(32):
        found = [
            (left, value)
            for key, value in rest.terms
            if (left := _without(key, lead)) is not None and value % scale == 0
        ]
        if not found:
            break
        left, value = max(found, key=lambda term: (len(term[0]), tuple(map(_key, term[0]))))
        part = Poly.of({left: value // scale})
        quotient, rest = quotient + part, rest - part * by
    return (quotient, rest) if not rest.terms else (Poly.number(0), numerator)


def _without(key: Monomial, factors: Monomial) -> Monomial | None:
    left = list(key)
    for one in factors:
        if one not in left:
            return None
        left.remove(one)
    return tuple(left)


def _poly(value: Poly | int) -> Poly:
    return value if isinstance(value, Poly) else Poly.number(value)


@dataclass
class Space:
    """Extents of variables, which start at zero; None if only guards bound a variable.

    Attributes:
        apart: variables that result from a split, and are not merged again.
    """

    extents: dict[str, Poly | None]
    apart: set[str] = field(default_factory=set)

    def not_negative(self, value: Poly) -> bool:
        """Returns True if a polynomial is provably at least zero, for sizes of at least one."""
        bound = Poly.number(0)
        for key, scale in value.terms:
            part: Poly | None = Poly.number(scale)
            for factor in key:
                if isinstance(factor, Atom) and factor.kind == "data":
                    return False
                if is_variable(factor):
                    part = self._extreme(str(factor), part, upper=scale < 0)
                elif part is not None:
                    part = part * (Poly.name(factor) + 1 if isinstance(factor, str) else Poly.name(factor))
                if part is None:
                    return False
            bound = bound + (part or Poly.number(0))
        return all(scale >= 0 for _, scale in bound.terms)

    def _extreme(self, name: str, part: Poly | None, *, upper: bool) -> Poly | None:
        if part is None or not upper:
            return None if part is None else Poly.number(0)
        extent = self.extents.get(name)
        if extent is None:
            return None
        return part * _raised(extent - 1)

    def greatest(self, value: Poly) -> Poly | None:
        """Returns an upper bound over all variables; None if a variable without extent is needed."""
        bound = Poly.number(0)
        for key, scale in value.terms:
            part = Poly.number(scale)
            for factor in key:
                if is_variable(factor):
                    extent = self.extents.get(str(factor))
                    if scale > 0 and extent is None:
                        return None
                    part = part * (extent - 1 if extent is not None and scale > 0 else Poly.number(0))
                else:
                    part = part * Poly.name(factor)
            bound = bound + part
        return bound

    def quotient(self, value: Poly, by: Poly) -> Poly:
        """Returns the quotient, rounded down."""
        if by.constant == 1:
            return value
        if value.constant is not None and by.constant:
            return Poly.number(value.constant // by.constant)
        exact, rest = value.divided(by)
        if not rest.terms or (self.not_negative(rest) and self.not_negative(by - 1 - rest)):
            return exact
        lone = value.lone
        if isinstance(lone, Atom) and lone.kind == "quotient":
            return self.quotient(lone.args[0], lone.args[1] * by)
        outer = Poly.name(Atom("quotient", (rest, by)))
        return exact + outer if exact.terms else Poly.name(Atom("quotient", (value, by)))

    def remainder(self, value: Poly, by: Poly) -> Poly:
        """Returns the remainder of a division by `by`."""
        if value.constant is not None and by.constant:
            return Poly.number(value.constant % by.constant)
        _, rest = value.divided(by)
        if not rest.terms or (self.not_negative(rest) and self.not_negative(by - 1 - rest)):
            return rest
        return Poly.name(Atom("remainder", (rest, by)))

    def atom(self, kind: str, args: tuple[Any, ...]) -> Poly:
        """Returns an atom as a polynomial, simplified if possible."""
        if kind == "quotient":
            return self.quotient(*args)
        if kind == "remainder":
            return self.remainder(*args)
        if kind in ("least", "most"):
            first, second = args if kind == "least" else args[::-1]
            if self.not_negative(second - first):
                return Poly.of(dict(args[0].terms))
            if self.not_negative(first - second):
                return Poly.of(dict(args[1].terms))
        return Poly.name(Atom(kind, args))


def _raised(value: Poly) -> Poly:
    """Returns the polynomial with each size replaced by itself plus one."""
    total = Poly.number(0)
    for key, scale in value.terms:
        part = Poly.number(scale)
        for factor in key:
            part = part * (
                Poly.name(factor) + 1 if isinstance(factor, str) and not is_variable(factor) else Poly.name(factor)
            )
        total = total + part
    return total


def variables_of(value: Poly, of_data: Callable[[Any], frozenset[str]]) -> frozenset[str]:
    """Returns the variables of a polynomial, including those inside atoms."""
    found: set[str] = set()
    for factor in value.factors():
        if isinstance(factor, str):
            found |= {factor} if is_variable(factor) else set()
        elif factor.kind == "data":
            found |= of_data(factor.args[0])
        else:
            for one in factor.args:
                found |= variables_of(one, of_data)
    return frozenset(found)


def size_expression(text: str) -> Poly:
    """Converts a contract's expression over sizes to a polynomial."""
    return _read(parse_expression(text))


def multiples(require: Sequence[str]) -> dict[str, Poly]:
    """Returns products for sizes from conditions `a % b == 0`: `a` is `b` times the name `a // b`."""
    found: dict[str, Poly] = {}
    for text in require:
        match parse_expression(text):
            case ast.Compare(
                left=ast.BinOp(left=ast.Name(id=size), op=ast.Mod(), right=ast.Name() | ast.Constant() as by),
                ops=[ast.Eq()],
                comparators=[ast.Constant(value=0)],
            ) if size not in found:
                found[size] = _read(by) * Poly.name(f"{size} // {ast.unparse(by)}")
    return found


def _read(node: ast.expr) -> Poly:
    space = Space({})
    match node:
        case ast.Constant(value=int() as value):
            return Poly.number(value)
        case ast.Name(id=name):
            return Poly.name(name)
        case ast.UnaryOp(op=ast.USub(), operand=inner):
            return -_read(inner)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _read(left) + _read(right)
        case ast.BinOp(left=left, op=ast.Sub(), right=right):
            return _read(left) - _read(right)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            return _read(left) * _read(right)
        case ast.BinOp(left=left, op=ast.FloorDiv() | ast.Div(), right=right):
            return space.quotient(_read(left), _read(right))
        case ast.BinOp(left=left, op=ast.Mod(), right=right):
            return space.remainder(_read(left), _read(right))
        case ast.Call(func=ast.Name(id="cdiv"), args=[left, right]):
            by = _read(right)
            return space.quotient(_read(left) + by - 1, by)
        case ast.Call(func=ast.Name(id="min"), args=[left, right]):
            return space.atom("least", (_read(left), _read(right)))
        case ast.Call(func=ast.Name(id="max"), args=[left, right]):
            return space.atom("most", (_read(left), _read(right)))
    raise NotLifted(f"the contract's expression {ast.unparse(node)} is not read")
