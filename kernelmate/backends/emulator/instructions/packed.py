"""Arithmetic of f16 and bf16, single and in pairs, and of f32 pairs.

NumPy computes float16 through float32, and ml_dtypes bfloat16 likewise: with 24 bits against 11 or 8, double rounding
of a sum, difference or product is innocuous. Fused operations are rounded from the exact value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelmate.backends.emulator.instructions.integer import plain
from kernelmate.backends.emulator.instructions.registry import Unsupported, require
from kernelmate.backends.emulator.numerics.fused import fma32, fma_narrow
from kernelmate.backends.emulator.numerics.rounding import (
    DIRECTIONS,
    NEAREST,
    flush,
    minimum_or_maximum,
    rectified,
    saturate,
    xor_signed,
)
from kernelmate.backends.emulator.operations import Compute
from kernelmate.backends.emulator.program import Instruction
from kernelmate.backends.emulator.types import DTYPES, Array

NARROW = frozenset({"f16", "bf16", "f16x2", "bf16x2"})
_UFUNCS: dict[str, np.ufunc] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def _finish(instruction: Instruction, kind: str, function: Callable[..., Array]) -> Callable[..., Array]:
    """Computes in float32, rounds to the type, then applies `.ftz`, `.sat` and `.relu`."""
    dtype = DTYPES[kind]
    ftz, sat, relu = instruction.has("ftz"), instruction.has("sat"), instruction.has("relu")

    def finished(*sources: Array) -> Array:
        if ftz:
            sources = tuple(flush(source) for source in sources)
        result = np.asarray(function(*sources)).astype(dtype)
        if ftz:
            result = flush(result)
        if sat:
            result = saturate(result.astype(np.float32)).astype(dtype)
        if relu:
            result = rectified(result)
        return result

    return finished


def decode_binary(instruction: Instruction) -> Compute:
    """`add`, `sub`, `mul`."""
    kind, name = instruction.kind, instruction.name
    require(instruction, NARROW | {"rn", "ftz", "sat", "f32x2", "rz", "rm", "rp"})
    if name not in _UFUNCS:
        raise Unsupported(instruction.opcode)
    ufunc = _UFUNCS[name]
    if kind == "f32x2":
        return _pair32(instruction, ufunc)

    def through_float32(a: Array, b: Array) -> Array:
        return np.asarray(ufunc(a.astype(np.float32), b.astype(np.float32)))

    return plain(instruction, kind, _finish(instruction, kind, through_float32))


def _pair32(instruction: Instruction, function: Callable[..., Any]) -> Compute:
    if any(part in DIRECTIONS - {NEAREST} for part in instruction.parts):
        raise Unsupported(instruction.opcode)
    if instruction.has("ftz"):
        return plain(instruction, "f32x2", lambda *values: flush(function(*(flush(value) for value in values))))
    return plain(instruction, "f32x2", function)


def decode_fused(instruction: Instruction) -> Compute:
    """`fma`."""
    kind = instruction.kind
    require(instruction, NARROW | {"rn", "ftz", "sat", "relu", "f32x2"})
    if kind == "f32x2":
        return _pair32(instruction, fma32)
    dtype = DTYPES[kind]
    return plain(instruction, kind, _finish(instruction, kind, lambda a, b, c: fma_narrow(a, b, c, dtype)))


def decode_minmax(instruction: Instruction) -> Compute:
    """`min` and `max`."""
    kind = instruction.kind
    require(instruction, NARROW | {"ftz", "NaN", "xorsign", "abs"})
    pick = minimum_or_maximum(instruction.name == "max", instruction.has("NaN"))
    if instruction.has("xorsign"):
        pick = xor_signed(pick)

    def function(a: Array, b: Array) -> Array:
        return pick(a.astype(np.float32), b.astype(np.float32))

    return plain(instruction, kind, _finish(instruction, kind, function))


def decode_sign(instruction: Instruction) -> Compute:
    """`abs` and `neg`, which touch the sign bit alone."""
    kind = instruction.kind
    require(instruction, NARROW | {"ftz"})
    bits = "b32" if kind.endswith("x2") else "b16"
    mask = 0x80008000 if bits == "b32" else 0x8000
    word = DTYPES[bits].type(mask)
    if instruction.has("ftz"):
        ufunc = np.abs if instruction.name == "abs" else np.negative
        return plain(instruction, kind, lambda a: flush(ufunc(a)))
    if instruction.name == "abs":
        return plain(instruction, bits, lambda a: a & ~word)
    return plain(instruction, bits, lambda a: a ^ word)
