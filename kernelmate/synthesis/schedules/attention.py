"""Attention without stored scores: tiles of queries and keys, the softmax corrected from tile to tile of the keys.

Products are summed for `depth` elements at a time, then added: one long sum in float32 loses more than a warp's tree.

Traffic: each block reads all keys and values that its queries have, nearly all from L2, and its queries again for each tile of keys.
Arithmetic: that of the graph, scores again for each `values` columns of the result, one exponential for each score.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.attention_plan import Attention
from kernelmate.synthesis.attention_text import AttentionText, over, unrolled
from kernelmate.synthesis.causal import reach
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, those_written
from kernelmate.synthesis.plan import Key, Refused
from kernelmate.synthesis.schedules import attention_packs, attention_rows

KEYS, SIDE = 64, 4
"""Keys per tile, and keys per thread: sixteen adjacent lanes share a query."""

ACROSS = KEYS // SIDE
SECTOR, PAD = 8, 4
"""Floats per sector: this many lanes read a row, and stores of four rows by column hit 32 different banks."""

ENOUGH_BLOCKS = 128
"""Number of blocks that occupies all multiprocessors; with fewer, smaller tiles are used."""

FEW_QUERIES = 8
"""Number of queries below which most of a tile would be empty."""


@dataclass(frozen=True, slots=True)
class AttentionTile:
    """Tile sizes: queries per block, queries per thread, and vector elements multiplied at a time; at most 48 KiB of shared memory."""

    queries: int
    rows: int
    depth: int

    @property
    def threads(self) -> int:
        """Threads per block."""
        return self.queries // self.rows * ACROSS


TILES, WIDE = (AttentionTile(64, 8, 32), AttentionTile(32, 4, 32)), (AttentionTile(64, 4, 16), AttentionTile(32, 4, 16))
"""Tiles for results of up to 256 columns, and for wider ones: a thread has at most 128 partial results in registers."""


def written(plan: Attention, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the schedule does not apply.
    """
    size = kernel.contract.sizes[0]
    queries = 1 if plan.query is None else int(evaluate(plan.domain[plan.query], size))
    columns = int(evaluate(plan.domain[plan.column], size))
    others = math.prod(int(evaluate(plan.domain[axis], size)) for axis in plan.batch)
    width = next((one for one in (16, 32, 64, 128, 256, 512) if one >= columns), 256)
    fitting = TILES if width <= 256 else WIDE
    first = next((n for n, one in enumerate(fitting) if -(-queries // one.queries) * others >= ENOUGH_BLOCKS), len(fitting) - 1)  # fmt: skip
    tiles = [*fitting[first:], *reversed(fitting[:first])]
    makers = [partial(_text, plan, kernel, one, width) for one in tiles if plan.query is not None]
    single = partial(_single, plan, kernel, width)
    if queries <= FEW_QUERIES:
        yield from those_written([single, *makers[:1]])
        return
    # A block per query reads all keys for each query, so it is used only if no tile can be written.
    try:
        tiled = list(those_written(makers))
    except Refused:
        tiled = []
    yield from tiled or those_written([single])


def _single(plan: Attention, kernel: KernelText, width: int) -> WrittenKernel:
    """Returns the kernel with a block per query."""
    try:
        return attention_packs.text(plan, kernel)
    except Refused:
        return attention_rows.text(plan, kernel, width)


def _text(plan: Attention, kernel: KernelText, tile: AttentionTile, width: int) -> WrittenKernel:
    return _AttentionTiles(plan, kernel.again(), tile, width).written()


class _AttentionTiles(AttentionText):
    """Writer of the kernel's text for one tile."""

    def __init__(self, plan: Attention, kernel: KernelText, tile: AttentionTile, width: int) -> None:
        super().__init__(plan, kernel, width)
        self.tile, self.width = tile, width
        kernel.names.release(self.names.kThreads)
        self.names.kThreads, self.constants = kernel.threads(tile.threads)
        self.step = min(32, 2048 // width) if width <= 256 else 4096 // width
        self.columns = width // ACROSS
        fresh = kernel.names.fresh
        self.tiles = [fresh("query_tile"), fresh("key_tile"), fresh("value_tile")]
        self.parts = [fresh("query_part"), fresh("key_part"), fresh("value_part"), fresh("weight_part")]
        self.products = fresh("products")

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, tile, plan = self.kernel, self.names, self.tile, self.plan
        assert plan.query is not None
        whole = plan.domain[plan.query]
        tiles, side = self._queries(whole)
        self.lengths = {
            plan.key: self.length(plan.key, names.keys),
            plan.column: self.length(plan.column, names.columns),
        }
        if plan.product is not None:
            self.lengths[plan.depth] = self.length(plan.depth, names.depth)
        places, grid = self.blocks(side)
        opening = [*tiles, *places, *self.pointers()]
        start, loop, ends = self._start(), self._loop(), self._results()
        body = [
            *self._constants(), *self._shared(), *self.opening, *opening, *self._threads(), *self.expressions.outer,
            *start, *loop, *ends,
        ]  # fmt: skip
        kept = "keeps the largest score and the sum of exponentials of each query, which correct what was summed before, and divides once"
        return WrittenKernel(
            f"attention-{tile.queries}x{KEYS}",
            f"Written from the reference: a block takes {tile.queries} queries and {KEYS} keys at a time, whose scores stay in registers and "
            f"shared memory; it {kept}." + self.promise(),
            kernel.definition(kernel.head(), body),
            "\n".join(self.constants),
            (grid, f"cdiv({plan.domain[plan.column]}, {self.width})") if self.several else (grid,),
            tile.threads,
        )

    def _queries(self, whole: str) -> tuple[list[str], str]:
        """Emits the number of queries, the block's queries, and the number of blocks per head."""
        names, batch = self.names, self.plan.batch
        try:
            names.queries = self.length(self.plan.query or 0, names.queries)
            count, lines = f"cdiv({whole}, {self.tile.queries})", list[str]()
        except Refused:
            if batch:
                raise
            count = whole
            lines = [
                f"const int {names.queries} = gridDim.x;  // blocks behind the last tile have none",
                f"if (blockIdx.x > ({names.queries} - 1) / {names.kQueries}) return;",
            ]
        at, last = "blockIdx.x", "gridDim.x"
        if batch:
            lines.append(f"const int {names.tiles} = ({names.queries} + {names.kQueries} - 1) / {names.kQueries};")
            at, last = f"blockIdx.x % {names.tiles}", names.tiles
        if reach(self.plan) is None or not (batch or not lines):
            return [*lines, f"const int {names.first} = {at} * {names.kQueries};"], count
        lines.append("// The last queries have the most keys: their blocks begin first.")
        turned = f"static_cast<int>({last} - 1 - {at})" if last == "gridDim.x" else f"({last} - 1 - {at})"
        return [*lines, f"const int {names.first} = {turned} * {names.kQueries};"], count

    def _constants(self) -> list[str]:
        names, tile = self.names, self.tile
        product = self.plan.product is not None
        return [
            f"constexpr int {names.kQueries} = {tile.queries}, {names.kKeys} = {KEYS};  // of a block, the keys at a time",
            f"constexpr int {names.kValues} = {self.width};  // columns of the result of a block",
            *([f"constexpr int {names.kDepth} = {tile.depth};  // elements of queries and keys at a time"] if product else []),
            f"constexpr int {names.kStep} = {self.step};  // rows of values at a time",
            f"constexpr int {names.kSector} = {SECTOR};  // neighbouring elements that lanes load together",
            f"constexpr int {names.kPad} = {PAD};  // elements more in each row: packs stay aligned, columns meet different banks",
            f"constexpr int {names.kRows} = {tile.rows}, {names.kSide} = {SIDE};  // queries and keys of a thread",
            f"constexpr int {names.kAcross} = {names.kKeys} / {names.kSide};  // neighbouring lanes that share queries",
            f'static_assert({names.kThreads} == {names.kQueries} / {names.kRows} * {names.kAcross}, "a thread for each part of the scores");',
            f"constexpr int {names.kColumns} = {names.kValues} / {names.kAcross};  // columns of a thread",
        ]  # fmt: skip

    def _shared(self) -> list[str]:
        names, (query, key, value) = self.names, self.tiles
        lines = [
            f"__shared__ float {query}[{names.kDepth}][{names.kQueries} + {names.kPad}];",
            f"__shared__ float {key}[{names.kDepth}][{names.kKeys} + {names.kPad}];",
        ]
        return [
            *(lines if self.plan.product is not None else []),
            f"__shared__ float {names.weights}[{names.kQueries}][{names.kKeys} + {names.kPad}];",
            f"__shared__ float {value}[{names.kStep}][{names.kValues}];",
        ]

    def _threads(self) -> list[str]:
        names = self.names
        lines = [
            f"const int {names.row} = threadIdx.x / {names.kAcross} * {names.kRows};",
            f"const int {names.rank} = threadIdx.x % {names.kAcross};",
        ]
        if self.several:
            lines.append(f"const int {names.column_first} = blockIdx.y * {names.kValues};")
        return lines

    def _start(self) -> list[str]:
        names, low = self.names, self.low
        end = self.end(reach(self.plan), self.lengths[self.plan.key], f"{names.first} + {names.kQueries}")
        lines = [f"const int {names.end} = {end};  // keys from here on are masked"]
        if end == self.lengths[self.plan.key]:
            names.end, lines = end, []
        return [
            *lines,
            f"float {names.total}[{names.kRows}][{names.kColumns}] = {{}};",
            f"float {names.largest}[{names.kRows}], {names.sum}[{names.kRows}];",
            *unrolled(
                names.i, names.kRows, [f"{names.largest}[{names.i}] = {low};", f"{names.sum}[{names.i}] = 0.0f;"]
            ),
        ]

    def _loop(self) -> list[str]:
        """Returns the loop over all keys, one tile at a time."""
        names = self.names
        lines = [
            f"float {names.scores}[{names.kRows}][{names.kSide}] = {{}};",
            *(self._products() if self.plan.product is not None else []),
            *self._weights(),
            *self._sums(),
        ]
        return block_of(f"for (int {names.key_first} = 0; {names.key_first} < {names.end}; {names.key_first} += {names.kKeys})", lines)  # fmt: skip

    def _load(self, tile: str, roots: Sequence[Key], position: tuple[str, str, str], deep: tuple[str, str, str], shape: tuple[str, str], *, turned: bool) -> list[str]:  # fmt: skip
        """Returns the loop that fills a tile.

        Args:
            tile: the tile's name.
            roots: the values whose product the tile holds.
            position: for the axis of queries or keys, the name of the position, its first value in the tile, and its end.
            deep: the same three texts for the other axis.
            shape: the tile's sides along these two axes.
            turned: True if the tile's first axis is the second of them.
        """
        names, i = self.names, self.names.i
        axis = {names.query: self.plan.query, names.key: self.plan.key}[position[0]]
        along = axis is not None and self.contiguous(roots, axis)
        far, near = (f"{i} % {shape[0]}", f"{i} / {shape[0]}") if along else (f"{i} / {shape[1]}", f"{i} % {shape[1]}")
        by_sectors = turned and not along
        if by_sectors:
            far, near = i, names.n
        lines = [
            f"const int {position[0]} = {_sum(position[1], far)}, {deep[0]} = {_sum(deep[1], near)};",
        ]
        inner: list[str] = []
        text = self.product_of(roots, inner)
        at = f"[{near}][{far}]" if turned else f"[{far}][{near}]"
        lines.append(f"const bool {names.inside} = {position[0]} < {position[2]} && {deep[0]} < {deep[2]};")
        if inner:
            lines += [
                f"float {names.product} = 0.0f;",
                *block_of(f"if ({names.inside})", [*inner, f"{names.product} = {text};"]),
            ]
            lines.append(f"{tile}{at} = {names.product};")
        else:
            lines.append(f"{tile}{at} = {names.inside} ? {text} : 0.0f;")
        if by_sectors:
            rows = f"for (int {i} = threadIdx.x / {names.kSector}; {i} < {shape[0]}; {i} += {names.kThreads} / {names.kSector})"
            inner_head = (
                f"for (int {near} = threadIdx.x % {names.kSector}; {near} < {shape[1]}; {near} += {names.kSector})"
            )
            return ["#pragma unroll", *block_of(rows, ["#pragma unroll", *block_of(inner_head, lines)])]
        head = f"for (int {i} = threadIdx.x; {i} < {shape[0]} * {shape[1]}; {i} += {names.kThreads})"
        return ["#pragma unroll 4", *block_of(head, lines)]

    def _products(self) -> list[str]:
        """Returns the products of a tile's queries and keys, a few elements of both at a time."""
        names, plan, (query, key, _, _) = self.names, self.plan, self.parts
        i, j, k = names.i, names.j, names.n
        depth = self.lengths[plan.depth]
        deep = (names.c, names.c_first, depth)
        reads = [
            *unrolled(i, names.kRows, [f"{query}[{i}] = {self.tiles[0]}[{k}][{names.row} + {i}];"]),
            *unrolled(j, names.kSide, [f"{key}[{j}] = {self.tiles[1]}[{k}][{names.rank} * {names.kSide} + {j}];"]),
            *unrolled(i, names.kRows, unrolled(j, names.kSide, [f"{self.products}[{i}][{j}] += {query}[{i}] * {key}[{j}];"])),
        ]  # fmt: skip
        head = f"for (int {names.c_first} = 0; {names.c_first} < {depth}; {names.c_first} += {names.kDepth})"
        lines = [
                *self._load(self.tiles[0], plan.left, (names.query, names.first, names.queries), deep, (names.kQueries, names.kDepth), turned=True),
                *self._load(self.tiles[1], plan.right, (names.key, names.key_first, names.end), deep, (names.kKeys, names.kDepth), turned=True),
                "__syncthreads();",
                f"float {self.products}[{names.kRows}][{names.kSide}] = {{}};  // added as a whole: less is rounded away",
                "#pragma unroll 8",
                *block_of(over(k, names.kDepth), [f"float {query}[{names.kRows}], {key}[{names.kSide}];", *reads]),
                *unrolled(i, names.kRows, unrolled(j, names.kSide, [f"{names.scores}[{i}][{j}] += {self.products}[{i}][{j}];"])),
                "__syncthreads();",
            ]  # fmt: skip
        return [
            "// Scores of the tile of keys: both operands go through shared memory, a few columns at a time.",
            *block_of(head, lines),
        ]

    def _weights(self) -> list[str]:
        """Converts scores to weights, and rescales earlier sums when a larger score appears."""
        names, low = self.names, self.low
        i, j = names.i, names.j
        one = f"{names.scores}[{i}][{j}]"
        inner: list[str] = []
        text = self.scored(one, inner)
        guard = f"{names.key} < {names.end}"
        if any(self.plan.node(key).op == "input" for key in self.plan.leaves([self.plan.score])):
            guard = f"{names.query} < {names.queries} && {guard}"
        if inner:
            chosen = block_of(f"if ({guard})", [*inner, f"{one} = {text};"])
            chosen += [*block_of("else", [f"{one} = {low};"])]
            chosen = _joined_else(chosen)
        elif text == one:
            chosen = [f"if ({names.key} >= {names.end}) {one} = {low};"]
        else:
            wrapped = f"({text})" if "?" in text else text
            chosen = [f"{one} = {guard} ? {wrapped} : {low};"]
        scores = [
            f"const int {names.key} = {names.key_first} + {names.rank} * {names.kSide} + {j};",
            *chosen,
            f"{names.bound} = fmaxf({names.bound}, {one});",
        ]
        exchanged = (
            f"{names.bound} = fmaxf({names.bound}, __shfl_xor_sync(0xffffffffu, {names.bound}, {names.offset}));"
        )
        weights = [
            f"const float {names.weight} = expf({one} - {names.shift});",
            f"{names.weights}[{names.row} + {i}][{names.rank} * {names.kSide} + {j}] = {names.weight};",
            f"{names.sum}[{i}] += {names.weight};",
        ]
        query = f"const int {names.query} = {names.first} + {names.row} + {i};"
        needed = any(names.query in line for line in scores)
        comment = "// Scores become weights; earlier sums are rescaled where a larger score appears."
        return [comment, *unrolled(i, names.kRows, [
            *([query] if needed else []),
            f"float {names.bound} = {names.largest}[{i}];",
            *unrolled(j, names.kSide, scores),
            *block_of(self.halves(), [exchanged]),
            "// While all scores are -inf, nothing is subtracted: weights are zero, not NaN.",
            f"const float {names.shift} = {names.bound} == {low} ? 0.0f : {names.bound};",
            f"const float {names.factor} = expf({names.largest}[{i}] - {names.shift});",
            f"{names.largest}[{i}] = {names.bound};",
            f"{names.sum}[{i}] *= {names.factor};",
            *unrolled(j, names.kColumns, [f"{names.total}[{i}][{j}] *= {names.factor};"]),
            *unrolled(j, names.kSide, weights),
        ])]  # fmt: skip

    def halves(self) -> str:
        """Returns the head of the loop in which lanes that share queries exchange values."""
        offset = self.names.offset
        return f"for (int {offset} = {self.names.kAcross} / 2; {offset} > 0; {offset} /= 2)"

    def _sums(self) -> list[str]:
        """Returns the weighted sums of a tile's values, a few rows at a time."""
        names, (_, _, value, weight) = self.names, self.parts
        i, j, k = names.i, names.j, names.n
        first = names.column_first if self.several else ""
        deep = (names.column, first, self.lengths[self.plan.column])
        position = (names.key, f"{names.key_first} + {names.step}", names.end)
        reads = [
            *unrolled(i, names.kRows, [f"{weight}[{i}] = {names.weights}[{names.row} + {i}][{names.step} + {k}];"]),
            *unrolled(j, names.kColumns, [f"{value}[{j}] = {self.tiles[2]}[{k}][{self._column(j)}];"]),
            *unrolled(i, names.kRows, unrolled(j, names.kColumns, [f"{names.total}[{i}][{j}] += {weight}[{i}] * {value}[{j}];"])),
        ]  # fmt: skip
        unroll = ["#pragma unroll 4"] if self.step > 4 else ["#pragma unroll"]
        lines = block_of(
            f"for (int {names.step} = 0; {names.step} < {names.kKeys}; {names.step} += {names.kStep})",
            [
                *self._load(
                    self.tiles[2], self.plan.values, position, deep, (names.kStep, names.kValues), turned=False
                ),
                "__syncthreads();",
                *unroll,
                *block_of(over(k, names.kStep), [f"float {weight}[{names.kRows}], {value}[{names.kColumns}];", *reads]),
                "__syncthreads();",
            ],
        )
        return ["// The tile's values by their weights, a few rows at a time.", *lines]

    def _column(self, j: str) -> str:
        """Returns the column of a value tile for a thread's `j`-th element: packs of four, interleaved over lanes."""
        names = self.names
        if self.columns <= SIDE:
            return f"{names.rank} * {names.kColumns} + {j}"
        return f"{j} / 4 * 4 * {names.kAcross} + {names.rank} * 4 + {j} % 4"

    def _results(self) -> list[str]:
        """Returns the results of a thread's queries, divided by the sums."""
        names, plan, i, j = self.names, self.plan, self.names.i, self.names.j
        total, summed = f"{names.total}[{i}][{j}]", f"{names.sum}[{i}]"
        total = f"{total} * {names.inverse_sum}" if plan.normalised else total
        lines = self.stores(f"({total})" if plan.normalised else total, summed, f"{names.largest}[{i}]", vectors=True)
        lines = [line.replace(f"= ({total});", f"= {total};") for line in lines]
        single = self.stores("", summed, f"{names.largest}[{i}]", vectors=False)
        inside = f"{names.query} < {names.queries}"
        first = f"{names.column_first} + " if self.several else ""
        shared = f"{names.sum}[{i}] += __shfl_xor_sync(0xffffffffu, {names.sum}[{i}], {names.offset});"
        once = f"{inside} && {names.rank} == 0" + (" && blockIdx.y == 0" if self.several else "")
        comment = "// Lanes have the sums of their own keys; each result is divided by all of them once."
        return [comment, *unrolled(i, names.kRows, [
            *block_of(self.halves(), [shared]),
            f"const int {names.query} = {names.first} + {names.row} + {i};",
            *([f"const float {names.inverse_sum} = 1.0f / {summed};"] if plan.normalised else []),
            *unrolled(j, names.kColumns, [
                f"const int {names.column} = {first}{self._column(j)};",
                *block_of(f"if ({inside} && {names.column} < {self.lengths[plan.column]})", lines),
            ]),
            *(block_of(f"if ({once})", single) if single else []),
        ])]  # fmt: skip


def _sum(first: str, second: str) -> str:
    return f"{first} + {second}" if first else second


def _joined_else(lines: list[str]) -> list[str]:
    """Joins two statements to one with `else`."""
    place = lines.index("else {")
    return [*lines[: place - 1], "} else {", *lines[place + 1 :]]
