"""Comparisons, selections, address conversions and `cvt` as LLVM instructions."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from kernelmate.backends.emulator.instructions.floats import NARROW
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
from kernelmate.backends.emulator.jit.narrow import converted
from kernelmate.backends.emulator.spaces import from_generic, to_generic
from kernelmate.backends.emulator.types import SIZES

Values = Sequence[ir.Value]
_SIGNS = {
    "eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "lo": "<", "ls": "<=", "hi": ">", "hs": ">=",
}  # fmt: skip


def _compare(b: ir.IRBuilder, name: str, kind: str, left: ir.Value, right: ir.Value) -> ir.Value:
    if not is_float(kind):
        if name not in _SIGNS:
            raise NotNative
        return (b.icmp_signed if is_signed(kind) else b.icmp_unsigned)(_SIGNS[name], left, right)
    if name in {"num", "nan"}:
        return b.fcmp_ordered("ord", left, right) if name == "num" else b.fcmp_unordered("uno", left, right)
    if name in _SIGNS:
        return b.fcmp_ordered(_SIGNS[name], left, right)
    if name[-1] == "u" and name[:-1] in _SIGNS:
        return b.fcmp_unordered(_SIGNS[name[:-1]], left, right)
    raise NotNative


@lowers("setp")
def lower_setp(b: ir.IRBuilder, form: Form, values: Values) -> tuple[ir.Value, ...]:
    """Compare, combine with another predicate, and set one or two predicates."""
    kind = form.sources[0]
    left, right, *third = values
    if form.has("ftz"):
        left, right = flush(b, left), flush(b, right)
    true = _compare(b, form.parts[1], kind, left, right)
    false = b.not_(true)
    combine = next((part for part in form.parts[2:-1] if part in {"and", "or", "xor"}), None)
    if (combine is None) != (not third):
        raise NotNative
    if combine is not None:
        join = {"and": b.and_, "or": b.or_, "xor": b.xor}[combine]
        true, false = join(true, third[0]), join(false, third[0])
    return (true, false)[: len(form.results)]


@lowers("selp")
def lower_select(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Lowers `selp`: the first operand if the predicate is true, else the second."""
    form.require()
    first, second, predicate = values
    return b.select(predicate, first, second)


@lowers("slct")
def lower_slct(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Lowers `slct`: the first operand if the third is not negative, else the second."""
    first, second, third = values
    if is_float(form.sources[2]):
        third = flush(b, third) if form.has("ftz") else third
        return b.select(b.fcmp_ordered(">=", third, constant(third, 0.0)), first, second)
    compare = b.icmp_signed if is_signed(form.sources[2]) else b.icmp_unsigned
    return b.select(compare(">=", third, constant(third, 0)), first, second)


@lowers("cvta")
def lower_address(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Lowers `cvta`: between addresses of a state space and generic ones."""
    import numpy as np

    space = next((part for part in form.parts[1:] if part not in {"to", "u64"}), "")
    convert = from_generic(space) if form.has("to") else to_generic(space)
    moved = int(convert(np.zeros(1, np.uint64))[0])
    return b.add(values[0], constant(values[0], moved)) if moved else values[0]


_TO_INTEGER = {"rni": "llvm.rint", "rzi": "llvm.trunc", "rmi": "llvm.floor", "rpi": "llvm.ceil"}


@lowers("cvt")
def lower_convert(b: ir.IRBuilder, form: Form, values: Sequence[ir.Value]) -> ir.Value:
    """Lowers conversions that round to nearest or to an integer."""
    if not NARROW.isdisjoint(form.parts):
        return converted(b, form, values)
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
