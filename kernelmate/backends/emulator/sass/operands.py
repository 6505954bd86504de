"""Values of SASS operands for all lanes of many warps, as far as they differ.

Arrays are (warps, 32); an axis along which values are equal has length 1.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from kernelmate.backends.emulator.sass.graph import Unknown
from kernelmate.backends.emulator.types import Array

Values = dict[str, Array]
"""Type of register contents: uint32, or bool for predicates."""
Read = Callable[[Values], Array]

SPECIALS = frozenset(
    {*(f"SR_{name}.{axis}" for name in ("TID", "CTAID") for axis in "XYZ"), "SR_LANEID", "SR_CgaCtaId"}
)
"""Special registers with known values, stored among the other registers."""

_CONSTANT = re.compile(r"c\[(0x[0-9a-f]+)\]\s*\[(0x[0-9a-f]+)\]$")
_NUMBER = re.compile(r"-?(?:0x[0-9a-f]+|\d+)$")
_PLAIN = re.compile(r"(?:U?R(?:\d+|Z)|c\[.*\])$")
_ALL_ONES = np.uint32(0xFFFFFFFF)
_ZERO = np.zeros((1, 1), np.uint32)


@dataclass(frozen=True, slots=True)
class ConstantBank:
    """Launch-wide constants: constant bank 0, by byte offset of each known 32-bit word."""

    constants: Mapping[int, int]

    def constant(self, bank: int, offset: int) -> int:
        """Returns a word of constant memory.

        Raises:
            Unknown: its value is unknown.
        """
        if bank or offset not in self.constants:
            raise Unknown(f"c[{bank:#x}][{offset:#x}], whose value is not known")
        return self.constants[offset]


def number(value: int) -> Array:
    """Returns the same value in every lane."""
    return np.array([[value & 0xFFFFFFFF]], np.uint32)


def word(text: str, frame: ConstantBank, *, upper: bool = False) -> Read:
    """Returns a 32-bit operand, or the upper half of a 64-bit one; a minus negates only that half.

    Raises:
        Unknown: operands of this kind are not supported.
    """
    if _NUMBER.match(text):
        value = int(text, 0)
        return _always(number(value >> 32 if upper else value))
    if text[0] == "-":
        inner = word(text[1:], frame, upper=upper)
        return lambda values: _ZERO - inner(values)
    if text[0] == "~":
        inner = word(text[1:], frame, upper=upper)
        return lambda values: inner(values) ^ _ALL_ONES
    if text[0] == "|" and text[-1] == "|":
        inner = word(text[1:-1], frame, upper=upper)
        return lambda values: np.abs(inner(values).view(np.int32)).view(np.uint32)
    if not _PLAIN.match(text):
        raise Unknown(f"the operand {text}")
    if match := _CONSTANT.match(text):
        return _always(number(frame.constant(int(match[1], 16), int(match[2], 16) + 4 * upper)))
    if text in {"RZ", "URZ"}:
        return _always(_ZERO)
    bank = "UR" if text[0] == "U" else "R"
    name = f"{bank}{int(text[len(bank) :]) + upper}"
    return lambda values: values.get(name, _ZERO)


def wide(text: str, frame: ConstantBank, *, signed: bool = False) -> Read:
    """Returns a 64-bit operand as uint64: a register pair, or a sign-extended 32-bit immediate.

    Raises:
        Unknown: operands of this kind are not supported.
    """
    if _NUMBER.match(text):
        value = int(text, 0)
        if signed and value >= 1 << 31:
            value -= 1 << 32
        return _always(np.array([[value & 0xFFFFFFFFFFFFFFFF]], np.uint64))
    if text[0] == "-":
        inner = wide(text[1:], frame)
        return lambda values: np.uint64(0) - inner(values)
    if text[0] in "~|":
        raise Unknown(f"the operand {text} of 64 bits")
    low, high = word(text, frame), word(text, frame, upper=True)
    return lambda values: low(values).astype(np.uint64) | high(values).astype(np.uint64) << np.uint64(32)


def truth(text: str) -> Read:
    """Parses a predicate."""
    if text[0] == "!":
        inner = truth(text[1:])
        return lambda values: ~inner(values)
    if text in {"PT", "UPT"}:
        return _always(np.ones((1, 1), bool))
    if not re.fullmatch(r"U?P\d+", text):
        raise Unknown(f"the operand {text}, which is not a predicate")
    return lambda values: values.get(text, _FALSE)


_FALSE = np.zeros((1, 1), bool)


def halves(high: str, low: str) -> Read:
    """Returns a word made of two f16 immediates, as packed arithmetic on zeros loads it.

    Raises:
        Unknown: the operands are not immediates.
    """
    try:
        packed = struct.unpack("<I", struct.pack("<ee", float(low), float(high)))[0]
    except (ValueError, OverflowError):
        raise Unknown(f"the operands {high} and {low}") from None
    return _always(number(packed))


def _always(value: Array) -> Read:
    return lambda values: value
