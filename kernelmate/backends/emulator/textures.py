"""Fetches from textures and accesses to surfaces.

CUDA C++ Programming Guide, Texture Fetching: nearest-point sampling, linear filtering, and the treatment of coordinates outside
of the texture; Surface Functions: boundary modes. The fraction of a coordinate that weights neighbours has eight bits. The guide
does not say how it is rounded, only that 1 can be represented: here to the nearest.

An array lies in memory as the contract has it, without the order that a GPU gives its CUDA arrays. Accesses are counted as such.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from kernelmate.backends.emulator.access import GlobalPort
from kernelmate.backends.emulator.lanes import Group
from kernelmate.backends.emulator.machine import Machine, MemoryInstruction
from kernelmate.backends.emulator.operations import SurfaceAccess, TextureFetch
from kernelmate.backends.emulator.program import Position
from kernelmate.backends.emulator.registers import Bound, spread
from kernelmate.backends.emulator.types import SIZES, UNSIGNED, Array
from kernelmate.backends.launch_objects import Texture
from kernelmate.records import AddressMode, FindingCode
from kernelmate.source import numpy_dtype

FIRST_HANDLE = 0x7E57_0000
"""Handle of a launch's first object; the others follow."""
_FAR = float(1 << 40)
"""Coordinates beyond are as far outside."""
_WEIGHTS = 256.0
_FOOTPRINT = ((0, 1), (1, 1), (1, 0), (0, 0))
"""Texels of `tld4` from the one at the lowest x and y: counter-clockwise from the lower left (PTX ISA, tld4)."""


class _Objects:
    """The objects that the lanes of an instruction name."""

    def __init__(self, operation: TextureFetch | SurfaceAccess, machine: Machine, position: Position | None) -> None:
        self.operation, self.machine, self.position = operation, machine, position
        self.handle = machine.registers.read(operation.handle, "u64")

    def of(self, lanes: Array) -> Iterator[tuple[Texture, int, Array]]:
        """Yields each object with the address of its array and the positions of its lanes; wrong ones are reported."""
        handles = spread(self.handle, lanes, len(lanes))
        for handle in np.unique(handles):
            mine = np.flatnonzero(handles == handle)
            texture, address = self.machine.textures.get(int(handle), (None, 0))
            reason = "by a handle that no texture or surface object has" if texture is None else self._misfit(texture)
            if texture is not None and not reason:
                yield texture, address, mine
                continue
            self._report(lanes[mine], reason)

    def _report(self, lanes: Array, reason: str) -> None:
        verb = "accesses a surface" if isinstance(self.operation, SurfaceAccess) else "fetches from a texture"
        self.machine.findings.report(FindingCode.ILLEGAL_ADDRESS, self.position, lanes, lambda: f"{verb} {reason}")

    def _misfit(self, texture: Texture) -> str:
        """Returns why the instruction does not fit an object; empty if it does."""
        operation, view = self.operation, texture.view
        if isinstance(operation, SurfaceAccess) != view.surface:
            return f"by the handle of a {'surface' if view.surface else 'texture'} object"
        if (operation.dimensions, operation.layered) != (len(texture.extents), view.layered):
            of = " and layers" * view.layered
            return f"with {operation.dimensions} coordinates{' and a layer' * operation.layered}; it has {len(texture.extents)}{of}"
        if isinstance(operation, SurfaceAccess):
            return ""
        if view.buffer != (operation.coordinate_kind == "s32"):
            return (
                "in linear memory by tex1D; tex1Dfetch reads it" if view.buffer
                else "in a CUDA array by tex1Dfetch; write `texture buffer` in the contract for linear memory"
            )  # fmt: skip
        floating = view.fraction or texture.dtype.startswith("float")
        if floating != (operation.kind == "f32"):
            return f"of {texture.dtype}{' fractions' * view.fraction} as .{operation.kind}"
        return ""


def _texels(
    machine: Machine, site: MemoryInstruction, texture: Texture, address: int, lanes: Array, numbers: Array
) -> Array:
    """Returns the texels with these numbers, a row for each entry of `lanes` and a column for each channel."""
    dtype = numpy_dtype(texture.dtype)
    size = dtype.itemsize * texture.channels
    found = np.zeros((len(numbers), texture.channels), UNSIGNED[dtype.itemsize])
    port = GlobalPort(machine, site, 0, found.dtype)

    def visit(rows: Array, elements: Any, positions: Any) -> None:
        found[positions] = rows[elements].reshape(-1, texture.channels)

    if len(numbers):
        port.visit((address + numbers * size).astype(np.uint64), lanes, visit)
    return _read_values(found.view(dtype), texture)


def _read_values(raw: Array, texture: Texture) -> Array:
    """Returns elements as numbers: fractions of the largest value for textures with `cudaReadModeNormalizedFloat`."""
    if not texture.view.fraction:
        return raw.astype(np.float64 if raw.dtype.kind == "f" else np.int64)
    return np.maximum(raw / np.float64(np.iinfo(raw.dtype).max), -1.0)


def _resolved(index: Array, extent: int, mode: AddressMode) -> tuple[Array, Array]:
    """Returns texel numbers of one coordinate within the extent, and a mask of those inside the texture."""
    if mode == "wrap":
        index = index % extent
    elif mode == "mirror":
        index = index % (2 * extent)
        index = np.minimum(index, 2 * extent - 1 - index)
    inside = (index >= 0) & (index < extent) if mode == "border" else np.ones(len(index), bool)
    return np.clip(index, 0, extent - 1), inside


def bind_fetch(operation: TextureFetch, machine: Machine, number: int, position: Position | None) -> Bound:
    """Binds `tex` and `tld4` as a function of the active lanes."""
    objects = _Objects(operation, machine, position)
    reads = [
        machine.registers.read(operand, "u32" if operation.layered and not at else operation.coordinate_kind)
        for at, operand in enumerate(operation.coordinates)
    ]
    targets = [machine.registers.target(operand, "b32") for operand in operation.results]

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        given = [spread(value, lanes, len(lanes)) for value in reads]
        values = np.zeros((len(lanes), 4), np.uint32)
        for texture, address, mine in objects.of(lanes):
            coordinates = [one[mine] for one in given]
            layer = np.zeros(len(mine), np.int64)
            if operation.layered:
                layer = np.minimum(coordinates.pop(0).astype(np.int64), texture.layers - 1)
            size = numpy_dtype(texture.dtype).itemsize * texture.channels
            site = MemoryInstruction(number, "load", size, texture.channels, position, read_only=True)
            fetch = _Fetch(machine, site, texture, address, lanes[mine], layer)
            found = (
                fetch.linear_memory(coordinates[0])
                if texture.view.buffer
                else fetch.filtered(coordinates, operation.channel)
            )
            if operation.kind == "f32":
                values[mine] = found.astype(np.float32).view(np.uint32)
            else:
                values[mine] = found.astype(np.int64).astype(np.uint32)
        for target, column in zip(targets, values.T, strict=True):
            if target is not None:
                target[active] = column

    return run


class _Fetch:
    """One fetch by the lanes of one texture."""

    def __init__(
        self, machine: Machine, site: MemoryInstruction, texture: Texture, address: int, lanes: Array, layer: Array
    ) -> None:
        self.machine, self.site, self.texture, self.address = machine, site, texture, address
        self.lanes, self.layer = lanes, layer
        self.modes: Sequence[AddressMode] = texture.view.addresses[::-1]

    def linear_memory(self, index: Array) -> Array:
        """Returns texels by index; those outside the array are zero."""
        (extent,) = self.texture.extents
        number = index.astype(np.int64)
        return self._four(self._gathered([number], [(0,)], ["border"], [extent])[:, 0])

    def filtered(self, coordinates: Sequence[Array], channel: int | None) -> Array:
        """Returns filtered texels; with `channel`, that channel of the four texels around each coordinate, unfiltered."""
        texture, extents = self.texture, self.texture.extents
        scaled = []
        for one, extent in zip(coordinates, extents, strict=True):
            wide = np.nan_to_num(one.astype(np.float64), nan=0.0, posinf=_FAR, neginf=-_FAR)
            scaled.append(np.clip(wide * extent if texture.view.normalized else wide, -_FAR, _FAR))
        if channel is not None:
            first = [np.floor(one - 0.5).astype(np.int64) for one in scaled]
            return self._gathered(first, _FOOTPRINT, self.modes, extents)[:, :, channel]
        if not texture.view.linear:
            first = [np.floor(one).astype(np.int64) for one in scaled]
            return self._four(self._gathered(first, [(0,) * len(first)], self.modes, extents)[:, 0])
        first = [np.floor(one - 0.5).astype(np.int64) for one in scaled]
        after = [np.rint((one - 0.5 - at) * _WEIGHTS) / _WEIGHTS for one, at in zip(scaled, first, strict=True)]
        corners = list(itertools.product((0, 1), repeat=len(first)))
        texels = self._gathered(first, corners, self.modes, extents)
        total = np.zeros((len(self.lanes), texture.channels))
        for at, corner in enumerate(corners):
            weight = np.ones(len(self.lanes))
            for part, side in zip(after, corner, strict=True):
                weight *= part if side else 1 - part
            # A texel without weight does not count, be it infinite.
            total += np.where(weight[:, None] == 0, 0.0, texels[:, at] * weight[:, None])
        return self._four(total)

    def _gathered(
        self,
        first: Sequence[Array],
        corners: Sequence[Sequence[int]],
        modes: Sequence[AddressMode],
        extents: Sequence[int],
    ) -> Array:
        """Returns the texels at `corners` from the `first` ones, of shape (lanes, corners, channels)."""
        numbers = np.zeros((len(self.lanes), len(corners)), np.int64)
        inside = np.ones(numbers.shape, bool)
        for column, corner in enumerate(corners):
            number = self.layer
            # The last coordinate is the slowest one in memory.
            for at in reversed(range(len(first))):
                index, here = _resolved(first[at] + corner[at], extents[at], modes[at])
                number = number * extents[at] + index
                inside[:, column] &= here
            numbers[:, column] = number
        owners = np.repeat(self.lanes, len(corners))
        kept = inside.reshape(-1)
        texels = _texels(self.machine, self.site, self.texture, self.address, owners[kept], numbers.reshape(-1)[kept])
        found = np.zeros((len(kept), self.texture.channels), texels.dtype)
        found[kept] = texels
        return found.reshape(len(self.lanes), len(corners), self.texture.channels)

    def _four(self, texels: Array) -> Array:
        """Returns texels with four channels; those that a texture does not have are zero."""
        found = np.zeros((len(texels), 4), texels.dtype)
        found[:, : texels.shape[1]] = texels
        return found


def bind_surface(operation: SurfaceAccess, machine: Machine, number: int, position: Position | None) -> Bound:
    """Binds `suld.b` and `sust.b` as a function of the active lanes."""
    objects = _Objects(operation, machine, position)
    reads = [
        machine.registers.read(operand, "u32" if operation.layered and not at else "s32")
        for at, operand in enumerate(operation.coordinates)
    ]
    targets = [machine.registers.target(operand, f"u{8 * SIZES[operation.kind]}") for operand in operation.results]
    stored = [machine.registers.read(operand, operation.kind) for operand in operation.values]
    part = UNSIGNED[SIZES[operation.kind]]
    count = max(len(targets), len(stored))

    def run(group: Group | None, active: Group) -> None:
        del group
        lanes = machine.lanes_of(active)
        given = [spread(value, lanes, len(lanes)).astype(np.int64) for value in reads]
        values = np.zeros((len(lanes), count), part)
        for column, value in enumerate(stored):
            values[:, column] = spread(value, active, len(lanes))
        for texture, address, mine in objects.of(lanes):
            places, kept = _surface_bytes(
                operation, machine, position, texture, lanes[mine], [one[mine] for one in given], part.itemsize * count
            )
            item = min(numpy_dtype(texture.dtype).itemsize, part.itemsize)
            _access(operation, machine, MemoryInstruction(number, "load" if operation.loads else "store", item, 1, position),
                    address + places, lanes[mine[kept]], values, mine[kept])  # fmt: skip
        for target, column in zip(targets, values.T, strict=False):
            if target is not None:
                target[active] = column

    return run


def _surface_bytes(
    operation: SurfaceAccess, machine: Machine, position: Position | None, texture: Texture, lanes: Array,
    coordinates: list[Array], size: int,
) -> tuple[Array, Array]:  # fmt: skip
    """Returns the offsets of accesses of `size` bytes, and the positions of the lanes that make them; others are reported."""
    layer = coordinates.pop(0) if operation.layered else np.zeros(len(lanes), np.int64)
    width = texture.extents[0] * texture.channels * numpy_dtype(texture.dtype).itemsize
    misaligned = coordinates[0] % size != 0
    verb = "loads" if operation.loads else "stores"
    if misaligned.any():
        machine.findings.report(
            FindingCode.MISALIGNED_ACCESS, position, lanes[misaligned],
            lambda: f"{verb} {size} bytes of a surface at x = {int(coordinates[0][misaligned][0])}, which counts bytes and is not a "
            f"multiple of {size}", buffer=texture.array,
        )  # fmt: skip
    limits = [width - size, *(extent - 1 for extent in texture.extents[1:])]
    outside = (layer < 0) | (layer >= texture.layers)
    for one, last in zip(coordinates, limits, strict=True):
        outside |= (one < 0) | (one > last)
    if operation.beyond == "clamp":
        coordinates = [np.clip(one, 0, max(last, 0)) for one, last in zip(coordinates, limits, strict=True)]
        layer, outside = np.clip(layer, 0, texture.layers - 1), np.full(len(lanes), limits[0] < 0)
    elif operation.beyond == "trap" and outside.any():
        at = int(np.flatnonzero(outside)[0])
        where = ", ".join(str(int(one[at])) for one in coordinates)
        code = FindingCode.OUT_OF_BOUNDS_READ if operation.loads else FindingCode.OUT_OF_BOUNDS_WRITE
        machine.findings.report(
            code, position, lanes[outside],
            lambda: f"{verb} {size} bytes of a surface at ({where}), whose rows have {width} bytes: the launch fails", buffer=texture.array,
        )  # fmt: skip
    row = layer
    for one, extent in zip(reversed(coordinates[1:]), reversed(texture.extents[1:]), strict=True):
        row = row * extent + one
    kept = np.flatnonzero(~outside & ~misaligned)
    return (row * width + coordinates[0])[kept], kept


def _access(
    operation: SurfaceAccess,
    machine: Machine,
    site: MemoryInstruction,
    places: Array,
    lanes: Array,
    values: Array,
    rows: Array,
) -> None:
    """Loads to, or stores from, some rows of `values`, in parts of the site's size."""
    if not len(rows):
        return
    parts = values.view(UNSIGNED[site.size])
    each = parts.shape[1]
    addresses = (places[:, None] + site.size * np.arange(each)).reshape(-1).astype(np.uint64)
    moved = parts[rows].reshape(-1)
    port = GlobalPort(machine, site, 0, moved.dtype)

    def load(held: Array, elements: Any, positions: Any) -> None:
        moved[positions] = held[elements]

    def store(held: Array, elements: Any, positions: Any) -> None:
        held[elements] = moved[positions]

    port.visit(
        addresses, np.repeat(lanes, each), load if operation.loads else store, None if operation.loads else moved
    )
    parts[rows] = moved.reshape(-1, each)
