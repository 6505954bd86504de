"""C's types, operators and functions on symbolic values, with C's conversions and their NumPy equivalents."""

from __future__ import annotations

from typing import Any

import numpy as np

from kernelmate.synthesis.lift.polynomials import NotLifted, Poly, Space
from kernelmate.synthesis.lift.values import FALSE, TRUE, Index, Number, Op, both, negation, operation

KINDS = {
    "float": "float", "double": "float", "half": "float", "__half": "float", "__nv_bfloat16": "float", "nv_bfloat16": "float",
    "int": "int32", "signed": "int32", "signed int": "int32", "int32_t": "int32", "unsigned": "uint32", "unsigned int": "uint32",
    "uint32_t": "uint32", "uint": "uint32", "long long": "int64", "long long int": "int64", "int64_t": "int64",
    "ptrdiff_t": "int64", "long": "int64", "size_t": "uint64", "unsigned long long": "uint64", "uint64_t": "uint64",
    "unsigned long": "uint64", "unsigned long long int": "uint64", "short": "int16", "int16_t": "int16",
    "unsigned short": "uint16", "uint16_t": "uint16", "char": "int8", "signed char": "int8", "int8_t": "int8",
    "unsigned char": "uint8", "uint8_t": "uint8", "uchar": "uint8", "bool": "bool", "auto": "",
}  # fmt: skip
"""Kind of values of each type; `auto` has that of its initialiser."""

DTYPES = {"float16": "float", "float32": "float", "float64": "float", "bfloat16": "float"}
"""Kind of values of each contract dtype, if it differs from the dtype."""

RANKS = ("bool", "int8", "uint8", "int16", "uint16", "int32", "index", "uint32", "int64", "uint64", "float")
"""Kinds in increasing width; the wider kind of two operands is that of the result."""

NARROW = ("bool", "int8", "uint8", "int16", "uint16")
"""Kinds that C promotes to `int`."""

_FLOATS = {
    "exp": "exp", "exp2": "exp2", "expm1": "expm1", "log": "log", "log2": "log2", "log10": "log10", "log1p": "log1p",
    "sqrt": "sqrt", "rsqrt": "rsqrt", "sin": "sin", "cos": "cos", "tan": "tan", "tanh": "tanh", "sinh": "sinh", "cosh": "cosh",
    "floor": "floor", "ceil": "ceil", "rint": "rint", "nearbyint": "rint", "trunc": "trunc", "fabs": "absolute", "erf": "erf",
    "erfc": "erfc", "atan": "arctan", "cbrt": "cbrt", "fmax": "fmax", "fmin": "fmin", "pow": "power", "hypot": "hypot",
    "round": "round", "fma": "fma", "fdividef": "divide", "exp10": "exp10", "copysign": "copysign", "fdim": "fdim",
}  # fmt: skip

FUNCTIONS: dict[str, str] = {
    **{f"{name}{end}": meant for name, meant in _FLOATS.items() for end in ("", "f")},
    **{f"__{name}f": meant for name, meant in _FLOATS.items() if name in ("exp", "log", "log2", "log10", "sin", "cos", "tan", "pow")},
    **{f"h{name}": name for name in ("exp", "log", "sqrt", "rsqrt", "sin", "cos", "floor", "ceil", "rint", "trunc")},
    "fdividef": "divide", "__fdividef": "divide", "__fmaf_rn": "fma", "__fadd_rn": "add", "__fsub_rn": "subtract", "__fmul_rn": "multiply",
    "__fdiv_rn": "divide", "__frcp_rn": "reciprocal", "__fsqrt_rn": "sqrt", "__frsqrt_rn": "rsqrt", "__saturatef": "saturate",
    "__hadd": "add", "__hsub": "subtract", "__hmul": "multiply", "__hdiv": "divide", "__hfma": "fma", "__hmax": "fmax",
    "__hmin": "fmin", "__hneg": "negative", "__habs": "absolute", "abs": "absolute", "labs": "absolute", "min": "min", "max": "max",
    "umin": "min", "umax": "max", "isnan": "isnan", "__hgt": "greater", "__hlt": "less", "__hge": "greater_equal",
    "__hle": "less_equal", "__heq": "equal",
}  # fmt: skip
"""NumPy name of each CUDA function, or a name that `composed` implements."""

SAME = frozenset(
    {
        "__half2float", "__float2half", "__float2half_rn", "__bfloat162float", "__float2bfloat16", "__float2bfloat16_rn",
        "__ldg", "__ldcs", "__ldcg", "__ldca", "__int2float_rn", "__uint2float_rn", "__double2float_rn",
    }
)  # fmt: skip
"""Functions that return their argument, apart from rounding."""

ROUNDED = {
    "__float2int_rn": "rint", "__float2int_rz": "trunc", "__float2int_rd": "floor", "__float2int_ru": "ceil", "lrintf": "rint",
    "__float2uint_rn": "rint", "__float2uint_rz": "trunc",
}  # fmt: skip
"""Conversions from float to integer, with their rounding."""

ATOMICS = {"atomicAdd": "sum", "atomicMax": "max", "atomicMin": "min"}

NUMBERS = {
    "INFINITY": float("inf"), "FLT_MAX": 3.402823466e38, "DBL_MAX": 1.7976931348623157e308, "HUGE_VALF": float("inf"),
    "CUDART_INF_F": float("inf"), "NAN": float("nan"), "M_PI": 3.141592653589793, "M_SQRT1_2": 0.7071067811865476,
    "M_PI_F": 3.141592653589793, "FLT_MIN": 1.175494351e-38, "FLT_EPSILON": 1.1920929e-07, "M_SQRT2": 1.4142135623730951,
}  # fmt: skip
INTEGERS = {"INT_MAX": 2**31 - 1, "INT_MIN": -(2**31), "warpSize": 32, "UINT_MAX": 2**32 - 1}


def wider(first: str, second: str) -> str:
    """Returns the kind of the result of an operation on two kinds."""
    kind = max(first, second, key=RANKS.index)
    return "int32" if kind in NARROW else kind


def kind_of(text: str) -> str:
    """Returns the kind of a type's values."""
    ignored = ("const", "volatile", "constexpr", "static")
    words = " ".join(word for word in text.replace("std::", "").split() if word not in ignored)
    if words not in KINDS:
        raise NotLifted(f"the type `{words}`")
    return KINDS[words]


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
