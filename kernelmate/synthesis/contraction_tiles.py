"""Tiles of the operands of a sum over products in shared memory: which part each thread loads, and where it is stored."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from kernelmate.synthesis.axes import address
from kernelmate.synthesis.contraction_shape import ContractionShape
from kernelmate.synthesis.contraction_text import ContractionText
from kernelmate.synthesis.kernel_text import STATIC_BYTES, KernelText, block_of, c_type, indented
from kernelmate.synthesis.plan import Refused

BLOCK = 256
PACK = 4
"""Number of adjacent elements that a thread loads or stores at a time."""


@dataclass(frozen=True, slots=True)
class ContractionTile:
    """Sizes of a tile: `m` x `n` results of a block, `k` terms of the sum per step, `side` x `side` results of a thread."""

    m: int
    n: int
    k: int
    side: int


TILES = (ContractionTile(128, 128, 8, 8), ContractionTile(64, 64, 16, 4), ContractionTile(32, 32, 32, 2))
"""Tiles, largest first: more results per thread need fewer shared-memory reads per product."""


def as_deep_as(tile: ContractionTile, terms: str) -> ContractionTile:
    """Returns a tile with no more terms per step than the sum has, if it has a fixed number, such as three coordinates."""
    if not terms.isdigit() or int(terms) > tile.k // 2:
        return tile
    depth = PACK
    while depth < int(terms):
        depth *= 2
    return replace(tile, k=depth)


class ContractionTiles(ContractionText):
    """Text of a block's tiles: their declarations, and the loads and stores that fill them."""

    def __init__(self, shape: ContractionShape, kernel: KernelText, tile: ContractionTile) -> None:
        super().__init__(shape, kernel, (*shape.left, *shape.right), "kSide", "stage", "kPad")
        self.tile = tile
        self.file_tiles = (self.names.kTileM, self.names.kTileN)
        if kernel.kernel.launches:
            kernel.names.release(self.names.kTileM)
            kernel.names.release(self.names.kTileN)
            self.file_tiles = (kernel.constant("TileM", tile.m, "")[0], kernel.constant("TileN", tile.n, "")[0])
            if self.file_tiles != (self.names.kTileM, self.names.kTileN):  # the file has several kernels
                self.names.kTileM, self.names.kTileN = (kernel.names.fresh(one) for one in ("kTileM", "kTileN"))
        self.take_packs((*self.operands, *self.outputs), "Pack", self.names.kPack)
        self.tiles = {name: kernel.names.fresh(f"{name}_tile") for name in self.operands}
        self.parts = {name: kernel.names.fresh(f"{name}_part") for name in self.tiles}
        self.own = {
            name: (kernel.names.fresh(f"{name}_k"), kernel.names.fresh(f"{name}_{'m' if name in shape.left else 'n'}"))
            for name in self.tiles
        }
        self.next = {name: kernel.names.fresh(f"{name}_next") for name in self.tiles}
        self.loads = {
            pack: kernel.names.fresh(f"load_{name}" if len({*self.packs.values()}) > 1 else "load")
            for pack, name in {self.packs[name]: name for name in reversed(self.operands)}.items()
        }

    def _in_packs(self) -> list[str]:
        """Returns the operands that are read in packs if their rows are aligned."""
        return self.operands

    def _shared(self) -> list[str]:
        """Returns the declarations of the tiles.

        Raises:
            Refused: they are larger than a block's shared memory.
        """
        names, tile = self.names, self.tile
        sides = {name: tile.m if name in self.shape.left else tile.n for name in self.tiles}
        wide = ("double", "long long", "unsigned long long")
        if (
            sum(2 * tile.k * (side + 4) * (8 if self._held(name) in wide else 4) for name, side in sides.items())
            > STATIC_BYTES
        ):
            raise Refused("its tiles need more shared memory than a block has")
        return [
            f"__shared__ alignas({names.kPad} * sizeof({self._held(name)})) {self._held(name)} {one}[2][{names.kTileK}][{self._side(name)} + {names.kPad}];"
            for name, one in self.tiles.items()
        ]

    def _pad(self) -> str:
        """Returns the padding of a tile's rows in elements, which reduces bank conflicts of stores."""
        return str(self.names.kPack if self.tile.side >= PACK else self.names.kSide)

    def _held(self, name: str) -> str:
        """Returns the C++ type of an array's elements in its tile."""
        dtype, real = self.kernel.arguments[name].dtype, self.kernel.real
        return real if "float" in dtype or self._is_factor(name) else c_type(dtype, real)

    def _is_factor(self, name: str) -> bool:
        """Returns True for integers that are only multiplied with floats and are converted once, when stored."""
        nodes = self.plan.graph.nodes
        if self.total != self.kernel.real or self.kernel.arguments[name].dtype not in (
            "int8",
            "uint8",
            "int16",
            "uint16",
        ):
            return False
        own = [index for index, node in enumerate(nodes) if node.op == "input" and node.data[0] == name]
        while own:
            index = own.pop()
            for place, node in enumerate(nodes):
                if index not in node.args:
                    continue
                if node.op == "view":
                    own.append(place)
                elif not (node.op in ("cast", "map") and node.dtype.startswith("float")):
                    return False
        return True

    def _side(self, name: str) -> str:
        return str(self.names.kTileM if name in self.shape.left else self.names.kTileN)

    def own_packs(self) -> list[str]:
        """Returns declarations of the positions in the tiles at which a thread's packs begin."""
        loaders = {self.packs[name]: name for name in reversed(self.tiles) if name in self.whole}
        return [
            "// The packs of the tiles that a thread loads.",
            *(line for name in self.tiles for line in self._own_pack(name)),
            *(line for name in reversed(loaders.values()) for line in self._loader(name)),
        ]

    def _own_pack(self, name: str) -> list[str]:
        """Returns the declarations of the position in a tile at which a thread's pack begins."""
        (deep, wide), (at_deep, at_wide) = self.own[name], self._places(name)
        return [f"const int {wide} = {at_wide};", f"const int {deep} = {at_deep};"]

    def _places(self, name: str) -> tuple[str, str]:
        """Emits the tile position of a thread's first pack element, along the sum and along the results."""
        names = self.names
        if self.along(name) == self.shape.k:
            across = f"({names.kTileK} / {names.kPack})"
            return f"threadIdx.x % {across} * {names.kPack}", f"threadIdx.x / {across}"
        across = f"({self._side(name)} / {names.kPack})"
        return f"threadIdx.x / {across}", f"threadIdx.x % {across} * {names.kPack}"

    def _loader(self, name: str) -> list[str]:
        """Returns the declaration of the function that loads packs of an array's type."""
        names, i, pack = self.names, self.names.i, self.packs[name]
        row, at, end, whole, held = (
            self.kernel.names.fresh(one) for one in ("line", "first", "end", "aligned", "pack")
        )
        lines = [
            f"// {names.kPack} neighbouring elements from `{at}` on; zeros from `{end}` on.",
            f"const auto {self.loads[pack]} = [](const {self.kernel.element(name)}* {row}, int {at}, int {end}, bool {whole}) {{",
            f"  {pack} {held} = {{}};",
            f"  if ({whole} && {at} < {end}) {{",
            f"    {held} = *reinterpret_cast<const {pack}*>({row} + {at});",
            "  } else {",
            "#pragma unroll",
            *indented(
                block_of(
                    f"for (int {i} = 0; {i} < {names.kPack}; ++{i})",
                    [f"if ({at} + {i} < {end}) {held}.at[{i}] = {row}[{at} + {i}];"],
                ),
                2,
            ),
            "  }",
            f"  return {held};",
            "};",
        ]
        for one in (row, at, end, whole, held):
            self.kernel.names.release(one)
        return lines

    def _load(self, name: str) -> list[str]:
        """Returns loads of a thread's pack of the next tile, along the array's contiguous axis."""
        names, shape, lengths = self.names, self.shape, self.lengths
        (deep, wide), along, pack = self.own[name], self.along(name), self.packs[name]
        axis, _, first = self._side_of(name)
        at = {**self.at, shape.k: f"{names.k_first} + {deep}", axis: f"{first} + {wide}"}
        other = axis if along == shape.k else shape.k
        if name not in self.whole:
            return self._single_loads(name)
        place = address(self.order(name), lengths, {**at, other: f"({at[other]})", along: "0"})
        line = re.sub(
            r"(^| \+ )0$", "", place.replace(f"static_cast<size_t>(({at[other]}))", f"static_cast<size_t>({at[other]})")
        )
        end = f"{self._loads_pack(name, ' && ')}{at[other]} < {lengths[other]} ? {lengths[along]} : 0"
        begin = f"{name} + {line}" if line else name
        return [
            f"const {pack} {self.next[name]} = {self.loads[pack]}({begin}, {at[along]}, {end}, {self.whole[name]});"
        ]

    def _single_loads(self, name: str) -> list[str]:
        """Returns loads of an array whose contiguous axis is not one of a tile's."""
        names, shape, lengths, i = self.names, self.shape, self.lengths, self.names.i
        axis, position, first = self._side_of(name)
        along, (deep, wide) = self.along(name), self.own[name]
        other = axis if along == shape.k else shape.k
        start = self.at[along]
        element = address(self.order(name), lengths, {**self.at, along: f"{start} + {i}"})
        inside = (
            f"{self._loads_pack(name, ' && ')}{self.at[other]} < {lengths[other]} && {start} + {i} < {lengths[along]}"
        )
        return [
            f"{self.packs[name]} {self.next[name]} = {{}};",
            "#pragma unroll",
            *block_of(
                f"for (int {i} = 0; {i} < {names.kPack}; ++{i})",
                [
                    f"const int {names.k} = {names.k_first} + {deep}, {position} = {first} + {wide};",
                    f"if ({inside}) {self.next[name]}.at[{i}] = {name}[{element}];",
                ],
            ),
        ]

    def _loads_pack(self, name: str, ending: str) -> str:
        """Returns the condition that a thread loads a pack of an array's tile, with an ending; empty if all threads do."""
        side = self.tile.m if name in self.shape.left else self.tile.n
        if side * self.tile.k >= BLOCK * PACK:
            return ""
        deep, wide = self.own[name]
        within = f"{wide} < {self._side(name)}" if self.along(name) == self.shape.k else f"{deep} < {self.names.kTileK}"
        return f"{within}{ending}"

    def _side_of(self, name: str) -> tuple[int, str, str]:
        """Returns the axis of an operand other than the sum's, the position along it, and the block's first one."""
        names, shape = self.names, self.shape
        return (shape.m, names.m, names.m_first) if name in shape.left else (shape.n, names.n, names.n_first)

    def _put(self, name: str) -> str:
        """Returns the statement that stores a pack element in the tile."""
        names, i = self.names, self.names.i
        deep, wide = self.own[name]
        deep, wide = (f"{deep} + {i}", wide) if self.along(name) == self.shape.k else (deep, f"{wide} + {i}")
        value = self.kernel.loaded(name, f"{self.next[name]}.at[{i}]")
        condition = self._loads_pack(name, "")
        stored = f"{self.tiles[name]}[{names.stage}][{deep}][{wide}] = {value};"
        return f"if ({condition}) {stored}" if condition else stored
