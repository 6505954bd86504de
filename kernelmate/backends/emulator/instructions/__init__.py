"""Decoders of PTX instructions, one module per group."""

from kernelmate.backends.emulator.instructions import (
    bits,
    compare,
    control,
    convert,
    floats,
    integer,
    matrix,
    memory,
    moves,
    textures,
)
from kernelmate.backends.emulator.instructions.registry import DECODERS, Unsupported

__all__ = [
    "DECODERS",
    "Unsupported",
    "bits",
    "compare",
    "control",
    "convert",
    "floats",
    "integer",
    "matrix",
    "memory",
    "moves",
    "textures",
]
