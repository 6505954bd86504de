"""Matrices over the lanes of a warp (`mma.sync`, `ldmatrix`, `stmatrix`, `movmatrix`, `wmma`) or of a warpgroup (`wgmma`).

Source of the shapes, types and operands of `wgmma`: PTX ISA 8.7, "Asynchronous Warpgroup Level Matrix
Multiply-Accumulate Instructions".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from kernelmate.backends.emulator.instructions.memory import address_of
from kernelmate.backends.emulator.instructions.registry import Unsupported, decodes
from kernelmate.backends.emulator.matrix_operations import (
    FragmentLoad,
    FragmentStore,
    MatrixLoad,
    MatrixMove,
    MatrixMultiply,
    MatrixStore,
    WarpgroupMultiply,
    WarpgroupOrder,
)
from kernelmate.backends.emulator.operands import items_of
from kernelmate.backends.emulator.operations import Operation
from kernelmate.backends.emulator.program import Immediate, Instruction, Operand, Register
from kernelmate.backends.emulator.types import PER_WORD, SIZES

_FLOAT_SHAPES = {
    "f16": {(16, 8, 8), (16, 8, 16)},
    "bf16": {(16, 8, 8), (16, 8, 16)},
    "tf32": {(16, 8, 4), (16, 8, 8)},
    "e4m3": {(16, 8, 16), (16, 8, 32)},
    "e5m2": {(16, 8, 16), (16, 8, 32)},
    "f64": {(8, 8, 4), (16, 8, 4), (16, 8, 8), (16, 8, 16)},
}
_INTEGER_SHAPES = {(8, 8, 16), (16, 8, 16), (16, 8, 32)}
_LARGE_FRAGMENTS = frozenset({(16, 16, 16), (32, 8, 16), (8, 32, 16)})
_FRAGMENT_SHAPES = {
    "f16": _LARGE_FRAGMENTS,
    "bf16": _LARGE_FRAGMENTS,
    "s8": _LARGE_FRAGMENTS,
    "u8": _LARGE_FRAGMENTS,
    "tf32": frozenset({(16, 16, 8)}),
    "f64": frozenset({(8, 8, 4)}),
    "s4": frozenset({(8, 8, 32)}),
    "u4": frozenset({(8, 8, 32)}),
    "b1": frozenset({(8, 8, 128)}),
}
_FRAGMENT_SUMS = {
    "f16": {"f16", "f32"},
    "bf16": {"f32"},
    "tf32": {"f32"},
    "f64": {"f64"},
    **{kind: {"s32"} for kind in ("s8", "u8", "s4", "u4", "b1")},
}
_SUM_SHAPES = {
    "f16": _LARGE_FRAGMENTS,
    "f32": _LARGE_FRAGMENTS | _FRAGMENT_SHAPES["tf32"],
    "s32": _LARGE_FRAGMENTS | _FRAGMENT_SHAPES["s4"] | _FRAGMENT_SHAPES["b1"],
    "f64": _FRAGMENT_SHAPES["f64"],
}
_SPACES = {"global": "global", "shared": "shared", "shared__cta": "shared"}
_SHAPE = re.compile(r"m(\d+)n(\d+)k(\d+)")


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


@decodes("wmma")
def decode_fragments(instruction: Instruction) -> Operation:
    """`wmma.load`, `wmma.mma` and `wmma.store` of all types (f16, bf16, tf32, f64, integers of 8, 4 and 1 bit), shapes and layouts."""
    action = instruction.parts[1]
    if action == "mma":
        return _fragment_multiply(instruction)
    if action == "load":
        return _fragment_load(instruction)
    if action == "store":
        return _fragment_store(instruction)
    raise Unsupported(instruction.opcode)


def _fragment_multiply(instruction: Instruction) -> Operation:
    shape, place = _fragment_shape(instruction)
    head, kinds = list(instruction.parts[2:place]), list(instruction.parts[place + 1 :])
    combines = head.pop(0) if head[1] == "popc" and head[0] in {"xor", "and"} else ""
    if combines:
        head.pop(0)
    saturates = "satfinite" in kinds
    if saturates:
        kinds.remove("satfinite")
    if "f64" in kinds and "rn" in kinds:  # the only rounding that mma.h asks for, and the default
        kinds.remove("rn")
    if len(kinds) == 2:
        kinds[1:1] = ["f16", "f16"]
    if len(kinds) != 4:
        raise Unsupported(instruction.opcode)
    out, left, right, add = kinds
    sums = _FRAGMENT_SUMS.get(left, set())
    layouts = head[2:]
    if (
        head[:2] != ["sync", "aligned"]
        or len(layouts) != 2
        or not {"row", "col"}.issuperset(layouts)
        or left != right
        or shape not in _FRAGMENT_SHAPES.get(left, ())
        or not {out, add} <= sums
        or (saturates and (add != "s32" or left == "b1"))
        or bool(combines) != (left == "b1")
        or (left in PER_WORD and layouts != ["row", "col"])
    ):
        raise Unsupported(instruction.opcode)
    to, a, b, c = (items_of(operand) for operand in instruction.operands)
    _check_registers(instruction, {"a": a, "b": b}, shape, left)
    _check_registers(instruction, {"c": c}, shape, add)
    _check_registers(instruction, {"c": to}, shape, out)
    # The product uses the first of several copies, as ptxas translates it.
    a, b = (items[: _distinct(matrix, shape, left)] for matrix, items in (("a", a), ("b", b)))
    return MatrixMultiply(
        shape, (left, right), add, out, to, a, b, c, (*a, *b, *c), saturates=saturates, fragments=True, combines=combines
    )  # fmt: skip


def _fragment_load(instruction: Instruction) -> Operation:
    form = _fragment(instruction)
    destination, address, *stride = instruction.operands
    results = items_of(destination)
    _check_registers(instruction, {form.matrix: results}, form.shape, form.kind)
    kind, shape, packed = form.in_words()
    return FragmentLoad(
        form.space, form.matrix, shape, kind, form.by_columns, results, address_of(address),
        stride[0] if stride else None, tuple(stride), packed,
    )  # fmt: skip


def _fragment_store(instruction: Instruction) -> Operation:
    form = _fragment(instruction)
    address, source, *stride = instruction.operands
    held = items_of(source)
    _check_registers(instruction, {form.matrix: held}, form.shape, form.kind)
    return FragmentStore(
        form.space, form.matrix, form.shape, form.kind, form.by_columns, held, address_of(address),
        stride[0] if stride else None, (*held, *stride),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Form:
    """Form of a load or a store; see `FragmentLoad`."""

    space: str
    matrix: str
    shape: tuple[int, int, int]
    kind: str
    by_columns: bool

    def in_words(self) -> tuple[str, tuple[int, int, int], int]:
        """Returns type, shape and elements of a word if the elements are smaller than a byte, else one per element."""
        packed = PER_WORD.get(self.kind)
        if packed is None:
            return self.kind, self.shape, 1
        rows, columns, inner = self.shape
        return "b32", (rows, columns, inner // packed), packed


def _fragment(instruction: Instruction) -> _Form:
    shape, place = _fragment_shape(instruction)
    matrix, *head = instruction.parts[2:place]
    *space, kind = instruction.parts[place + 1 :]
    loads = instruction.parts[1] == "load"
    known = (_FRAGMENT_SHAPES if matrix in {"a", "b"} else _SUM_SHAPES).get(kind, ())
    if (
        matrix not in ({"a", "b", "c"} if loads else {"d"})
        or head[:2] != ["sync", "aligned"]
        or head[2:] not in (["row"], ["col"])
        or len(space) > 1
        or not _SPACES.keys() >= set(space)
        or shape not in known
        or (kind in PER_WORD and head[2] != {"a": "row", "b": "col"}[matrix])
    ):
        raise Unsupported(instruction.opcode)
    where = _SPACES[space[0]] if space else "generic"
    return _Form(where, "c" if matrix == "d" else matrix, shape, kind, head[2] == "col")


def _fragment_shape(instruction: Instruction) -> tuple[tuple[int, int, int], int]:
    """Returns rows, columns and inner extent of a product, and the index of this qualifier."""
    for place, part in enumerate(instruction.parts):
        if found := _SHAPE.fullmatch(part):
            return (int(found[1]), int(found[2]), int(found[3])), place
    raise Unsupported(instruction.opcode)


def _distinct(matrix: str, shape: tuple[int, int, int], kind: str) -> int:
    """Returns the registers that a fragment's elements take."""
    rows, columns, inner = shape
    elements = {"a": rows * inner, "b": inner * columns, "c": rows * columns}[matrix]
    if kind in PER_WORD:
        return elements // (32 * PER_WORD[kind])
    return elements * SIZES[kind] // (32 * max(4, SIZES[kind]))


def _check_registers(
    instruction: Instruction, fragments: dict[str, tuple[Operand, ...]], shape: tuple[int, int, int], kind: str
) -> None:
    """Raises `Unsupported` for a number of registers that PTX does not give to a fragment.

    PTX gives eight registers to half operands of every shape, which hold copies of the elements.
    """
    for matrix, items in fragments.items():
        copies = kind == "f16" and matrix in {"a", "b"}
        if len(items) != (8 if copies else _distinct(matrix, shape, kind)):
            raise Unsupported(instruction.opcode)


_WARPGROUP_SHAPE = re.compile(r"m64n(\d+)k(\d+)")
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
        scales: operands after `scale-d`: the factors of A and B.
        transposes: then, the major dimensions.
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
    found = _WARPGROUP_SHAPE.fullmatch(shape)
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
