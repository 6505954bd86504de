"""C and CUDA types and functions by name, with their NumPy equivalents."""

from __future__ import annotations

from kernelmate.synthesis.lift.polynomials import NotLifted

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
