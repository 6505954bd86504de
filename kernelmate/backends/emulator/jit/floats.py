"""Lowers f32 and f64 arithmetic to LLVM instructions with NumPy's exact results: no contraction, no fast-math."""

from __future__ import annotations

import math
from collections.abc import Sequence

from llvmlite import ir

from kernelmate.backends.emulator.instructions.floats import LG2_ROUNDER
from kernelmate.backends.emulator.jit.lowering import (
    DOUBLE,
    FLOAT,
    I32,
    I64,
    Form,
    NotNative,
    constant,
    intrinsic,
    lowers,
)

Values = Sequence[ir.Value]
_DIRECTED = frozenset({"rz", "rm", "rp"})
_SPECIAL = {"ex2": "exp2", "lg2": "log2"}


def flush(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Replaces subnormals by zero of the same sign (`.ftz`)."""
    smallest = 2.0**-126 if value.type == FLOAT else 2.0**-1022
    small = b.fcmp_ordered("<", intrinsic(b, "llvm.fabs", [value]), constant(value, smallest))
    return b.select(small, intrinsic(b, "llvm.copysign", [constant(value, 0.0), value]), value)


def saturate(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Clamps to [0, 1]; NaN and -0 become +0 (`.sat`)."""
    zero, one = constant(value, 0.0), constant(value, 1.0)
    below = b.select(b.fcmp_ordered("<", value, one), value, one)
    return b.select(b.fcmp_ordered(">", value, zero), below, zero)


def _inputs(b: ir.IRBuilder, form: Form, values: Values) -> list[ir.Value]:
    return [flush(b, value) for value in values] if form.has("ftz") else list(values)


def _finish(b: ir.IRBuilder, form: Form, result: ir.Value) -> ir.Value:
    if form.has("ftz"):
        result = flush(b, result)
    return saturate(b, result) if form.has("sat") else result


def lower_binary(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Emits one of the four basic operations, rounded to nearest; sums of f32 in any direction."""
    form.require("rn", *_DIRECTED, "ftz", "sat", "full", "approx")
    name, mode = form.parts[0], _direction(form)
    operation = {"add": b.fadd, "sub": b.fsub, "mul": b.fmul, "div": b.fdiv}[name]
    sources = _inputs(b, form, values)
    if mode is not None:
        if sources[0].type != FLOAT or name not in ("add", "sub"):
            raise NotNative
        x, y = (b.fpext(value, DOUBLE) for value in sources)
        return _finish(b, form, _sum_directed(b, x, b.fneg(y) if name == "sub" else y, mode))
    if form.has("approx"):
        sources[1] = _divisor(b, sources[1])
    return _finish(b, form, operation(*sources))


def _direction(form: Form) -> str | None:
    """Returns the rounding mode of an instruction that does not round to nearest; None for others."""
    return next((part for part in form.parts[1:] if part in _DIRECTED), None)


def _divisor(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Returns the divisor that `div.approx` uses: infinite above 2^126."""
    large = b.fcmp_ordered(">", intrinsic(b, "llvm.fabs", [value]), constant(value, 2.0**126))
    return b.select(large, intrinsic(b, "llvm.copysign", [constant(value, math.inf), value]), value)


def lower_fused(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Multiply-add rounded once, in any direction for f32."""
    form.require("rn", "rm", "rp", "rz", "ftz", "sat")
    sources = _inputs(b, form, values)
    mode = _direction(form)
    if mode is None:
        return _finish(b, form, intrinsic(b, "llvm.fma", sources))
    if sources[0].type != FLOAT:
        raise NotNative
    if mode == "rz":
        return _finish(b, form, _fused_directed(b, sources, mode))
    return _finish(b, form, _fused_near(b, sources, mode))


def _fused_near(b: ir.IRBuilder, sources: Values, mode: str) -> ir.Value:
    """Computes an inexact result between half and twice the addend, from its distance to the value rounded to nearest.

    The difference of two such numbers is exact (Sterbenz's lemma), and a fused multiply-add of the remainder has the
    sign of the exact error unless it is zero. All other results are computed through f64.
    """
    x, y, z = sources
    near = intrinsic(b, "llvm.fma", [x, y, z])
    left = intrinsic(b, "llvm.fma", [x, y, b.fsub(z, near)])
    close = b.and_(
        b.fcmp_ordered(">=", z, b.fmul(near, constant(near, 0.5))),
        b.fcmp_ordered("<=", z, b.fmul(near, constant(near, 2.0))),
    )
    bits = b.bitcast(near, I32)
    past = b.fcmp_ordered("<" if mode == "rm" else ">", left, constant(left, 0.0))
    # Only positive values qualify: their neighbours are one bit pattern away.
    moved = b.bitcast(b.select(past, b.add(bits, constant(bits, -1 if mode == "rm" else 1)), bits), FLOAT)
    before = b.block
    with b.if_then(b.not_(b.and_(close, b.fcmp_ordered("!=", left, constant(left, 0.0)))), likely=False):
        wide = _fused_directed(b, sources, mode)
        aside = b.block
    result = b.phi(FLOAT)
    result.add_incoming(moved, before)
    result.add_incoming(wide, aside)
    return result


def _fused_directed(b: ir.IRBuilder, sources: Values, mode: str) -> ir.Value:
    """Computes the product exactly in f64."""
    x, y, z = (b.fpext(value, DOUBLE) for value in sources)
    return _sum_directed(b, b.fmul(x, y), z, mode)


def _sum_directed(b: ir.IRBuilder, x: ir.Value, y: ir.Value, mode: str) -> ir.Value:
    """Returns the f32 sum of two f64 values; its rounding error determines on which side the exact result lies."""
    total = b.fadd(x, y)
    part = b.fsub(total, x)
    error = b.fadd(b.fsub(x, b.fsub(total, part)), b.fsub(y, part))
    near = b.fptrunc(total, FLOAT)
    wide = b.fpext(near, DOUBLE)
    zero = constant(total, 0.0)
    down, up = (b.fcmp_ordered(side, error, zero) for side in "<>")
    if mode == "rz":
        past = b.select(b.fcmp_ordered(">", total, zero), down, up)
        further = b.fcmp_ordered(">", *(intrinsic(b, "llvm.fabs", [value]) for value in (wide, total)))
    else:
        past = down if mode == "rm" else up
        further = b.fcmp_ordered(">" if mode == "rm" else "<", wide, total)
    # Beyond the exact value: by the second rounding, or, if that was exact, by the first one.
    over = b.or_(further, b.and_(b.fcmp_ordered("==", wide, total), past))
    if mode == "rz":  # the neighbour towards zero is one bit pattern below
        bits = b.bitcast(near, I32)
        return b.select(over, b.bitcast(b.add(bits, constant(bits, -1)), FLOAT), near)
    moved = b.select(over, _next(b, near, mode == "rm"), near)
    return b.select(_cancels(b, x, y), constant(near, -0.0), moved) if mode == "rm" else moved


def _next(b: ir.IRBuilder, value: ir.Value, down: bool) -> ir.Value:
    """Returns the neighbouring f32 towards minus or plus infinity."""
    bits = b.bitcast(value, I32)
    negative = b.icmp_signed("<", bits, constant(bits, 0))
    step = b.select(negative, constant(bits, 1 if down else -1), constant(bits, -1 if down else 1))
    moved = b.add(bits, step)
    tiny = constant(bits, 0x80000001 if down else 1)
    zero = b.fcmp_ordered("==", value, constant(value, 0.0))
    return b.bitcast(b.select(zero, tiny, moved), FLOAT)


def _cancels(b: ir.IRBuilder, product: ir.Value, addend: ir.Value) -> ir.Value:
    """Returns the condition that opposite terms cancel exactly, which gives -0 when rounding down."""
    opposite = b.fcmp_ordered("==", product, b.fneg(addend))
    signs = b.xor(b.bitcast(product, I64), b.bitcast(addend, I64))
    return b.and_(opposite, b.icmp_signed("<", signs, ir.Constant(I64, 0)))


def lower_minmax(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Minimum and maximum in which a NaN loses and -0 is less than +0."""
    form.require("ftz")
    if len(values) != 2:
        raise NotNative
    x, y = _inputs(b, form, values)
    largest = form.parts[0] == "max"
    width = I32 if x.type == FLOAT else I64
    bits = [b.bitcast(value, width) for value in (x, y)]
    equal = b.bitcast(b.and_(*bits) if largest else b.or_(*bits), x.type)
    first = b.fcmp_ordered(">" if largest else "<", x, y)
    result = b.select(first, x, b.select(b.fcmp_ordered("==", x, y), equal, y))
    result = b.select(b.fcmp_unordered("uno", y, y), x, result)
    return _finish(b, form, result)


def lower_sign(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Absolute value and negation."""
    form.require("ftz")
    (a,) = values
    return _finish(b, form, intrinsic(b, "llvm.fabs", [a]) if form.parts[0] == "abs" else b.fneg(a))


@lowers("copysign")
def lower_copysign(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Returns the second operand with the sign of the first."""
    form.require()
    return intrinsic(b, "llvm.copysign", [values[1], values[0]])


@lowers("sqrt", "rcp")
def lower_root(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Square root and reciprocal, to nearest."""
    form.require("rn", "ftz", "approx")
    (a,) = _inputs(b, form, values)
    if form.parts[0] == "sqrt" and not (a.type == DOUBLE and form.has("approx")):
        return _finish(b, form, intrinsic(b, "llvm.sqrt", [a]))
    if a.type == DOUBLE and form.has("approx"):
        raise NotNative
    return _finish(b, form, b.fdiv(constant(a, 1.0), a))


@lowers("rsqrt")
def lower_inverse_root(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Computed in f64 and rounded, as the NumPy form is."""
    form.require("ftz", "approx")
    (a,) = _inputs(b, form, values)
    if a.type != FLOAT:
        raise NotNative
    result = b.fdiv(ir.Constant(DOUBLE, 1.0), intrinsic(b, "llvm.sqrt", [b.fpext(a, DOUBLE)]))
    return _finish(b, form, b.fptrunc(result, FLOAT))


@lowers("ex2", "lg2")
def lower_special(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Calls the C library's function in f64 and rounds; used only if arrays are given the same results."""
    from kernelmate.backends.emulator.llvm import array_function

    form.require("ftz", "approx")
    name = _SPECIAL[form.parts[0]]
    (a,) = _inputs(b, form, values)
    if a.type != FLOAT or not array_function(name)[1]:
        raise NotNative
    kind = ir.FunctionType(DOUBLE, [DOUBLE])
    function = b.module.globals.get(name) or ir.Function(b.module, kind, name)
    result = b.call(function, [b.fpext(a, DOUBLE)])
    if name == "log2":
        rounder, one = ir.Constant(DOUBLE, LG2_ROUNDER), ir.Constant(DOUBLE, 1.0)
        rounded = b.fsub(b.fadd(result, rounder), rounder)
        result = b.select(b.fcmp_ordered("<", intrinsic(b, "llvm.fabs", [result]), one), rounded, result)
    return _finish(b, form, b.fptrunc(result, FLOAT))
