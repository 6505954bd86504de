"""`cvt`: between integers and floats of all widths, with every rounding and saturation."""

from __future__ import annotations

from collections.abc import Callable

import ml_dtypes
import numpy as np

from kernelmate.backends.emulator.instructions.floats import rounding_of
from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes
from kernelmate.backends.emulator.numerics.rounding import (
    DIRECTIONS,
    NEAREST,
    flush,
    narrow,
    rectified,
    saturate,
    to_odd,
    two_sum,
)
from kernelmate.backends.emulator.operations import Compute, Operation, Typed
from kernelmate.backends.emulator.program import Instruction
from kernelmate.backends.emulator.types import DTYPES, FLOATS, PAIRS, SIZES, Array, is_integer

_TO_INTEGER: dict[str, Callable[[Array], Array]] = {
    "rni": np.rint,
    "rzi": np.trunc,
    "rmi": np.floor,
    "rpi": np.ceil,
}
_QUALIFIERS = frozenset(_TO_INTEGER) | DIRECTIONS | {"ftz", "sat", "relu", "satfinite", "rna"}


@decodes("cvt")
def decode_convert(instruction: Instruction) -> Operation:
    """Any conversion."""
    target, source = instruction.parts[-2:]
    for part in instruction.parts[1:-2]:
        if part not in _QUALIFIERS:
            raise Unsupported(f"qualifier .{part} of {instruction.opcode}")
    if target not in SIZES or source not in SIZES:
        raise Unsupported(instruction.opcode)
    if target in PAIRS or source in PAIRS:
        return _packed(instruction, target, source)
    return Compute(
        ((instruction.operands[0], target),),
        ((instruction.operands[1], source),),
        _converter(instruction, target, source),
    )


def _converter(instruction: Instruction, target: str, source: str) -> Callable[[Array], Array]:
    if is_integer(target) and is_integer(source):
        return _integer_to_integer(target, instruction.has("sat"))
    if is_integer(source):
        return _integer_to_float(target, rounding_of(instruction), instruction.has("sat"))
    if is_integer(target):
        return _float_to_integer(instruction, target, source)
    return _float_to_float(instruction, target, source)


def _integer_to_integer(target: str, sat: bool) -> Callable[[Array], Array]:
    dtype = DTYPES[target]
    if not sat:
        return lambda a: a.astype(dtype)
    info = np.iinfo(dtype)

    def clamped(a: Array) -> Array:
        # Python integers beyond the source's range compare exactly, so clamp only if the bound can be reached.
        own = np.iinfo(a.dtype)
        low, high = max(info.min, own.min), min(info.max, own.max)
        return np.clip(a, a.dtype.type(low), a.dtype.type(high)).astype(dtype)

    return clamped


def _integer_to_float(target: str, mode: str, sat: bool) -> Callable[[Array], Array]:
    dtype = DTYPES[target]

    def function(a: Array) -> Array:
        if mode == NEAREST and dtype in (np.float32, np.float64):
            result = a.astype(dtype)
        elif a.dtype.itemsize < 8:
            result = narrow(a.astype(np.float64), dtype, mode)
        else:
            result = _wide_integer(a, dtype, mode)
        return saturate(result) if sat else result

    return function


def _wide_integer(a: Array, dtype: np.dtype[np.generic], mode: str) -> Array:
    """Converts 64-bit integers to floats by way of the exact sum of two float64."""
    high = (a >> a.dtype.type(32)).astype(np.float64) * 2.0**32
    low = (a & a.dtype.type(0xFFFFFFFF)).astype(np.float64)
    total, error = two_sum(high, low)
    if dtype != np.float64:
        return narrow(to_odd(total, error), dtype, mode)
    if mode == NEAREST:
        return total
    if mode == "rz":
        wrong = (error != 0) & ((error < 0) == (total > 0))
        return np.where(wrong, np.nextafter(total, 0.0), total)
    wrong = (error < 0) if mode == "rm" else (error > 0)
    return np.where(wrong, np.nextafter(total, -np.inf if mode == "rm" else np.inf), total)


def _float_to_integer(instruction: Instruction, target: str, source: str) -> Callable[[Array], Array]:
    rounding = next((_TO_INTEGER[part] for part in instruction.parts[1:] if part in _TO_INTEGER), None)
    if rounding is None:
        raise Unsupported(f"{instruction.opcode} without integer rounding")
    dtype = DTYPES[target]
    info = np.iinfo(dtype)
    # NaN converts to zero, except with f64 or a 64-bit integer, for which only the highest bit is set (PTX ISA, cvt).
    wide = source == "f64" or SIZES[target] == 8
    not_a_number = (1 << (info.bits - 1)) if wide else 0
    nan_value = np.array([not_a_number], np.uint64).astype(np.dtype(f"u{dtype.itemsize}")).view(dtype)[0]
    low, high = float(info.min), float(info.max)
    ftz = instruction.has("ftz")

    def function(a: Array) -> Array:
        value = rounding((flush(a) if ftz else a).astype(np.float64))
        inside = (value >= low) & (value < high + (1 if info.bits < 64 else 0))
        if inside.all():
            return value.astype(dtype)
        safe = np.where(inside, value, 0.0).astype(dtype)
        safe = np.where(value >= high, dtype.type(info.max), safe)
        safe = np.where(value < low, dtype.type(info.min), safe)
        return np.where(np.isnan(value), nan_value, safe)

    return function


def _float_to_float(instruction: Instruction, target: str, source: str) -> Callable[[Array], Array]:
    dtype = DTYPES[target]
    mode = rounding_of(instruction)
    rounding = next((_TO_INTEGER[part] for part in instruction.parts[1:] if part in _TO_INTEGER), None)
    ftz, sat, relu = (instruction.has(name) for name in ("ftz", "sat", "relu"))
    finite = instruction.has("satfinite")
    if target == "tf32":
        return _to_tf32("rna" if instruction.has("rna") else mode, relu=relu, finite=finite)
    if target.startswith("e") or source.startswith("e"):
        raise Unsupported(instruction.opcode)

    def function(a: Array) -> Array:
        if ftz and a.dtype == np.float32:
            a = flush(a)
        if rounding is not None:
            result = rounding(a.astype(np.float32) if a.dtype == ml_dtypes.bfloat16 else a).astype(dtype)
        elif a.dtype == dtype:
            result = a
        elif dtype == np.float32 and mode == NEAREST:
            result = a.astype(np.float32)
        else:
            result = narrow(a.astype(np.float64), dtype, mode)
        return _finished(result, ftz=ftz and target == "f32", sat=sat, relu=relu, finite=finite)

    return function


def _finished(result: Array, *, ftz: bool, sat: bool, relu: bool, finite: bool) -> Array:
    if ftz:
        result = flush(result)
    if sat:
        kind = result.dtype
        result = saturate(result.astype(np.float32) if kind == ml_dtypes.bfloat16 else result).astype(kind)
    if relu:
        result = rectified(result)
    if finite:
        largest = _largest(result.dtype)
        result = np.where(np.isinf(result), np.copysign(largest, result).astype(result.dtype), result)
    return result


def _largest(dtype: np.dtype[np.generic]) -> np.generic:
    """Returns the largest finite number of a type."""
    found: np.generic = ml_dtypes.finfo(dtype).max  # type: ignore[no-untyped-call]
    return found


_TF32_LARGEST = 2.0**128 - 2.0**117


def _to_tf32(mode: str, *, relu: bool, finite: bool) -> Callable[[Array], Array]:
    """Rounds to tf32, 19 bits of a float32 with ten of mantissa.

    Ties away from zero for `.rna`, to even for `.rn`, truncated for `.rz`.
    """

    def function(a: Array) -> Array:
        bits = a.view(np.uint32)
        step: Array = {
            "rna": np.full_like(bits, 0x1000),
            "rn": np.uint32(0x0FFF) + ((bits >> np.uint32(13)) & np.uint32(1)),
            "rz": np.zeros_like(bits),
        }[mode]
        rounded = np.where(np.isfinite(a), (bits + step) & np.uint32(0xFFFFE000), bits).astype(np.uint32)
        result = rounded.view(np.float32)
        if finite:
            limit = np.float32(_TF32_LARGEST)
            result = np.where(np.isnan(result), result, np.clip(result, -limit, limit))
        return rectified(result) if relu else result

    if mode not in {"rna", NEAREST, "rz"}:
        raise Unsupported(f"qualifier .{mode} of cvt to tf32")
    return function


def _packed(instruction: Instruction, target: str, source: str) -> Compute:
    """Converts two floats into one register, with the first operand in the upper half; also to 8-bit floats."""
    if target in {"f16x2", "bf16x2"} and source == "f32":
        single = _float_to_float(instruction, target[:-2], source)
        destination, high, low = instruction.operands
        sources: tuple[Typed, ...] = ((high, source), (low, source))
        return Compute(
            ((destination, target),), sources, lambda a, b: np.stack(np.broadcast_arrays(single(b), single(a)), axis=-1)
        )
    if target in {"e4m3x2", "e5m2x2"}:
        return _to_eight_bits(instruction, target, source)
    if source in {"e4m3x2", "e5m2x2"} and target == "f16x2":
        destination, value = instruction.operands
        relu = instruction.has("relu")

        def widened(a: Array) -> Array:
            wide = a.astype(np.float32).astype(np.float16)
            return rectified(wide) if relu else wide

        return Compute(((destination, target),), ((value, source),), widened)
    raise Unsupported(instruction.opcode)


def _to_eight_bits(instruction: Instruction, target: str, source: str) -> Compute:
    dtype = DTYPES[target]
    largest = float(_largest(dtype))
    relu = instruction.has("relu")

    def single(a: Array) -> Array:
        wide = a.astype(np.float32)
        if relu:
            wide = rectified(wide)
        return np.clip(wide, -largest, largest).astype(dtype)

    if source == "f32":
        destination, high, low = instruction.operands
        return Compute(
            ((destination, target),),
            ((high, source), (low, source)),
            lambda a, b: np.stack(np.broadcast_arrays(single(b), single(a)), axis=-1),
        )
    if source in FLOATS and source in PAIRS:
        destination, value = instruction.operands
        return Compute(((destination, target),), ((value, source),), single)
    raise Unsupported(instruction.opcode)
