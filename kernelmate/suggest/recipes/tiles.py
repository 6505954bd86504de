"""Copies through a tile in shared memory that a block loads along one coordinate and stores along another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kernelmate.suggest.recipes.restructure import known, named
from kernelmate.suggest.syntax import Edit, Tree

SIDE = 32
ROWS = 8
"""Side of a tile, and rows of the block: 32 x 8 threads move a tile of 32 x 32."""


@dataclass(frozen=True, slots=True)
class TransposedTile:
    """A tile that is loaded along `fast` and stored along `slow`.

    Attributes:
        tile: name of the tile.
        k: name of the loop variable over the tile's rows that a thread moves.
        fast, slow: names of the coordinates.
        ends: extents of both, as expressions of the kernel.
        step: one level of indentation.
        side, rows: the tile's side and the block's rows, as the file names them.
        blocks: numbers of the block's tile along `fast` and `slow`.
    """

    tile: str
    k: str
    fast: str
    slow: str
    ends: tuple[str, str]
    step: str
    side: str
    rows: str
    blocks: tuple[str, str] = ("blockIdx.x", "blockIdx.y")

    def declared(self, kind: str) -> str:
        """Returns the tile's declaration, with a column of padding so that its columns lie in different banks."""
        return f"__shared__ {kind} {self.tile}[{self.side}][{self.side} + 1];  // + 1, so that the elements of a column lie in different banks"

    def moved(self, load: str, store: Callable[[str], str]) -> list[str]:
        """Returns lines that fill the tile, synchronise, and write it out.

        `store` returns the statement that stores an element.
        """
        return [
            *self._half(self.fast, self.slow, f"{self.tile}[{self.k}][threadIdx.x] = {load};"),
            "__syncthreads();",
            *self._half(self.slow, self.fast, store(f"{self.tile}[threadIdx.x][{self.k}]")),
        ]

    def _half(self, across: str, deep: str, done: str) -> list[str]:
        """Returns a loop in which lanes move along `across` and each thread takes every eighth element of `deep`."""
        block = dict(zip((self.fast, self.slow), self.blocks, strict=True))
        return [
            f"for (int {self.k} = threadIdx.y; {self.k} < {self.side}; {self.k} += {self.rows}) {{",
            f"{self.step}const int {across} = {block[across]} * {self.side} + threadIdx.x;",
            f"{self.step}const int {deep} = {block[deep]} * {self.side} + {self.k};",
            f"{self.step}if ({self.fast} < {self.ends[0]} && {self.slow} < {self.ends[1]}) {done}",
            "}",
        ]


def sides(tree: Tree) -> tuple[str, str, list[Edit]]:
    """Returns names for the tile's side and the block's rows, and edits that declare those that the file lacks."""
    side, rows = known(tree, SIDE, "tile"), known(tree, ROWS, "rows")
    new: list[Edit] = []
    if side is None:
        side, edit = named(tree, "Tile", SIDE, "rows and columns of a tile in shared memory")
        new.append(edit)
    if rows is None:
        rows, edit = named(tree, "BlockRows", ROWS, "rows of threads, each for several rows of a tile")
        new.append(edit)
    if len(new) > 1:
        (start, end, first), (_, _, second) = new
        return side, rows, [(start, end, first.rstrip("\n") + "\n" + second)]
    return side, rows, new
