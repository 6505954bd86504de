"""Sums over products of two arrays: tiles of both in shared memory, a block of results in each thread's registers.

Results may need several sums along one axis, as gated products `silu(x @ w1) * (x @ w2)` do, or products over the norms of their rows
and columns: a tile that they share is read once, and a thread has as many sums as there are products, and those of its rows and columns.

Traffic: of M x N results over K, tiles of m x n read each array N / n and M / m times, nearly all from L2. Arithmetic: M x N x K
operations of the graph, m x n for each (m + n) elements that are read from shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.axes import address
from kernelmate.synthesis.contraction_shape import ContractionShape
from kernelmate.synthesis.contraction_tiles import BLOCK, PACK, TILES, ContractionTile
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.joint_sums import joint_sums
from kernelmate.synthesis.kernel_text import (
    STATIC_BYTES,
    KernelText,
    WrittenKernel,
    block_of,
    indented,
    those_written,
)
from kernelmate.synthesis.plan import Plan, Refused
from kernelmate.synthesis.schedules import tensor_contraction
from kernelmate.synthesis.tensor_products import copy_function
from kernelmate.synthesis.tiled_contraction import TiledContraction

ENOUGH_BLOCKS = 128
"""Number of blocks that occupies all multiprocessors; with fewer, smaller tiles are used."""

ASYNC_TILES = (ContractionTile(128, 128, 16, 8), ContractionTile(64, 64, 32, 4))
"""Tiles for copies that need no registers: as deep as two tiles of both operands fit in 48 KB, for few barriers."""


def written(plan: Plan, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the schedule does not apply.
    """
    size = kernel.contract.sizes[0]
    shape = ContractionShape(plan, kernel)
    m, n, *batch = (int(evaluate(shape.axes.sides[axis], size)) for axis in (shape.m, shape.n, *shape.batch))

    def blocks(tile: ContractionTile) -> int:
        return -(-m // tile.m) * -(-n // tile.n) * math.prod(batch)

    first = next((place for place, tile in enumerate(TILES) if blocks(tile) >= ENOUGH_BLOCKS), len(TILES) - 1)
    order = [*TILES[first : first + 2], *TILES[max(first - 1, 0) : first]][:2]
    others = [tile for tile in TILES if tile not in order]
    makers, rest = ([partial(_text, plan, kernel, TiledContraction, tile) for tile in some] for some in (order, others))
    rest = [partial(_text, plan, kernel, _AsyncContraction, tile) for tile in ASYNC_TILES[first > 0 :]] + rest
    try:
        tensor = tensor_contraction.makers(plan, kernel)
    except Refused:
        tensor = []
    if tensor:
        makers, rest = [*tensor[:2], makers[0]], tensor[2:]
    yield from those_written(makers, rest)


def joint(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels of results that need several sums along one axis.

    Raises:
        Refused: the schedule does not apply.
    """
    plan, others = joint_sums(graph, [*kernel.parameters])
    yield from written(plan, kernel.again(others))


def _text(plan: Plan, kernel: KernelText, kind: type[TiledContraction], tile: ContractionTile) -> WrittenKernel:
    kernel = kernel.again()
    return kind(ContractionShape(plan, kernel), kernel, tile).written()


class _AsyncContraction(TiledContraction):
    """Text of a kernel with one tile of floats, copied to shared memory by `cp.async` without registers.

    Raises:
        Refused: an array has other elements, which would have to be converted.
    """

    def __init__(self, shape: ContractionShape, kernel: KernelText, tile: ContractionTile) -> None:
        if (
            2
            * tile.k
            * sum(4 * (tile.m if name in shape.left else tile.n) + 16 for name in (*shape.left, *shape.right))
            > STATIC_BYTES
        ):
            tile = replace(tile, k=tile.k // 2)  # tiles of more than two arrays
        super().__init__(shape, kernel, tile)
        if self.total != "float" or any(kernel.arguments[name].dtype != "float32" for name in self.operands):
            raise Refused("cp.async does not convert elements")
        self.line = kernel.names.fresh("line")
        self.copies = {count: kernel.names.outermost(f"copy_{count}_bytes") for count in (4, 16)}

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        plain, tile = super().written(), self.tile
        counts = [4] + [16] * any(name in self.whole for name in self._in_packs())
        return replace(
            plain,
            schedule=f"contraction-async-{tile.m}x{tile.n}",
            why=plain.why.replace("which are read while", "which cp.async copies while"),
            helpers="\n\n".join([plain.helpers, *(copy_function(self.copies[count], count) for count in counts)]),
            capability=80,
        )

    def _in_packs(self) -> list[str]:
        """Returns operands contiguous along their tile's rows; others are transposed element by element."""
        return [name for name in self.operands if self.along(name) != self.shape.k]

    def _asserted(self) -> list[str]:
        """Returns the assertion on the results alone: copies work with any number of threads."""
        return super()._asserted()[:1]

    def own_packs(self) -> list[str]:
        """Returns no declarations: no pack is held in registers."""
        return []

    def _turn(self, products: list[str]) -> list[str]:
        """Returns statements that start the copies of one tile and multiply the one before."""
        return [
            "// The tile before has arrived, and no thread reads the one before that, which is overwritten now.",
            'asm volatile("cp.async.wait_all;" ::: "memory");',
            "__syncthreads();",
            *(line for name in self.tiles for line in self._copied(name)),
            *block_of(f"if ({self.names.k_first} > 0)", products),
        ]

    def _copied(self, name: str) -> list[str]:
        """Returns the statements that copy an operand's tile to shared memory."""
        side = self.tile.m if name in self.shape.left else self.tile.n
        if self.along(name) == self.shape.k:
            # Eight neighbouring elements of four rows are stored by a warp: in different banks, as rows of the tile are 4 longer.
            return ["{", *indented(self._by_rows(name)), "}"]
        single = self._along_side(name, str(side), 4)
        if name not in self.whole:
            return ["{", *indented(single), "}"]
        packs = self._along_side(name, f"({side} / {PACK})", 16)
        return [f"if ({self.whole[name]}) {{", *indented(packs), "} else {", *indented(single), "}"]

    def _by_rows(self, name: str) -> list[str]:
        """Returns copies of single elements contiguous along the sum, stored down the tile's columns."""
        deep, apart = "8", f"({BLOCK} / 8)"
        names, lengths, i, j = self.names, self.lengths, self.names.i, self.names.j
        axis, position, first = self._side_of(name)
        tile = f"{self.tiles[name]}[{names.stage}][{names.k} - {names.k_first}][{self.line} + {j}]"
        inside = f"{position} < {lengths[axis]} && {names.k} < {lengths[self.shape.k]}"
        return [
            f"const int {self.line} = threadIdx.x / {deep};",
            "#pragma unroll",
            *block_of(
                f"for (int {j} = 0; {j} < {self._side(name)}; {j} += {apart})",
                [
                    f"const int {position} = {first} + {self.line} + {j};",
                    "#pragma unroll",
                    *block_of(
                        f"for (int {i} = 0; {i} < {names.kTileK}; {i} += {deep})",
                        [
                            f"const int {names.k} = {names.k_first} + threadIdx.x % {deep} + {i};",
                            f"{self.copies[4]}(&{tile}, &{name}[{address(self.order(name), lengths, self.at)}], {inside});",
                        ],
                    ),
                ],
            ),
        ]

    def _along_side(self, name: str, across: str, count: int) -> list[str]:
        """Returns copies of elements or packs along the tile's rows."""
        names, lengths, j = self.names, self.lengths, self.names.j
        axis, position, first = self._side_of(name)
        tile = f"{self.tiles[name]}[{names.stage}][{self.line} + {j}][{position} - {first}]"
        inside = f"{position} < {lengths[axis]} && {names.k} < {lengths[self.shape.k]}"
        step = f" * {names.kPack}" if count == 16 else ""
        return [
            f"const int {self.line} = threadIdx.x / {across}, {position} = {first} + threadIdx.x % {across}{step};",
            "#pragma unroll",
            *block_of(
                f"for (int {j} = 0; {j} < {names.kTileK}; {j} += {BLOCK} / {across})",
                [
                    f"const int {names.k} = {names.k_first} + {self.line} + {j};",
                    f"{self.copies[count]}(&{tile}, &{name}[{address(self.order(name), lengths, self.at)}], {inside});",
                ],
            ),
        ]
