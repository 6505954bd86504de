"""Decoders of PTX instructions, one module per group."""

from kernelmate.backends.emulator.instructions import (
    atomics,
    bits,
    compare,
    control,
    convert,
    copies,
    floats,
    integer,
    matrix,
    memory,
    moves,
    packed,
    phases,
    transcendental,
    video,
    warp,
)
from kernelmate.backends.emulator.instructions.registry import DECODERS, Unsupported

__all__ = [
    "DECODERS",
    "Unsupported",
    "atomics",
    "bits",
    "compare",
    "control",
    "convert",
    "copies",
    "floats",
    "integer",
    "matrix",
    "memory",
    "moves",
    "packed",
    "phases",
    "transcendental",
    "video",
    "warp",
]
