"""Values of PTX instructions for many sizes at once; None for instructions that do not operate on sizes."""

from __future__ import annotations

import functools
import operator
import re
import struct
from collections.abc import Callable, Sequence

import numpy as np

from kernelmate.checks.precision import Array

_WHOLE = re.compile(r"-?(?:0[xX][0-9a-fA-F]+|\d+)[uU]?$")
_FLOATING = re.compile(r"0([fFdD])([0-9a-fA-F]{8}|[0-9a-fA-F]{16})$")
_COMPARED: dict[str, Callable[[Array, Array], Array]] = {
    "eq": operator.eq, "ne": operator.ne, "lt": operator.lt, "le": operator.le, "gt": operator.gt, "ge": operator.ge,
    "lo": operator.lt, "ls": operator.le, "hi": operator.gt, "hs": operator.ge,
    "equ": lambda a, b: ~((a < b) | (a > b)), "neu": operator.ne, "ltu": lambda a, b: ~(a >= b),
    "leu": lambda a, b: ~(a > b), "gtu": lambda a, b: ~(a <= b), "geu": lambda a, b: ~(a < b),
}  # fmt: skip
_WHOLE_OPERATIONS: dict[str, Callable[..., Array]] = {
    "add": operator.add, "sub": operator.sub, "and": operator.and_, "or": operator.or_, "xor": operator.xor,
    "min": np.minimum, "max": np.maximum, "not": operator.invert, "neg": operator.neg, "abs": np.abs,
}  # fmt: skip
_FLOAT_OPERATIONS: dict[str, Callable[..., Array]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv, "min": np.fmin,
    "max": np.fmax, "neg": operator.neg, "abs": np.abs, "sqrt": np.sqrt, "fma": lambda a, b, c: a * b + c,
    "mad": lambda a, b, c: a * b + c, "rcp": lambda a: 1 / a, "rsqrt": lambda a: 1 / np.sqrt(a), "lg2": np.log2,
    "ex2": np.exp2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh,
}  # fmt: skip
"""Approximations are evaluated exactly: a size at which a condition is met is tried, and not taken for granted."""


def number(operand: str) -> Array | None:
    """Returns the value of an operand that is a numeric literal; None for other operands."""
    floating = _FLOATING.match(operand)
    if floating is not None:
        kind, pattern = floating[1].lower(), bytes.fromhex(floating[2])
        if len(pattern) != (4 if kind == "f" else 8):
            return None
        return np.array(struct.unpack(">f" if kind == "f" else ">d", pattern)[0], np.float32 if kind == "f" else float)
    if _WHOLE.match(operand) is None:
        return None
    return np.array(int(operand.rstrip("uU"), 0) & (2**64 - 1), np.uint64).view(np.int64)


def evaluated(opcode: Sequence[str], values: Sequence[Array]) -> Array | None:
    """Returns the value that an instruction computes from its operands; None for an unsupported instruction.

    Integers are int64 whatever their PTX type, floating values have the dtype of their PTX type, and predicates are
    booleans.
    """
    kinds = [part for part in opcode[1:] if re.fullmatch(r"[subf](?:8|16|32|64)|pred", part)]
    if not kinds:
        return None
    try:
        with np.errstate(all="ignore"):
            return _evaluated(opcode, kinds, values)
    except (TypeError, ValueError, IndexError):
        return None


def _evaluated(opcode: Sequence[str], kinds: list[str], values: Sequence[Array]) -> Array | None:
    name, kind = opcode[0], kinds[0]
    if name == "cvt":
        return _converted(opcode, kinds, values[0])
    if name == "mov":
        return values[0] if kind == "pred" else _as(kind, values[0])
    if name == "selp":
        return np.where(values[2] != 0, _as(kind, values[0]), _as(kind, values[1]))
    if kind == "pred":
        truths = [value != 0 for value in values]
        return (
            ~truths[0] if name == "not" else _WHOLE_OPERATIONS[name](*truths) if name in ("and", "or", "xor") else None
        )
    some = [_as(kind, value) for value in values]
    if name == "mad" and "wide" in opcode:
        some[2] = _as(f"{kind[0]}{2 * int(kind[1:])}", values[2])  # it is wider than the other operands
    if name == "setp":
        compared = _COMPARED.get(opcode[1])
        two = len(kinds) == 1 and len(some) == 2
        return np.asarray(compared(*some)) if compared is not None and two else None
    if kind[0] == "f":
        operation = _FLOAT_OPERATIONS.get(name)
        return None if operation is None else _as(kind, operation(*some))
    return _whole(name, opcode, kind, some)


def _whole(name: str, opcode: Sequence[str], kind: str, some: list[Array]) -> Array | None:
    bits = int(kind[1:])
    if name in ("mul", "mad"):
        return _product(name, opcode, kind, some)
    if name in ("div", "rem"):
        first, second = some
        safe = np.where(second == 0, 1, second)
        quotient = np.abs(first) // np.abs(safe) * np.sign(first) * np.sign(safe)
        return _as(kind, quotient if name == "div" else first - safe * quotient)
    if name in ("shl", "shr"):
        by = np.minimum(some[1] & (2**32 - 1), 63)
        whole = np.asarray(some[1] & (2**32 - 1)) >= bits
        if name == "shl":
            return _as(kind, np.where(whole, 0, some[0] << by))
        if kind == "u64":
            return np.asarray(some[0].view(np.uint64) >> by.astype(np.uint64)).view(np.int64)
        return _as(kind, some[0] >> by)
    if name in ("popc", "clz"):
        pattern = np.asarray(some[0] & (2**bits - 1 if bits < 64 else -1)).view(np.uint64)
        counted: Array = np.zeros(pattern.shape, np.int64)
        for place in range(bits):
            shifted = pattern >> np.uint64(place)
            counted += ((shifted & np.uint64(1)) if name == "popc" else (shifted == 0)).astype(np.int64)
        return counted
    if name in ("bfe", "brev", "bfind"):
        return _bits(name, kind, bits, some)
    operation = _WHOLE_OPERATIONS.get(name)
    return None if operation is None else _as(kind, operation(*some))


def _bits(name: str, kind: str, bits: int, some: list[Array]) -> Array | None:
    """Returns a field of bits, the bits in reverse order, or the index of the highest bit; None for signed types."""
    if kind[0] == "s" or (bits == 64 and name == "bfe"):
        return None
    if name == "bfe":
        first, length = np.minimum(some[1] & 255, 63), np.minimum(some[2] & 255, 32)
        return _as(kind, (_as("u32", some[0]) >> first) & ((1 << length) - 1))
    places = [(some[0] >> place) & 1 for place in range(bits)]
    if name == "brev":
        return _as(kind, functools.reduce(lambda held, bit: held << 1 | bit, places))
    return _as(
        kind, functools.reduce(lambda held, one: np.where(one[1] != 0, one[0], held), enumerate(places), np.array(-1))
    )


def _product(name: str, opcode: Sequence[str], kind: str, some: list[Array]) -> Array | None:
    bits, product = int(kind[1:]), some[0] * some[1]
    if "hi" in opcode and bits == 64:
        product = _high_half(some[0], some[1], signed=kind[0] == "s")
    elif "hi" in opcode:
        product = product >> bits if kind[0] == "s" else (product.view(np.uint64) >> np.uint64(bits)).view(np.int64)
    result = f"{kind[0]}{2 * bits}" if "wide" in opcode and bits < 64 else kind
    return _as(result, product + some[2] if name == "mad" else product)


def _high_half(one: Array, two: Array, *, signed: bool) -> Array:
    """Returns the upper 64 bits of a 128-bit product (Knuth, The Art of Computer Programming, 4.3.1)."""
    low, half = np.uint64(2**32 - 1), np.uint64(32)
    first, second = one.view(np.uint64), two.view(np.uint64)
    a, b, c, d = first >> half, first & low, second >> half, second & low
    middle = a * d + ((b * d) >> half)
    high = np.asarray(a * c + (middle >> half) + ((b * c + (middle & low)) >> half)).view(np.int64)
    return high - np.where(one < 0, two, 0) - np.where(two < 0, one, 0) if signed else high


def _converted(opcode: Sequence[str], kinds: list[str], value: Array) -> Array | None:
    to, source = kinds[0], kinds[1]
    if to[0] == "f":
        return _as(to, _as(source, value))
    if source[0] != "f":
        return _as(to, _as(source, value))
    rounding = {"rzi": np.trunc, "rni": np.rint, "rmi": np.floor, "rpi": np.ceil}
    turned = next((rounding[part] for part in opcode if part in rounding), None)
    return None if turned is None else _as(to, turned(_as(source, value)).astype(np.int64))


def _as(kind: str, value: Array) -> Array:
    """Returns a value converted to an instruction's type; integers wrap."""
    if kind[0] == "f":
        return np.asarray(value).astype(f"f{int(kind[1:]) // 8}")
    whole, bits = np.asarray(value).astype(np.int64), int(kind[1:])
    if bits == 64:
        return whole
    wrapped = whole & ((1 << bits) - 1)
    if kind[0] == "u":
        return wrapped
    return np.where(wrapped >= 1 << (bits - 1), wrapped - (1 << bits), wrapped)
