"""NumPy's element-wise functions on traced arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from kernelmate.synthesis.arrays import Array, Builder, broadcast
from kernelmate.synthesis.sizes import Real, Untraceable, text_of

MAPS = frozenset(
    {
        "add", "subtract", "multiply", "divide", "floor_divide", "remainder", "power", "negative", "absolute", "exp", "exp2",
        "expm1", "log", "log2", "log10", "log1p", "sqrt", "square", "reciprocal", "sin", "cos", "tan", "tanh", "sinh", "cosh",
        "floor", "ceil", "rint", "trunc", "maximum", "minimum", "fmax", "fmin", "greater", "greater_equal", "less",
        "less_equal", "equal", "not_equal", "logical_and", "logical_or", "logical_not", "sign", "isnan", "arctan", "hypot",
        "cbrt", "erf", "erfc", "arctan2", "arcsin", "arccos", "arcsinh", "arccosh", "arctanh", "copysign", "fmod", "bitwise_and", "bitwise_or", "bitwise_xor", "invert", "left_shift", "right_shift",
        "bitwise_count",
    }
)  # fmt: skip
"""Ufuncs that a graph may contain."""

_RENAMED = {"true_divide": "divide", "fabs": "absolute", "float_power": "power", "mod": "remainder"}
_OF_BOOLS = {
    "bitwise_and": "logical_and", "bitwise_or": "logical_or", "bitwise_xor": "not_equal", "invert": "logical_not",
}  # fmt: skip


def weak_type(value: Any) -> type[int] | type[float] | type[bool] | None:
    """Returns the type of a Python number, which adopts the type of arrays it is combined with; else None."""
    known = float if isinstance(value, Real) else type(value)
    return known if known in (int, float, bool) else None


def mapped(builder: Builder, ufunc: Any, inputs: Sequence[Any]) -> Array:
    """Applies a ufunc to traced arrays and numbers."""
    name = _RENAMED.get(ufunc.__name__, ufunc.__name__)
    weak = [weak_type(one) for one in inputs]
    args = [builder.lift(one) for one in inputs]
    if all(arg.dtype.kind == "b" for arg in args):
        name = _OF_BOOLS.get(name, name)
    composed = _OF_SEVERAL.get(name)
    if composed is not None and (name != "remainder" or any(arg.dtype.kind == "f" for arg in args)):
        made: Array = composed(builder, inputs)
        return made
    if name not in MAPS:
        raise Untraceable(f"np.{ufunc.__name__}")
    if name == "sign":
        found: Array = _sign_of(args[0])
        return found
    if name == "power" and isinstance(inputs[1], int | float) and _is_product(args[0], inputs[1]):
        return _whole_power(builder, args[0], int(inputs[1]))
    if name == "power" and isinstance(inputs[0], int | float) and inputs[0] == 2 and args[1].dtype.kind == "f":
        return mapped(builder, np.exp2, inputs[1:])
    if name == "maximum" and isinstance(inputs[1], float) and inputs[1] == -np.inf:
        return Array(builder, args[0].node)
    if name in ("maximum", "minimum") and weak[1] in (int, float):
        below = _below_bound(builder, args[0], name)
        if below is not None:
            return mapped(builder, ufunc, (below[0], (max if name == "maximum" else min)(below[1], inputs[1])))
    kinds = [(w if w in (int, float) else a.dtype) for w, a in zip(weak, args, strict=True)]
    dtype = ufunc.resolve_dtypes((*kinds, None))[-1]
    shape = broadcast([arg.shape for arg in args])
    kept = name == "subtract" and args[0].dtype == dtype and len(shape) == args[0].ndim and not args[1].loops
    if kept and _is_zero(args[1]) and [*map(text_of, shape)] == [*map(text_of, args[0].shape)]:
        return Array(builder, args[0].node)
    return builder.add("map", args, shape, dtype, (name,))


def _is_zero(array: Array) -> bool:
    """Returns True for a constant zero, such as an empty sum, which changes nothing that it is subtracted from."""
    node = array.builder.nodes[array.node]
    return node.op == "constant" and node.data[0] == 0 and math.copysign(1, float(node.data[0])) > 0


MOST_FACTORS = 8
"""Maximum magnitude of an integer exponent that is written as products."""


def _is_product(base: Array, exponent: float) -> bool:
    """Returns True if a power is to be written as products.

    Exponents of 3 and 4 stay powers, which are written as a product in one line.
    """
    whole = float(exponent).is_integer() and 1 < abs(exponent) <= MOST_FACTORS and exponent not in (3, 4)
    return whole and (exponent == 2 or base.dtype.kind == "f")


def _whole_power(builder: Builder, base: Array, exponent: int) -> Array:
    """Returns a power by repeated squaring; a negative power is that of the reciprocal."""
    if exponent < 0:
        return mapped(builder, np.power, (mapped(builder, np.reciprocal, (base,)), -exponent))
    if exponent in (3, 4):
        return mapped(builder, np.power, (base, exponent))
    half = base if exponent < 4 else _whole_power(builder, base, exponent // 2)
    squared = mapped(builder, np.square, (half,))
    return mapped(builder, np.multiply, (squared, base)) if exponent % 2 else squared


def _below_bound(builder: Builder, bounded: Array, name: str) -> tuple[Array, float] | None:
    """Returns the operand and the bound of an array that is already bounded on the same side; None otherwise."""
    node = builder.nodes[bounded.node]
    if node.op != "map" or node.data[0] != name or bounded.loops or bounded.dtype.kind != "f":
        return None
    by = builder.nodes[node.args[1]]
    inner = Array(builder, node.args[0])
    same = [text_of(side) for side in inner.shape] == [text_of(side) for side in bounded.shape]
    whole = by.op == "constant" and not by.shape and same and inner.dtype == bounded.dtype
    return (inner, float(by.data[0] or 0)) if whole else None


def _remainder(builder: Builder, inputs: Sequence[Any]) -> Any:
    """Computes NumPy's remainder of floats, which has the sign of the divisor."""
    rest, by = mapped(builder, np.fmod, inputs), inputs[1]
    if isinstance(by, int | float) and by:
        other = rest < 0 if by > 0 else rest > 0
    else:
        other = (rest != 0) & ((rest < 0) != (by < 0))
    return builder.operations["where"](other, rest + by, rest)


def _step(builder: Builder, inputs: Sequence[Any]) -> Any:
    """Computes `heaviside`: 0 below zero, 1 above, the second operand at zero, and NaN for NaN."""
    x, where = builder.lift(inputs[0]), builder.operations["where"]
    return where(x < 0, 0.0, where(x > 0, 1.0, where(x == 0, inputs[1], x)))


_OF_SEVERAL: dict[str, Callable[[Builder, Sequence[Any]], Any]] = {
    "remainder": _remainder, "heaviside": _step,
    "divmod": lambda builder, inputs: tuple(mapped(builder, one, inputs) for one in (np.floor_divide, np.remainder)),
}  # fmt: skip
"""Ufuncs that are traced as several operations; `remainder` only for floats."""


def _sign_of(a: Array) -> Any:
    """Computes the sign: 1 above zero, -1 below, and 0 otherwise."""
    one, where = a.dtype.type(1), a.builder.operations["where"]
    return where(a > 0, one, where(a < 0, -one, a.dtype.type(0)))
