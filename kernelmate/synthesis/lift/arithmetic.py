"""C's operators and functions on symbolic values, with C's conversions."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmate.synthesis.lift.names import NARROW, wider
from kernelmate.synthesis.lift.polynomials import NotLifted, Poly, Space
from kernelmate.synthesis.lift.values import FALSE, TRUE, Index, Number, Op, both, negation, operation

_NAMES = {
    "+": "add", "-": "subtract", "*": "multiply", "/": "divide", "%": "remainder", "&": "bitwise_and", "|": "bitwise_or",
    "^": "bitwise_xor", "<<": "left_shift", ">>": "right_shift", "<": "less", "<=": "less_equal", ">": "greater",
    ">=": "greater_equal", "==": "equal", "!=": "not_equal",
}  # fmt: skip
COMPARISONS = ("<", "<=", ">", ">=", "==", "!=")


def constant(value: float) -> Index:
    """Returns a constant as an index, truncated to an integer."""
    return Index(Poly.number(int(value)))


def binary(sign: str, first: Any, second: Any, space: Space) -> Any:
    """Applies a binary operator with C's meaning.

    Raises:
        NotLifted: the operation is not supported.
    """
    if sign in ("&&", "||"):
        left, right = truth(first, space), truth(second, space)
        return both(left, right) if sign == "&&" else negation(both(negation(left), negation(right)))
    if isinstance(first, Index) and isinstance(second, Index):
        found = _whole(sign, first.poly, second.poly, space)
        if found is not None:
            return found
    name = _NAMES[sign]
    if sign in COMPARISONS:
        return Op(name, (_number(first, second.kind), _number(second, first.kind)), "bool")
    kind = wider(first.kind, second.kind)
    if sign in ("<<", ">>"):
        kind = wider(first.kind, first.kind)
    left, right = _promoted(_number(first, kind), kind), _promoted(_number(second, kind), kind)
    if isinstance(left, Number) and isinstance(right, Number) and sign in "+-*/":
        folded = _folded(sign, left, right)
        if folded is not None:
            return folded
    if kind != "float" and sign in "/%":
        if not kind.startswith("uint"):
            raise NotLifted("a division of signed values, which rounds toward zero")
        name = {"/": "floor_divide", "%": "remainder"}[sign]
    return Op(name, (left, right), kind)


def _folded(sign: str, left: Number, right: Number) -> Number | None:
    """Returns the result of an operation on constants in C's precision; None for a division by zero."""
    if sign == "/" and not right.value:
        return None
    single = left.single and right.single
    first, second = (np.float32(one.value) if single else np.float64(one.value) for one in (left, right))
    with np.errstate(all="ignore"):
        found = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}[sign](first, second)
    return Number(float(str(found)), single=single)


def _number(value: Any, kind: str) -> Any:
    """Converts an integer constant operand of a floating operation to a float."""
    if kind == "float" and isinstance(value, Index) and value.poly.constant is not None:
        return Number(float(value.poly.constant), single=True)
    return value


def _promoted(value: Any, kind: str) -> Any:
    if kind != "float" and value.kind in NARROW:
        return Op("cast", (value,), "int32")
    return value


def _whole(sign: str, left: Poly, right: Poly, space: Space) -> Any:
    """Applies an operation to integer polynomials; None if the result is not a polynomial or condition."""
    if sign in COMPARISONS:
        return _compared(sign, left, right, space)
    amount = right.constant
    match sign:
        case "+":
            return Index(left + right)
        case "-":
            return Index(left - right)
        case "*":
            return Index(left * right)
        case "/":
            return Index(space.quotient(left, right))
        case "%":
            return Index(space.remainder(left, right))
        case "<<" if amount is not None:
            return Index(left * 2**amount)
        case ">>" if amount is not None:
            return Index(space.quotient(left, Poly.number(2**amount)))
        case "&" if amount is not None and amount >= 0 and amount & (amount + 1) == 0:
            return Index(space.remainder(left, Poly.number(amount + 1)))
    return None


def _compared(sign: str, left: Poly, right: Poly, space: Space) -> Any:
    if sign in ("==", "!="):
        equal = operation("zero?", (Index(left - right),), "bool", space)
        return equal if sign == "==" else negation(equal)
    less, more = (left, right) if sign in ("<", "<=") else (right, left)
    return operation("negative?", (Index(less - more - (1 if "=" in sign else 0)),), "bool", space)


def truth(value: Any, space: Space) -> Any:
    """Returns the truth of a value, as a condition."""
    if value.kind == "bool":
        return value
    if isinstance(value, Index):
        if value.poly.constant is not None:
            return TRUE if value.poly.constant else FALSE
        return negation(operation("zero?", (value,), "bool", space))
    return Op("not_equal", (value, constant(0)), "bool")


def converted(value: Any, kind: str, space: Space) -> Any:
    """Converts a value as `(type) value` does."""
    if not kind or value.kind == kind:
        return value
    if kind == "bool":
        return truth(value, space)
    if isinstance(value, Index):
        if kind == "float":
            return (
                Number(float(value.poly.constant)) if value.poly.constant is not None else Op("cast", (value,), "float")
            )
        if kind in NARROW and value.poly.constant is None:
            return Op("cast", (value,), kind)
        return value
    if value.kind == "float" and kind != "float":
        if isinstance(value, Number):
            return constant(value.value)
        return Op("cast", (Op("trunc", (value,)),), kind)
    return Op("cast", (value,), kind)


def _extreme(name: str, args: list[Any], space: Space) -> Any:
    if all(isinstance(one, Index) for one in args):
        return Index(space.atom("least" if name == "min" else "most", tuple(one.poly for one in args)))
    kind = wider(args[0].kind, args[1].kind)
    of_floats, of_whole = {"min": ("fmin", "minimum"), "max": ("fmax", "maximum")}[name]
    return Op(of_floats if kind == "float" else of_whole, tuple(_number(one, kind) for one in args), kind)


def composed(name: str, args: list[Any], space: Space) -> Any:
    """Applies a CUDA function, given by its name in `names.FUNCTIONS`."""
    if name in ("min", "max"):
        return _extreme(name, args, space)
    if name in ("greater", "less", "greater_equal", "less_equal", "equal", "isnan"):
        return Op(name, tuple(args), "bool")
    if name == "absolute" and args[0].kind != "float":
        return Op(name, (_promoted(args[0], "int32"),), wider(args[0].kind, args[0].kind))
    numbers = [_number(one, "float") for one in args]
    numbers = [converted(one, "float", space) for one in numbers]
    match name, numbers:
        case "add" | "subtract" | "multiply" | "divide", [left, right]:
            return binary({"add": "+", "subtract": "-", "multiply": "*", "divide": "/"}[name], left, right, space)
        case "fma", [first, second, third]:
            return binary("+", binary("*", first, second, space), third, space)
        case "rsqrt", [one]:
            return Op("divide", (Number(1.0), Op("sqrt", (one,))))
        case "reciprocal", [one]:
            return Op("divide", (Number(1.0), one))
        case "saturate", [one]:
            return Op("fmin", (Op("fmax", (one, Number(0.0))), Number(1.0)))
        case "exp10", [one]:
            return Op("power", (Number(10.0), one))
        case "round", [one]:
            away = Op("floor", (binary("+", Op("absolute", (one,)), Number(0.5), space),))
            return Op("multiply", (Op("sign", (one,)), away))
        case "copysign" | "fdim", _:
            raise NotLifted(f"the function {name}")
    return Op(name, tuple(numbers))
