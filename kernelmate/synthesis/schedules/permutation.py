"""Element-wise operations on arrays with another order of axes: through a shared tile, or in packs along the last axis.

Traffic: each array is read and written once, in whole sectors. Arithmetic: that of the graph for each element.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial

from kernelmate.errors import ContractError
from kernelmate.source import evaluate, launch_shape
from kernelmate.source.expressions import names_in
from kernelmate.synthesis.axes import address
from kernelmate.synthesis.free_map import FreeMap
from kernelmate.synthesis.kept_text import own_position
from kernelmate.synthesis.kernel_text import ITEM_BYTES, KernelText, WrittenKernel, block_of, fresh_names, those_written
from kernelmate.synthesis.own_grids import fits_side
from kernelmate.synthesis.plan import Plan, Refused
from kernelmate.synthesis.schedules.permutation_packs import ElementPacks, RowPacks
from kernelmate.synthesis.schedules.pointwise import LONG_ROW

TILE, ROWS = 32, 8
"""Side of a tile, and the rows that a block of 256 threads takes at a time."""

BLOCK = TILE * ROWS

ENOUGH_BLOCKS = 1056
"""Eight blocks for each of 132 multiprocessors; with fewer, smaller tiles are used."""

MOST_HELD = 34000
"""Maximum bytes of shared memory per block: six such blocks fit on a multiprocessor."""


def written(plan: Plan, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the schedule does not apply.
    """
    columns = int(evaluate(plan.domain[-1], kernel.contract.sizes[0])) if plan.domain else 1
    packs: list[type[ElementPacks]] = [RowPacks, ElementPacks] if columns >= LONG_ROW else [ElementPacks, RowPacks]
    ways: list[type[_PermutationTiles | ElementPacks]] = [_WideTiles, _PermutationTiles, *packs]
    yield from those_written(partial(_text, plan, kernel, way) for way in ways)


def _text(plan: Plan, kernel: KernelText, way: type[_PermutationTiles | ElementPacks]) -> WrittenKernel:
    return way(plan, kernel.again()).written()


class _PermutationTiles(FreeMap):
    """Tiles of 32 x 32 elements: read along the source's last axis, written along the target's."""

    side = TILE

    def __init__(self, plan: Plan, kernel: KernelText) -> None:
        super().__init__(plan, kernel)
        if any(isinstance(axis, str) for order in self.orders.values() for axis in order):
            raise Refused("it selects rows or parts of an array")
        last = self.whole[-1] if self.whole else -1
        turned = {order for order in self.orders.values() if last in order and order[-1] != last}
        if len(turned) != 1:
            raise Refused("its arrays are read in several orders" if turned else "no array is read in another order")
        self.turned = turned.pop()
        self.source, self.target = int(self.turned[-1]), last
        self.native = self._is_native()
        self.square = self.native and len(kernel.contract.block) == 2
        names = fresh_names(
            kernel,
            "batch",
            source=self._position_name(self.source, "x") or "col",
            target=self._position_name(self.target, "y") or "row",
            lane="tile_x",
            j="tile_y",
            k="i",
            across="tiles_across",
            down="tiles_down",
        )
        self.names = names
        names.kTile, tile = kernel.local_constant("kTile", self.side, "tile", "elements along a side of a tile")
        names.kRows, rows = kernel.local_constant("kRows", BLOCK // self.side, "rows", "rows of a tile at a time")
        self.constants = [*tile, *rows]
        self.tiles = {
            name: kernel.names.fresh("tile" if len(self.tiled()) == 1 else f"{name}_tile") for name in self.tiled()
        }
        self.at: dict[int | str, str] = {
            axis: kernel.names.fresh(self._position_name(axis, "z") or self.called(axis)) for axis in self.whole[:-1]
        }
        self.at[self.source], self.at[self.target] = names.source, names.target

    def tiled(self) -> list[str]:
        """Returns the arrays that go through a tile."""
        return [name for name, order in self.orders.items() if order == self.turned]

    def position(self, axis: int | str) -> str:
        """Overrides `FreeMap.position`."""
        return self.at[axis]

    def element(self, name: str) -> str:
        """Overrides `FreeMap.element`."""
        if name in self.tiles:
            return f"{self.tiles[name]}[{self.names.lane}][{self.names.j}]"
        return f"{name}[{address(self.orders[name], self.lengths, self.at)}]"

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, sides = self.kernel, self.names, self.axes.sides
        blocks = [f"cdiv({sides[axis]}, {self.side})" for axis in (self.source, self.target)]
        native, square = self.native, self.square
        self.thread = (
            ("threadIdx.x", "threadIdx.y")
            if square
            else (f"threadIdx.x % {names.kTile}", f"threadIdx.x / {names.kTile}")
        )
        blocks += [sides[axis] for axis in self._rest()]
        loads = [
            f"{tile}[{names.j}][{names.lane}] = {name}[{address(self.turned, self.lengths, self.at)}];"
            for name, tile in self.tiles.items()
        ]
        results: list[str] = []
        values = self.values(results)
        place = address(self.whole, self.lengths, self.at)
        results += [f"{name}[{place}] = {value};" for name, value in zip(self.outputs, values, strict=True)]
        body = [
            *self.constants,
            "// One column of padding spreads the elements of a column over all banks.",
            *(
                f"__shared__ {kernel.element(name)} {tile}[{names.kTile}][{names.kTile} + 1];"
                for name, tile in self.tiles.items()
            ),
            *(self._own_block() if native else self._block()),
            f"const int {names.lane} = {self.thread[0]};",
            *self.expressions.outer,
            *self._pass(names.lane, names.j, loads),
            "__syncthreads();",
            *self._pass(names.j, names.lane, results),
        ]
        return WrittenKernel(
            "permutation-tile" if self.side == TILE else f"permutation-tile-{self.side}",
            f"Written from the reference: tiles of {self.side} x {self.side} elements go through shared memory, so that global loads and "
            "stores are both coalesced." + kernel.promise(self.known()),
            kernel.definition(kernel.head(f"__launch_bounds__({self._threads()}) "), body),
            "",
            tuple(blocks) if native else (" * ".join(blocks),),
            (self.side, BLOCK // self.side) if square else BLOCK,
        )

    def _threads(self) -> str:
        """Returns the number of threads per block, by the host's constants if it has them."""
        return str(BLOCK) if self.constants else f"{self.names.kTile} * {self.names.kRows}"

    def _is_native(self) -> bool:
        """Returns True if the baseline's grid has as many sides, of which those after the first fit the generated ones.

        They are limited to 65535.
        """
        contract = self.kernel.contract
        if len(contract.grid) != len(self.whole) or len(self.whole) > 3:
            return False
        try:
            shapes = [(size, launch_shape(contract, size).grid) for size in contract.sizes if all(size.values())]
        except ContractError:
            return False
        rows, *more = self.axes.sides[self.target], *(self.axes.sides[axis] for axis in self._rest())
        return all(
            fits_side(-(-int(evaluate(rows, size)) // self.side), grid[1])
            and all(fits_side(int(evaluate(side, size)), grid[2]) for side in more)
            for size, grid in shapes
        )

    def _rest(self) -> list[int]:
        """Returns the axes that no tile has."""
        return [axis for axis in self.whole if axis not in (self.source, self.target)]

    def _position_name(self, axis: int, letter: str) -> str:
        """Returns the baseline's name of a position, if the same side of its grid has the axis; else empty."""
        if not self.native or (letter == "z") == (axis in (self.source, self.target)):
            return ""
        own = self.kernel.contract.grid["xyz".index(letter)]
        sizes = [{name for name, _ in names_in(one) if not name.startswith("block")} for one in (own, self.axes.sides[axis])]  # fmt: skip
        return own_position(self.kernel.kernel.source, letter) if sizes[0] == sizes[1] else ""

    def _own_block(self) -> list[str]:
        """Emits the block's tile from its two block indices."""
        self.first = self.kernel.names.fresh("first_col"), self.kernel.names.fresh("first_row")
        tile = self.names.kTile
        return [
            *self.opening,
            *(
                f"const int {first} = blockIdx.{letter} * {tile};"
                for first, letter in zip(self.first, "xy", strict=True)
            ),
            *(f"const int {self.at[axis]} = blockIdx.z;" for axis in self._rest()),
        ]

    def _block(self) -> list[str]:
        """Emits the block's tile from its block index."""
        names, lengths = self.names, self.lengths
        rest = self._rest()[::-1]
        lines = [
            *self.opening,
            f"const int {names.across} = ({lengths[self.source]} + {names.kTile} - 1) / {names.kTile};",
        ]
        tile = f"blockIdx.x / {names.across}"
        if rest:
            lines.append(f"const int {names.down} = ({lengths[self.target]} + {names.kTile} - 1) / {names.kTile};")
            left = f"blockIdx.x / {names.across} / {names.down}"
            for number, axis in enumerate(rest):
                final = number + 1 == len(rest)
                lines.append(f"const int {self.at[axis]} = {left}{'' if final else f' % {lengths[axis]}'};")
                left = f"{left} / {lengths[axis]}"
            tile += f" % {names.down}"
        self.first = self.kernel.names.fresh("first_col"), self.kernel.names.fresh("first_row")
        return [
            *lines,
            f"const int {self.first[0]} = blockIdx.x % {names.across} * {names.kTile};",
            f"const int {self.first[1]} = {tile} * {names.kTile};",
        ]

    def _pass(self, source: str, target: str, lines: Sequence[str]) -> list[str]:
        """Returns a loop over a thread's rows of a tile."""
        names, lengths = self.names, self.lengths
        inside = f"{names.source} < {lengths[self.source]} && {names.target} < {lengths[self.target]}"
        return [
            "#pragma unroll",
            *block_of(
                f"for (int {names.k} = 0; {names.k} < {names.kTile}; {names.k} += {names.kRows})",
                [
                    f"const int {names.j} = {self.thread[1]} + {names.k};",
                    f"const int {names.source} = {self.first[0]} + {source}, {names.target} = {self.first[1]} + {target};",
                    *block_of(f"if ({inside})", lines),
                ],
            ),
        ]


class _WideTiles(_PermutationTiles):
    """Tiles of 64 x 64 elements, with sixteen loads in flight per thread."""

    side = 2 * TILE

    def __init__(self, plan: Plan, kernel: KernelText) -> None:
        super().__init__(plan, kernel)
        size = kernel.contract.sizes[0]
        sides = [int(evaluate(self.axes.sides[axis], size)) for axis in (self.source, self.target)]
        rest = self._rest()
        blocks = math.prod(-(-side // self.side) for side in sides)
        blocks *= math.prod(int(evaluate(self.axes.sides[axis], size)) for axis in rest)
        held = sum(ITEM_BYTES[kernel.arguments[name].dtype] for name in self.tiles) * self.side * (self.side + 1)
        if min(sides) < self.side or blocks < ENOUGH_BLOCKS or held > MOST_HELD:
            raise Refused("its tiles would be too large for what is permuted")
