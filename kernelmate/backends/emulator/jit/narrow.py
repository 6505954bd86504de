"""Conversions between f32 and the 16-bit floats in integer arithmetic, with NumPy's bits, those of NaN included."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from llvmlite import ir

from kernelmate.backends.emulator.jit.lowering import FLOAT, I32, Form, NotNative, constant, number

I16 = ir.IntType(16)
HIGHEST, REST = 1 << 31, (1 << 31) - 1
INFINITY = 0x7F800000
"""Bits of infinity in f32; greater ones without the sign are NaN."""
FROM_INFINITE, FROM_NORMAL = 0x477FF000, 0x38800000
"""Bits of the f32 from which f16 is infinite (65520), and from which it is a normal number (2^-14)."""
BIAS = 0x38000000
"""Difference of the exponents' offsets in f32 and f16, 112, at the place of f32's exponent."""
HALF = 0x3F000000
"""Bits of 0.5 in f32, one unit in the last place of which is the smallest f16."""


def f16_to_f32(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Returns the f32 with the value of f16 bits."""
    wide = b.zext(value, I32)
    sign = b.shl(b.and_(wide, number(0x8000, I32)), number(16, I32))
    size = b.and_(wide, number(0x7FFF, I32))
    moved = b.shl(size, number(13, I32))
    # A subnormal f16 is its integer times 2^-24.
    scaled = b.fmul(b.uitofp(size, FLOAT), ir.Constant(FLOAT, 2.0**-24))
    bits = b.select(
        b.icmp_unsigned(">=", size, number(0x7C00, I32)),
        b.or_(moved, number(INFINITY, I32)),
        b.select(
            b.icmp_unsigned(">=", size, number(0x400, I32)), b.add(moved, number(BIAS, I32)), b.bitcast(scaled, I32)
        ),
    )
    return b.bitcast(b.or_(bits, sign), FLOAT)


def f32_to_f16(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Returns the bits of an f32 rounded to f16, to nearest even."""
    bits = b.bitcast(value, I32)
    size = b.and_(bits, number(REST, I32))
    sign = b.and_(b.lshr(bits, number(16, I32)), number(0x8000, I32))
    normal = _rounded(b, b.sub(size, number(BIAS, I32)), 13)
    half = ir.Constant(FLOAT, 0.5)
    small = b.sub(b.bitcast(b.fadd(b.bitcast(size, FLOAT), half), I32), number(HALF, I32))
    nan = b.or_(b.and_(b.lshr(size, number(13, I32)), number(0x3FF, I32)), number(0x7E00, I32))
    found = b.select(b.icmp_unsigned(">=", size, number(FROM_NORMAL, I32)), normal, small)
    found = b.select(b.icmp_unsigned(">=", size, number(FROM_INFINITE, I32)), number(0x7C00, I32), found)
    found = b.select(b.icmp_unsigned(">", size, number(INFINITY, I32)), nan, found)
    return b.trunc(b.or_(found, sign), I16)


def bf16_to_f32(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Returns the f32 with the value of bf16 bits, which are its upper half."""
    return b.bitcast(b.shl(b.zext(value, I32), number(16, I32)), FLOAT)


def f32_to_bf16(b: ir.IRBuilder, value: ir.Value) -> ir.Value:
    """Returns the bits of an f32 rounded to bf16, to nearest even; every NaN gives the same one."""
    bits = b.bitcast(value, I32)
    nan = b.icmp_unsigned(">", b.and_(bits, number(REST, I32)), number(INFINITY, I32))
    return b.trunc(b.select(nan, number(0x7FFF, I32), _rounded(b, bits, 16)), I16)


def _rounded(b: ir.IRBuilder, bits: ir.Value, places: int) -> ir.Value:
    """Returns an integer without its lowest bits, rounded to nearest even."""
    odd = b.and_(b.lshr(bits, number(places, I32)), number(1, I32))
    return b.lshr(b.add(b.add(bits, number((1 << places - 1) - 1, I32)), odd), number(places, I32))


_TO: dict[str, Callable[[ir.IRBuilder, ir.Value], ir.Value]] = {"f16": f32_to_f16, "bf16": f32_to_bf16}
_FROM: dict[str, Callable[[ir.IRBuilder, ir.Value], ir.Value]] = {"f16": f16_to_f32, "bf16": bf16_to_f32}


def converted(b: ir.IRBuilder, form: Form, values: Sequence[ir.Value]) -> ir.Value:
    """Lowers a `cvt` between f32 and a 16-bit float, or from two f32 to a pair, the first in the upper half.

    Raises:
        NotNative: it rounds otherwise than to nearest, saturates or changes other types.
    """
    form.require("rn")
    target, source = form.results[0], form.sources[0]
    if target == "f32" and source in _FROM and len(values) == 1:
        return _FROM[source](b, values[0])
    if source != "f32" or target.removesuffix("x2") not in _TO or len(values) != 1 + target.endswith("x2"):
        raise NotNative
    parts = [_TO[target.removesuffix("x2")](b, value) for value in values]
    if len(parts) == 1:
        return parts[0]
    high, low = (b.zext(part, I32) for part in parts)
    return b.or_(b.shl(high, constant(high, 16)), low)
