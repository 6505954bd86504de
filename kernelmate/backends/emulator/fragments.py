"""Binds `wmma.load` and `wmma.store`: matrices in memory, and the fragments of `mma.h` that a warp holds of them.

PTX leaves open which lane holds which element, and how the elements are fetched. Both are here as ptxas 13.0 translates
the instructions for sm_90, read from its disassembly: fragments are those of the `mma.sync` instructions that it uses
for the product, and a load or a store is a sequence of ordinary accesses of 1 to 16 bytes per lane. From shared memory,
elements of 8 and 16 bits come by `ldmatrix` if they lie in memory as it needs them. Older GPUs may differ, in counts and
in places, never in results that PTX defines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmate.backends.emulator.access import GenericPort, GlobalPort, WindowPort
from kernelmate.backends.emulator.lanes import Group
from kernelmate.backends.emulator.link import LinkedKernel
from kernelmate.backends.emulator.load_store import Addressing, poison_of
from kernelmate.backends.emulator.machine import Machine, MemoryInstruction
from kernelmate.backends.emulator.matrices import Layout, Warps, fragment_of_a, fragment_of_b, fragment_of_sums
from kernelmate.backends.emulator.matrix_operations import FragmentLoad, FragmentStore, MatrixMultiply
from kernelmate.backends.emulator.program import Operand, Position
from kernelmate.backends.emulator.registers import Bound, spread
from kernelmate.backends.emulator.types import PER_WORD, SIZES, UNSIGNED, Array
from kernelmate.records import FindingCode

_ROW_BYTES = 16
"""Bytes of a row that a lane addresses for `ldmatrix`."""
_STRIDE_BYTES = 16
"""CUDA C++ Programming Guide, Warp Matrix Functions: `ldm` is a multiple of 8 for half and of 4 for float.

The PTX ISA asks for more where a fragment has more than 16 bytes, which NVIDIA's translation to SASS does not need.
"""


def fragment_layout(matrix: str, shape: tuple[int, int, int], kind: str) -> Layout:
    """Returns the layout of a fragment's elements, without copies; `matrix` is a, b or c (which stands for d too)."""
    rows, columns, inner = shape
    packed = max(1, 4 // SIZES[kind])
    if matrix == "a":
        return _repeated(fragment_of_a(min(rows, 16), inner, packed), max(1, rows // 16), down=True)
    if matrix == "b":
        # Of 32 columns the transposed matrix is the left operand of mma.sync, in tiles of 16.
        each = 16 if columns == 32 else 8
        return _repeated(fragment_of_b(inner, each, packed), columns // each, down=False)
    if columns == 32:
        turned = fragment_layout("c", (columns, rows, inner), kind)
        return Layout(turned.columns, turned.rows, (rows, columns))
    if rows == 32:
        return _repeated(fragment_of_sums(16, 8), 2, down=True)
    return _repeated(fragment_of_sums(rows, 8), columns // 8, down=False)


def fragment_layouts(operation: MatrixMultiply) -> tuple[Layout, Layout, Layout]:
    """Returns the layouts of A, B, and C or D for `wmma.mma`."""
    kind, (rows, columns, inner) = operation.kinds[0], operation.shape
    if kind in PER_WORD:
        kind, inner = "b32", inner // PER_WORD[kind]
    a, b, c = (
        fragment_layout(matrix, (rows, columns, inner), of)
        for matrix, of in (("a", kind), ("b", kind), ("c", operation.add_kind))
    )
    return a, b, c


def _repeated(tile: Layout, times: int, *, down: bool) -> Layout:
    """Returns the layout of equal tiles below or beside one another."""
    height, width = tile.shape
    steps = range(times)
    rows = np.concatenate([tile.rows + down * step * height for step in steps], axis=1)
    columns = np.concatenate([tile.columns + (not down) * step * width for step in steps], axis=1)
    return Layout(rows, columns, (height * (times if down else 1), width * (1 if down else times)))


@dataclass(frozen=True, slots=True)
class WarpAccess:
    """One access of a warp: the rows and columns of the elements that each lane accesses, of shape (lanes, elements).

    A lane's elements are adjacent in memory. Accesses of fewer than 32 lanes belong to a warp's first ones.
    """

    rows: Array
    columns: Array


def accesses_of(operation: FragmentLoad | FragmentStore, layout: Layout) -> tuple[WarpAccess, ...]:
    """Returns the accesses of a load or a store; together they access every element once."""
    size = SIZES[operation.kind]
    rows, columns = layout.rows, layout.columns
    packed = max(4 // size, 2 if operation.matrix == "c" else 1)
    adjacent = packed == 1 or (columns[0, 0] == columns[0, 1]) == operation.by_columns
    packs = [slice(start, start + packed) for start in range(0, rows.shape[1], packed)]
    by_rows = size == 2 or (size == 1 and adjacent) or operation.packed > 1
    if operation.space == "shared" and operation.matrix != "c" and by_rows:
        return _row_accesses(layout, packs, size, by_columns=operation.by_columns)
    if adjacent:
        return tuple(WarpAccess(rows[:, pack], columns[:, pack]) for pack in packs)
    if size == 2:
        return tuple(_turned(rows[:, pack], columns[:, pack]) for pack in packs)
    return tuple(WarpAccess(rows[:, at : at + 1], columns[:, at : at + 1]) for at in range(rows.shape[1]))


def _turned(rows: Array, columns: Array) -> WarpAccess:
    """Returns the access of the transposed 8 x 8 matrix, which `movmatrix` transposes in registers."""
    top, first = rows.min(), columns.min()
    return WarpAccess(top + columns - first, first + rows - top)


def _row_accesses(layout: Layout, packs: list[slice], size: int, *, by_columns: bool) -> tuple[WarpAccess, ...]:
    """Returns the accesses of `ldmatrix`: rows of 16 bytes, eight for each register of the fragment."""
    together = min(len(packs), 2 * size)
    ramp = np.arange(_ROW_BYTES // size)
    found = []
    for start in range(0, len(packs), together):
        lines = []
        for pack in packs[start : start + together]:
            top, first = int(layout.rows[:, pack].min()), int(layout.columns[:, pack].min())
            lead, within = (first, top) if by_columns else (top, first)
            lines += [(np.full(len(ramp), lead + line), within + ramp) for line in range(8)]
        leads, withins = (np.stack(part) for part in zip(*lines, strict=True))
        found.append(WarpAccess(withins, leads) if by_columns else WarpAccess(leads, withins))
    return tuple(found)


class FragmentAccess:
    """The accesses of one load or store of a fragment; checks the requirements of PTX on its address and stride."""

    def __init__(
        self,
        operation: FragmentLoad | FragmentStore,
        registers: int,
        machine: Machine,
        linked: LinkedKernel,
        site: MemoryInstruction,
    ) -> None:
        self.layout = fragment_layout(operation.matrix, operation.shape, operation.kind)
        self._accesses = accesses_of(operation, self.layout)
        self._size = SIZES[operation.kind]
        self._packed = operation.packed
        count = self._accesses[0].rows.shape[1]
        site.size, site.count = self._size * count, count
        self._machine, self._site = machine, site
        self._addressing = Addressing(machine, linked, site, operation.space, operation.address, UNSIGNED[self._size])
        self._by_columns = operation.by_columns
        self._stride = None if operation.stride is None else machine.registers.read(operation.stride, "u32")
        self._alignment = registers * max(4, self._size)
        """PTX ISA, Matrix Storage for WMMA: rows begin at multiples of the fragment's size."""
        self._stride_unit = min(self._alignment, _STRIDE_BYTES)

    def load(self, active: Group, matrices: Array, warps: Array) -> None:
        """Fills matrices, of shape (warps, rows, columns), from memory; elements at invalid addresses are left alone."""
        lanes, bases, strides = self._places(active, warps)
        for one in self._accesses:
            givers = np.flatnonzero((lanes & 31) < len(one.rows))
            if not givers.size:  # lanes that should give the rows' addresses take no part
                continue
            chosen = lanes[givers]
            warp, rows, columns = self._elements(one, chosen, warps)

            def visit(
                held: Array,
                elements: Any,
                positions: Any,
                warp: Array = warp,
                rows: Array = rows,
                columns: Array = columns,
            ) -> None:
                values = held[elements].reshape(-1, self._site.count)
                matrices[warp[positions], rows[positions], columns[positions]] = values

            self._visit(bases[givers], strides[givers], rows, columns, chosen, visit, None)

    def store(self, active: Group, matrices: Array, warps: Array) -> None:
        """Writes matrices, of shape (warps, rows, columns), to memory."""
        lanes, bases, strides = self._places(active, warps)
        for one in self._accesses:
            warp, rows, columns = self._elements(one, lanes, warps)
            data = matrices[warp, rows, columns]
            if self._site.count == 1:
                data = data[:, 0]

            def visit(held: Array, elements: Any, positions: Any, data: Array = data) -> None:
                held[elements] = data[positions]

            self._visit(bases, strides, rows, columns, lanes, visit, data)

    def _elements(self, one: WarpAccess, lanes: Array, warps: Array) -> tuple[Array, Array, Array]:
        """Returns the indices into (warps, rows, columns) of the elements of some lanes."""
        within = lanes & 31
        return np.searchsorted(warps, lanes >> 5)[:, None], one.rows[within], one.columns[within]

    def _visit(
        self, bases: Array, strides: Array, rows: Array, columns: Array, lanes: Array, visit: Any, data: Array | None
    ) -> None:  # fmt: skip
        lead, within = (columns, rows) if self._by_columns else (rows, columns)
        offsets = lead[:, 0].astype(np.uint64) * strides + within[:, 0].astype(np.uint64)
        self._addressing.port.visit(bases + offsets * np.uint64(self._size), lanes, visit, data)

    def _places(self, active: Group, warps: Array) -> tuple[Array, Array, Array]:
        """Returns the active lanes, and each one's address and stride in elements."""
        lanes = self._machine.lanes_of(active)
        bases = np.broadcast_to(self._addressing.addresses(active), lanes.shape).astype(np.uint64)
        if self._stride is None:
            strides = np.full(len(lanes), self.layout.shape[0 if self._by_columns else 1] * self._packed, np.uint64)
        else:
            strides = spread(self._stride, active, len(lanes)).astype(np.uint64)
        self._check(lanes, bases, strides, warps)
        return lanes, bases, strides // np.uint64(self._packed)

    def _check(self, lanes: Array, bases: Array, strides: Array, warps: Array) -> None:
        full = bases + np.uint64(self._addressing.port.offset % (1 << 64))
        unit, stride_unit = np.uint64(self._alignment), self._stride_unit * self._packed
        if int(np.bitwise_or.reduce(full)) % self._alignment:
            wrong = full % unit != 0
            address = int(full[wrong][0])
            self._misaligned(
                lanes[wrong],
                address,
                f"at {{}}, which is not a multiple of {self._alignment}, the size of its fragment",
            )
        widths = strides * np.uint64(self._size)
        if int(np.bitwise_or.reduce(widths)) % stride_unit:
            wrong = widths % np.uint64(stride_unit) != 0
            self._misaligned(
                lanes[wrong],
                int(full[wrong][0]),
                f"at {{}} with rows {int(strides[wrong][0])} elements apart; the distance must be a multiple of "
                f"{stride_unit // self._size}",
            )
        first = np.searchsorted(lanes >> 5, warps)[np.searchsorted(warps, lanes >> 5)]
        differs = (bases != bases[first]) | (strides != strides[first])
        if differs.any():
            self._machine.findings.report(
                FindingCode.SHUFFLE_MASK,
                self._site.position,
                lanes[differs],
                lambda: (
                    f"{self._verb} a matrix, and the lanes of a warp differ in its address or stride; "
                    "give all 32 the same ones"
                ),
            )

    @property
    def _verb(self) -> str:
        return "loads" if self._site.action == "load" else "stores"

    def _misaligned(self, lanes: Array, address: int, sentence: str) -> None:
        name, offset = self._place(address)
        where = f"address {address:#x}" if name is None else f"byte {offset} of {name}"
        self._machine.findings.report(
            FindingCode.MISALIGNED_ACCESS,
            self._site.position,
            lanes,
            lambda: f"{self._verb} a matrix {sentence.format(where)}",
            buffer=name,
            offset=offset,
        )

    def _place(self, address: int) -> tuple[str | None, int | None]:
        """Returns the buffer that an address points into, and the offset there."""
        port = self._addressing.port
        if isinstance(port, WindowPort):
            return port.window.names(address) or port.window.name, address
        buffer = self._machine.memory.at(address) if isinstance(port, GlobalPort | GenericPort) else None
        return (None, None) if buffer is None else (buffer.name, address - buffer.address)


def bind_fragment_load(
    operation: FragmentLoad, machine: Machine, linked: LinkedKernel, number: int, position: Position | None
) -> Bound:  # fmt: skip
    """Binds `wmma.load`; fragments with more registers than elements hold copies (`mma.h`, half operands)."""
    warps_of = Warps(machine, position)
    results = operation.results
    access = FragmentAccess(operation, len(results), machine, linked, MemoryInstruction(number, "load", 0, 0, position))
    poison = poison_of(operation.kind)
    bits = f"b{8 * SIZES[operation.kind]}"

    def run(group: Group | None, active: Group) -> None:
        del group
        warps = warps_of.of(active)
        matrices = np.full((len(warps), *access.layout.shape), poison, UNSIGNED[SIZES[operation.kind]])
        access.load(active, matrices, warps)
        fragments = access.layout.scatter(matrices)
        copies = len(results) * max(4, SIZES[operation.kind]) // (fragments.shape[2] * SIZES[operation.kind])
        warps_of.write(results, bits, np.tile(fragments, (1, 1, copies)), warps, active)

    return run


def bind_fragment_store(
    operation: FragmentStore, machine: Machine, linked: LinkedKernel, number: int, position: Position | None
) -> Bound:  # fmt: skip
    """Binds `wmma.store`."""
    warps_of = Warps(machine, position)
    held: tuple[Operand, ...] = operation.fragment
    access = FragmentAccess(operation, len(held), machine, linked, MemoryInstruction(number, "store", 0, 0, position))
    bits = f"b{8 * SIZES[operation.kind]}"

    def run(group: Group | None, active: Group) -> None:
        del group
        warps = warps_of.of(active)
        access.store(active, access.layout.gather(warps_of.fragments(held, bits, warps)), warps)

    return run
