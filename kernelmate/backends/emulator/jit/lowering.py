"""Lowering of operations on registers to LLVM instructions: a registry by opcode name, and shared helpers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

from kernelmate.backends.emulator.types import FLOATS, SIZES

BOOL = ir.IntType(1)
I8 = ir.IntType(8)
I16 = ir.IntType(16)
I32 = ir.IntType(32)
I64 = ir.IntType(64)
FLOAT = ir.FloatType()
DOUBLE = ir.DoubleType()


class NotNative(Exception):
    """The operation, or this form of it, has no native form, and NumPy executes it."""


@dataclass(frozen=True, slots=True)
class Form:
    """Operation to be lowered: the opcode's parts, and the types of results and sources as `Compute` has them."""

    parts: tuple[str, ...]
    results: tuple[str, ...]
    sources: tuple[str, ...]

    def has(self, qualifier: str) -> bool:
        """True if the qualifier is among the opcode's parts."""
        return qualifier in self.parts[1:]

    def require(self, *known: str) -> None:
        """Raises NotNative if there is any other qualifier (apart from types)."""
        for part in self.parts[1:]:
            if part not in known and part not in SIZES:
                raise NotNative


_NARROW = FLOATS - {"f32", "f64"}
"""Formats without native arithmetic; some of their operations act on plain bits, but differ from those for integers."""
Lowering = Callable[[ir.IRBuilder, Form, Sequence[ir.Value]], Any]
"""Function from one value per source, typed as its kind, to the result, or to a tuple of results."""

LOWERINGS: dict[str, Lowering] = {}


def lowers(*names: str) -> Callable[[Lowering], Lowering]:
    """Register a lowering for opcodes of these names."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            LOWERINGS[name] = function
        return function

    return register


def type_of(kind: str) -> ir.Type:
    """Return the LLVM type of a PTX type's values.

    Raises:
        NotNative: it has no native type.
    """
    if kind == "pred":
        return BOOL
    if kind == "f32":
        return FLOAT
    if kind == "f64":
        return DOUBLE
    if kind[0] in "usb" and kind[1:].isdigit():
        return ir.IntType(8 * SIZES[kind])
    raise NotNative


def is_float(kind: str) -> bool:
    """True if it is a type with native float arithmetic."""
    return kind in {"f32", "f64"}


def is_signed(kind: str) -> bool:
    """True if it is a signed integer type."""
    return kind[0] == "s" and kind[1:].isdigit()


def constant(value: ir.Value, number: float) -> ir.Constant:
    """Returns a constant of another value's type."""
    return ir.Constant(value.type, number)


def intrinsic(b: ir.IRBuilder, name: str, arguments: Sequence[ir.Value], *types: ir.Type) -> ir.Value:
    """Calls an LLVM intrinsic whose result has its first argument's type."""
    kinds = types or (arguments[0].type,)
    kind = ir.FunctionType(arguments[0].type, [argument.type for argument in arguments])
    return b.call(b.module.declare_intrinsic(name, kinds, kind), arguments)


def widen(b: ir.IRBuilder, value: ir.Value, target: ir.Type, signed: bool) -> ir.Value:
    """Returns an integer extended or truncated to a width."""
    if value.type.width == target.width:
        return value
    if value.type.width > target.width:
        return b.trunc(value, target)
    return b.sext(value, target) if signed else b.zext(value, target)


def lower(b: ir.IRBuilder, form: Form, values: Sequence[ir.Value]) -> tuple[ir.Value, ...]:
    """Returns the results of an operation.

    Raises:
        NotNative: it has no native form.
    """
    found = LOWERINGS.get(form.parts[0])
    if found is None or not _NARROW.isdisjoint(form.parts):
        raise NotNative
    results = found(b, form, values)
    return results if isinstance(results, tuple) else (results,)
