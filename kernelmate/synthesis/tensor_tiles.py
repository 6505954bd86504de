"""Tiles of the operands of a product on tensor cores: their layout in shared memory, and the copies that fill them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelmate.synthesis.axes import address
from kernelmate.synthesis.contraction_shape import ContractionShape, Factors
from kernelmate.synthesis.contraction_text import ContractionText
from kernelmate.synthesis.kernel_text import ITEM_BYTES, STATIC_BYTES, KernelText, block_of
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.tensor_products import CHUNK, IN_FLIGHT, TensorText, TensorTile


@dataclass(frozen=True, slots=True)
class _TilePlace:
    """The source of an operand's tile: texts of its rows and width, and of positions and lengths along both axes.

    `positions` declares a thread's positions, except for the offset that is added along a row.
    """

    name: str
    rows: str
    width: str
    across: str
    along: str
    across_length: str
    along_length: str
    positions: str
    element: str


class TensorTiles(ContractionText):
    """Text of a block's tiles: rows of 16-byte chunks, whose positions are permuted by the row's number."""

    def __init__(
        self, shape: ContractionShape, factors: Sequence[Factors], kernel: KernelText, tile: TensorTile
    ) -> None:
        more = (
            "kWarpM", "kWarpN", "kWarpsK", "kStages", "kStep", "kGroup", "kChunks", "Tiles", "tiles", "tile",
            "shared", "line", "stage", "source", "kApart", "warp", "lane", "step", "steps", "pack", "chunk", "held", "part", "block", "first",
            "together", "partial", "staged", "e", "kWide", "kStaged", "first_group",
        )  # fmt: skip
        super().__init__(shape, kernel, (*shape.left, *shape.right), *more)
        self.tile = tile
        types = {(kernel.arguments[one.left].dtype, kernel.arguments[one.right].dtype) for one in factors}
        if len(types) > 1:
            raise Refused("its products are of arrays of several types")
        left, right = types.pop()
        self.text = TensorText(kernel, left, right, self.total)
        self.item = ITEM_BYTES[left]
        if self.item == 1 and any(self.along(name) != shape.k for name in self.operands):
            raise Refused("ldmatrix does not transpose bytes")
        # Another name for a part of an array is replaced by the array's in the text.
        self.members = {name: f"{name}_tile" if name in kernel.others else name for name in self.operands}

    def _turned(self, name: str) -> bool:
        """Returns True if an operand's fragments are transposed when loaded."""
        return self.along(name) != self.shape.k

    def _shared(self) -> list[str]:
        """Returns the declarations of the tiles in shared memory."""
        names = self.names
        members = []
        for name in self.operands:
            side = names.kTileM if name in self.shape.left else names.kTileN
            rows, columns = (names.kTileK, side) if self._turned(name) else (side, names.kTileK)
            members.append(f"{self.kernel.element(name)} {self.members[name]}[{rows}][{columns}];")
        lines = block_of(f"struct {names.Tiles}", members)
        lines[-1] += ";"
        if self.tile.shared_bytes <= STATIC_BYTES:
            return [*lines, f"__shared__ __align__(128) {names.Tiles} {names.tiles}[{names.kStages}];"]
        bytes_ = self.tile.shared_bytes
        return [
            *lines,
            f'static_assert({names.kStages} * sizeof({names.Tiles}) == {bytes_}, "dynamic shared memory of the launch");',
            "// More than 48 KB: a launch needs cudaFuncAttributeMaxDynamicSharedMemorySize.",
            f"extern __shared__ __align__(128) unsigned char {names.shared}[];",
            f"{names.Tiles}* {names.tiles} = reinterpret_cast<{names.Tiles}*>({names.shared});",
        ]

    def _row_chunks(self, name: str) -> int:
        """Returns the number of 16-byte chunks in a row of an operand's tile."""
        side = self.tile.m if name in self.shape.left else self.tile.n
        return side * self.item // CHUNK if self._turned(name) else self.tile.chunks

    def _copy(self, name: str) -> list[str]:
        """Returns the copy of a tile: in 16-byte chunks if rows are aligned, else by element."""
        names, lengths, left = self.names, self.lengths, name in self.shape.left
        side, first = (self.shape.m, names.m_first) if left else (self.shape.n, names.n_first)
        extent = names.kTileM if left else names.kTileN
        deep = f"{names.step} * {names.kTileK}"
        turned = self._turned(name)
        across, along = (self.shape.k, side) if turned else (side, self.shape.k)
        row_first, along_first = (deep, first) if turned else (first, deep)
        rows, width = (names.kTileK, extent) if turned else (extent, names.kTileK)
        place = _TilePlace(
            name, rows, width, self.at[across], self.at[along], lengths[across], lengths[along],
            f"const int {self.at[across]} = {row_first} + {names.line}, {self.at[along]} = {along_first}",
            f"{name}[{address(self.order(name), lengths, self.at)}]",
        )  # fmt: skip
        if name not in self.whole:
            return self._singles(place)
        at = {**self.at, across: row_first, along: along_first}
        pitch = self._pitch(name, across)
        pitch = f"static_cast<size_t>({pitch.replace(' * ', ') * ', 1)}" if " * " in pitch else pitch
        remaining = f"{lengths[across]} - {row_first}, {lengths[along]} - {along_first}"
        source = f"&{name}[{address(self.order(name), lengths, at)}]"
        return [
            f"{self.text.tile}<{names.kThreads}>({names.tiles}[{names.stage}].{self.members[name]}, {source}, {pitch}, {remaining}, {self.whole[name]});"
        ]

    def _pitch(self, name: str, axis: int) -> str:
        """Returns the stride of an axis in an operand's memory, in elements."""
        order = self.order(name)
        behind = order[order.index(axis) + 1 :]
        sides = (one.partition("/")[2] if isinstance(one, str) else self.lengths[one] for one in behind)
        return " * ".join(sides) or "1"

    def _singles(self, place: _TilePlace) -> list[str]:
        """Returns the copy through registers: eight elements per thread are in flight."""
        names = self.names
        total = self._rows(place.name) * self._row_chunks(place.name) * CHUNK // self.item
        flight = min(IN_FLIGHT, total // self.tile.threads)
        number = (
            f"const int {names.e} = {names.j} + {names.i} * {names.kThreads}, {names.line} = {names.e} / {place.width};"
        )
        over = ["#pragma unroll", f"for (int {names.i} = 0; {names.i} < {flight}; ++{names.i})"]
        inside = f"{place.across} < {place.across_length} && {place.along} < {place.along_length}"
        column = f"{names.e} % {place.width}"
        swizzled = f"{self.text.swizzle}<{place.width} / {names.kPack}>({names.line}, {column} / {names.kPack})"
        chunk = f"{swizzled} * {names.kPack} + {names.e} % {names.kPack}"
        return [
            "#pragma unroll 1",
            *block_of(
                f"for (int {names.j} = threadIdx.x; {names.j} < {place.rows} * {place.width}; {names.j} += {flight} * {names.kThreads})",
                [
                    f"{self.kernel.element(place.name)} {names.held}[{flight}] = {{}};",
                    over[0],
                    *block_of(
                        over[1],
                        [
                            number,
                            f"{place.positions} + {column};",
                            f"if ({inside}) {names.held}[{names.i}] = {place.element};",
                        ],
                    ),
                    over[0],
                    *block_of(
                        over[1],
                        [
                            number,
                            f"{names.tiles}[{names.stage}].{self.members[place.name]}[{names.line}][{chunk}] = {names.held}[{names.i}];",
                        ],
                    ),
                ],
            ),
        ]

    def _rows(self, name: str) -> int:
        """Returns the number of rows of an operand's tile."""
        if self._turned(name):
            return self.tile.chunks * CHUNK // self.item
        return self.tile.m if name in self.shape.left else self.tile.n
