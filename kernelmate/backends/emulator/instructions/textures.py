"""Decodes fetches from textures and accesses to surfaces, both in the unified mode that CUDA's objects use.

PTX ISA, Texture Instructions and Surface Instructions.
"""

from __future__ import annotations

from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes
from kernelmate.backends.emulator.operands import items_of
from kernelmate.backends.emulator.operations import Operation, SurfaceAccess, TextureFetch
from kernelmate.backends.emulator.program import Instruction, Operand, Register, TensorAddress

_GEOMETRIES = {"1d": (1, False), "2d": (2, False), "3d": (3, False), "a2d": (2, True)}
"""Number of coordinates, and whether a layer precedes them."""
_CHANNELS = ("r", "g", "b", "a")
_RESULTS = frozenset({"f32", "u32", "s32"})
_BYTES = frozenset({"b8", "b16", "b32", "b64"})
_BEYOND = frozenset({"trap", "clamp", "zero"})


def _place(instruction: Instruction, operand: Operand) -> tuple[int, bool, Operand, tuple[Operand, ...]]:
    """Returns the number of coordinates, whether a layer precedes them, the handle, and layer and coordinates."""
    geometry = next((part for part in instruction.parts[1:] if part in _GEOMETRIES), None)
    if geometry is None or not isinstance(operand, TensorAddress) or operand.map.base is None or operand.map.offset:
        raise Unsupported(instruction.opcode)
    dimensions, layered = _GEOMETRIES[geometry]
    coordinates = operand.coordinates.items[: dimensions + layered]  # padded to a power of two
    if len(coordinates) != dimensions + layered:
        raise Unsupported(instruction.opcode)
    return dimensions, layered, operand.map.base, coordinates


def _registers(*operands: Operand) -> tuple[Operand, ...]:
    return tuple(operand for operand in operands if isinstance(operand, Register))


@decodes("tex", "tld4")
def decode_fetch(instruction: Instruction) -> Operation:
    """Fetches of four channels, and of one channel of four texels.

    There are no mipmaps, so that level and derivatives choose nothing.
    """
    parts, operands = instruction.parts[1:], instruction.operands
    gathers = instruction.name == "tld4"
    kind, coordinate_kind = parts[-2:]
    known = {"v4", "level", "grad", *_GEOMETRIES, *(_CHANNELS if gathers else ()), kind, coordinate_kind}
    extra = {"level": 1, "grad": 2}.get(parts[0], 0)
    if set(parts) - known or kind not in _RESULTS or "v4" not in parts or len(operands) != 2 + extra:
        raise Unsupported(instruction.opcode)
    dimensions, layered, handle, coordinates = _place(instruction, operands[1])
    if coordinate_kind not in ("f32", "s32") or (coordinate_kind == "s32" and (gathers or dimensions > 1 or layered)):
        raise Unsupported(instruction.opcode)
    channel = _CHANNELS.index(parts[0]) if gathers else None
    sources = _registers(handle, *coordinates)
    return TextureFetch(
        dimensions, layered, handle, coordinates, coordinate_kind, items_of(operands[0]), kind, channel, sources
    )


@decodes("suld", "sust")
def decode_surface(instruction: Instruction) -> Operation:
    """Loads and stores of one, two or four parts of a surface, unformatted."""
    parts, operands = instruction.parts[1:], instruction.operands
    loads = instruction.name == "suld"
    kind, beyond = parts[-2:]
    known = {"b", "v2", "v4", "ca", "cg", "cs", "cv", "wb", "wt", *_GEOMETRIES, kind, beyond}
    if parts[0] != "b" or set(parts) - known or kind not in _BYTES or beyond not in _BEYOND or len(operands) != 2:
        raise Unsupported(instruction.opcode)
    dimensions, layered, handle, coordinates = _place(instruction, operands[int(loads)])
    values = items_of(operands[int(not loads)])
    sources = _registers(handle, *coordinates, *(() if loads else values))
    return SurfaceAccess(
        loads, dimensions, layered, handle, coordinates, values if loads else (), () if loads else values, kind,
        beyond, sources,
    )  # fmt: skip
