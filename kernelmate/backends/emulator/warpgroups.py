"""Binds `wgmma.mma_async`, which four warps execute together, and reads its matrices in shared memory.

A product is computed when it is issued: what a kernel may not do before it has waited is a finding (`register_order`,
`access_monitor`). Products are exact, and their sum with the accumulator is rounded once, as in `matrices`. A warp's part of D, and
of A in registers, is laid out as for the `mma.sync` of its 16 rows: PTX ISA 8.7, "Register Fragments" of wgmma.

Source of descriptors, canonical layouts and swizzles: PTX ISA 8.7, "Asynchronous Warpgroup Level Matrix Shared Memory
Layout", with its sections "Canonical Layouts" and "Matrix Descriptor Format". A matrix has rows (of A; columns of B) along
MN and 32 bytes along K. It consists of chunks of 16 bytes, which are adjacent along K (K-major) or along MN (MN-major).
Eight lines of chunks form the repeating pattern of a swizzle: bits 4 to 6 of an address, or the lower ones of them, are
XORed with the bits from 7 on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmate.backends.emulator.findings import plural
from kernelmate.backends.emulator.lanes import WARPGROUP, Group
from kernelmate.backends.emulator.machine import Machine, MemoryInstruction
from kernelmate.backends.emulator.matrices import Layout, elements_of, fragment_of_a, fragment_of_sums
from kernelmate.backends.emulator.matrix_operations import WarpgroupMultiply, WarpgroupOrder
from kernelmate.backends.emulator.program import Operand, Position
from kernelmate.backends.emulator.registers import Bound, LaneOperand, Value
from kernelmate.backends.emulator.types import DTYPES, SIZES, UNSIGNED, Array
from kernelmate.backends.emulator.warp import Gathering
from kernelmate.records import FindingCode

CHUNK = 16
"""Bytes that are adjacent in every layout."""
_LINES = 8
_INNER_CHUNKS = 2
"""Chunks of a K-major matrix along K."""
_CHUNKS_OF_MODE = (1, 8, 4, 2)
"""Chunks in a line of the pattern by swizzle mode: none, 128, 64 and 32 bytes."""
_ENCODED = (1 << 14) - 1
_START_BITS = 14
_ADDRESS_BITS = 18


@dataclass(frozen=True, slots=True)
class SharedLayout:
    """A descriptor's fields without the start address.

    Attributes:
        leading, stride: byte offsets.
        base: phase of the swizzle at the start of its pattern.
        mode: swizzle mode, the index into `_CHUNKS_OF_MODE`.
    """

    leading: int
    stride: int
    base: int
    mode: int

    @staticmethod
    def of(descriptor: int) -> SharedLayout:
        """Returns the layout that a descriptor describes."""
        leading, stride = ((descriptor >> at & _ENCODED) * CHUNK for at in (16, 32))
        return SharedLayout(leading, stride, descriptor >> 49 & 7, descriptor >> 62)

    def offsets(self, extent: int, lines: int, *, transposed: bool) -> Array:
        """Returns the byte offset of each chunk from the start of a matrix, before swizzling.

        Args:
            extent: elements along MN.
            lines: elements along K of an MN-major matrix, which has a line of chunks for each.
            transposed: the matrix is MN-major.

        Returns:
            (extent, 2) offsets if K-major, (lines, extent / 8) if MN-major.
        """
        width = _CHUNKS_OF_MODE[self.mode]
        if not transposed:
            row, chunk = np.arange(extent)[:, None], np.arange(_INNER_CHUNKS)
            along = self.leading if self.mode == 0 else CHUNK
            return np.asarray(row % _LINES * (width * CHUNK) + row // _LINES * self.stride + chunk * along)
        line, chunk = np.arange(lines)[:, None], np.arange(extent // 8)
        # Without a swizzle the two offsets have changed places.
        outer, eighth = (self.stride, self.leading) if self.mode == 0 else (self.leading, self.stride)
        within = line % _LINES * (width * CHUNK) + line // _LINES * eighth
        return np.asarray(within + chunk % width * CHUNK + chunk // width * outer)

    def swizzled(self, addresses: Array) -> Array:
        """Converts addresses of chunks in the unswizzled layout to their addresses in the swizzled one."""
        mask = _CHUNKS_OF_MODE[self.mode] - 1
        phase = ((addresses >> 7) - self.base) & mask
        return np.asarray(addresses ^ (phase << 4))


def addresses_of(descriptors: Array, extent: int, lines: int, *, transposed: bool) -> Array:
    """Returns the shared-memory addresses of all chunks of some matrices, as `SharedLayout.offsets` orders them.

    Returns:
        (matrices, rows, chunks) addresses in bytes, for 64-bit descriptors, one a matrix.
    """
    starts = (descriptors & np.uint64(_ENCODED)).astype(np.int64) * CHUNK
    fields, which = np.unique(descriptors >> np.uint64(_START_BITS), return_inverse=True)
    shape = (lines, extent // 8) if transposed else (extent, _INNER_CHUNKS)
    found = np.empty((len(descriptors), *shape), np.int64)
    for number, field in enumerate(fields):
        layout = SharedLayout.of(int(field) << _START_BITS)
        chosen = which == number
        offsets = layout.offsets(extent, lines, transposed=transposed)
        addresses = (starts[chosen, None, None] + offsets) & ((1 << _ADDRESS_BITS) - 1)
        found[chosen] = layout.swizzled(addresses)
    return found


_WARP_ROWS = 16
_ROW_BYTES = 32
"""Bytes of a matrix along K."""
_BITS = "b1"


class WarpgroupGathering(Gathering):
    """Arrival of the warps of a warpgroup."""

    spans_warps = True

    def __init__(self, machine: Machine, position: Position | None) -> None:
        super().__init__(machine, None, position)
        self.awaits = "waits in a wgmma instruction for other warps of its warpgroup, which never reach it"
        self._warpgroup = machine.lanes.warpgroup

    def missing(self, lanes: Array) -> Array:
        """Returns for each lane whether its warpgroup still waits for a live thread."""
        count = len(self._machine.lanes.warpgroups)
        present = np.bincount(self._warpgroup[lanes], minlength=count)
        living = np.bincount(self._warpgroup[self._machine.live], minlength=count)
        return np.asarray((present < living)[self._warpgroup[lanes]])


class Warpgroups:
    """The complete warpgroups among the active lanes."""

    def __init__(self, machine: Machine, position: Position | None) -> None:
        self._machine, self._position = machine, position

    def lanes_of(self, active: Group) -> Array:
        """Returns the lanes of each warpgroup by thread, (warpgroups, 128); incomplete ones are left out, with a finding."""
        return np.asarray(self._machine.lanes.warpgroups[self.of(active)])

    def of(self, active: Group) -> Array:
        """Returns the numbers of the warpgroups; incomplete ones are left out, with a finding."""
        geometry = self._machine.lanes
        lanes = self._machine.lanes_of(active)
        groups = geometry.warpgroup[lanes]
        present = np.bincount(groups, minlength=len(geometry.warpgroups))
        part = lanes[present[groups] < WARPGROUP]
        if part.size:
            self._machine.findings.report(
                FindingCode.SHUFFLE_MASK,
                self._position,
                part,
                lambda: (
                    f"a wgmma instruction needs all {WARPGROUP} threads of four warps in a row, and only "
                    f"{int(present[groups[lanes == part[0]][0]])} take part in it"
                ),
            )
        return np.flatnonzero(present == WARPGROUP)


class WarpgroupFragment:
    """Layout of a matrix's elements in registers: each warp holds one of four tiles, one below another.

    Args:
        tile: layout of a warp's part.
        packed: elements in a register.
    """

    def __init__(self, tile: Layout, packed: int) -> None:
        height, width = tile.shape
        below = np.repeat(np.arange(4) * height, 32)[:, None]
        places = (np.tile(tile.rows, (4, 1)) + below) * width + np.tile(tile.columns, (4, 1))
        by_register = places.reshape(WARPGROUP, -1, packed).transpose(1, 0, 2)
        self.shape = (4 * height, width)
        self._held = by_register.shape
        self._places = by_register.reshape(-1)
        self._order = np.argsort(self._places)

    def scatter(self, matrices: Array) -> Array:
        """Returns fragments of shape (warpgroups, registers, 128, packed) from matrices."""
        return np.asarray(matrices.reshape(len(matrices), -1).take(self._places, axis=1).reshape(-1, *self._held))

    def gather(self, fragments: Array) -> Array:
        """Returns matrices of shape (warpgroups, *shape) from fragments."""
        return np.asarray(fragments.reshape(len(fragments), -1).take(self._order, axis=1).reshape(-1, *self.shape))


class SharedMatrix:
    """A matrix operand in shared memory: (extent, inner) elements, of A or of B transposed."""

    def __init__(
        self, descriptor: Operand, kind: str, extent: int, *, transposed: bool, machine: Machine, site: MemoryInstruction
    ) -> None:  # fmt: skip
        self._machine, self._site = machine, site
        self._value = machine.registers.read(descriptor, "b64")
        self._kind, self._extent, self._transposed = kind, extent, transposed
        self._inner = _ROW_BYTES // SIZES.get(kind, 1)

    def read(self, lanes: Array) -> Array:
        """Returns the matrices of some warpgroups as numbers, (warpgroups, extent, inner)."""
        addresses = addresses_of(self._descriptors(lanes), self._extent, self._inner, transposed=self._transposed)
        chunks = self._chunks(lanes, addresses)
        if self._kind == _BITS:
            return _bits_of(chunks.reshape(len(lanes), self._extent, _ROW_BYTES))
        elements = elements_of(chunks.view(np.uint32), self._kind)
        if self._transposed:
            elements = elements.reshape(len(lanes), self._inner, self._extent).transpose(0, 2, 1)
        return elements.reshape(len(lanes), self._extent, self._inner).astype(np.float64)

    def _descriptors(self, lanes: Array) -> Array:
        if not isinstance(self._value, LaneOperand):
            return np.full(len(lanes), self._value.value, np.uint64)
        held = self._value.array.take(lanes)
        differs = held != held[:, :1]
        if differs.any():
            self._machine.findings.report(
                FindingCode.SHUFFLE_MASK,
                self._site.position,
                lanes[differs],
                lambda: "the threads of a warpgroup differ in the descriptor of a matrix; give all 128 the same one",
            )
        return held[:, 0]

    def _chunks(self, lanes: Array, addresses: Array) -> Array:
        """Returns the bytes at the addresses, zeros outside shared memory, and reports the accesses."""
        window = self._machine.shared
        # Every chunk is read for all four warps; one of the threads stands for them.
        threads = np.arange(addresses[0].size) * 5 % WARPGROUP
        readers = lanes[:, threads].reshape(-1)
        flat = addresses.reshape(-1)
        outside = flat > window.limit - CHUNK
        if outside.any():
            self._report_outside(int(flat[outside][0]), readers[outside])
        inside = np.flatnonzero(~outside)
        chunks = np.zeros((len(flat), CHUNK), np.uint8)
        if inside.size:
            for monitor in window.monitors:
                monitor.access(self._site, readers[inside], flat[inside], None)
            rows = (flat[inside] + window.bases(1)[readers[inside]]) >> 4
            chunks[inside] = window.rows(UNSIGNED[1], CHUNK).take(rows, axis=0)
        return chunks.reshape(*addresses.shape, CHUNK)

    def _report_outside(self, address: int, lanes: Array) -> None:
        window = self._machine.shared
        self._machine.findings.report(
            FindingCode.OUT_OF_BOUNDS_READ,
            self._site.position,
            lanes,
            lambda: (
                f"a matrix descriptor leads to byte {address} of shared memory, of which the block has "
                f"{plural(window.limit, 'byte')}"
            ),
            buffer=window.names(max(window.limit - 1, 0)) or window.name,
            offset=address,
        )


def _bits_of(rows: Array) -> Array:
    """Returns the bits of rows of bytes, the lowest first, as double-precision numbers."""
    return np.unpackbits(rows, axis=-1, bitorder="little").astype(np.float64)


class RegisterMatrix:
    """A fragment of A in registers."""

    def __init__(self, operands: tuple[Operand, ...], kind: str, inner: int, machine: Machine) -> None:
        self._values = [machine.registers.read(operand, "b32") for operand in operands]
        self._kind = kind
        each, packed = (inner // 32, 1) if kind == _BITS else (inner, 4 // SIZES[kind])
        self._fragment = WarpgroupFragment(fragment_of_a(_WARP_ROWS, each, packed), packed)

    def read(self, lanes: Array) -> Array:
        """Returns the matrices of some warpgroups as numbers, (warpgroups, 64, inner)."""
        words = _words(self._values, lanes)
        if self._kind == _BITS:
            return _bits_of(np.ascontiguousarray(self._fragment.gather(words)).view(np.uint8))
        return self._fragment.gather(elements_of(words, self._kind)).astype(np.float64)


def _words(values: list[Value], lanes: Array) -> Array:
    """Returns 32-bit registers of some warpgroups' lanes: (warpgroups, registers, 128)."""
    found = np.empty((len(lanes), len(values), WARPGROUP), np.uint32)
    for place, value in enumerate(values):
        found[:, place] = value.array.take(lanes) if isinstance(value, LaneOperand) else value.value
    return found


class Accumulator:
    """The registers of D."""

    def __init__(self, operation: WarpgroupMultiply, machine: Machine) -> None:
        registers = machine.registers
        self._values = [registers.read(operand, "b32") for operand in operation.results]
        self._targets = [registers.target(operand, "b32") for operand in operation.results]
        self._accumulates = registers.read(operation.accumulates, "pred")
        self._dtype: np.dtype[Any] = DTYPES[operation.result_kind]
        packed = 4 // self._dtype.itemsize
        self._fragment = WarpgroupFragment(fragment_of_sums(_WARP_ROWS, operation.shape[1]), packed)
        self._saturates = operation.saturates

    def add(self, product: Array, lanes: Array) -> None:
        """Adds products, (warpgroups, 64, columns), or stores them where the old value is ignored."""
        total = self._fragment.scatter(product)
        kept = self._kept(lanes)
        if kept.any():
            old = _words(self._values, lanes).view(self._dtype).reshape(total.shape).astype(np.float64)
            np.add(total, old, out=total, where=True if kept.all() else kept[:, None, :, None])
        if self._saturates:
            limits = np.iinfo(np.int32)
            total = total.clip(limits.min, limits.max)
        if self._dtype == np.int32:
            total = total.astype(np.int64)  # which wraps where it does not fit
        packed = np.ascontiguousarray(total.astype(self._dtype)).view(np.uint32)
        for place, target in enumerate(self._targets):
            if target is not None:
                target[lanes] = packed[:, place, :, 0]

    def _kept(self, lanes: Array) -> Array:
        value = self._accumulates
        if not isinstance(value, LaneOperand):
            return np.full(lanes.shape, bool(value.value))
        return np.asarray(value.array.take(lanes) ^ value.negated)


def bind_warpgroup_multiply(
    operation: WarpgroupMultiply, machine: Machine, number: int, position: Position | None
) -> Bound:  # fmt: skip
    """Binds `wgmma.mma_async` as a function of the active lanes."""
    rows, columns, inner = operation.shape
    # `served` 0: tensor cores read shared memory, not the data path whose wavefronts are counted.
    site = MemoryInstruction(number, "load", CHUNK, 1, position, proxy="product", served=0)
    warpgroups = Warpgroups(machine, position)

    def shared(descriptor: Operand, side: int, extent: int) -> SharedMatrix:
        kind, transposed = operation.kinds[side], operation.transposed[side]
        return SharedMatrix(descriptor, kind, extent, transposed=transposed, machine=machine, site=site)

    if operation.left_at is not None:
        a: SharedMatrix | RegisterMatrix = shared(operation.left_at, 0, rows)
    else:
        a = RegisterMatrix(operation.left, operation.kinds[0], inner, machine)
    b = shared(operation.right_at, 1, columns)
    accumulator = Accumulator(operation, machine)
    sign = operation.signs[0] * operation.signs[1]

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = warpgroups.lanes_of(active)
        if not len(lanes):
            return
        product = a.read(lanes) @ b.read(lanes).transpose(0, 2, 1)
        accumulator.add(product if sign > 0 else -product, lanes)

    return run


def bind_warpgroup_order(operation: WarpgroupOrder, machine: Machine, position: Position | None) -> Bound | None:
    """Binds `wgmma.fence`, `wgmma.commit_group` and `wgmma.wait_group`; they matter only for checks."""
    order, registers = machine.order, machine.register_order
    if order is None:
        return None
    warpgroups = Warpgroups(machine, position)

    def run(group: Group | None, active: Group) -> None:
        del group
        mine = warpgroups.of(active)
        if not mine.size:
            return
        order.product_group(mine, operation)
        if operation.action == "fence" and registers is not None:
            registers.fence(mine)

    return run
