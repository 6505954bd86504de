"""Matrices over the lanes of a warp: `mma.sync`, `ldmatrix`, `stmatrix`, `movmatrix`."""

from __future__ import annotations

import re

from kernelmate.backends.emulator.instructions.memory import address_of
from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes
from kernelmate.backends.emulator.operations import MatrixLoad, MatrixMove, MatrixMultiply, MatrixStore, Operation
from kernelmate.backends.emulator.program import Instruction, Operand, Vector

_FLOAT_SHAPES = {
    "f16": {(16, 8, 8), (16, 8, 16)},
    "bf16": {(16, 8, 8), (16, 8, 16)},
    "tf32": {(16, 8, 4), (16, 8, 8)},
    "e4m3": {(16, 8, 16), (16, 8, 32)},
    "e5m2": {(16, 8, 16), (16, 8, 32)},
    "f64": {(8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)},
}
_INTEGER_SHAPES = {(8, 8, 16), (16, 8, 16), (16, 8, 32)}
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


def items_of(operand: Operand) -> tuple[Operand, ...]:
    """Returns the operands in braces; the operand itself if there are none."""
    return operand.items if isinstance(operand, Vector) else (operand,)


@decodes("mma")
def decode_multiply(instruction: Instruction) -> Operation:
    """`mma.sync` of f16, bf16, tf32, f64, fp8 and 8-bit integers; others are refused by name."""
    parts = instruction.parts
    found = next((match for part in parts if (match := _SHAPE.fullmatch(part))), None)
    kinds = parts[-4:]
    if found is None or parts[1] != "sync" or {"sp", "sp__ordered_metadata", "block_scale"} & set(parts):
        raise Unsupported(instruction.opcode)
    shape = (int(found[1]), int(found[2]), int(found[3]))
    out, left, right, add = kinds
    if "row" not in parts or "col" not in parts or not _known(shape, out, left, right, add):
        raise Unsupported(instruction.opcode)
    to, a, b, c = (items_of(operand) for operand in instruction.operands)
    return MatrixMultiply(shape, (left, right), add, out, to, a, b, c, (*a, *b, *c), saturates="satfinite" in parts)


def _known(shape: tuple[int, int, int], out: str, left: str, right: str, add: str) -> bool:
    if left in {"s8", "u8"} and right in {"s8", "u8"}:
        return shape in _INTEGER_SHAPES and (out, add) == ("s32", "s32")
    if left in {"e4m3", "e5m2"} and right in {"e4m3", "e5m2"}:
        return shape in _FLOAT_SHAPES[left] and out == add and out in {"f16", "f32"}
    if left != right or shape not in _FLOAT_SHAPES.get(left, ()):
        return False
    sums = {"f16": {"f16", "f32"}, "bf16": {"f32"}, "tf32": {"f32"}, "f64": {"f64"}}[left]
    return out in sums and add in sums


@decodes("ldmatrix")
def decode_load(instruction: Instruction) -> Operation:
    """`ldmatrix` of one, two or four 8 x 8 matrices of 16-bit elements."""
    count = _count(instruction)
    destination, address = instruction.operands
    results = items_of(destination)
    if len(results) != count:
        raise Unsupported(instruction.opcode)
    return MatrixLoad(_space(instruction), results, address_of(address), transposed=instruction.has("trans"))


@decodes("stmatrix")
def decode_store(instruction: Instruction) -> Operation:
    """`stmatrix` of one, two or four 8 x 8 matrices of 16-bit elements."""
    count = _count(instruction)
    address, source = instruction.operands
    sources = items_of(source)
    if len(sources) != count:
        raise Unsupported(instruction.opcode)
    return MatrixStore(_space(instruction), sources, address_of(address), transposed=instruction.has("trans"))


def _count(instruction: Instruction) -> int:
    count = next((int(part[1:]) for part in instruction.parts if part in {"x1", "x2", "x4"}), 0)
    if not count or not instruction.has("m8n8") or instruction.kind != "b16":
        raise Unsupported(instruction.opcode)
    return count


def _space(instruction: Instruction) -> str:
    return "shared" if instruction.has("shared") or instruction.has("shared__cta") else "generic"


@decodes("movmatrix")
def decode_move(instruction: Instruction) -> Operation:
    """`movmatrix.sync.aligned.m8n8.trans.b16`."""
    if not instruction.has("trans") or instruction.kind != "b16":
        raise Unsupported(instruction.opcode)
    destination, source = instruction.operands
    return MatrixMove(destination, source)
