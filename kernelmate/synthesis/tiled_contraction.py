"""Text of a kernel for sums over products: tiles of both arrays in shared memory, a block of results in each thread's registers.

While the products of one tile are computed, the elements of the next are under way to registers; they are stored in the other half
of shared memory, so that one barrier for each tile is enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelmate.synthesis.contraction_shape import ContractionShape, Factors, vanishes
from kernelmate.synthesis.contraction_tiles import BLOCK, PACK, TILES, ContractionTile, ContractionTiles
from kernelmate.synthesis.kernel_text import (
    KernelText,
    WrittenKernel,
    block_of,
)
from kernelmate.synthesis.plan import Key, Refused, walk

MOST_SUMS = 128
"""Maximum number of sums in a thread's registers: half of the registers that a thread can have."""


@dataclass(frozen=True, slots=True)
class _Sum:
    """A sum that threads have in registers.

    Attributes:
        key: the sum.
        name: its local.
        terms: the factors of what it adds.
        sides: the axes along which it differs: both of a tile, or one of them.
    """

    key: Key
    name: str
    ctype: str
    terms: tuple[Key, ...]
    sides: frozenset[int]


class TiledContraction(ContractionTiles):
    """Writer of the kernel's text for one tile. Subclasses override how the sums of a tile are used."""

    def __init__(self, shape: ContractionShape, kernel: KernelText, tile: ContractionTile) -> None:
        super().__init__(shape, kernel, tile)
        self.column = self.names.j
        factors = Factors.of(shape) if shape.beside else None
        if shape.beside and len(shape.reductions) > 1:
            raise Refused("its sums have factors that others do not have")
        terms, self.outside = ((shape.root,), ()) if factors is None else (factors.terms, factors.outside)
        if not all(vanishes(self.expressions, root) for root in shape.roots):
            raise Refused("what it sums is not zero where its arrays are: tiles at the edge would count")
        self.sums = self._named_sums(terms)
        self.products = [one for one in self.sums if len(one.sides) == 2]
        self.beside = [one for one in self.sums if len(one.sides) < 2]
        if not self.products:
            raise Refused("it sums no products of two arrays")
        if len(self.products) > 1 and len(self.products) * tile.side**2 > MOST_SUMS:
            raise Refused("its sums need more registers than a thread has")

    def _named_sums(self, terms: tuple[Key, ...]) -> list[_Sum]:
        """Returns the sums with their names; if there is one, `terms` are the factors of its summand."""
        shape, names = self.shape, self.kernel.names
        found = []
        for number, (key, root) in enumerate(zip(shape.reductions, shape.roots, strict=True)):
            said = self.plan.node(key).name
            sides = frozenset(axis for axis in (shape.m, shape.n) if axis in shape.along(root))
            if not sides:
                raise Refused("it sums arrays without rows and columns")
            word = "sums" if len(sides) == 2 else "row_sums" if shape.m in sides else "column_sums"
            word = said if len(said) > 1 and names.is_free(said) else word
            name = self.names.sum if len(shape.reductions) == 1 else names.fresh(word)
            own = terms if number == 0 else (root,)
            found.append(_Sum(key, name, self.expressions.type_of(key), own, sides))
        return found

    def leaf(self, key: Key) -> str:
        """Returns the text of an element of a thread's part of a tile, or of an array used outside the sum."""
        name = str(self.plan.node(key).data[0]) if self.plan.node(key).data else ""
        if name in self.parts:
            return f"{self.parts[name]}[{self.names.i if name in self.shape.left else self.column}]"
        return super().leaf(key)

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, tile = self.kernel, self.tile
        bounds, constants = self.launch_constants()
        count = len(self.products)
        several = f" of {count} products" if count > 1 else ""
        return WrittenKernel(
            f"contraction-{tile.m}x{tile.n}",
            f"Written from the reference: each block computes {tile.m} x {tile.n} results from double-buffered tiles in shared "
            f"memory; each thread has {tile.side} x {tile.side} results{several} in registers."
            + self.promise(tile.m, tile.n),
            kernel.definition(kernel.head(bounds), self.body()),
            "\n".join(constants),
            (self.blocks(tile.m, tile.n),),
            BLOCK,
        )

    def launch_constants(self) -> tuple[str, list[str]]:
        """Returns launch bounds, and the declarations of the file's constants for the launch."""
        threads, constants = self.kernel.threads(BLOCK)
        # Sums of 64 bits, or of several products, need as many registers as there are; a few results per thread need no bound.
        held = len(self.products) * self.tile.side**2
        if self.total in ("double", "long long") or self.tile.side < PACK or held > TILES[0].side ** 2:
            bounds = f"__launch_bounds__({threads}) "
        else:
            bounds, resident = self.kernel.bounds(threads, 2)
            constants += resident
        if self.kernel.kernel.launches:  # they divide by these
            constants += self.tile_constants()
        return bounds, constants

    def tile_constants(self) -> list[str]:
        """Returns the declaration of the sides of a block's tile."""
        (rows, columns), tile = self.file_tiles, self.tile
        return [
            f"constexpr int {rows} = {tile.m};  // rows of results of a block",
            f"constexpr int {columns} = {tile.n};  // columns of results of a block",
        ]

    def _named_tiles(self) -> list[str]:
        """Returns the declarations of the tile sides in the kernel.

        The host's constants are used where launches divide by them.
        """
        if not self.kernel.kernel.launches:
            return self.tile_constants()
        names = self.names.kTileM, self.names.kTileN
        pairs = [f"{own} = {file}" for own, file in zip(names, self.file_tiles, strict=True) if own != file]
        return [f"constexpr int {', '.join(pairs)};"] if pairs else []

    def body(self) -> list[str]:
        """Returns the lines between the kernel's braces."""
        names, tile = self.names, self.tile
        stored = self.outputs if tile.side >= PACK else []
        whole = self.whole_lines(dict.fromkeys([*self._in_packs(), *stored], names.kPack))
        products, results = self._products(), self.results()
        return [
            *self._named_tiles(),
            f"constexpr int {names.kTileK} = {tile.k};  // elements of the sum at a time",
            f"constexpr int {names.kSide} = {tile.side};  // results of a thread, along each side",
            f"constexpr int {names.kPack} = {PACK};  // elements of each array that a thread loads for a tile",
            f"constexpr int {names.kPad} = {self._pad()};  // padding of each row of a tile, against bank conflicts",
            *self._asserted(),
            *self.structs,
            "// Two tiles of each: one is read while the next is stored.",
            *self._shared(),
            *self.position(),
            *self.untouched(),
            *whole,
            *self.expressions.outer,
            *self.tile_results(self._sums(products), results),
        ]

    def _sums(self, products: list[str]) -> list[str]:
        """Returns the loop that sums the products of a tile."""
        names, depth = self.names, self.lengths[self.shape.k]
        loop = f"for (int {names.k_first} = 0; {names.k_first} < {depth} + {names.kTileK}; {names.k_first} += {names.kTileK})"
        declared = [f"{one.ctype} {one.name}[{names.kSide}][{names.kSide}] = {{}};" for one in self.products]
        for one in self.beside:
            comment = "  // of the thread's rows" if self.shape.m in one.sides else "  // of the thread's columns"
            declared.append(f"{one.ctype} {one.name}[{names.kSide}] = {{}};{comment}")
        return [
            *declared,
            "// One iteration more than there are tiles: each multiplies the tile that the one before loaded; the last loads zeros.",
            *block_of(
                loop, [f"const int {names.stage} = {names.k_first} / {names.kTileK} % 2;", *self._turn(products)]
            ),
        ]

    def tile_results(self, sums: list[str], results: list[str]) -> list[str]:
        """Returns the computation of the block's one tile: its sums, and the results from them."""
        return [*sums, *results]

    def _asserted(self) -> list[str]:
        """Returns assertions on constants that depend on each other: a pack of each tile, a square of results per thread."""
        names, threads = self.names, self.kernel.thread_constant or str(BLOCK)
        results = f"{names.kTileM} * {names.kTileN} == {threads} * {names.kSide} * {names.kSide}"
        lines = [f'static_assert({results}, "a square of results per thread");']
        sides = {self._side(name): self.tile.m if name in self.shape.left else self.tile.n for name in self.tiles}
        if all(side * self.tile.k == BLOCK * PACK for side in sides.values()):
            packs = " && ".join(f"{side} * {names.kTileK} == {threads} * {names.kPack}" for side in sides)
            lines.append(f'static_assert({packs}, "a pack of each array per thread");')
        return lines

    def _turn(self, products: list[str]) -> list[str]:
        """Returns one iteration: loads of the next tile, products of the present one."""
        names = self.names
        return [
            *(line for name in self.tiles for line in self._load(name)),
            "// The products of the tile before, while the loads above are under way.",
            *block_of(f"if ({names.k_first} > 0)", products),
            "#pragma unroll",
            *block_of(
                f"for (int {names.i} = 0; {names.i} < {names.kPack}; ++{names.i})",
                [self._put(name) for name in self.tiles],
            ),
            "__syncthreads();",
        ]

    def position(self) -> list[str]:
        """Emits the block's results and the results of each thread."""
        names = self.names
        row = f"blockIdx.x / {names.across}" + (f" % {names.down}" if self.shape.batch else "")
        return [
            *self.position_in_grid(),
            f"const int {names.m_first} = {row} * {names.kTileM};",
            f"const int {names.n_first} = blockIdx.x % {names.across} * {names.kTileN};",
            *self.thread_position(),
        ]

    def thread_position(self) -> list[str]:
        """Returns the declarations of a thread's part of a tile."""
        names = self.names
        per_row = f"({names.kTileN} / {names.kSide})"
        group = names.kPack if self.tile.side >= PACK else names.kSide
        return [
            f"const int {names.m_thread} = threadIdx.x / {per_row} * {group};",
            f"const int {names.n_thread} = threadIdx.x % {per_row} * {group};",
            *self.own_packs(),
        ]

    def spread(self, first: str, number: str, side: str) -> str:
        """Returns the position of a thread's result along a side: groups of four, interleaved with the block's groups."""
        if self.tile.side <= PACK:
            return f"{first} + {number}"
        return f"{first} + {number} / {self.names.kPack} * ({side} / {self.tile.side // PACK}) + {number} % {self.names.kPack}"

    def _products(self) -> list[str]:
        """Returns the products of one tile, from registers."""
        names = self.names
        inner: list[str] = []
        self._name_elements()
        terms = [one for some in self.products for one in some.terms]
        texts = iter(self.expressions.locals_for(terms, inner))
        for one in self.products:
            text = " * ".join(next(texts) for _ in one.terms)
            inner.append(f"{one.name}[{names.i}][{names.j}] += {text};")
        self._forget()
        parts: dict[str, list[str]] = {held: [] for held in map(self._held, self.parts)}
        for name, part in self.parts.items():
            parts[self._held(name)].append(f"{part}[{names.kSide}]")
        reads = [
            f"{part}[{names.i}] = {self.tiles[name]}[{names.stage} ^ 1][{names.k}][{self.spread(names.m_thread if name in self.shape.left else names.n_thread, names.i, self._side(name))}];"
            for name, part in self.parts.items()
        ]
        reads += self._sums_beside()
        return [
            "#pragma unroll",
            *block_of(
                f"for (int {names.k} = 0; {names.k} < {names.kTileK}; ++{names.k})",
                [
                    *(f"{held} {', '.join(some)};" for held, some in parts.items()),
                    "#pragma unroll",
                    *block_of(self.over(names.i), reads),
                    "#pragma unroll",
                    *block_of(self.over(names.i), ["#pragma unroll", *block_of(self.over(names.j), inner)]),
                ],
            ),
        ]

    def _sums_beside(self) -> list[str]:
        """Returns statements that add the terms of sums of a thread's rows and columns, from elements in registers."""
        names, lines = self.names, list[str]()
        self.column = names.i
        self._name_elements()
        keys = [key for one in self.beside for key in one.terms]
        texts = iter(self.expressions.locals_for(keys, lines))
        for one in self.beside:
            lines.append(f"{one.name}[{names.i}] += {' * '.join(next(texts) for _ in one.terms)};")
        self.column = names.j
        self._forget()
        return lines

    def _name_elements(self) -> None:
        """Registers the elements that are in registers, so that several sums use them without further locals."""
        keys = walk(self.plan) if len(self.sums) > 1 else ()
        elements = (
            key for key in keys if self.plan.node(key).op == "input" and self.plan.node(key).data[0] in self.parts
        )
        self.expressions.known |= {key: self.leaf(key) for key in elements}

    def _forget(self) -> None:
        """Removes the locals that were declared in loops over elements."""
        varies = self.expressions.varies
        self.expressions.known = {key: one for key, one in self.expressions.known.items() if not varies(key)}

    def _totals(self) -> dict[Key, str]:
        """Returns the text of each sum for a thread's row and column."""
        names, m = self.names, self.shape.m
        totals = {one.key: f"{one.name}[{names.i}][{names.j}]" for one in self.products}
        return totals | {one.key: f"{one.name}[{names.i if m in one.sides else names.j}]" for one in self.beside}

    def over(self, name: str) -> str:
        """Returns the head of the loop over a thread's results along a side."""
        return f"for (int {name} = 0; {name} < {self.names.kSide}; ++{name})"

    def results(self) -> list[str]:
        """Returns the values computed from each sum, and their stores within the bounds of the result."""
        names, shape = self.names, self.shape
        lines, values = self.values(self._totals(), self.outside)
        packs = {name: self.kernel.names.fresh(f"{name}_pack") for name in values if name in self.whole}
        single = self.tile.side == PACK
        at = f".at[{names.j}]" if single else f"[{names.j} / {names.kPack}].at[{names.j} % {names.kPack}]"
        for name, value in values.items():
            if name not in packs:
                lines.append(f"{name}[{names.place}] = {value};")
                continue
            lines.append(f"{packs[name]}{at} = {value};")
            lines.append(f"if (!{self.whole[name]}) {name}[{names.place}] = {packs[name]}{at};")
        row = self.spread(f"{names.m_first} + {names.m_thread}", names.i, names.kTileM)
        column = self.spread(f"{names.n_first} + {names.n_thread}", names.j, names.kTileN)
        inside = f"{names.m} < {self.lengths[shape.m]} && {names.n} < {self.lengths[shape.n]}"
        inner = [f"const int {names.n} = {column};", *block_of(f"if ({inside})", self.with_place(lines))]
        several = "" if single else f"[{names.kSide} / {names.kPack}]"
        return [
            "#pragma unroll",
            *block_of(
                self.over(names.i),
                [
                    f"const int {names.m} = {row};",
                    *(f"{self.packs[name]} {pack}{several};" for name, pack in packs.items()),
                    "#pragma unroll",
                    *block_of(self.over(names.j), inner),
                    *self._packs_stored(packs, inside),
                ],
            ),
        ]

    def _packs_stored(self, packs: Mapping[str, str], inside: str) -> list[str]:
        """Returns the stores of a row's packs, where rows are aligned and so no pack is in part outside of the result."""
        names, single = self.names, self.tile.side == PACK
        stores: list[str] = []
        for name, pack in packs.items():
            part = pack if single else f"{pack}[{names.j} / {names.kPack}]"
            (store,) = self.with_place([f"*reinterpret_cast<{self.packs[name]}*>(&{name}[{names.place}]) = {part};"])
            stores += block_of(f"if ({self.whole[name]} && {inside})", [store])
        if not stores:
            return []
        first = f"{names.n_first} + {names.n_thread}"
        if single:
            return [f"const int {names.n} = {first};", *stores]
        apart = f"{names.j} / {names.kPack} * ({names.kTileN} / {self.tile.side // PACK})"
        head = f"for (int {names.j} = 0; {names.j} < {names.kSide}; {names.j} += {names.kPack})"
        return ["#pragma unroll", *block_of(head, [f"const int {names.n} = {first} + {apart};", *stores])]
