"""Hopper's matrix instructions, executed by the four warps of a warpgroup: `wgmma`.

Source of shapes, types and operands: PTX ISA 8.7, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelmate.backends.emulator.instructions.matrix import items_of
from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes
from kernelmate.backends.emulator.operations import Operation, WarpgroupMultiply, WarpgroupOrder
from kernelmate.backends.emulator.program import Immediate, Instruction, Operand, Register
from kernelmate.backends.emulator.types import SIZES

_SHAPE = re.compile(r"m64n(\d+)k(\d+)")
_EIGHTS = frozenset(range(8, 257, 8))
_INTEGER_COLUMNS = frozenset({8, 24}) | frozenset(range(16, 257, 16))


@dataclass(frozen=True, slots=True)
class _Family:
    """Types that share shapes and operands.

    Attributes:
        rights: the types of B that go with one of A.
        inner: the extent of K, 32 bytes.
        sums: the types of D.
        columns: the extents of N.
        scales: operands after `scale-d`: the factors of A and B. transposes: then, the major dimensions.
    """

    rights: frozenset[str]
    inner: int
    sums: frozenset[str]
    columns: frozenset[int]
    scales: bool = True
    transposes: bool = False


_BYTES = frozenset({"s8", "u8"})
_EIGHT_BIT_FLOATS = frozenset({"e4m3", "e5m2"})
_FAMILIES = {
    "f16": _Family(frozenset({"f16"}), 16, frozenset({"f16", "f32"}), _EIGHTS, transposes=True),
    "bf16": _Family(frozenset({"bf16"}), 16, frozenset({"f32"}), _EIGHTS, transposes=True),
    "tf32": _Family(frozenset({"tf32"}), 8, frozenset({"f32"}), _EIGHTS),
    **{kind: _Family(_EIGHT_BIT_FLOATS, 32, frozenset({"f16", "f32"}), _EIGHTS) for kind in _EIGHT_BIT_FLOATS},
    **{kind: _Family(_BYTES, 32, frozenset({"s32"}), _INTEGER_COLUMNS, scales=False) for kind in _BYTES},
    "b1": _Family(frozenset({"b1"}), 256, frozenset({"s32"}), _INTEGER_COLUMNS, scales=False),
}
_LEFT_REGISTERS = 4


@decodes("wgmma")
def decode_warpgroup(instruction: Instruction) -> Operation:
    """`wgmma.mma_async` of every shape and type, by descriptors or with A in registers; its fence, groups and waits."""
    action, parts = instruction.parts[1], instruction.parts[2:]
    if parts[:2] != ("sync", "aligned"):
        raise Unsupported(instruction.opcode)
    if action == "mma_async":
        return _multiply(instruction)
    if action in {"fence", "commit_group"} and len(parts) == 2:
        return WarpgroupOrder(action.removesuffix("_group"))
    if action == "wait_group" and len(parts) == 2:
        (left,) = instruction.operands
        if isinstance(left, Immediate):
            return WarpgroupOrder("wait", left.bits)
    raise Unsupported(instruction.opcode)


def _multiply(instruction: Instruction) -> Operation:
    shape, out, left, right, saturates = _form(instruction)
    family = _FAMILIES[left]
    to, a, b, accumulates, *modifiers = instruction.operands
    results, held = items_of(to), items_of(a)
    in_registers = held != (a,)
    if len(results) != shape[1] // 2 * SIZES[out] // 4 or (in_registers and len(held) != _LEFT_REGISTERS):
        raise Unsupported(instruction.opcode)
    signs, transposed = _modifiers(instruction, family, modifiers, in_registers=in_registers)
    sources = (*results, *held, b, *([accumulates] if isinstance(accumulates, Register) else []))
    return WarpgroupMultiply(
        shape, (left, right), out, results, held if in_registers else (), None if in_registers else a, b, accumulates,
        sources, signs, transposed, saturates,
    )  # fmt: skip


def _form(instruction: Instruction) -> tuple[tuple[int, int, int], str, str, str, bool]:
    """Returns shape, types of D, A and B, and whether sums saturate."""
    shape, *kinds = instruction.parts[4:]
    found = _SHAPE.fullmatch(shape)
    saturates = "satfinite" in kinds
    if saturates:
        kinds.remove("satfinite")
    if kinds[1:] == ["b1", "b1", "and", "popc"]:
        kinds = kinds[:3]
    if found is None or len(kinds) != 3:
        raise Unsupported(instruction.opcode)
    columns, inner = int(found[1]), int(found[2])
    out, left, right = kinds
    family = _FAMILIES.get(left)
    if (
        family is None
        or (inner != family.inner or columns not in family.columns)
        or (right not in family.rights or out not in family.sums)
        or (saturates and left not in _BYTES)
        or (left == "b1") != (instruction.kind == "popc")
    ):
        raise Unsupported(instruction.opcode)
    return (64, columns, inner), out, left, right, saturates


def _modifiers(
    instruction: Instruction, family: _Family, modifiers: list[Operand], *, in_registers: bool
) -> tuple[tuple[int, int], tuple[bool, bool]]:
    """Returns the factors of A and B, and which of them are transposed; A cannot be if it is in registers."""
    expected = 2 * family.scales + (2 - in_registers) * family.transposes
    numbers = [operand.bits for operand in modifiers if isinstance(operand, Immediate)]
    if len(modifiers) != expected or len(numbers) != expected:
        raise Unsupported(f"operands of {instruction.opcode}")
    signs = numbers[:2] or [1, 1]
    turned = numbers[2:] if family.transposes else []
    turned = [0] * (2 - len(turned)) + turned
    if not {1, -1}.issuperset(signs) or not {0, 1}.issuperset(turned):
        raise Unsupported(f"operands of {instruction.opcode}")
    return (signs[0], signs[1]), (bool(turned[0]), bool(turned[1]))
