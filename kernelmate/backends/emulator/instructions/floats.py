"""Arithmetic of f32 and f64, of f16 and bf16, single and in pairs, and of f32 pairs.

The approximate functions of the special-function unit are computed in float64 and rounded. The hardware's results differ
from these in the last bits within the bounds that the PTX ISA states. If such a bound is more than a few units in the
last place (`tanh`, `lg2` between 0.5 and 2, `sin`, `cos`), the result is no more exact than the bound. NumPy computes float16 through float32, and ml_dtypes bfloat16 likewise: with 24 bits against 11 or 8, double rounding of a sum, difference or product
is innocuous. Fused operations are rounded from the exact value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from kernelmate.backends.emulator.instructions import integer
from kernelmate.backends.emulator.instructions.integer import plain
from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes, require
from kernelmate.backends.emulator.numerics import rounding
from kernelmate.backends.emulator.numerics.rounding import (
    DIRECTIONS,
    NEAREST,
    flush,
    fma32,
    fma64,
    fma_narrow,
    minimum_or_maximum,
    rectified,
    saturate,
    xor_signed,
)
from kernelmate.backends.emulator.operations import Compute, Operation
from kernelmate.backends.emulator.program import Instruction
from kernelmate.backends.emulator.types import DTYPES, FLOATS, Array

NARROW = frozenset({"f16", "bf16", "f16x2", "bf16x2"})
_NARROW_UFUNCS: dict[str, np.ufunc] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


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


def _narrow_binary(instruction: Instruction) -> Compute:
    """`add`, `sub`, `mul`."""
    kind, name = instruction.kind, instruction.name
    require(instruction, NARROW | {"rn", "ftz", "sat", "f32x2", "rz", "rm", "rp"})
    if name not in _NARROW_UFUNCS:
        raise Unsupported(instruction.opcode)
    ufunc = _NARROW_UFUNCS[name]
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


def _narrow_fused(instruction: Instruction) -> Compute:
    """`fma`."""
    kind = instruction.kind
    require(instruction, NARROW | {"rn", "ftz", "sat", "relu", "f32x2"})
    if kind == "f32x2":
        return _pair32(instruction, fma32)
    dtype = DTYPES[kind]
    return plain(instruction, kind, _finish(instruction, kind, lambda a, b, c: fma_narrow(a, b, c, dtype)))


def _narrow_minmax(instruction: Instruction) -> Compute:
    """`min` and `max`."""
    kind = instruction.kind
    require(instruction, NARROW | {"ftz", "NaN", "xorsign", "abs"})
    pick = minimum_or_maximum(instruction.name == "max", instruction.has("NaN"))
    if instruction.has("xorsign"):
        pick = xor_signed(pick)

    def function(a: Array, b: Array) -> Array:
        return pick(a.astype(np.float32), b.astype(np.float32))

    return plain(instruction, kind, _finish(instruction, kind, function))


def _narrow_sign(instruction: Instruction) -> Compute:
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


ONE_TURN: Array = np.array(0.15915494, np.float32)
"""1 / (2 pi) in float32. The hardware multiplies by it, rounds towards zero, and takes the sine or cosine of the turns."""


def _of_turns(exact: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Wraps a sine or cosine that receives its angle in turns of float32.

    The rounding of the turns explains the PTX ISA's bounds (sin, cos): 2^-20.5 within 2 pi, 2^-14.7 within 100 pi. Beyond,
    the error grows with the angle.
    """

    def function(a: Array) -> Array:
        turns = rounding.multiply_directed(a.astype(np.float32), ONE_TURN, "rz").astype(np.float64)
        part = turns - np.rint(turns)
        return exact(2 * np.pi * np.where(part == 0, np.copysign(0.0, turns), part))

    return function


LG2_ROUNDER = 1.5 * 2.0 ** (52 - 21)
"""A float64 whose sum with a smaller number is a multiple of 2^-21."""


def _of_library(name: str) -> Callable[[Array], Array]:
    """Returns a float64 function over arrays with the results that native code has."""

    def function(a: Array) -> Array:
        from kernelmate.backends.emulator.llvm import array_function

        return array_function(name)[0](a)

    return function


def _log2(a: Array) -> Array:
    """Returns the logarithm, a multiple of 2^-21 where it is below 1, since the absolute error there is up to 2^-22 (PTX ISA, lg2)."""
    exact = _of_library("log2")(a)
    return np.where(np.abs(exact) < 1, (exact + LG2_ROUNDER) - LG2_ROUNDER, exact)


_FUNCTIONS: dict[str, Callable[[Array], Array]] = {
    "ex2": _of_library("exp2"),
    "lg2": _log2,
    "sin": _of_turns(np.sin),
    "cos": _of_turns(np.cos),
    "tanh": np.tanh,
    "rsqrt": lambda a: 1.0 / np.sqrt(a),
}


_TYPES: dict[str, frozenset[str]] = {
    "ex2": frozenset({"f32", "f16", "bf16", "f16x2", "bf16x2"}),
    "tanh": frozenset({"f32", "f16", "bf16", "f16x2", "bf16x2"}),
    "rsqrt": frozenset({"f32", "f64"}),
    **dict.fromkeys(("lg2", "sin", "cos"), frozenset({"f32"})),
}


def upper_half(exact: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Wraps approximate f64 forms, which read and write only the upper 32 bits, and flush subnormals (PTX ISA, rcp, rsqrt)."""

    def cut(value: Array) -> Array:
        bits = np.asarray(value).view(np.uint64) & np.uint64(0xFFFFFFFF00000000)
        return bits.view(np.float64)

    return lambda a: flush(cut(exact(flush(cut(a)))))


TANH_BITS = 11
"""Significant bits of `tanh.approx.f32`, whose relative error is up to 2^-11 (PTX ISA, tanh)."""


def _tanh(a: Array) -> Array:
    fraction, exponent = np.frexp(np.tanh(a))
    rounded: Array = np.ldexp(np.rint(np.ldexp(fraction, TANH_BITS)), exponent - TANH_BITS)
    return rounded


@decodes("ex2", "lg2", "sin", "cos", "tanh", "rsqrt")
def decode_special(instruction: Instruction) -> Operation:
    """Computes one of the approximate functions, for f32, f64 (rsqrt) and the narrow types (ex2, tanh)."""
    kind, name = instruction.kind, instruction.name
    require(instruction, _TYPES[name] | {"approx", "ftz"})
    exact = _tanh if (name, kind) == ("tanh", "f32") else _FUNCTIONS[name]
    dtype, ftz = DTYPES[kind], instruction.has("ftz")

    if kind == "f64":
        return plain(instruction, kind, upper_half(exact))

    def function(a: Array) -> Array:
        if ftz:
            a = flush(a)
        result = exact(a.astype(np.float64)).astype(np.float32).astype(dtype)
        return flush(result) if ftz else result

    return plain(instruction, kind, function)


_ARITHMETIC = DIRECTIONS | {"ftz", "sat", "f32", "f64"}
_DIRECTED: dict[str, Callable[[Array, Array, str], Array]] = {
    "add": rounding.add_directed,
    "sub": lambda a, b, mode: rounding.add_directed(a, np.negative(b), mode),
    "mul": rounding.multiply_directed,
    "div": rounding.divide_directed,
}
_UFUNCS: dict[str, np.ufunc] = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}


def rounding_of(instruction: Instruction) -> str:
    """Returns the rounding direction of the qualifiers; to nearest by default."""
    return next((part for part in instruction.parts[1:] if part in DIRECTIONS), NEAREST)


LARGEST_DIVISOR = np.float32(2.0**126)
"""Largest divisor of `div.approx`, whose reciprocal is a normal number."""


def with_modifiers(
    instruction: Instruction, function: Callable[..., Any], ufunc: np.ufunc | None = None
) -> tuple[Callable[..., Any], np.ufunc | None]:
    """Wraps `function` with the effects of `.ftz` and `.sat`."""
    ftz, sat = instruction.has("ftz"), instruction.has("sat")
    if not ftz and not sat:
        return function, ufunc

    def wrapped(*sources: Array) -> Array:
        result = function(*(flush(source) for source in sources)) if ftz else function(*sources)
        if ftz:
            result = flush(result)
        return saturate(result) if sat else result

    return wrapped, None


def divided_approximately(a: Array, b: Array) -> Array:
    """Returns the exact quotient, but for divisors above 2^126 zero, or NaN if the dividend is infinite (PTX ISA, div.approx)."""
    infinite = np.copysign(np.float32(np.inf), b)
    quotient: Array = np.divide(a, np.where(np.abs(b) > LARGEST_DIVISOR, infinite, b))
    return quotient


def _binary(instruction: Instruction) -> Operation:
    kind, name = instruction.kind, instruction.name
    require(instruction, _ARITHMETIC | ({"full", "approx"} if name == "div" else set()))
    mode = rounding_of(instruction)
    if mode != NEAREST:
        exact = _DIRECTED[name]
        function, ufunc = with_modifiers(instruction, lambda a, b: exact(a, b, mode))
    elif instruction.has("approx"):
        function, ufunc = with_modifiers(instruction, divided_approximately)
    else:
        function, ufunc = with_modifiers(instruction, _UFUNCS[name], _UFUNCS[name])
    return plain(instruction, kind, function, ufunc)


@decodes("add", "sub", "mul", "div")
def decode_binary(instruction: Instruction) -> Operation:
    """Computes one of the four basic operations, for every type."""
    kind, name = instruction.kind, instruction.name
    if kind in {"f32", "f64"}:
        return _binary(instruction)
    if kind in FLOATS:
        return _narrow_binary(instruction)
    if kind in {"u16x2", "s16x2"} and name == "add":
        return integer.decode_add_halves(instruction)
    if name == "mul":
        return integer.decode_multiply(instruction)
    return integer.decode_divide(instruction) if name == "div" else integer.decode_add(instruction)


@decodes("fma", "mad")
def decode_fused(instruction: Instruction) -> Operation:
    """Multiply-add, rounded once for floats."""
    kind = instruction.kind
    if kind not in FLOATS:
        return integer.decode_mad(instruction)
    if kind not in {"f32", "f64"}:
        return _narrow_fused(instruction)
    require(instruction, _ARITHMETIC)
    mode = rounding_of(instruction)
    exact = fma32 if kind == "f32" else fma64
    function, _ = with_modifiers(instruction, lambda a, b, c: exact(a, b, c, mode))
    return plain(instruction, kind, function)


@decodes("min", "max")
def decode_minmax(instruction: Instruction) -> Operation:
    """Minimum and maximum of two or three; a NaN loses unless `.NaN` is written."""
    kind = instruction.kind
    if FLOATS.isdisjoint(instruction.parts):
        return integer.decode_minmax(instruction)
    if kind not in {"f32", "f64"}:
        return _narrow_minmax(instruction)
    require(instruction, frozenset({"ftz", "NaN", "xorsign", "abs", "f32", "f64"}))
    pick = minimum_or_maximum(instruction.name == "max", instruction.has("NaN"))
    if instruction.has("xorsign"):
        pick = xor_signed(pick)
    function, _ = with_modifiers(instruction, lambda *values: _folded(pick, values))
    return plain(instruction, kind, function)


def _folded(pick: Callable[[Array, Array], Array], values: tuple[Array, ...]) -> Array:
    result = values[0]
    for value in values[1:]:
        result = pick(result, value)
    return result


@decodes("abs", "neg")
def decode_sign(instruction: Instruction) -> Operation:
    """Absolute value and negation."""
    kind = instruction.kind
    if kind not in FLOATS:
        return integer.decode_abs_neg(instruction)
    if kind not in {"f32", "f64"}:
        return _narrow_sign(instruction)
    require(instruction, frozenset({"ftz", "f32", "f64"}))
    ufunc = np.abs if instruction.name == "abs" else np.negative
    if instruction.has("ftz"):
        return plain(instruction, kind, lambda a: flush(ufunc(a)))
    return plain(instruction, kind, ufunc, ufunc)


@decodes("copysign")
def decode_copysign(instruction: Instruction) -> Operation:
    """Returns the second operand with the sign of the first."""
    require(instruction, frozenset({"f32", "f64"}))
    return plain(instruction, instruction.kind, lambda a, b: np.copysign(b, a))


@decodes("sqrt", "rcp")
def decode_root(instruction: Instruction) -> Operation:
    """Square root and reciprocal, correctly rounded; the approximate forms are computed as well as they can be."""
    kind = instruction.kind
    require(instruction, _ARITHMETIC | {"approx"})
    mode = rounding_of(instruction)
    root = instruction.name == "sqrt"
    if root and kind == "f64" and instruction.has("approx"):
        raise Unsupported(instruction.opcode)

    def reciprocal(a: Array) -> Array:
        one = np.ones_like(a)
        return np.asarray(one / a) if mode == NEAREST else rounding.divide_directed(one, a, mode)

    if root and mode == NEAREST:
        function, ufunc = with_modifiers(instruction, np.sqrt, np.sqrt)
        return plain(instruction, kind, function, ufunc)
    if kind == "f64" and instruction.has("approx"):
        return plain(instruction, kind, upper_half(reciprocal))
    function, _ = with_modifiers(instruction, (lambda a: rounding.root_directed(a, mode)) if root else reciprocal)
    return plain(instruction, kind, function)


@decodes("testp")
def decode_test(instruction: Instruction) -> Operation:
    """Classes of floating-point values."""
    kind, test = instruction.kind, instruction.parts[1]
    require(instruction, frozenset({"f32", "f64", test}))
    smallest = np.float32(2.0**-126) if kind == "f32" else np.float64(2.0**-1022)
    tests: dict[str, Callable[[Array], Array]] = {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= smallest),
        "subnormal": lambda a: (a != 0) & (np.abs(a) < smallest),
    }
    if test not in tests:
        raise Unsupported(f"testp.{test}")
    first, value = instruction.operands
    return Compute(((first, "pred"),), ((value, kind),), tests[test])
