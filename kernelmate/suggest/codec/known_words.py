"""Words with a fixed meaning in every kernel: those of C++, CUDA and their headers.

All others are user-defined names.
"""

from __future__ import annotations

import re

KEYWORDS = frozenset(
    {
        "alignas", "alignof", "and", "asm", "auto", "bool", "break", "case", "catch", "char", "class", "concept",
        "const", "consteval", "constexpr", "constinit", "const_cast", "continue", "decltype", "default", "delete", "do",
        "double", "dynamic_cast", "else", "enum", "explicit", "export", "extern", "false", "final", "float", "for",
        "friend", "goto", "if", "inline", "int", "long", "mutable", "namespace", "new", "noexcept", "not", "nullptr",
        "operator", "or", "override", "private", "protected", "public", "register", "reinterpret_cast", "requires",
        "return", "short", "signed", "sizeof", "static", "static_assert", "static_cast", "struct", "switch", "template",
        "this", "thread_local", "throw", "true", "try", "typedef", "typeid", "typename", "union", "unsigned", "using",
        "virtual", "void", "volatile", "while", "define", "undef", "ifdef", "ifndef", "elif", "endif", "include",
        "pragma", "unroll", "defined", "once", "line", "error", "warning", "nounroll",
    }
)  # fmt: skip
"""Words of C++ and of its preprocessor."""

CONTROL = frozenset({"if", "for", "while", "switch", "else", "do"})

_NAMES = frozenset(
    {
        "threadIdx", "blockIdx", "blockDim", "gridDim", "warpSize", "dim3", "half", "half2", "nv_bfloat16",
        "nv_bfloat162", "size_t", "ptrdiff_t", "uchar", "ushort", "uint", "ulong", "printf", "assert", "INFINITY",
        "NAN", "HUGE_VALF", "FLT_MAX", "FLT_MIN", "FLT_EPSILON", "DBL_MAX", "DBL_MIN", "DBL_EPSILON", "INT_MAX",
        "INT_MIN", "UINT_MAX", "LLONG_MAX", "M_PI", "M_E", "M_SQRT2", "M_SQRT1_2", "CUDART_INF_F", "CUDART_PI_F",
        "CUDART_NAN_F", "CUDART_INF", "CUDART_PI", "NULL", "clock", "clock64", "std", "cub", "cuda", "wmma", "nvcuda",
        "cooperative_groups", "thrust", "cg", "memcpy", "memset", "min", "max", "abs", "swap", "saturatef", "sincosf",
        "sincos", "sincospif", "signbit", "isnan", "isinf", "isfinite", "copysign", "copysignf", "ldexp", "ldexpf",
        "frexp", "frexpf", "pow", "powf", "fmod", "fmodf", "hypot", "hypotf", "norm3df", "norm4df", "rnorm3df",
        "rhypotf", "ceil", "ceilf", "floor", "floorf", "round", "roundf", "rint", "rintf", "trunc", "truncf",
        "nearbyint", "nearbyintf", "lrint", "lrintf", "lround", "lroundf", "fdim", "fdimf", "fma", "fmaf", "fmin",
        "fminf", "fmax", "fmaxf", "fabs", "fabsf", "remainderf", "erf", "erff", "erfc", "erfcf", "erfinv", "erfinvf",
        "normcdf", "normcdff", "tgamma", "tgammaf", "lgamma", "lgammaf", "cbrt", "cbrtf", "rcbrtf", "sqrt", "sqrtf",
        "rsqrt", "rsqrtf", "exp", "expf", "exp2", "exp2f", "exp10", "exp10f", "expm1", "expm1f", "log", "logf", "log2",
        "log2f", "log10", "log10f", "log1p", "log1pf", "sin", "sinf", "cos", "cosf", "tan", "tanf", "asin", "asinf",
        "acos", "acosf", "atan", "atanf", "atan2", "atan2f", "sinh", "sinhf", "cosh", "coshf", "tanh", "tanhf",
        "sinpif", "cospif", "asinh", "asinhf", "acosh", "acoshf", "atanh", "atanhf", "umin", "umax", "llmin", "llmax",
        "hexp", "hlog", "hsqrt", "hrsqrt", "h2exp", "htanh",
    }
)  # fmt: skip

_FAMILIES = re.compile(
    r"__\w+|atomic[A-Z]\w*|make_\w+|u?int(?:8|16|32|64)_t|uintptr_t|intptr_t|u?(?:char|short|int|long|longlong)[1-4]"
    r"|(?:float|double|half)[1-4]|nv_\w+|cuda[A-Z]\w*|tex[123]D\w*|surf[123]D\w*|CUDART_\w+"
)

MEMBERS = frozenset(
    {
        "x", "y", "z", "w", "sync", "size", "thread_rank", "group_index", "thread_index", "num_threads",
        "meta_group_rank", "meta_group_size", "shfl", "shfl_down", "shfl_up", "shfl_xor", "any", "all", "ballot",
        "fill", "num_elements", "get", "map_shared_rank", "block_rank", "num_blocks", "is_valid",
    }
)  # fmt: skip
"""Member names that are not user-defined: fields of vectors, members of thread groups and fragments."""


def is_known(word: str) -> bool:
    """Returns True if the word is not a user-defined name."""
    return word in KEYWORDS or word in _NAMES or _FAMILIES.fullmatch(word) is not None


TYPES = frozenset(
    {
        "void", "bool", "char", "short", "int", "long", "float", "double", "signed", "unsigned", "auto", "const",
        "volatile", "half", "half2", "size_t", "uint", "ushort", "uchar", "ulong", "nv_bfloat16", "nv_bfloat162",
        "typename", "struct", "ptrdiff_t", "dim3",
    }
)  # fmt: skip
_TYPE_FAMILIES = re.compile(
    r"\w+_t|(?:float|double|half|u?(?:char|short|int|long|longlong))[1-4]|__half2?|__nv_bfloat16\w*|__nv_fp8\w*|[A-Z]"
)


def is_type(word: str) -> bool:
    """Returns True if the word names a type, or is part of such a name, in any context."""
    return word in TYPES or _TYPE_FAMILIES.fullmatch(word) is not None
