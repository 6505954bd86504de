"""Bulk copies of boxes by tensor maps, in tile mode: between an array of one to five dimensions and shared memory.

A box is dense in shared memory, the fastest dimension first, before swizzling. Its elements outside of the array are zero
or NaN when they are loaded, and left out when they are stored; the barrier counts all of them.

PTX ISA, Tensors: Tiled Mode, Out of bound access, Swizzling modes; CUDA Driver API, cuTensorMapEncodeTiled. The layout of a
tensor map is undocumented; here it is `_LAYOUT`.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelmate.backends.emulator.access import ClusterPort, GlobalPort, WindowPort, index_of, visit_nothing
from kernelmate.backends.emulator.atomics import Update, updater
from kernelmate.backends.emulator.bulk import CHUNK, FROM, TO, Completion, site_number
from kernelmate.backends.emulator.happens_before import SCOPES
from kernelmate.backends.emulator.instructions.memory import REDUCTIONS
from kernelmate.backends.emulator.lanes import Group
from kernelmate.backends.emulator.link import LinkedKernel
from kernelmate.backends.emulator.load_store import Addressing
from kernelmate.backends.emulator.machine import Machine, MemoryInstruction
from kernelmate.backends.emulator.operations import TensorCopy
from kernelmate.backends.emulator.program import Address, Position
from kernelmate.backends.emulator.registers import Bound, Value, spread
from kernelmate.backends.emulator.types import DTYPES, SIZES, UNSIGNED, Array
from kernelmate.backends.launch_objects import TENSOR_MAP_BYTES, TensorMap, tensor_element
from kernelmate.records import FindingCode
from kernelmate.source import numpy_dtype

_WORD = UNSIGNED[8]
_MAGIC = 0x4B4D544D
_LAYOUT = np.dtype(
    [
        ("magic", "u4"), ("rank", "u1"), ("element", "u1"), ("item", "u1"), ("nan", "u1"), ("address", "u8"),
        ("extents", "u8", 5), ("pitches", "u8", 4), ("box", "u2", 5), ("steps", "u1", 5), ("swizzle", "u1"),
    ]
)  # fmt: skip
_KINDS = ("u8", "u16", "u32", "s32", "u64", "s64", "f16", "f32", "f64", "bf16")
"""PTX types in the order of `CUtensorMapDataType`."""
_NAN = {2: 0x7FF7, 4: 0x7FF77FF7, 8: 0x7FF77FF77FF77FF7}
"""Bits of elements outside of the array, by bytes of an element, where the tensor map asks for NaN, as on an H200."""
_SHARED_ALIGNMENT = 128
"""Alignment of a box in shared memory in bytes (PTX ISA, Tensors, Bounding Box)."""


def encoded_tensor_map(tensor_map: TensorMap, address: int) -> Array:
    """Returns the 128 bytes of a tensor map of an array at an address."""
    item = numpy_dtype(tensor_map.dtype).itemsize
    record = np.zeros((), _LAYOUT)
    rank = len(tensor_map.extents)
    record["magic"], record["rank"], record["address"] = _MAGIC, rank, address
    record["element"], record["item"], record["nan"] = tensor_element(tensor_map.dtype, item), item, tensor_map.nan_fill
    record["extents"][:rank], record["pitches"][: rank - 1] = tensor_map.extents, tensor_map.pitches(item)[1:]
    record["box"][:rank], record["steps"][:rank] = tensor_map.box, tensor_map.steps
    record["swizzle"] = tensor_map.swizzle
    raw = np.zeros(TENSOR_MAP_BYTES, np.uint8)
    raw[: _LAYOUT.itemsize] = np.frombuffer(record.tobytes(), np.uint8)
    return raw


@dataclass(frozen=True, slots=True)
class _Box:
    """A decoded tensor map; arrays have the fastest dimension first.

    Attributes:
        counts: elements of the box that are copied in each dimension: with steps, fewer than it spans.
        item, element: bytes and PTX type of an element.
    """

    address: int
    extents: Array
    pitches: Array
    counts: Array
    steps: Array
    item: int
    element: str
    swizzle: int
    nan: bool

    @property
    def shared_pitch(self) -> int:
        """Bytes from one row of the box to the next in shared memory: rows that are narrower than the swizzle's span fill one each."""
        return max(self.item * int(self.counts[0]), self.swizzle)

    @property
    def nbytes(self) -> int:
        """Bytes of the box that are copied."""
        return self.item * int(math.prod(self.counts.tolist()))

    def unit(self, first: Array) -> int:
        """Returns the bytes, at most 16, that are accessed as one in all copies that begin at these first coordinates."""
        return math.gcd(CHUNK, int(self.extents[0]) * self.item, *(first * self.item).tolist())


@functools.lru_cache(maxsize=64)
def _decoded(raw: bytes) -> _Box | None:
    """Returns the box of a tensor map; None if the bytes are none."""
    record = np.frombuffer(raw[: _LAYOUT.itemsize], _LAYOUT)[0]
    if record["magic"] != _MAGIC:
        return None
    rank, item = int(record["rank"]), int(record["item"])
    steps = record["steps"][:rank].astype(np.int64)
    counts = -(-record["box"][:rank].astype(np.int64) // steps)
    pitches = np.append(item, record["pitches"][: rank - 1]).astype(np.int64)
    extents = record["extents"][:rank].astype(np.int64)
    element = _KINDS[int(record["element"])]
    return _Box(
        int(record["address"]),
        extents,
        pitches,
        counts,
        steps,
        item,
        element,
        int(record["swizzle"]),
        bool(record["nan"]),
    )


@dataclass(frozen=True, slots=True)
class _BoxPieces:
    """Pieces of equal size of the boxes of some lanes: their lanes, addresses, and whether they are in the array."""

    owners: Array
    places: Array
    shared: Array
    inside: Array


def _pieces(box: _Box, lanes: Array, corners: Array, starts: Array, width: int) -> _BoxPieces:
    """Returns the pieces of `width` bytes; `corners` are coordinates by lane, `starts` offsets in shared memory."""
    counts = box.counts.copy()
    counts[0] = counts[0] * box.item // width
    number = np.arange(math.prod(counts.tolist()))
    inside = np.ones((len(lanes), len(number)), bool)
    places = np.full(inside.shape, box.address, np.int64)
    left = number
    for axis, count in enumerate(counts.tolist()):
        index, left = left % count, left // count
        if axis == 0:
            offset = corners[:, :1] * box.item + index * width
            inside &= (offset >= 0) & (offset + width <= box.extents[0] * box.item)
            places += offset
        else:
            at = corners[:, axis : axis + 1] + index * box.steps[axis]
            inside &= (at >= 0) & (at < box.extents[axis])
            places += at * box.pitches[axis]
    row, column = np.divmod(number, counts[0])
    shared = starts[:, None] + row * box.shared_pitch + column * width
    if box.swizzle:
        # Within each span of the swizzle, the chunks of 16 bytes are permuted by the index of the row of 128 bytes.
        shared ^= (shared >> 3) & (box.swizzle - CHUNK)
    return _BoxPieces(np.repeat(lanes, len(number)), places.reshape(-1), shared.reshape(-1), inside.reshape(-1))


class _TensorPorts:
    """Ports of both sides of a tensor copy, by the bytes of one access."""

    def __init__(self, operation: TensorCopy, machine: Machine, number: int, position: Position | None) -> None:
        self._operation = operation
        self._machine = machine
        self._number = number
        self._position = position
        self._ports: dict[int, tuple[GlobalPort, WindowPort]] = {}

    def of(self, width: int) -> tuple[GlobalPort, WindowPort]:
        """Returns the ports of global and shared memory."""
        if width not in self._ports:
            loads, count = self._operation.loads, max(width // 8, 1)
            dtype = UNSIGNED[width // count]
            parts = (FROM, TO) if loads else (TO, FROM)
            sites = [
                MemoryInstruction(
                    site_number(self._number, space, part),
                    "load" if part == FROM else "store",
                    width,
                    count,
                    self._position,
                )
                for space, part in zip(("global", "shared"), parts, strict=True)
            ]
            for site in sites:
                site.proxy, site.served = "copy", 0
            if self._operation.action:
                sites[0].action, sites[0].scope = "atomic", SCOPES["gpu"]
            window = WindowPort if self._operation.shared_space == "shared" else ClusterPort
            shared = window(self._machine, sites[1], 0, dtype, self._machine.shared)
            self._ports[width] = GlobalPort(self._machine, sites[0], 0, dtype), shared
        return self._ports[width]


class _MapReader:
    """Reads tensor maps through generic addresses."""

    def __init__(
        self, machine: Machine, linked: LinkedKernel, number: int, position: Position | None, place: Address
    ) -> None:
        self._machine = machine
        self._position = position
        self._words = [
            Addressing(
                machine, linked, MemoryInstruction(number, "load", 8, 1, position, served=0), "generic",
                Address(place.base, place.offset + offset), _WORD,
            )
            for offset in range(0, TENSOR_MAP_BYTES, 8)
        ]  # fmt: skip

    def boxes(self, lanes: Array) -> list[tuple[_Box, Array]]:
        """Returns the boxes of the lanes' tensor maps, each with the positions of its lanes; others are reported."""
        addresses = np.broadcast_to(self._words[0].addresses(lanes), lanes.shape)
        found = []
        for address in np.unique(addresses):
            mine = np.flatnonzero(addresses == address)
            box = _decoded(b"".join(self._word(word, addresses[mine[:1]], lanes[mine[:1]]) for word in self._words))
            if box is None:
                self._machine.findings.report(
                    FindingCode.ILLEGAL_ADDRESS,
                    self._position,
                    lanes[mine],
                    lambda: (
                        "copies by a tensor map at an address where none is: pass it as const __grid_constant__ CUtensorMap"
                    ),
                )
            else:
                found.append((box, mine))
        return found

    @staticmethod
    def _word(word: Addressing, address: Array, lane: Array) -> bytes:
        found = np.zeros(1, _WORD)

        def visit(rows: Array, elements: Any, positions: Any) -> None:
            found[positions] = rows[elements]

        word.port.visit(address, lane, visit)
        return found.tobytes()


def bind_tensor_copy(
    operation: TensorCopy, machine: Machine, linked: LinkedKernel, number: int, position: Position | None
) -> Bound:
    """Binds a copy of boxes as a function of the active lanes."""
    maps = _MapReader(machine, linked, number, position, operation.map)
    coordinates = [machine.registers.read(operand, "s32") for operand in operation.coordinates]
    probe = MemoryInstruction(
        site_number(number, "shared", TO), "store" if operation.loads else "load", _SHARED_ALIGNMENT, 16, position
    )
    start = Addressing(machine, linked, probe, operation.shared_space, operation.shared, _WORD)
    ports = _TensorPorts(operation, machine, number, position)
    completion = Completion(machine, linked, number, position, operation.shared_space, operation.barrier)

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        sizes = np.zeros(len(lanes), np.int64)
        completion.begin(lanes)
        starts = np.broadcast_to(start.addresses(lanes), lanes.shape).astype(np.int64) + start.port.offset
        good = starts % _SHARED_ALIGNMENT == 0
        if not good.all():
            start.port.visit(start.addresses(lanes[~good]), lanes[~good], visit_nothing)
        for box, mine in maps.boxes(lanes):
            sizes[mine] = box.nbytes
            corners = _corners(coordinates, lanes)[mine]
            if not _suits(operation, box, machine, position, lanes[mine]):
                continue
            kept = good[mine] & _legal_corners(operation, box, corners, machine, position, lanes[mine])
            if kept.any():
                _move(operation, ports, box, lanes[mine][kept], corners[kept], starts[mine][kept])
        completion.end(lanes, sizes)

    return run


def _corners(coordinates: list[Value], lanes: Array) -> Array:
    """Returns the coordinates of the boxes' first elements, a row for each lane."""
    return np.stack([spread(value, lanes, len(lanes)).astype(np.int64) for value in coordinates], axis=1)


def _suits(operation: TensorCopy, box: _Box, machine: Machine, position: Position | None, lanes: Array) -> bool:
    """Returns True if the instruction fits the tensor map, and reports it otherwise."""
    given, rank = len(operation.coordinates), len(box.extents)
    text = f"copies with {given} coordinates by a tensor map of {rank} dimensions" if given != rank else ""
    if operation.action and _reduced_kind(operation.action, box.element) not in REDUCTIONS[operation.action]:
        text = f"reduces elements of type .{box.element} by .{operation.action}, which tensor copies do not support"
    if text:
        machine.findings.report(FindingCode.ILLEGAL_ADDRESS, position, lanes, lambda: text)
    return not text


def _legal_corners(
    operation: TensorCopy, box: _Box, corners: Array, machine: Machine, position: Position | None, lanes: Array
) -> Array:
    """Returns the lanes whose boxes begin at legal coordinates, and reports the others, for which an H200 traps.

    Each box begins at a multiple of 16 bytes in its row. One that is stored may end outside of the array, but not begin before
    it (CUDA C++ Programming Guide, tensor memory access, negative indices and out of bounds).
    """
    bytes_in = corners[:, 0] * box.item
    uneven = bytes_in % CHUNK != 0
    before = np.zeros_like(uneven) if operation.loads else (corners < 0).any(axis=1) & ~uneven
    if uneven.any():
        first = int(corners[uneven][0, 0])
        text = f"copies a box that begins at element {first} of its rows, byte {first * box.item}, which is no multiple of {CHUNK}"
        machine.findings.report(FindingCode.TRAP, position, lanes[uneven], lambda: text)
    if before.any():
        at = tuple(int(one) for one in corners[before][0])
        said = f"stores a box that begins at the coordinates {at}, innermost first: only a load may begin at a negative one"
        machine.findings.report(FindingCode.TRAP, position, lanes[before], lambda: said)
    legal: Array = ~(uneven | before)
    return legal


def _move(operation: TensorCopy, ports: _TensorPorts, box: _Box, lanes: Array, corners: Array, starts: Array) -> None:
    update = _reduction(operation.action, box.element) if operation.action else None
    width = box.item if update is not None else box.unit(corners[:, 0])
    memory, window = ports.of(width)
    pieces = _pieces(box, lanes, corners, starts, width)
    inside = np.flatnonzero(pieces.inside)
    count = memory.site.count
    values = np.zeros((len(pieces.owners), count) if count > 1 else len(pieces.owners), memory.dtype)
    if operation.loads and box.nan:
        values.view(UNSIGNED[box.item])[...] = _NAN[box.item]

    def load(rows: Array, elements: Any, positions: Any) -> None:
        values[inside[positions]] = rows[elements]

    places = pieces.places[inside].astype(np.uint64)
    if operation.loads:
        if inside.size:
            memory.visit(places, pieces.owners[inside], load)

        def store(rows: Array, elements: Any, positions: Any) -> None:
            rows[elements] = values[positions]

        window.visit(pieces.shared, pieces.owners, store, values)
    elif inside.size:
        window.visit(pieces.shared[inside], pieces.owners[inside], load)
        moved = values[inside]

        def put(rows: Array, elements: Any, positions: Any) -> None:
            if update is None:
                rows[elements] = moved[positions]
            else:
                update(
                    rows,
                    index_of(elements),
                    moved[positions].view(DTYPES[_reduced_kind(operation.action, box.element)]),
                    None,
                )

        memory.visit(places, pieces.owners[inside], put, moved)


def _reduced_kind(action: str, element: str) -> str:
    return f"b{8 * SIZES[element]}" if action in {"and", "or", "xor"} else element


@functools.cache
def _reduction(action: str, element: str) -> Update:
    """Returns the function that reduces elements of memory."""
    return updater(action, _reduced_kind(action, element), returns=False)
