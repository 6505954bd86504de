"""Names of element types in NumPy, and the C types they correspond to."""

from __future__ import annotations

import difflib
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernelmate.errors import ContractError

if TYPE_CHECKING:
    import numpy as np

ITEM_BYTES: dict[str, int] = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "int32": 4,
    "int64": 8,
    "uint8": 1,
    "uint16": 2,
    "uint32": 4,
    "uint64": 8,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "float8_e8m0fnu": 1,
    "complex64": 8,
    "complex128": 16,
}
"""Bytes per element of every dtype that a contract may name."""

_ML_DTYPES = frozenset({"bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"})

_MEANT: dict[str, str] = {
    "float": "float32",
    "double": "float64",
    "half": "float16",
    "fp16": "float16",
    "fp32": "float32",
    "fp64": "float64",
    "bf16": "bfloat16",
    "int": "int32",
    "uint": "uint32",
    "unsigned": "uint32",
    "long": "int64",
    "size_t": "uint64",
    "char": "int8",
    "byte": "uint8",
    "bool_": "bool",
    "complex": "complex64",
    "float8": "float8_e4m3fn",
    "fp8": "float8_e4m3fn",
    "float8_e4m3": "float8_e4m3fn",
    "e4m3": "float8_e4m3fn",
    "e5m2": "float8_e5m2",
    "__half": "float16",
    "__nv_bfloat16": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
}

_SCALARS: dict[str, str] = {
    "bool": "bool",
    "char": "int8",
    "signed char": "int8",
    "unsigned char": "uint8",
    "short": "int16",
    "unsigned short": "uint16",
    "int": "int32",
    "unsigned int": "uint32",
    "long": "int64",
    "unsigned long": "uint64",
    "long long": "int64",
    "unsigned long long": "uint64",
    "float": "float32",
    "double": "float64",
    "size_t": "uint64",
    "ssize_t": "int64",
    "clock_t": "int64",
    "time_t": "int64",
    "off_t": "int64",
    "off64_t": "int64",
    "__int64": "int64",
    **{f"u_int{bits}_t": f"uint{bits}" for bits in (8, 16, 32, 64)},
    **{f"u_{kind}": f"uint{bits}" for kind, bits in (("char", 8), ("short", 16), ("int", 32), ("long", 64))},
    "ptrdiff_t": "int64",
    "intptr_t": "int64",
    "uintptr_t": "uint64",
    "uchar": "uint8",
    "ushort": "uint16",
    "uint": "uint32",
    "ulong": "uint64",
    "byte": "uint8",
    "half": "float16",
    "__half": "float16",
    "nv_half": "float16",
    "bfloat16": "bfloat16",
    "__nv_bfloat16": "bfloat16",
    "nv_bfloat16": "bfloat16",
    "__nv_fp8_e4m3": "float8_e4m3fn",
    "__nv_fp8_e5m2": "float8_e5m2",
    "__nv_fp8_e8m0": "float8_e8m0fnu",
    "cuComplex": "complex64",
    "cuFloatComplex": "complex64",
    "cuDoubleComplex": "complex128",
    "cufftReal": "float32",
    "cufftDoubleReal": "float64",
    "cufftComplex": "complex64",
    "cufftDoubleComplex": "complex128",
    **{f"{space}::Half": "float16" for space in ("at", "c10")},
    **{f"{space}::BFloat16": "bfloat16" for space in ("at", "c10")},
    **{f"Npp{bits}{kind}": f"{sign}int{bits}" for bits in (8, 16, 32, 64) for kind, sign in (("u", "u"), ("s", ""))},
    "Npp32f": "float32",
    "Npp64f": "float64",
    "complex<float>": "complex64",
    "complex<double>": "complex128",
    **{f"{sign}int{bits}_t": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}

_VECTORS: dict[str, tuple[str, int]] = {
    **{
        f"{c}{width}": (dtype, width)
        for c, dtype in {
            "char": "int8",
            "uchar": "uint8",
            "short": "int16",
            "ushort": "uint16",
            "int": "int32",
            "uint": "uint32",
            "long": "int64",
            "ulong": "uint64",
            "longlong": "int64",
            "ulonglong": "uint64",
            "float": "float32",
            "double": "float64",
        }.items()
        for width in (1, 2, 3, 4)
    },
    "dim3": ("uint32", 3),
    **dict.fromkeys(
        ("curandState", "curandState_t", "curandStateXORWOW_t", "curandStateXORWOW", "curandStateMRG32k3a_t"),
        ("uint32", 12),
    ),
    **dict.fromkeys(("curandStatePhilox4_32_10_t", "curandStatePhilox4_32_10"), ("uint32", 16)),
    "half2": ("float16", 2),
    "__half2": ("float16", 2),
    "nv_bfloat162": ("bfloat16", 2),
    "__nv_bfloat162": ("bfloat16", 2),
    **{f"__nv_fp8x{n}_{f}": (f"float8_{d}", n) for n in (2, 4) for f, d in (("e4m3", "e4m3fn"), ("e5m2", "e5m2"))},
}

ENUM = "enum"
"""Begins the base of a parameter whose type is an enumeration that the text defines; its underlying type follows."""

_BASIC = frozenset(["unsigned", "signed", "int", "long", "short", "char", "double", "float", "bool"])


@lru_cache(maxsize=64)
def numpy_dtype(name: str) -> np.dtype[Any]:
    """Returns NumPy's dtype of a contract's dtype name, including those of ml_dtypes.

    Raises:
        ContractError: no such dtype; the hint names the nearest one.
    """
    import numpy as np

    if name not in ITEM_BYTES:
        raise ContractError(f"{name!r} is not a dtype.", hint=dtype_hint(name))
    if name not in _ML_DTYPES:
        return np.dtype(name)
    import ml_dtypes

    dtype: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return dtype


def dtype_hint(name: str) -> str:
    """Returns the suggestion for an unknown dtype."""
    meant = _MEANT.get(name) or next(iter(difflib.get_close_matches(name, ITEM_BYTES, n=1, cutoff=0.6)), None)
    if meant:
        return f"Write {meant}."
    return f"Known are {', '.join(ITEM_BYTES)}."


def c_type_dtype(base: str) -> tuple[str | None, int]:
    """Returns the element dtype, and the number of elements, of a C type without qualifiers.

    Example: `float4` gives `("float32", 4)`; a type that has no NumPy counterpart gives `(None, 1)`. `long` has the 64
    bits of Linux. `enum int` is an enumeration with the values of an `int`.
    """
    name = normal_c_type(base.removeprefix(f"{ENUM} "))
    if name in _VECTORS:
        return _VECTORS[name]
    return _SCALARS.get(name), 1


def normal_c_type(base: str) -> str:
    """Normalises the spelling of a C type: `long unsigned` gives `unsigned long`, `std::int8_t` gives `int8_t`."""
    name = re.sub(r"\s+", " ", base.strip())
    name = re.sub(r"\s*([<>,*&])\s*", r"\1", name)
    name = re.sub(r"^(?:::)?(?:(?:cuda::std|cuda|std|thrust)::)?", "", name)
    words = name.split(" ")
    if not words or not _BASIC.issuperset(words):
        return name
    longs = words.count("long")
    if "double" in words or "float" in words or "bool" in words:
        return next(word for word in ("double", "float", "bool") if word in words)
    sign = "unsigned " if "unsigned" in words else ""
    if "char" in words:
        return "signed char" if "signed" in words else f"{sign}char"
    if "short" in words:
        return f"{sign}short"
    return sign + (" ".join(["long"] * longs) if longs else "int")
