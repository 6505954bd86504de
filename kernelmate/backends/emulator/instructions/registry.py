"""Registry of the decoders of PTX instructions."""

from __future__ import annotations

from collections.abc import Callable

from kernelmate.backends.emulator.operations import Operation
from kernelmate.backends.emulator.program import Instruction


class Unsupported(Exception):
    """The instruction, or this form of it, is not supported; the message names the unsupported part."""


Decoder = Callable[[Instruction], Operation]

DECODERS: dict[str, Decoder] = {}


def decodes(*names: str) -> Callable[[Decoder], Decoder]:
    """Register a decoder for instructions of these names."""

    def register(decoder: Decoder) -> Decoder:
        for name in names:
            DECODERS[name] = decoder
        return decoder

    return register


def require(instruction: Instruction, known: frozenset[str] | set[str]) -> None:
    """Refuse qualifiers that the decoder would otherwise ignore.

    Raises:
        Unsupported: one of the instruction's qualifiers is not in `known`.
    """
    for part in instruction.parts[1:]:
        if part not in known:
            raise Unsupported(f"qualifier .{part} of {instruction.opcode}")
