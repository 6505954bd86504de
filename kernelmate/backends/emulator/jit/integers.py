"""Integer arithmetic, shifts, bit fields and logic as LLVM instructions."""

from __future__ import annotations

from collections.abc import Sequence

from llvmlite import ir

from kernelmate.backends.emulator.jit import floats
from kernelmate.backends.emulator.jit.lowering import (
    I32,
    I64,
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

Values = Sequence[ir.Value]


@lowers("add", "sub")
def lower_add(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Sums and differences of integers and floats."""
    if is_float(form.sources[0]):
        return floats.lower_binary(b, form, values)
    form.require()
    return (b.add if form.parts[0] == "add" else b.sub)(*values)


@lowers("mul")
def lower_multiply(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Emits a product: its lower half, its upper half, or all of it (`lo`, `hi`, `wide`)."""
    if is_float(form.sources[0]):
        return floats.lower_binary(b, form, values)
    form.require("lo", "hi", "wide")
    return _product(b, form, values)


def _product(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    signed = is_signed(form.sources[0])
    if form.has("wide"):
        target = type_of(form.results[0])
        return b.mul(*(widen(b, value, target, signed) for value in values[:2]))
    if not form.has("hi"):
        return b.mul(values[0], values[1])
    width = values[0].type.width
    double = ir.IntType(2 * width)
    product = b.mul(*(widen(b, value, double, signed) for value in values[:2]))
    return b.trunc(b.lshr(product, ir.Constant(double, width)), values[0].type)


@lowers("mad", "fma")
def lower_mad(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Multiply-add of integers, and fused of floats."""
    if is_float(form.sources[0]):
        return floats.lower_fused(b, form, values)
    form.require("lo", "hi", "wide")
    return b.add(_product(b, form, values), values[2])


@lowers("div", "rem")
def lower_divide(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Lowers division truncated towards zero and remainder; division by zero gives all ones, and the dividend."""
    if is_float(form.sources[0]):
        return floats.lower_binary(b, form, values)
    form.require()
    a, d = values
    divide = form.parts[0] == "div"
    zero = b.icmp_unsigned("==", d, constant(d, 0))
    safe = b.select(zero, constant(d, 1), d)
    if is_signed(form.sources[0]):
        # The most negative number divided by -1 traps on x86: negate, or return zero, without dividing.
        minus = b.icmp_unsigned("==", d, constant(d, -1))
        safe = b.select(minus, constant(d, 1), safe)
        result = b.select(minus, b.neg(a) if divide else constant(a, 0), (b.sdiv if divide else b.srem)(a, safe))
    else:
        result = (b.udiv if divide else b.urem)(a, safe)
    return b.select(zero, constant(a, -1) if divide else a, result)


@lowers("min", "max")
def lower_minmax(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Minimum and maximum."""
    if is_float(form.sources[0]):
        return floats.lower_minmax(b, form, values)
    form.require()
    compare = b.icmp_signed if is_signed(form.sources[0]) else b.icmp_unsigned
    a, c = values
    return b.select(compare("<" if form.parts[0] == "min" else ">", a, c), a, c)


@lowers("abs", "neg")
def lower_sign(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Absolute value and negation."""
    if is_float(form.sources[0]):
        return floats.lower_sign(b, form, values)
    form.require()
    (a,) = values
    if form.parts[0] == "neg":
        return b.neg(a)
    return b.select(b.icmp_signed("<", a, constant(a, 0)), b.neg(a), a)


@lowers("and", "or", "xor")
def lower_logic(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Bitwise logic, on predicates too."""
    form.require()
    return {"and": b.and_, "or": b.or_, "xor": b.xor}[form.parts[0]](*values)


@lowers("not", "cnot")
def lower_not(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Complement, bitwise and logical."""
    form.require()
    (a,) = values
    if form.parts[0] == "not":
        return b.not_(a)
    return widen(b, b.icmp_unsigned("==", a, constant(a, 0)), a.type, False)


def shift_right(b: ir.IRBuilder, value: ir.Value, count: ir.Value, signed: bool = False) -> ir.Value:
    """Shifts right; counts of at least the width give zero, or the sign."""
    last = constant(count, value.type.width - 1)
    over = b.icmp_unsigned(">", count, last)
    amount = widen(b, b.select(over, last, count), value.type, False)
    if signed:
        return b.ashr(value, amount)
    return b.select(over, constant(value, 0), b.lshr(value, amount))


def shift_left(b: ir.IRBuilder, value: ir.Value, count: ir.Value) -> ir.Value:
    """Shifts left; counts of at least the width give zero."""
    last = constant(count, value.type.width - 1)
    over = b.icmp_unsigned(">", count, last)
    amount = widen(b, b.select(over, last, count), value.type, False)
    return b.select(over, constant(value, 0), b.shl(value, amount))


@lowers("shl", "shr")
def lower_shift(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Shifts."""
    form.require()
    if form.parts[0] == "shl":
        return shift_left(b, *values)
    return shift_right(b, values[0], values[1], is_signed(form.sources[0]))


@lowers("shf")
def lower_funnel(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Lowers a funnel shift: shifts a 64-bit pair and keeps one half."""
    form.require("l", "r", "clamp", "wrap")
    low, high, count = values
    if form.has("clamp"):
        count = b.select(b.icmp_unsigned(">", count, constant(count, 32)), constant(count, 32), count)
    else:
        count = b.and_(count, constant(count, 31))
    pair = b.or_(b.shl(b.zext(high, I64), ir.Constant(I64, 32)), b.zext(low, I64))
    wide = b.zext(count, I64)
    moved = b.lshr(b.shl(pair, wide), ir.Constant(I64, 32)) if form.has("l") else b.lshr(pair, wide)
    return b.trunc(moved, I32)


@lowers("popc", "clz", "brev")
def lower_count(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Population count, leading zeros, bits in reverse."""
    form.require()
    (a,) = values
    if form.parts[0] == "brev":
        return intrinsic(b, "llvm.bitreverse", [a])
    if form.parts[0] == "popc":
        return widen(b, intrinsic(b, "llvm.ctpop", [a]), I32, False)
    flag = ir.Constant(ir.IntType(1), 0)
    return widen(b, intrinsic(b, "llvm.ctlz", [a, flag], a.type), I32, False)


def _ones(b: ir.IRBuilder, like: ir.Value, size: ir.Value) -> ir.Value:
    """Returns a mask of that many low bits; all ones from the width on."""
    bits = like.type.width
    short = b.icmp_unsigned("<", size, constant(size, bits))
    gone = b.select(short, b.sub(constant(size, bits), size), constant(size, 0))
    return shift_right(b, constant(like, -1), gone)


@lowers("bfe")
def lower_extract(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Bit field extract, sign-extended for signed types."""
    form.require()
    a, position, length = values
    start, size = (b.and_(value, constant(value, 255)) for value in (position, length))
    field = b.and_(shift_right(b, a, start), _ones(b, a, size))
    if not is_signed(form.sources[0]):
        return field
    bits = a.type.width
    top = b.sub(b.add(start, size), constant(start, 1))
    top = b.select(b.icmp_signed(">", top, constant(top, bits - 1)), constant(top, bits - 1), top)
    sign = b.trunc(shift_right(b, a, top), ir.IntType(1))
    sign = b.and_(sign, b.icmp_unsigned(">", size, constant(size, 0)))
    left = b.sub(constant(start, bits), start)
    left = b.select(b.icmp_signed("<", left, constant(left, 0)), constant(left, 0), left)
    kept = b.select(b.icmp_unsigned("<", size, left), size, left)
    return b.select(sign, b.or_(field, b.not_(_ones(b, a, kept))), field)


@lowers("bfi")
def lower_insert(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Bit field insert: the first source's low bits into the second."""
    form.require()
    a, c, position, length = values
    start, size = (b.and_(value, constant(value, 255)) for value in (position, length))
    field = shift_left(b, _ones(b, a, size), start)
    return b.or_(b.and_(c, b.not_(field)), b.and_(shift_left(b, a, start), field))


@lowers("mul24", "mad24")
def lower_24(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value:
    """Products of the low 24 bits."""
    form.require("lo", "hi")
    signed = is_signed(form.sources[0])

    def low24(value: ir.Value) -> ir.Value:
        moved = b.shl(widen(b, value, I64, False), ir.Constant(I64, 40))
        return (b.ashr if signed else b.lshr)(moved, ir.Constant(I64, 40))

    product = b.mul(low24(values[0]), low24(values[1]))
    if form.has("hi"):
        product = b.ashr(product, ir.Constant(I64, 16))
    part = b.trunc(product, I32)
    return part if form.parts[0] == "mul24" else b.add(part, values[2])


@lowers("mov")
def lower_move(b: ir.IRBuilder, form: Form, values: Values) -> ir.Value | tuple[ir.Value, ...]:
    """Emits a move, the packing of a wide register, or the unpacking of all its parts."""
    if len(values) == 1 and len(form.results) == 1 and form.results == form.sources:
        return values[0]
    if len(values) > 1:
        target = type_of(form.results[0])
        result = b.zext(values[0], target)
        for index, value in enumerate(values[1:], 1):
            moved = b.shl(b.zext(value, target), ir.Constant(target, index * value.type.width))
            result = b.or_(result, moved)
        return result
    part = type_of(form.results[0])
    (a,) = values
    if part.width * len(form.results) != a.type.width:
        raise NotNative
    return tuple(b.trunc(b.lshr(a, constant(a, index * part.width)), part) for index in range(len(form.results)))
