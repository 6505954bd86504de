"""Binds matrix instructions: tensor-core arithmetic, and loads and stores of fragments from and to shared memory.

Products are exact; their sum with the addend is computed in double precision and rounded once to the result's type.
Hardware keeps an undocumented, smaller number of bits, so results may differ in the last places; integer results are
equal. Of tf32 operands the lower 13 bits are ignored, as hardware does.

Source of every layout: PTX ISA 8.7, "Matrix fragments for mma". A fragment is an array of elements per lane; the tables
give row and column of each, by lane and element.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmate.backends.emulator.lanes import Group
from kernelmate.backends.emulator.link import LinkedKernel
from kernelmate.backends.emulator.load_store import Addressing
from kernelmate.backends.emulator.machine import Machine, MemoryInstruction
from kernelmate.backends.emulator.matrix_operations import MatrixLoad, MatrixMove, MatrixMultiply, MatrixStore
from kernelmate.backends.emulator.program import Operand, Position
from kernelmate.backends.emulator.registers import Bound, spread
from kernelmate.backends.emulator.types import DTYPES, PER_WORD, SIZES, UNSIGNED, Array
from kernelmate.records import FindingCode

_LANE = np.arange(32)
_GROUP, _WITHIN = _LANE >> 2, _LANE & 3
"""A lane's group of four, and its position in it."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Rows and columns of a fragment's elements: arrays of shape (32, elements); `shape` is the whole matrix's."""

    rows: Array
    columns: Array
    shape: tuple[int, int]

    def gather(self, fragments: Array) -> Array:
        """Returns matrices of shape (warps, *shape) from fragments of shape (warps, 32, elements)."""
        matrices = np.empty((len(fragments), *self.shape), fragments.dtype)
        matrices[:, self.rows, self.columns] = fragments
        return matrices

    def scatter(self, matrices: Array) -> Array:
        """Returns fragments of shape (warps, 32, elements) from matrices."""
        return np.asarray(matrices[:, self.rows, self.columns])


def fragment_of_a(rows: int, inner: int, packed: int) -> Layout:
    """Returns the layout of fragments of A.

    `packed` elements of a row are adjacent in a lane (two of 16 bits, four of 8 bits, else one). A lane's registers
    advance by eight rows first, then along the row by four packs.
    """
    return _tiled((rows, inner), packed)


def fragment_of_b(inner: int, columns: int, packed: int) -> Layout:
    """Returns the layout of fragments of B: that of A with rows and columns exchanged."""
    turned = _tiled((columns, inner), packed)
    return Layout(turned.columns, turned.rows, (inner, columns))


def fragment_of_sums(rows: int, columns: int) -> Layout:
    """Returns the layout of fragments of C and D: two adjacent elements of a row, then eight rows down."""
    return _tiled((rows, columns), 2)


def _tiled(shape: tuple[int, int], packed: int) -> Layout:
    height, width = shape
    steps = [(down, along) for along in range(0, width, 4 * packed) for down in range(0, height, 8)]
    places = [(down, along, place) for down, along in steps for place in range(packed)]
    rows = np.stack([_GROUP + down for down, _, _ in places], axis=1)
    columns = np.stack([_WITHIN * packed + place + along for _, along, place in places], axis=1)
    return Layout(rows, columns, shape)


_ROW_BYTES = 16
_TF32_BITS = np.uint32(0xFFFFE000)
"""Bits of a register that a tf32 operand has."""
_CARRIER = {"tf32": "f32"}
"""Types that NumPy represents by another one."""


def elements_of(words: Array, kind: str) -> Array:
    """Returns registers or words of memory as elements of a type; of tf32, only the bits that products use."""
    held = words & _TF32_BITS if kind == "tf32" else words
    return held.view(DTYPES[_CARRIER.get(kind, kind)])


class Warps:
    """The complete warps among the active lanes."""

    def __init__(self, machine: Machine, position: Position | None) -> None:
        self._machine, self._position = machine, position
        self._whole = slice(0, machine.lanes.count)

    def of(self, active: Group) -> Array:
        """Returns the participating warps; warps with missing lanes are a finding."""
        lanes = self._machine.lanes_of(active)
        warps, lanes_of = np.unique(lanes >> 5, return_counts=True)
        if (lanes_of != 32).any():
            part = lanes[np.isin(lanes >> 5, warps[lanes_of != 32])]
            self._machine.findings.report(
                FindingCode.SHUFFLE_MASK,
                self._position,
                part,
                lambda: "a matrix instruction needs all 32 lanes of its warp, and some take no part in it",
            )
        return np.asarray(warps)

    def fragments(self, operands: tuple[Operand, ...], kind: str, warps: Array) -> Array:
        """Returns registers as elements of a type: (warps, 32, elements)."""
        width = "b64" if SIZES[kind] == 8 else "b32"
        columns = []
        for operand in operands:
            value = self._machine.registers.read(operand, width)
            bits = np.ascontiguousarray(spread(value, self._whole, self._machine.lanes.count)).reshape(-1, 32)[warps]
            columns.append(elements_of(bits, kind).reshape(len(warps), 32, -1))
        return np.concatenate(columns, axis=2)

    def write(self, operands: tuple[Operand, ...], kind: str, fragments: Array, warps: Array, active: Group) -> None:
        """Writes elements back into registers, for the active lanes."""
        lanes = self._machine.lanes_of(active)
        row = np.searchsorted(warps, lanes >> 5) * 32 + (lanes & 31)
        width = "b64" if SIZES[kind] == 8 else "b32"
        packed = np.ascontiguousarray(fragments.astype(DTYPES[kind])).view(DTYPES[width])
        for place, operand in enumerate(operands):
            target = self._machine.registers.target(operand, width)
            if target is not None:
                target[active] = packed.reshape(-1, len(operands))[row, place]


def mma_layouts(operation: MatrixMultiply) -> tuple[Layout, Layout, Layout]:
    """Returns the layouts of A, B, and C or D for `mma.sync`."""
    rows, columns, inner = operation.shape
    packed = max(1, 4 // SIZES[operation.kinds[0]])
    return fragment_of_a(rows, inner, packed), fragment_of_b(inner, columns, packed), fragment_of_sums(rows, columns)


def bind_multiply(
    operation: MatrixMultiply, layouts: tuple[Layout, Layout, Layout], machine: Machine, position: Position | None
) -> Bound:  # fmt: skip
    """Binds `mma.sync` and `wmma.mma`: D = A B + C for each warp, with the layouts of A, B, and C or D."""
    warps_of = Warps(machine, position)
    kinds = operation.kinds
    small = kinds[0] in PER_WORD
    integers = small or kinds[0] in {"s8", "u8"}

    def matrix(operands: tuple[Operand, ...], kind: str, layout: Layout, warps: Array) -> Array:
        if kind in PER_WORD:
            return layout.gather(warps_of.fragments(operands, "b32", warps))
        fragments = warps_of.fragments(operands, kind, warps)
        return layout.gather(fragments.astype(np.int64 if integers else np.float64))

    def run(group: Group | None, active: Group) -> None:
        del group
        warps = warps_of.of(active)
        a = matrix(operation.left, kinds[0], layouts[0], warps)
        b = matrix(operation.right, kinds[1], layouts[1], warps)
        if small:
            a = _spread_words(a, kinds[0])
            b = _spread_words(b.transpose(0, 2, 1), kinds[1]).transpose(0, 2, 1)
        product = a @ (1 - b) + (1 - a) @ b if operation.combines == "xor" else a @ b
        total = product + matrix(operation.add, operation.add_kind, layouts[2], warps)
        if integers and operation.saturates:
            limits = np.iinfo(np.int32)
            total = total.clip(limits.min, limits.max)
        warps_of.write(operation.results, operation.result_kind, layouts[2].scatter(total), warps, active)

    return run


def _spread_words(words: Array, kind: str) -> Array:
    """Returns the elements of rows of 32-bit words, the lowest bits first."""
    bits = 32 // PER_WORD[kind]
    values = (words[..., None] >> np.arange(0, 32, bits, dtype=np.uint32)) & np.uint32((1 << bits) - 1)
    elements = values.reshape(*words.shape[:2], -1).astype(np.int64)
    return (elements ^ 8) - 8 if kind == "s4" else elements


def _transposed(matrices: Array) -> Array:
    """Transposes 8 x 8 matrices in fragments of two elements, (warps, 32, 2)."""
    square = matrices.reshape(len(matrices), 8, 8)
    return np.ascontiguousarray(square.transpose(0, 2, 1)).reshape(len(matrices), 32, 2)


def bind_matrix_load(
    operation: MatrixLoad, machine: Machine, linked: LinkedKernel, number: int, position: Position | None
) -> Bound:  # fmt: skip
    """Binds `ldmatrix`: lanes 0 to 7 hold the row addresses of the first matrix, lanes 8 to 15 those of the second, ..."""
    warps_of = Warps(machine, position)
    kind = UNSIGNED[2]
    site = MemoryInstruction(number, "load", _ROW_BYTES, _ROW_BYTES // kind.itemsize, position)
    rows_of = Addressing(machine, linked, site, operation.space, operation.address, kind)
    count = len(operation.results)

    def run(group: Group | None, active: Group) -> None:
        del group
        warps = warps_of.of(active)
        lanes = machine.lanes_of(active)
        givers = lanes[(lanes & 31) < 8 * count]
        rows = np.zeros((len(warps) * 32, 8), kind)
        places = np.searchsorted(warps, givers >> 5) * 32 + (givers & 31)

        def visit(held: Array, elements: Any, positions: Any) -> None:
            rows[places[positions]] = held[elements]

        if givers.size:
            rows_of.port.visit(rows_of.addresses(givers), givers, visit)
        matrices = rows.reshape(len(warps), 4, 8, 8)[:, :count]
        fragments = [matrices[:, index].reshape(len(warps), 32, 2) for index in range(count)]
        if operation.transposed:
            fragments = [_transposed(one) for one in fragments]
        warps_of.write(operation.results, "b16", np.concatenate(fragments, axis=2), warps, active)

    return run


def bind_matrix_store(
    operation: MatrixStore, machine: Machine, linked: LinkedKernel, number: int, position: Position | None
) -> Bound:  # fmt: skip
    """Binds `stmatrix`: the reverse of `ldmatrix`."""
    warps_of = Warps(machine, position)
    kind = UNSIGNED[2]
    site = MemoryInstruction(number, "store", _ROW_BYTES, _ROW_BYTES // kind.itemsize, position)
    rows_of = Addressing(machine, linked, site, operation.space, operation.address, kind)
    count = len(operation.sources)

    def run(group: Group | None, active: Group) -> None:
        del group
        warps = warps_of.of(active)
        lanes = machine.lanes_of(active)
        givers = lanes[(lanes & 31) < 8 * count]
        fragments = [warps_of.fragments((source,), "b16", warps) for source in operation.sources]
        if operation.transposed:
            fragments = [_transposed(one) for one in fragments]
        matrices = np.stack([one.reshape(len(warps), 8, 8) for one in fragments], axis=1)
        data = matrices[np.searchsorted(warps, givers >> 5), (givers & 31) >> 3, givers & 7]

        def visit(held: Array, elements: Any, positions: Any) -> None:
            held[elements] = data[positions]

        if givers.size:
            rows_of.port.visit(rows_of.addresses(givers), givers, visit, data)

    return run


def bind_matrix_move(operation: MatrixMove, machine: Machine, position: Position | None) -> Bound:
    """Binds `movmatrix`: transposes an 8 x 8 matrix."""
    warps_of = Warps(machine, position)

    def run(group: Group | None, active: Group) -> None:
        del group
        warps = warps_of.of(active)
        turned = _transposed(warps_of.fragments((operation.source,), "b16", warps))
        warps_of.write((operation.result,), "b16", turned, warps, active)

    return run
