"""Reads the operands of one PTX instruction."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Mapping

from kernelmate.backends.emulator.program import (
    Address,
    Immediate,
    Operand,
    OperandGroup,
    Position,
    Register,
    RegisterPair,
    Sink,
    Special,
    Symbol,
    TensorAddress,
    Vector,
)

Rename = Callable[[str], str]

_NAME = re.compile(r"[%A-Za-z_$][\w$.]*(?:@[\w.]+)?$")
_INTEGER = re.compile(r"[-+~]?\s*(?:0[xX][0-9A-Fa-f]+|0[bB][01]+|\d+)[uU]?$")
_FLOAT_BITS = re.compile(r"0[fF]([0-9A-Fa-f]{8})$|0[dD]([0-9A-Fa-f]{16})$")
_DECIMAL = re.compile(r"[-+]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?$")
_OFFSET = re.compile(r"(.+?)\s*([+-])\s*(-?\s*(?:0[xX][0-9A-Fa-f]+|\d+))$")


class PtxError(Exception):
    """The text is not valid PTX for this parser; `position` is set if the user's line is known."""

    def __init__(self, message: str, position: Position | None = None) -> None:
        super().__init__(message)
        self.position = position


def split_top(text: str) -> list[str]:
    """Split at commas outside all brackets; parts are stripped, a trailing empty part is dropped."""
    if not any(bracket in text for bracket in "{[("):
        return [part.strip() for part in text.split(",")] if text.strip() else []
    parts: list[str] = []
    depth = 0
    start = 0
    for index, character in enumerate(text):
        if character in "{[(":
            depth += 1
        elif character in "}])":
            depth -= 1
        elif character == "," and depth == 0:
            parts.append(text[start:index].strip())
            start = index + 1
    if text[start:].strip():
        parts.append(text[start:].strip())
    return parts


def parse_operands(text: str, rename: Rename, registers: Mapping[str, str]) -> tuple[Operand, ...]:
    """Parses all operands of an instruction; `rename` gives the unique name of a scoped one."""
    return tuple(parse_operand(part, rename, registers) for part in split_top(text))


def parse_operand(text: str, rename: Rename, registers: Mapping[str, str]) -> Operand:
    """Parses one operand.

    Raises:
        PtxError: it is not an operand.
    """
    first = text[0]
    if first == "{":
        return Vector(parse_operands(text[1:-1], rename, registers))
    if first == "(":
        return OperandGroup(parse_operands(text[1:-1], rename, registers))
    if first == "[":
        place, *coordinates = split_top(text[1:-1])
        address = _address(place, rename, registers)
        if not coordinates:
            return address
        (inside,) = coordinates
        return TensorAddress(address, Vector(parse_operands(inside.strip("{} "), rename, registers)))
    if text == "_":
        return Sink()
    if first == "!":
        return Register(rename(text[1:].strip()), negated=True)
    if "|" in text:
        left, right = text.split("|", 1)
        return RegisterPair(
            parse_operand(left.strip(), rename, registers), parse_operand(right.strip(), rename, registers)
        )
    constant = _constant(text)
    return constant if constant is not None else _named(text, rename, registers)


def _constant(text: str) -> Immediate | None:
    if _INTEGER.match(text):
        return Immediate(_integer(text))
    if bits := _FLOAT_BITS.match(text):
        return Immediate(int(bits[1], 16), 4) if bits[1] else Immediate(int(bits[2], 16), 8)
    if _DECIMAL.match(text):
        return Immediate(struct.unpack("<Q", struct.pack("<d", float(text)))[0], 8)
    if text == "WARP_SZ":
        return Immediate(32)
    return None


def _integer(text: str) -> int:
    digits = text.replace(" ", "").rstrip("uU")
    if digits.startswith("~"):
        return ~int(digits[1:], 0)
    if re.match(r"[-+]?0\d+$", digits):
        return int(digits, 8)
    return int(digits, 0)


def _named(text: str, rename: Rename, registers: Mapping[str, str]) -> Operand:
    if match := re.match(r"generic\(([\w$.]+)\)(?:\s*\+\s*(\d+))?$", text):
        return Symbol(rename(match[1]), int(match[2] or 0), generic=True)
    if _NAME.match(text):
        name = rename(text)
        if name in registers:
            return Register(name)
        return Special(text) if text.startswith("%") else Symbol(name)
    if offset := _OFFSET.match(text):
        base = _named(offset[1].strip(), rename, registers)
        if isinstance(base, Symbol):
            return Symbol(base.name, base.offset + _signed(offset), base.generic)
    raise PtxError(f"cannot read the PTX operand {text!r}")


def _signed(match: re.Match[str]) -> int:
    value = int(match[3].replace(" ", ""), 0)
    return -value if match[2] == "-" else value


def _address(text: str, rename: Rename, registers: Mapping[str, str]) -> Address:
    if _INTEGER.match(text):
        return Address(None, _integer(text))
    offset = 0
    if match := _OFFSET.match(text):
        text, offset = match[1].strip(), _signed(match)
    base = _named(text, rename, registers)
    if isinstance(base, Symbol):
        return Address(Symbol(base.name), base.offset + offset)
    if isinstance(base, Register):
        return Address(base, offset)
    raise PtxError(f"cannot read the PTX address {text!r}")


def items_of(operand: Operand) -> tuple[Operand, ...]:
    """Returns the operands in braces; the operand itself if there are none."""
    return operand.items if isinstance(operand, Vector) else (operand,)
