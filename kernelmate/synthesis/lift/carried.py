"""Recognises values carried between iterations as reductions."""

from __future__ import annotations

from typing import Any

from kernelmate.synthesis.lift.arithmetic import binary
from kernelmate.synthesis.lift.polynomials import NotLifted, Poly, Space
from kernelmate.synthesis.lift.values import NEUTRAL, REDUCTION_OF, Held, Index, Number, Op, held, operation

_GREATER = {"greater": 1, "greater_equal": 1, "less": -1, "less_equal": -1}


def decomposed(value: Any, name: str, space: Space) -> tuple[str, Any]:
    """Splits an updated value into a reduction of its previous value and an operand; returns both."""
    match value:
        case Held(name=found) if found == name:
            return "", None
        case Index(poly=poly) if poly.coefficient(f"?{name}") == Poly.number(1):
            rest = poly - Poly.name(f"?{name}")
            return ("", None) if not rest.terms else ("sum", Index(rest))
        case Op(name="cast", args=(inner,)):
            return decomposed(inner, name, space)
        case Op(name="select", args=(condition, first, second)):
            return _selected(condition, first, second, name, space)
        case Op(name="subtract", args=(first, second)) if name in held(first) and name not in held(second):
            op, more = decomposed(first, name, space)
            less = binary("-", Number(0.0), second, space) if more is None else binary("-", more, second, space)
            less = Op("negative", (second,), second.kind) if more is None else less
            return _same(op, "sum", name), less
        case Op(name=how, args=(first, second)) if how in REDUCTION_OF:
            if name in held(second):
                first, second = second, first
            if name in held(second):
                raise NotLifted(f"`{name}` is combined with itself")
            op, more = decomposed(first, name, space)
            return _same(op, REDUCTION_OF[how], name), second if more is None else Op(how, (more, second), value.kind)
    raise NotLifted(f"`{name}` carries more from one iteration to the next than a sum, product, minimum or maximum")


def _same(first: str, second: str, name: str) -> str:
    if first and second and first != second:
        raise NotLifted(f"`{name}` carries more from one iteration to the next than a sum, product, minimum or maximum")
    return first or second


def _selected(condition: Any, first: Any, second: Any, name: str, space: Space) -> tuple[str, Any]:
    if name in held(condition):
        match condition:
            case Op(name=sign, args=(left, right)) if sign in _GREATER:
                greater = _GREATER[sign]
                if _is(left, name):
                    left, right, greater = right, left, -greater
                if _is(right, name) and {first, second} == {left, right}:
                    return ("max" if (first == left) == (greater > 0) else "min"), left
        raise NotLifted(f"a condition depends on `{name}`, which earlier iterations made")
    sides = [decomposed(one, name, space) for one in (first, second)]
    op = _same(sides[0][0], sides[1][0], name)
    values = [Number(NEUTRAL[op]) if one is None else one for _, one in sides]
    kind = next(one.kind for _, one in sides if one is not None)
    return op, operation("select", (condition, *values), kind, space)


def _is(value: Any, name: str) -> bool:
    return value == Index(Poly.name(f"?{name}")) or (isinstance(value, Held) and value.name == name)
