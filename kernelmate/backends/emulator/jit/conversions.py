"""`cvt` as LLVM instructions: between integers, f32 and f64."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from kernelmate.backends.emulator.jit.floats import flush, saturate
from kernelmate.backends.emulator.jit.lowering import (
    DOUBLE,
    FLOAT,
    Form,
    NotNative,
    constant,
    intrinsic,
    is_float,
    is_signed,
    lowers,
    type_of,
    widen,
)
from kernelmate.backends.emulator.types import SIZES

_TO_INTEGER = {"rni": "llvm.rint", "rzi": "llvm.trunc", "rmi": "llvm.floor", "rpi": "llvm.ceil"}


@lowers("cvt")
def lower_convert(b: ir.IRBuilder, form: Form, values: Sequence[ir.Value]) -> ir.Value:
    """Lowers conversions that round to nearest or to an integer."""
    form.require("rn", "ftz", "sat", *_TO_INTEGER)
    target, source = form.results[0], form.sources[0]
    if {target, source} != set(form.parts[-2:]) or len(values) != 1:
        raise NotNative
    (a,) = values
    if not is_float(source):
        if form.has("sat"):
            raise NotNative
        if not is_float(target):
            return widen(b, a, type_of(target), is_signed(source))
        return (b.sitofp if is_signed(source) else b.uitofp)(a, type_of(target))
    a = flush(b, a) if form.has("ftz") and source == "f32" else a
    rounding = next((_TO_INTEGER[part] for part in form.parts[1:] if part in _TO_INTEGER), None)
    if is_float(target):
        return _float_to_float(b, form, a, rounding)
    if rounding is None:
        raise NotNative
    return _float_to_integer(b, a, rounding, target, source)


def _float_to_float(b: ir.IRBuilder, form: Form, a: ir.Value, rounding: str | None) -> ir.Value:
    target = type_of(form.results[0])
    if rounding is not None:
        a = intrinsic(b, rounding, [a])
    if target != a.type:
        a = b.fpext(a, target) if target == DOUBLE else b.fptrunc(a, target)
    if form.has("ftz") and target == FLOAT:
        a = flush(b, a)
    return saturate(b, a) if form.has("sat") else a


def _float_to_integer(b: ir.IRBuilder, a: ir.Value, rounding: str, target: str, source: str) -> ir.Value:
    """Converts a float to an integer.

    Out of range it gives the nearest integer; for NaN zero, or the highest bit alone with f64 or a 64-bit integer.
    """
    value = intrinsic(b, rounding, [b.fpext(a, DOUBLE) if a.type == FLOAT else a])
    kind = type_of(target)
    name = "llvm.fptosi.sat" if is_signed(target) else "llvm.fptoui.sat"
    function = b.module.declare_intrinsic(name, (kind, DOUBLE), ir.FunctionType(kind, [DOUBLE]))
    result = b.call(function, [value])
    if source != "f64" and SIZES[target] < 8:
        return result
    nothing = constant(result, 1 << (kind.width - 1))
    return b.select(b.fcmp_unordered("uno", value, value), nothing, result)
