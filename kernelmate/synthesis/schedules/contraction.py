"""Sums over products of two arrays: tiles of both in shared memory, a block of results in each thread's registers.

Traffic: of M x N results over K, tiles of m x n read each array N / n and M / m times, nearly all from L2. Arithmetic: M x N x K
operations of the graph, m x n for each (m + n) elements that are read from shared memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.axes import Axes, Order, address, order_of
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.kernel_text import (
    ITEM_BYTES,
    KernelText,
    Written,
    block_of,
    c_type,
    fresh_names,
    those_written,
)
from kernelmate.synthesis.plan import Key, Plan, Refused, walk

BLOCK = 256
ENOUGH_BLOCKS = 128
"""Blocks from which larger tiles no longer leave multiprocessors idle."""


@dataclass(frozen=True, slots=True)
class Tile:
    """A block's part of the results (`m` x `n`), of the sum at a time (`k`), and a thread's part (`side` x `side`)."""

    m: int
    n: int
    k: int
    side: int


TILES = (Tile(128, 128, 8, 8), Tile(64, 64, 16, 4), Tile(32, 32, 32, 2))
"""From the largest: the more results a thread holds, the fewer reads of shared memory for each product."""

_KEEPS_ZERO = frozenset({"negative", "absolute", "square", "sqrt", "tanh", "sin", "expm1", "log1p"})


def written(plan: Plan, kernel: KernelText) -> Iterator[Written]:
    """The kernel's texts, the likeliest first.

    Raises:
        Refused: there is none.
    """
    size = kernel.contract.sizes[0]
    shape = _Shape(plan, kernel)
    m, n, *batch = (int(evaluate(shape.axes.sides[axis], size)) for axis in (shape.m, shape.n, *shape.batch))

    def blocks(tile: Tile) -> int:
        return -(-m // tile.m) * -(-n // tile.n) * math.prod(batch)

    first = next((place for place, tile in enumerate(TILES) if blocks(tile) >= ENOUGH_BLOCKS), len(TILES) - 1)
    order = [*TILES[first : first + 2], *TILES[max(first - 1, 0) : first]][:2]
    others = [tile for tile in TILES if tile not in order]
    makers, rest = ([partial(_text, plan, kernel, tile) for tile in some] for some in (order, others))
    yield from those_written(makers, rest)


def _text(plan: Plan, kernel: KernelText, tile: Tile) -> Written:
    kernel = KernelText(kernel.kernel, kernel.contract)
    return _Contraction(_Shape(plan, kernel), kernel, tile).written()


class _Shape:
    """Which axes are the results', and which are summed over.

    Attributes:
        m: the axis of the first operand alone. n: of the second. k: of both, which the results do not have. batch: of all.
        root: what is summed. left: arrays with `m`, right: with `n`, by their orders. rest: orders of what the results need besides.
    """

    def __init__(self, plan: Plan, kernel: KernelText) -> None:
        self.plan = plan
        self.reduction = next(key for key in walk(plan) if plan.node(key).op == "reduce")
        (self.root,) = plan.operands(self.reduction)
        kept = order_of(plan.outputs[0][1])
        inside = self._orders([self.root])
        outside = self._orders(plan.outputs)
        self.axes = Axes.merged(plan.domain, [kept, *inside.values(), *outside.values()])
        merged = {name: self.axes.order(order) for name, order in inside.items()}
        self.rest = {name: self.axes.order(order) for name, order in outside.items()}
        self.whole = [axis for axis in self.axes.order(kept) if isinstance(axis, int)]
        if plan.node(self.reduction).data[0] != "sum" or not merged:
            raise Refused("it reduces a product of arrays other than by a sum")
        self.batch = [axis for axis in self.whole if all(axis in order for order in merged.values())]
        summed = [axis for axis in range(len(self.axes.sides)) if axis not in self.whole]
        single = [axis for axis in self.whole if axis not in self.batch]
        if len(summed) != 1 or len(single) != 2 or any(summed[0] not in order for order in merged.values()):
            raise Refused("it sums products over other axes than a matrix product does")
        self.m, self.n, self.k = *single, summed[0]
        self.left = {name: order for name, order in merged.items() if self.n not in order}
        self.right = {name: order for name, order in merged.items() if self.m not in order}
        if not self.left or not self.right or {*self.left, *self.right} != {*merged} or {*self.left} & {*self.right}:
            raise Refused("it sums products of arrays that have all axes, or only one")
        outputs = {one.name for one in kernel.outputs()}
        if outputs & {*merged} or any(
            name in outputs and order != tuple(self.whole) for name, order in self.rest.items()
        ):
            raise Refused("an array is read where another thread may have written it")

    @property
    def outermost(self) -> int | None:
        """The batch axis that is the first of every array, whose length no address needs."""
        orders = [tuple(self.whole), *self.left.values(), *self.right.values(), *self.rest.values()]
        first = self.whole[0]
        return first if first in self.batch and all(first not in order[1:] for order in orders) else None

    def _orders(self, roots: Sequence[Key]) -> dict[str, Order]:
        """The arrays that some values need without the reduction, and how they are met."""
        found: dict[str, Order] = {}
        stack, seen = list(roots), set[Key]()
        while stack:
            key = stack.pop()
            node = self.plan.node(key)
            if node.op == "reduce" or key in seen:
                continue
            seen.add(key)
            if node.op in ("iota", "take"):
                raise Refused("it uses positions or rows by their numbers beside a matrix product")
            if node.op == "input":
                name, order = str(node.data[0]), order_of(key[1])
                if found.setdefault(name, order) != order:
                    raise Refused(f"it meets {name} along different axes")
            stack += self.plan.operands(key)
        return found


class _Contraction:
    """The text for one tile."""

    def __init__(self, shape: _Shape, kernel: KernelText, tile: Tile) -> None:
        self.shape, self.kernel, self.tile, self.plan = shape, kernel, tile, shape.plan
        if {*shape.left} & {*shape.rest} or {*shape.right} & {*shape.rest}:
            raise Refused("it needs an array of a matrix product again for the results")
        self.expressions = Expressions(self.plan, kernel, self._leaf, frozenset({"flat"}))
        self.total = self.expressions.type_of(shape.reduction)
        if self.total not in (kernel.real, "int", "unsigned int", "long long"):
            raise Refused(f"the sum of {self.plan.node(shape.reduction).dtype}")
        if not self._vanishes(shape.root):
            raise Refused("what it sums is not zero where its arrays are: tiles at the edge would count")
        self.names = fresh_names(
            kernel, "kTileM", "kTileN", "kTileK", "kSide", "kThreads", "m_first", "n_first", "k_first",
            "m_thread", "n_thread", "m", "n", "k", "i", "j", "across", "down", "sum", "place",
        )  # fmt: skip
        self.tiles = {name: kernel.names.fresh(f"{name}_tile") for name in (*shape.left, *shape.right)}
        self.parts = {name: kernel.names.fresh(f"{name}_part") for name in self.tiles}
        self.opening: list[str] = []
        sides = {shape.m: "height", shape.n: "width", shape.k: "depth"}
        self.lengths = shape.axes.lengths(kernel, sides, self.opening, skipped=shape.outermost)
        self.at: dict[int | str, str] = {axis: kernel.names.fresh("batch") for axis in shape.batch}
        for axis, name in ((shape.m, self.names.m), (shape.n, self.names.n), (shape.k, self.names.k)):
            self.at[axis] = name

    def _vanishes(self, key: Key) -> bool:
        """Whether a value is zero where all arrays are, as they are made to be behind the end of the sum."""
        node, args = self.plan.node(key), self.plan.operands(key)
        if node.op in ("input", "constant"):
            return node.op == "input" or node.data[0] == 0
        if node.op in ("view", "cast"):
            return self._vanishes(args[0])
        if node.op != "map":
            return False
        zeros = [self._vanishes(one) for one in args]
        if node.data[0] == "multiply":
            return any(zeros)
        if node.data[0] == "divide":
            return zeros[0] and not self.expressions.varies(args[1])
        return all(zeros) and (node.data[0] in _KEEPS_ZERO or node.data[0] in ("add", "subtract", "maximum", "minimum"))

    def _leaf(self, key: Key) -> str:
        node = self.plan.node(key)
        name = str(node.data[0])
        if node.op == "scalar":
            return self.kernel.loaded(name, name)
        if name in self.parts:
            return f"{self.parts[name]}[{self.names.i if name in self.shape.left else self.names.j}]"
        if self.shape.rest[name] == tuple(self.shape.whole):
            return self.kernel.loaded(name, f"{name}[{self.names.place}]")
        return self.kernel.loaded(name, f"{name}[{address(self.shape.rest[name], self.lengths, self.at)}]")

    def written(self) -> Written:
        """The text."""
        kernel, names, tile, shape = self.kernel, self.names, self.tile, self.shape
        products = self._products()
        results = self._results()
        sides = shape.axes.sides
        blocks = [
            f"cdiv({sides[shape.m]}, {tile.m})",
            f"cdiv({sides[shape.n]}, {tile.n})",
            *(sides[one] for one in shape.batch),
        ]
        loop = f"for (int {names.k_first} = 0; {names.k_first} < {self.lengths[shape.k]}; {names.k_first} += {names.kTileK})"
        body = [
            f"constexpr int {names.kTileM} = {tile.m}, {names.kTileN} = {tile.n};  // results of a block",
            f"constexpr int {names.kTileK} = {tile.k};  // elements of the sum at a time",
            f"constexpr int {names.kSide} = {tile.side};  // results of a thread, along each side",
            f"constexpr int {names.kThreads} = {names.kTileM} / {names.kSide} * ({names.kTileN} / {names.kSide});",
            "// Four elements more in each row: packs stay aligned, and what is stored by column meets different banks.",
            *(
                f"__shared__ {self._held(name)} {one}[{names.kTileK}][{self._side(name)} + 4];"
                for name, one in self.tiles.items()
            ),
            *self._block(),
            *self.expressions.outer,
            f"{self.total} {names.sum}[{names.kSide}][{names.kSide}] = {{}};",
            *block_of(
                loop,
                [
                    *(line for name in self.tiles for line in self._load(name)),
                    "__syncthreads();",
                    *products,
                    "__syncthreads();",
                ],
            ),
            *results,
        ]
        return Written(
            f"contraction-{tile.m}x{tile.n}",
            f"Written from the reference: tiles of {tile.m} x {tile.n} results, whose operands are read into shared memory once for "
            f"each block, and {tile.side} x {tile.side} results in the registers of each thread." + self._promise(),
            kernel.definition(kernel.head(), body),
            "",
            (" * ".join(blocks),),
            BLOCK,
        )

    def _promise(self) -> str:
        """The arithmetic at the headline's size, and what each tile reads of global memory and L2."""
        size = self.kernel.contract.sizes[0]
        count = math.prod(int(evaluate(side, size)) for side in self.shape.axes.sides)
        widths = {name: ITEM_BYTES[self.kernel.arguments[name].dtype] for name in self.tiles}
        read = sum(
            count * width / (self.tile.n if name in self.shape.left else self.tile.m) for name, width in widths.items()
        )
        moved = self.kernel.promise([*self.tiles, *self.shape.rest])
        return f"{moved} It computes {2 * count / 1e9:.3g} GFLOP, and reads {read / 1e6:.3g} MB, most of it from L2."

    def _held(self, name: str) -> str:
        """The C++ type in which elements of an array lie in its tile."""
        dtype = self.kernel.arguments[name].dtype
        return self.kernel.real if "float" in dtype else c_type(dtype, self.kernel.real)

    def _side(self, name: str) -> str:
        return str(self.names.kTileM if name in self.shape.left else self.names.kTileN)

    def _block(self) -> list[str]:
        """Which results a block and its threads take."""
        names, shape, lengths = self.names, self.shape, self.lengths
        across = f"const int {names.across} = ({lengths[shape.n]} + {names.kTileN} - 1) / {names.kTileN};"
        lines = [*self.opening, across]
        row = f"blockIdx.x / {names.across}"
        if shape.batch:
            lines.append(f"const int {names.down} = ({lengths[shape.m]} + {names.kTileM} - 1) / {names.kTileM};")
            left = f"blockIdx.x / {names.across} / {names.down}"
            for number, axis in enumerate(reversed(shape.batch), 1):
                rest = "" if number == len(shape.batch) else f" % {lengths[axis]}"
                lines.append(f"const int {self.at[axis]} = {left}{rest};")
                left = f"{left} / {lengths[axis]}"
            row += f" % {names.down}"
        per_row = f"({names.kTileN} / {names.kSide})"
        return [
            *lines,
            f"const int {names.m_first} = {row} * {names.kTileM};",
            f"const int {names.n_first} = blockIdx.x % {names.across} * {names.kTileN};",
            f"const int {names.m_thread} = threadIdx.x / {per_row} * {names.kSide};",
            f"const int {names.n_thread} = threadIdx.x % {per_row} * {names.kSide};",
        ]

    def _load(self, name: str) -> list[str]:
        """The loop that fills a tile, along the axis that is contiguous in the array."""
        names, shape, lengths, i = self.names, self.shape, self.lengths, self.names.i
        left = name in shape.left
        order = (shape.left if left else shape.right)[name]
        axis, position, first = (shape.m, names.m, names.m_first) if left else (shape.n, names.n, names.n_first)
        side = self._side(name)
        along_k = order[-1] != axis
        deep, wide = (
            (f"{i} % {names.kTileK}", f"{i} / {names.kTileK}") if along_k else (f"{i} / {side}", f"{i} % {side}")
        )
        inside = f"{position} < {lengths[axis]} && {names.k} < {lengths[shape.k]}"
        value = self.kernel.loaded(name, f"{name}[{address(order, lengths, self.at)}]")
        zero = self.expressions.number(0.0) if self._held(name) == self.kernel.real else "0"
        return [
            "#pragma unroll",
            *block_of(
                f"for (int {i} = threadIdx.x; {i} < {side} * {names.kTileK}; {i} += {names.kThreads})",
                [
                    f"const int {names.k} = {names.k_first} + {deep}, {position} = {first} + {wide};",
                    f"{self.tiles[name]}[{deep}][{wide}] = {inside} ? {value} : {zero};",
                ],
            ),
        ]

    def _products(self) -> list[str]:
        """The products of one tile, from registers."""
        names = self.names
        inner: list[str] = []
        (text,) = self.expressions.locals_for([self.shape.root], inner)
        inner.append(f"{names.sum}[{names.i}][{names.j}] += {text};")
        parts: dict[str, list[str]] = {held: [] for held in map(self._held, self.parts)}
        for name, part in self.parts.items():
            parts[self._held(name)].append(f"{part}[{names.kSide}]")
        reads = [
            f"{part}[{names.i}] = {self.tiles[name]}[{names.k}][{names.m_thread if name in self.shape.left else names.n_thread} + {names.i}];"
            for name, part in self.parts.items()
        ]
        self.expressions.known = {
            key: one for key, one in self.expressions.known.items() if not self.expressions.varies(key)
        }
        return [
            "#pragma unroll",
            *block_of(
                f"for (int {names.k} = 0; {names.k} < {names.kTileK}; ++{names.k})",
                [
                    *(f"{held} {', '.join(some)};" for held, some in parts.items()),
                    "#pragma unroll",
                    *block_of(self._over(names.i), reads),
                    "#pragma unroll",
                    *block_of(self._over(names.i), ["#pragma unroll", *block_of(self._over(names.j), inner)]),
                ],
            ),
        ]

    def _over(self, name: str) -> str:
        return f"for (int {name} = 0; {name} < {self.names.kSide}; ++{name})"

    def _results(self) -> list[str]:
        """What follows from each sum, and stores within the result."""
        names, shape, kernel = self.names, self.shape, self.kernel
        self.expressions.known[shape.reduction] = f"{names.sum}[{names.i}][{names.j}]"
        outputs = [one.name for one in kernel.outputs()]
        lines = [f"const size_t {names.place} = {address(tuple(shape.whole), self.lengths, self.at)};"]
        texts = self.expressions.locals_for(self.plan.outputs, lines)
        for name, key, text in zip(outputs, self.plan.outputs, texts, strict=True):
            if len(outputs) > 1 and name in shape.rest:
                raise Refused(f"{name} is read for several results")
            lines.append(f"{name}[{names.place}] = {kernel.stored(name, text, self.plan.node(key).dtype)};")
        inside = f"{names.m} < {self.lengths[shape.m]} && {names.n} < {self.lengths[shape.n]}"
        return [
            "#pragma unroll",
            *block_of(
                self._over(names.i),
                [
                    f"const int {names.m} = {names.m_first} + {names.m_thread} + {names.i};",
                    "#pragma unroll",
                    *block_of(
                        self._over(names.j),
                        [
                            f"const int {names.n} = {names.n_first} + {names.n_thread} + {names.j};",
                            *block_of(f"if ({inside})", lines),
                        ],
                    ),
                ],
            ),
        ]
