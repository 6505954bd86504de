"""Symbolic values of one thread, as expressions over its variables, and substitution in them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kernelmate.synthesis.lift.polynomials import Atom, NotLifted, Poly, Space, variables_of

NEUTRAL = {"sum": 0.0, "prod": 1.0, "max": float("-inf"), "min": float("inf")}
MAP_OF = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}
REDUCTION_OF = {"add": "sum", "multiply": "prod", "maximum": "max", "fmax": "max", "minimum": "min", "fmin": "min"}
LOWEST = -1e29
"""Upper bound of initial values of a maximum that are treated as minus infinity."""


@dataclass(frozen=True)
class Number:
    """A constant; `kind` is a dtype's name or `float`; `single` is True for C's single precision."""

    value: float
    kind: str = "float"
    single: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class Index:
    """An integer value, as a polynomial in sizes and variables."""

    poly: Poly
    kind: str = "index"


@dataclass(frozen=True)
class Scalar:
    """A scalar argument."""

    name: str
    kind: str = "float"


@dataclass(frozen=True)
class ArrayLoad:
    """An element of an array argument, given by its offset in memory."""

    array: str
    at: Poly
    kind: str = "float"


@dataclass(frozen=True)
class Held:
    """The value that a variable had before the current iteration."""

    name: str
    kind: str = "float"


@dataclass(frozen=True)
class Op:
    """An operation on values.

    `name` is NumPy's name, or `select` or `cast`, or `negative?` or `zero?` for an index. `hint` is the kernel's name
    for the value.
    """

    name: str
    args: tuple[Any, ...]
    kind: str = "float"
    hint: str = field(default="", compare=False)


@dataclass(frozen=True)
class Fold:
    """A reduction (`sum`, `prod`, `max`, `min`) over variables; `hint` is the kernel's name for the value."""

    op: str
    over: tuple[str, ...]
    body: Any
    kind: str = "float"
    hint: str = field(default="", compare=False)


@dataclass(frozen=True)
class ScanValue:
    """Result of a scan up to iteration `at`; if `exclusive`, without that iteration."""

    op: str
    at: str
    body: Any
    exclusive: bool
    kind: str = "float"


@dataclass(frozen=True)
class Spread:
    """A value that combines threads' values of `base`, with another set of threads for each thread.

    Attributes:
        op: the reduction that combines them; empty if each thread has a single thread's value.
        members: for each thread a bit mask of the threads whose values it combines.
        plain: the value as an expression, or None.
    """

    op: str
    base: Any
    members: tuple[int, ...]
    plain: Any = None
    kind: str = "float"


Value = Number | Index | Scalar | ArrayLoad | Held | Op | Fold | ScanValue | Spread

TRUE = Number(1.0, "bool")
FALSE = Number(0.0, "bool")


def free(value: Any) -> frozenset[str]:
    """Returns the variables that a value depends on."""
    match value:
        case Index(poly=poly) | ArrayLoad(at=poly):
            return variables_of(poly, free)
        case Op(args=args):
            return frozenset().union(*map(free, args))
        case Fold(over=over, body=body):
            return free(body) - set(over)
        case ScanValue(at=at, body=body):
            return free(body) | {at}
        case Spread(base=base):
            return free(base)
    return frozenset()


def held(value: Any) -> frozenset[str]:
    """Returns the names carried between iterations that a value depends on."""
    match value:
        case Held(name=name):
            return frozenset({name})
        case Op(args=args):
            return frozenset().union(*map(held, args))
        case Fold(body=body) | ScanValue(body=body) | Spread(base=body):
            return held(body)
        case ArrayLoad(at=poly) | Index(poly=poly):
            return frozenset(name[1:] for name in variables_of(poly, _held_names) if name.startswith("?"))
    return frozenset()


def _held_names(value: Any) -> frozenset[str]:
    return free(value) | frozenset(f"?{name}" for name in held(value))


def walk(value: Any) -> Iterable[Any]:
    """Yields a value and all its parts, including those inside indices."""
    yield value
    match value:
        case Op(args=args):
            for one in args:
                yield from walk(one)
        case Fold(body=body) | ScanValue(body=body) | Spread(base=body):
            yield from walk(body)
        case ArrayLoad(at=poly) | Index(poly=poly):
            yield from _inside(poly)


def _inside(poly: Poly) -> Iterable[Any]:
    for factor in poly.factors():
        if isinstance(factor, Atom):
            for one in factor.args:
                yield from _inside(one) if isinstance(one, Poly) else walk(one)


class Sizes:
    """Numbers of operations and operands of values; shared parts count each time."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, int]] = {}

    def of(self, value: Any) -> int:
        """Returns the number of operations and operands of a value."""
        if id(value) not in self._known:
            inner: tuple[Any, ...] = ()
            match value:
                case Op(args=args):
                    inner = args
                case Fold(body=body) | ScanValue(body=body) | Spread(base=body):
                    inner = (body,)
            self._known[id(value)] = value, 1 + sum(map(self.of, inner))
        return self._known[id(value)][1]


class Substitution:
    """Substitutes polynomials for variables everywhere in a value, and simplifies the result."""

    def __init__(self, space: Space, known: Mapping[str, Poly], values: Mapping[str, Any] | None = None) -> None:
        self.space, self.known, self.values = space, known, values or {}

    def poly(self, value: Poly) -> Poly:
        """Substitutes in a polynomial."""
        total = Poly.number(0)
        for key, scale in value.terms:
            part = Poly.number(scale)
            for factor in key:
                part = part * self._factor(factor)
            total = total + part
        return total

    def _factor(self, factor: Any) -> Poly:
        if isinstance(factor, str):
            return self.known.get(factor, Poly.name(factor))
        if factor.kind == "data":
            return to_poly(self.value(factor.args[0]))
        return self.space.atom(factor.kind, tuple(self.poly(one) for one in factor.args))

    def value(self, value: Any) -> Any:
        """Substitutes in a value."""
        match value:
            case Index():
                return Index(self.poly(value.poly))
            case ArrayLoad():
                return replace(value, at=self.poly(value.at))
            case Held():
                return self.values.get(value.name, value)
            case Op():
                return hinted(
                    operation(value.name, tuple(map(self.value, value.args)), value.kind, self.space), value.hint
                )
            case Fold():
                body = self.value(value.body)
                over = tuple(name for one in value.over for name in self.renamed(one))
                return replace(value, over=over, body=body)
            case ScanValue():
                (at,) = self.renamed(value.at)
                return replace(value, at=at, body=self.value(value.body))
            case Spread():
                raise NotLifted("values that threads exchange are used in a way that is not read")
        return value

    def renamed(self, name: str) -> tuple[str, ...]:
        """Returns the variables that replace a variable of a reduction."""
        if name not in self.known:
            return (name,)
        return tuple(sorted(variables_of(self.known[name], free)))


def to_poly(value: Any) -> Poly:
    """Converts an integer value to a polynomial; array elements become atoms."""
    match value:
        case Index():
            return value.poly
        case Number(value=number) if float(number).is_integer():
            return Poly.number(int(number))
        case Op(name="cast", args=(inner,)) if value.kind.lstrip("u").startswith("int") and inner.kind != "float":
            return to_poly(inner)
        case Op(name="add", args=(left, right)):
            return to_poly(left) + to_poly(right)
        case Op(name="subtract", args=(left, right)):
            return to_poly(left) - to_poly(right)
        case Op(name="multiply", args=(left, right)):
            return to_poly(left) * to_poly(right)
    return Poly.name(Atom("data", (value,)))


def operation(name: str, args: tuple[Any, ...], kind: str, space: Space) -> Any:
    """Returns an operation, simplified if its operands allow it."""
    match name, args:
        case "negative?", (Index(poly=poly),):
            if space.not_negative(poly):
                return FALSE
            return TRUE if space.not_negative(-poly - 1) else Op(name, args, "bool")
        case "zero?", (Index(poly=poly),):
            if poly.constant is not None:
                return FALSE if poly.constant else TRUE
            apart = space.not_negative(poly - 1) or space.not_negative(-poly - 1)
            return FALSE if apart else Op(name, args, "bool")
        case "select", (condition, first, second):
            if condition in (TRUE, FALSE):
                return first if condition == TRUE else second
            return first if first == second else Op(name, args, kind)
        case "logical_and", (first, second):
            return both(first, second)
        case "logical_or", (first, second):
            return negation(both(negation(first), negation(second)))
        case "logical_not", (first,):
            return negation(first)
    return Op(name, args, kind)


def hinted(value: Any, hint: str) -> Any:
    """Returns a value with the kernel's name for it, unless it already has one."""
    return replace(value, hint=hint) if hint and isinstance(value, Op | Fold) and not value.hint else value


def negation(condition: Any) -> Any:
    """Returns the negation of a condition."""
    match condition:
        case Number():
            return FALSE if condition == TRUE else TRUE
        case Op(name="negative?", args=(Index(poly=poly),)):
            return Op("negative?", (Index(-poly - 1),), "bool")
        case Op(name="logical_not", args=(inner,)):
            return inner
    return Op("logical_not", (condition,), "bool")


def both(first: Any, second: Any) -> Any:
    """Returns the conjunction of two conditions."""
    if FALSE in (first, second):
        return FALSE
    if first in (TRUE, second):
        return second
    return first if second == TRUE else Op("logical_and", (first, second), "bool")


def parts(condition: Any) -> list[Any]:
    """Splits a condition into the parts of its conjunction."""
    match condition:
        case Op(name="logical_and", args=(first, second)):
            return [*parts(first), *parts(second)]
        case _ if condition == TRUE:
            return []
    return [condition]


def joined(conditions: Iterable[Any]) -> Any:
    """Returns the conjunction of conditions, each used once."""
    found: Any = TRUE
    for one in dict.fromkeys(part for condition in conditions for part in parts(condition)):
        found = both(found, one)
    return found


def is_neutral(value: Any, op: str) -> bool:
    """Returns True for the neutral element of a reduction; very negative numbers are neutral for a maximum."""
    if isinstance(value, Index) and value.poly.constant is not None:
        value = Number(float(value.poly.constant))
    if not isinstance(value, Number):
        return False
    if op in ("max", "min"):
        return value.value <= LOWEST if op == "max" else value.value >= -LOWEST
    return value.value == NEUTRAL[op]


def fold(op: str, over: tuple[str, ...], body: Any, kind: str, hint: str = "") -> Any:
    """Returns a reduction; nested reductions of the same kind are merged."""
    match body:
        case Fold(op=inner) if inner == op:
            return Fold(op, (*over, *body.over), body.body, kind, hint or body.hint)
        case Op(name="select", args=(condition, Fold(op=inner) as first, second)) if inner == op and is_neutral(
            second, op
        ):
            guarded = Op("select", (condition, first.body, Number(NEUTRAL[op])), kind)
            return Fold(op, (*over, *first.over), guarded, kind, hint or first.hint)
    return Fold(op, over, body, kind, hint)
