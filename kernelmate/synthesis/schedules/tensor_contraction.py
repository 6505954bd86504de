"""Sums over products of two arrays on tensor cores: `mma.sync` on fragments that `ldmatrix` reads from shared tiles.

Tiles of both operands are copied to shared memory by `cp.async`, several of them under way while one is multiplied. Each row of a
tile is cut into chunks of 16 bytes, whose positions are permuted by the row's number, so that the eight rows that `ldmatrix` reads
at a time lie in different banks. An operand whose contiguous axis is the sum's is read as it is, another one is transposed by
`ldmatrix`. If arrays are not aligned, or end within a chunk, a thread assembles the chunk from single elements.

Traffic: of M x N results over K, tiles of m x n read each array N / n and M / m times, nearly all from L2. Arithmetic: M x N x K
products with sums in float (or int), m x n for each (m + n) elements that are copied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.axes import address
from kernelmate.synthesis.contraction_shape import ContractionShape, Factors
from kernelmate.synthesis.kernel_text import ITEM_BYTES, STATIC_BYTES, KernelText, WrittenKernel, block_of, indented
from kernelmate.synthesis.plan import Plan, Refused
from kernelmate.synthesis.tensor_products import CHUNK, GROUP, IN_FLIGHT, STEP, TILES, TensorTile, ranked
from kernelmate.synthesis.tensor_tiles import TensorTiles


def makers(plan: Plan, kernel: KernelText) -> list[partial[WrittenKernel]]:
    """Returns the writers of the kernel's text, the one expected to be fastest first.

    Raises:
        Refused: tensor cores do not multiply these arrays.
    """
    shape = ContractionShape(plan, kernel)
    factors = _factors(shape)
    _TensorContraction(shape, factors, kernel.again(), TILES[0])
    size = kernel.contract.sizes[0]
    m, n, k, *batch = (
        int(evaluate(shape.axes.sides[axis], size)) for axis in (shape.m, shape.n, shape.k, *shape.batch)
    )
    item = ITEM_BYTES[kernel.arguments[factors[0].left].dtype]
    fixed = bool(kernel.kernel.launches) or kernel.kernel.unit.language == "python"
    arrays = len({one.left for one in factors}), len({one.right for one in factors})
    tiles = ranked(m, n, k, math.prod(batch), item, fixed=fixed, arrays=arrays, products=len(factors))
    return [partial(_text, plan, kernel, tile) for tile in tiles]


def _text(plan: Plan, kernel: KernelText, tile: TensorTile) -> WrittenKernel:
    kernel = kernel.again()
    shape = ContractionShape(plan, kernel)
    return _TensorContraction(shape, _factors(shape), kernel, tile).written()


def _factors(shape: ContractionShape) -> list[Factors]:
    """Returns the factors of each product.

    Raises:
        Refused: a sum is not a product of two arrays, or one of several has factors beside them.
    """
    found = [Factors.of(shape, number) for number in range(len(shape.reductions))]
    if len(found) > 1 and any(one.outside for one in found):
        raise Refused("its sums have factors that others do not have")
    return found


class _TensorContraction(TensorTiles):
    """Text of a tensor-core kernel for one choice of tile sizes."""

    def __init__(
        self, shape: ContractionShape, factors: Sequence[Factors], kernel: KernelText, tile: TensorTile
    ) -> None:
        super().__init__(shape, factors, kernel, tile)
        self.factors, self.outside = factors, factors[0].outside
        self.sums = [self.names.sum, *(kernel.names.fresh("sums") for _ in factors[1:])]
        down, across, shared = tile.warps
        if down == 1:
            self.names.m_thread = ""
        if across == 1:
            self.names.n_thread = ""
        if shared > 1 and down * across == 1:
            self.names.part = self.names.warp
        self.wide = CHUNK // max(ITEM_BYTES[kernel.arguments[name].dtype] for name in self.outputs)
        self.take_packs(self.outputs, "Results", self.names.kWide)
        self.fragments = {name: kernel.names.fresh(f"{name}_part") for name in self.operands}
        self.lanes = {name: kernel.names.fresh(f"{name}_lane") for name in self.operands}
        self.chunks = {name: kernel.names.fresh(f"{name}_chunk") for name in self.operands}

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, tile = self.kernel, self.tile
        resident = 2 if tile.threads * tile.held <= 64 * 256 else 1
        threads, constants = kernel.threads(tile.threads)
        self.names.kThreads = threads
        bounds, minimum = kernel.bounds(threads, resident)
        constants += minimum
        body = self._body()
        turned = {self._turned(name) for name in self.operands}
        shared = tile.shared_bytes if tile.shared_bytes > STATIC_BYTES else 0
        copied = [name for name in self.operands if name in self.whole]
        chunks = [self._rows(name) * self._row_chunks(name) for name in copied]
        helpers = self.text.helpers(
            turned,
            tiles=bool(copied),
            idle=any(count < tile.threads for count in chunks),
            few=any(count * CHUNK // self.item < IN_FLIGHT * tile.threads for count in chunks),
        )
        several = f" of {len(self.factors)} products" if len(self.factors) > 1 else ""
        return WrittenKernel(
            f"tensor-{tile.name}",
            f"Written from the reference for tensor cores: each block computes {tile.m} x {tile.n} results with {tile.stages} tiles of each "
            f"operand in use or under way by cp.async; each warp has {tile.part[0]} x {tile.part[1]} results{several} in registers."
            + self.promise(tile.m, tile.n),
            kernel.definition(kernel.head(bounds), body),
            "\n".join([*constants, "", helpers]),
            (self.blocks(tile.m, tile.n),),
            tile.threads,
            shared=shared,
            capability=80,
        )

    def _body(self) -> list[str]:
        """Returns the lines between the kernel's braces."""
        names, k = self.names, self.lengths[self.shape.k]
        packs = {**dict.fromkeys(self.operands, names.kPack), **dict.fromkeys(self.outputs, names.kWide)}
        whole = self.whole_lines(packs)
        copies = [line for name in self.operands for line in self._copy(name)]
        multiply, results = self._multiply(), self._results()
        return [
            *self._constants(),
            *self.structs,
            *self._shared(),
            *self._block(),
            *self.untouched(),
            *whole,
            *self.expressions.outer,
            *self._lanes(),
            *(f"{self.total} {one}[{names.kWarpM} / 16][{names.kWarpN} / 8][4] = {{}};" for one in self.sums),
            f"const int {names.steps} = ({k} + {names.kTileK} - 1) / {names.kTileK};",
            *block_of(
                f"for (int {names.step} = 0; {names.step} < {names.steps} + {names.kStages} - 1; ++{names.step})",
                [
                    "// The tiles to be multiplied now have arrived, and no warp still reads those that are overwritten.",
                    f'asm volatile("cp.async.wait_group %0;" ::"n"({names.kStages} - 2) : "memory");',
                    "__syncthreads();",
                    f"const int {names.stage} = {names.step} % {names.kStages};",
                    *block_of(f"if ({names.step} < {names.steps})", copies),
                    'asm volatile("cp.async.commit_group;" ::: "memory");',
                    *block_of(f"if ({names.step} >= {names.kStages} - 1)", multiply),
                ],
            ),
            *self._joined(),
            *results,
        ]

    def _constants(self) -> list[str]:
        names, tile = self.names, self.tile
        warp_m, warp_n = tile.part
        lines = [
            f"constexpr int {names.kTileM} = {tile.m}, {names.kTileN} = {tile.n};  // results of a block",
            f"constexpr int {names.kTileK} = {tile.chunks * CHUNK // self.item};  // elements of the sum at a time",
            f"constexpr int {names.kWarpM} = {warp_m}, {names.kWarpN} = {warp_n};  // results of a warp",
            f"constexpr int {names.kStages} = {tile.stages};  // tiles of each operand in use or under way",
            f"constexpr int {names.kPack} = {CHUNK // self.item};  // elements of 16 bytes",
            f"constexpr int {names.kWide} = {self.wide};  // neighbouring results that a lane stores at a time",
            f"constexpr int {names.kStep} = {STEP // self.item};  // elements of the sum in one mma.sync",
            f"constexpr int {names.kGroup} = {GROUP};  // rows of tiles that blocks take together, so that operands stay in L2",
        ]
        if tile.warps[2] > 1:
            lines.append(
                f"constexpr int {names.kWarpsK} = {tile.warps[2]};  // warps that share the sums of their results"
            )
        warps = f"({names.kTileM} / {names.kWarpM}) * ({names.kTileN} / {names.kWarpN})"
        warps += f" * {names.kWarpsK}" * (tile.warps[2] > 1)
        return [*lines, f'static_assert({warps} == {names.kThreads} / 32, "a warp for each part of the results");']

    def _block(self) -> list[str]:
        """Emits the results of a block and its warps."""
        names, tile = self.names, self.tile
        within = f"({names.kGroup} * {names.across})"
        count = f"{names.across} * {names.down}"
        lines = self.position_in_grid(grouped=True)
        lines.append(f"const int {names.block} = blockIdx.x" + (f" % ({count});" if self.shape.batch else ";"))
        lines += [
            f"const int {names.first_group} = {names.block} / {within} * {names.kGroup};",
            f"const int {names.together} = min({names.down} - {names.first_group}, {names.kGroup});",
            f"const int {names.m_first} = ({names.first_group} + {names.block} % {within} % {names.together}) * {names.kTileM};",
            f"const int {names.n_first} = {names.block} % {within} / {names.together} * {names.kTileN};",
            f"const int {names.warp} = threadIdx.x / 32, {names.lane} = threadIdx.x % 32;",
        ]
        across, down = tile.warps[1], tile.warps[0]
        shares = (
            (names.m_thread, self._share(down, across), names.kWarpM),
            (names.n_thread, self._share(across, 1), names.kWarpN),
        )
        lines += [f"const int {name} = {number} * {by};" for name, number, by in shares if number != "0"]
        if tile.warps[2] > 1 and down * across > 1:
            lines.append(f"const int {names.part} = {names.warp} / {down * across};")
        return lines

    def _share(self, count: int, behind: int) -> str:
        """Returns a warp's index along an axis of `count` warps."""
        if count == 1:
            return "0"
        text = self.names.warp + (f" / {behind}" if behind > 1 else "")
        return text if count * behind * 32 == self.tile.threads else f"{text} % {count}"

    def _lanes(self) -> list[str]:
        """Emits the tile row that a lane passes to `ldmatrix`, and its swizzled chunk."""
        names, lines = (
            self.names,
            [
                "// The row of a tile whose address a lane gives to ldmatrix, and the place of its first chunk. The place of a later",
                "// one is its number XOR that, as rows of tiles begin at multiples of 8.",
            ],
        )
        for name in self.operands:
            row, chunk = f"{names.lane} % 16", f"{names.lane} / 16"
            if self._turned(name) == (name in self.shape.left):
                row, chunk = f"{names.lane} / 16 * 8 + {names.lane} % 8", f"{names.lane} / 8 % 2"
            side = names.kTileM if name in self.shape.left else names.kTileN
            width = side if self._turned(name) else names.kTileK
            place = f"{self.text.swizzle}<{width} / {names.kPack}>({self.lanes[name]}, {chunk})"
            lines.append(f"const int {self.lanes[name]} = {row}, {self.chunks[name]} = {place};")
        return lines

    def _multiply(self) -> list[str]:
        """Returns the products of one tile."""
        names = self.names
        loads = []
        counts = {name: names.kWarpM if name in self.shape.left else names.kWarpN for name in self.operands}
        for name, count in counts.items():
            start = names.m_thread if name in self.shape.left else names.n_thread
            row, chunk = _sum(start, f"{names.i} * 16"), f"{names.k}"
            if self._turned(name):
                row, chunk = chunk, f"({row})" if " + " in row else row
            place = f"{names.tile}.{self.members[name]}[{row} + {self.lanes[name]}][(({chunk} / {names.kPack}) ^ {self.chunks[name]}) * {names.kPack}]"
            loads += [
                "#pragma unroll",
                *block_of(
                    f"for (int {names.i} = 0; {names.i} < {count} / 16; ++{names.i})",
                    [f"{self.text.load_of(turned=self._turned(name))}({self.fragments[name]}[{names.i}], &{place});"],
                ),
            ]
        products = []
        for one, total in zip(self.factors, self.sums, strict=True):
            left, half = self.fragments[one.left], f"{self.fragments[one.right]}[{names.j} / 2]"
            products.append(
                f"{self.text.multiply}({total}[{names.i}][{names.j}], {left}[{names.i}], "
                f"{half}[{names.j} % 2 * 2], {half}[{names.j} % 2 * 2 + 1]);"
            )
        held = ", ".join(f"{self.fragments[name]}[{count} / 16][4]" for name, count in counts.items())
        shared = self.tile.warps[2] > 1
        begin = f"{names.part} * {names.kStep}" if shared else "0"
        stride = f"{names.kWarpsK} * {names.kStep}" if shared else names.kStep
        return [
            f"const {names.Tiles}& {names.tile} = {names.tiles}[({names.step} + 1) % {names.kStages}];",
            "#pragma unroll",
            *block_of(
                f"for (int {names.k} = {begin}; {names.k} < {names.kTileK}; {names.k} += {stride})",
                [
                    f"unsigned {held};",
                    *loads,
                    "#pragma unroll",
                    *block_of(
                        f"for (int {names.i} = 0; {names.i} < {names.kWarpM} / 16; ++{names.i})",
                        [
                            "#pragma unroll",
                            *block_of(
                                f"for (int {names.j} = 0; {names.j} < {names.kWarpN} / 8; ++{names.j})", products
                            ),
                        ],
                    ),
                ],
            ),
        ]

    def _joined(self) -> list[str]:
        """Returns statements in which the first of the warps that share results adds up their sums."""
        names = self.names
        if self.tile.warps[2] == 1:
            return []
        count = f"{names.kWarpM} * {names.kWarpN} / 32"
        over = ["#pragma unroll", f"for (int {names.i} = 0; {names.i} < {count}; ++{names.i})"]
        mine = f"{names.partial}[{names.i}][threadIdx.x"
        added = []
        for one in self.sums:
            flat = f"(&{one}[0][0][0])[{names.i}]"
            added += [
                "__syncthreads();",
                over[0],
                *block_of(over[1], [f"{mine}] = {flat};"]),
                "__syncthreads();",
                *block_of(
                    f"for (int {names.j} = 1; {names.part} == 0 && {names.j} < {names.kWarpsK}; ++{names.j})",
                    [
                        over[0],
                        *block_of(over[1], [f"{flat} += {mine} + {names.j} * ({names.kThreads} / {names.kWarpsK})];"]),
                    ],
                ),
            ]
        return [
            "// The first of the warps with the same results adds up the sums of all; the tiles are no longer needed.",
            f'static_assert(sizeof({self.total}) * {count} * {names.kThreads} <= {names.kStages} * sizeof({names.Tiles}), "room for the sums");',
            f"auto {names.partial} = reinterpret_cast<{self.total}(*)[{names.kThreads}]>({names.tiles});",
            *added,
        ]

    def _results(self) -> list[str]:
        """Returns the values computed from each sum, and their stores."""
        names = self.names
        lines = [
            f"const int {names.line} = {names.pack} / ({names.kWarpN} / {names.kWide});",
            f"const int {names.chunk} = {names.pack} % ({names.kWarpN} / {names.kWide}) * {names.kWide};",
            f"const int {names.m} = {_sum(names.m_first, names.m_thread, f'{names.i} * 16', names.line)};",
            f"const int {names.first} = {_sum(names.n_first, names.n_thread, names.chunk)};",
            *block_of(f"if ({names.m} < {self.lengths[self.shape.m]})", self._stored()),
        ]
        row, column = (
            f"{names.lane} / 4 + {names.e} / 2 * 8",
            f"{names.j} * 8 + {names.lane} % 4 * 2 + {names.e} % 2",
        )
        count = len(self.sums)
        several, times = (f"[{count}]", f"{count} * ") if count > 1 else ("", "")
        moves = [
            f"{names.staged}{self._of_sum(number)}[{row}][{column}] = {one}[{names.i}][{names.j}][{names.e}];"
            for number, one in enumerate(self.sums)
        ]
        return [
            "// Results leave through shared memory, 16 rows of a warp at a time, so that a lane gets neighbouring ones of a row.",
            f"constexpr int {names.kStaged} = {names.kWarpN} + 8;  // 8 elements more: rows of a store begin in different banks",
            f'static_assert({times}sizeof({self.total}) * ({names.kThreads} / 32) * 16 * {names.kStaged} <= {names.kStages} * sizeof({names.Tiles}), "room for the results");',
            f"auto {names.staged} = reinterpret_cast<{self.total}(*){several}[16][{names.kStaged}]>({names.tiles})[{names.warp}];",
            "__syncthreads();",
            *([f"if ({names.part} > 0) return;"] if self.tile.warps[2] > 1 else []),
            "#pragma unroll",
            *block_of(
                f"for (int {names.i} = 0; {names.i} < {names.kWarpM} / 16; ++{names.i})",
                [
                    "#pragma unroll",
                    *block_of(
                        f"for (int {names.j} = 0; {names.j} < {names.kWarpN} / 8; ++{names.j})",
                        [
                            "#pragma unroll",
                            *block_of(
                                f"for (int {names.e} = 0; {names.e} < 4; ++{names.e})",
                                moves,
                            ),
                        ],
                    ),
                    "__syncwarp();",
                    *block_of(
                        f"for (int {names.pack} = {names.lane}; {names.pack} < 16 * {names.kWarpN} / {names.kWide}; {names.pack} += 32)",
                        lines,
                    ),
                    "__syncwarp();",
                ],
            ),
        ]

    def _of_sum(self, number: int) -> str:
        """Returns the index of a sum among those of a result, if there are several."""
        return f"[{number}]" if len(self.sums) > 1 else ""

    def _stored(self) -> list[str]:
        """Returns the values of adjacent results of a row, and their stores, as packs if aligned."""
        names, width = self.names, self.lengths[self.shape.n]
        totals = {
            key: f"{names.staged}{self._of_sum(number)}[{names.line}][{names.chunk} + {names.e}]"
            for number, key in enumerate(self.shape.reductions)
        }
        inner, values = self.values(totals, self.outside)
        packs = {name: self.kernel.names.fresh(f"{name}_pack") for name in values}
        if any(names.place in line for line in (*inner, *values.values())):
            inner.insert(0, self.placed())
        inner += [f"{packs[name]}.at[{names.e}] = {value};" for name, value in values.items()]
        each = f"for (int {names.e} = 0; {names.e} < {names.kWide}; ++{names.e})"
        lines = [
            *(f"{self.packs[name]} {pack};" for name, pack in packs.items()),
            "#pragma unroll",
            *block_of(
                each,
                [f"const int {names.n} = {names.first} + {names.e};", *block_of(f"if ({names.n} < {width})", inner)],
            ),
        ]
        for name, pack in packs.items():
            at = address(tuple(self.shape.whole), self.lengths, {**self.at, self.shape.n: names.first})
            single = f"if ({names.first} + {names.e} < {width}) {name}[{at} + {names.e}] = {pack}.at[{names.e}];"
            if name in self.whole:
                lines += [
                    f"if ({self.whole[name]}) {{",
                    f"  if ({names.first} < {width}) *reinterpret_cast<{self.packs[name]}*>(&{name}[{at}]) = {pack};",
                    "} else {",
                    *indented(["#pragma unroll", f"{each} {{", f"  {single}", "}"]),
                    "}",
                ]
            else:
                lines += ["#pragma unroll", f"{each} {{", f"  {single}", "}"]
        return lines


def _sum(*parts: str) -> str:
    """Returns the sum of positions, without zeros."""
    return " + ".join(one for one in parts if one)
