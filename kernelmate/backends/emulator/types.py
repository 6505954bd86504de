"""PTX types in NumPy.

A register is an array of unsigned integers (booleans for predicates), one element per lane; a typed operand is a view of
it. Packed pairs (`f16x2`, `bf16x2`) are views with a trailing axis of two.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

SIZES: dict[str, int] = {
    "pred": 1,
    "b8": 1,
    "u8": 1,
    "s8": 1,
    "e4m3": 1,
    "e5m2": 1,
    "b16": 2,
    "u16": 2,
    "s16": 2,
    "f16": 2,
    "bf16": 2,
    "e4m3x2": 2,
    "e5m2x2": 2,
    "b32": 4,
    "u32": 4,
    "s32": 4,
    "f32": 4,
    "f16x2": 4,
    "bf16x2": 4,
    "tf32": 4,
    "b64": 8,
    "u64": 8,
    "s64": 8,
    "f64": 8,
    "f32x2": 8,
}
"""Bytes of each type; a predicate takes one as an array element."""

PER_WORD = {"s4": 8, "u4": 8, "b1": 32}
"""Elements in a 32-bit register of the types that are smaller than a byte."""

DTYPES: dict[str, np.dtype[Any]] = {
    name: np.dtype(kind)
    for name, kind in {
        "pred": np.bool_,
        "b8": np.uint8,
        "u8": np.uint8,
        "s8": np.int8,
        "b16": np.uint16,
        "u16": np.uint16,
        "s16": np.int16,
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "b32": np.uint32,
        "u32": np.uint32,
        "s32": np.int32,
        "f32": np.float32,
        "tf32": np.float32,
        "f16x2": np.float16,
        "bf16x2": ml_dtypes.bfloat16,
        "f32x2": np.float32,
        "b64": np.uint64,
        "u64": np.uint64,
        "s64": np.int64,
        "f64": np.float64,
        "e4m3": ml_dtypes.float8_e4m3fn,
        "e5m2": ml_dtypes.float8_e5m2,
        "e4m3x2": ml_dtypes.float8_e4m3fn,
        "e5m2x2": ml_dtypes.float8_e5m2,
    }.items()
}
"""Element dtype of each type."""

UNSIGNED: dict[int, np.dtype[Any]] = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}
SIGNED: dict[int, np.dtype[Any]] = {size: np.dtype(f"i{size}") for size in (1, 2, 4, 8)}

FLOATS = frozenset({"f16", "bf16", "f32", "f64", "f16x2", "bf16x2", "tf32", "f32x2"})
PAIRS = frozenset({"f16x2", "bf16x2", "e4m3x2", "e5m2x2", "f32x2"})


def is_signed(kind: str) -> bool:
    """Returns True for a signed integer type."""
    return kind in {"s8", "s16", "s32", "s64"}


def is_integer(kind: str) -> bool:
    """True if it is an integer or untyped bits."""
    return kind[0] in "usb" and kind not in FLOATS and kind in SIZES


def typed_view(storage: Array, kind: str) -> Array:
    """Returns a register's storage viewed as `kind`; a narrower type views the low bytes.

    Raises:
        ValueError: the type is wider than the register.
    """
    if kind == "pred":
        if storage.dtype != np.bool_:
            raise ValueError("a predicate register is expected")
        return storage
    if storage.dtype == np.bool_ or SIZES[kind] > storage.itemsize:
        raise ValueError(f"a .{kind} operand does not fit a register of {storage.itemsize} bytes")
    if kind in PAIRS:
        pair = (
            storage
            if SIZES[kind] == storage.itemsize
            else storage.view(UNSIGNED[SIZES[kind]])[:: storage.itemsize // SIZES[kind]]
        )
        return pair.view(DTYPES[kind]).reshape(-1, 2)
    ratio = storage.itemsize // SIZES[kind]
    view = storage.view(DTYPES[kind])
    return view if ratio == 1 else view[::ratio]


def scalar(value: int, kind: str) -> Any:
    """Returns the bits of `value`, cut to the type's width, as a NumPy scalar of the type (an array of two for pairs)."""
    if kind == "pred":
        return np.bool_(value & 1)
    size = SIZES[kind]
    raw = np.array([value & ((1 << (8 * size)) - 1)], dtype=UNSIGNED[size])
    view = raw.view(DTYPES[kind])
    return view.reshape(1, 2) if kind in PAIRS else view[0]
