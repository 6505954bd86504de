"""Reductions of each row of a matrix product, which is never stored: nearest neighbours, maxima of scores, log-sum-exp of logits.

A block computes the tiles of a few rows of the product one after another, as `contraction` does; its threads keep the reductions of
their own columns in registers, and the threads of a row combine them by shuffles after the last tile.

Traffic: of M rows over N columns and depth K, tiles of m x n read the left array N / n times and the right one M / m times, nearly
all from L2; the product itself moves no bytes. Arithmetic: M x N x K operations of the graph, and those of the reductions.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.axes import address
from kernelmate.synthesis.contraction_shape import ContractionShape
from kernelmate.synthesis.contraction_tiles import BLOCK, TILES, ContractionTile, as_deep_as
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph, Node, pruned, sorted_graph
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, those_written
from kernelmate.synthesis.online import LOWEST as LOWEST_REAL
from kernelmate.synthesis.online import online_of
from kernelmate.synthesis.plan import Key, Plan, Refused, behind, free_plan, plan_of, walk
from kernelmate.synthesis.reductions import EXTREMES, LOWEST, Reductions, Team, is_extreme, start_of
from kernelmate.synthesis.schedules.contraction import ENOUGH_BLOCKS
from kernelmate.synthesis.tiled_contraction import TiledContraction

PRODUCT = "@product"
"""Name of the array that stands for the product in the plan of the reductions."""

_NAMES = {
    "sum": "row_sum",
    "prod": "row_product",
    "max": "row_max",
    "min": "row_min",
    "argmax": "row_max",
    "argmin": "row_min",
}


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the graph is not a reduction of a product's rows.
    """
    product, rows = _parts(graph)
    shape = ContractionShape(product, kernel)
    levels = _Levels(rows)
    size = kernel.contract.sizes[0]
    m, *batch = (int(evaluate(shape.axes.sides[axis], size)) for axis in (shape.m, *shape.batch))

    def blocks(tile: ContractionTile) -> int:
        return -(-m // tile.m) * math.prod(batch)

    first = next((place for place, tile in enumerate(TILES) if blocks(tile) >= ENOUGH_BLOCKS), len(TILES) - 1)
    order = [*TILES[first : first + 2], *TILES[max(first - 1, 0) : first]][:2]
    makers, others = (
        [partial(_text, product, levels, kernel, tile) for tile in some]
        for some in (order, [tile for tile in TILES if tile not in order])
    )
    yield from those_written(makers, others)


def _text(product: Plan, levels: _Levels, kernel: KernelText, tile: ContractionTile) -> WrittenKernel:
    kernel = kernel.again()
    shape = ContractionShape(product, kernel)
    return _ReducedProducts(shape, levels, kernel, as_deep_as(tile, shape.axes.sides[shape.k])).written()


def _parts(graph: Graph) -> tuple[Plan, Plan]:
    """Returns the plan of the product, and the plan of the row reductions, which read the product as an array.

    Raises:
        Refused: it is not a reduction of a product's rows.
    """
    nodes = graph.nodes
    if sum(node.op == "reduce" for node in nodes) < 2:
        raise Refused("it does not reduce rows of a product")
    deepest = [index for index, node in enumerate(nodes) if node.op == "reduce" and len(node.shape) >= 2]
    depth = max((len(nodes[one].shape) for one in deepest), default=0)
    products = [one for one in deepest if len(nodes[one].shape) == depth and nodes[one].data[0] == "sum"]
    if len(products) != 1:
        raise Refused("it does not reduce rows of one product")
    (index,) = products
    graph = _with_picks(graph, index)
    nodes = graph.nodes
    product = free_plan(pruned(nodes, [index]))
    stand_in = Node("input", (), nodes[index].shape, nodes[index].dtype, (PRODUCT,), nodes[index].name)
    rows = plan_of(sorted_graph([*nodes[:index], stand_in, *nodes[index + 1 :]], graph.outputs))
    if rows.kind != "rows" or rows.split != len(rows.domain) - 1 or rows.split == 0:
        raise Refused("it reduces a product along other axes than its rows")
    if {len([one for one in key[1] if one is not None]) for key in rows.outputs} != {rows.split}:
        raise Refused("it has results for each element of a product")
    return product, rows


def _with_picks(graph: Graph, product: int) -> Graph:
    """Returns the graph with each indexed element of a product's row as a sum of which it is the only nonzero term.

    Node indices do not change.
    """
    nodes = list(graph.nodes)
    later: dict[int, int] = {}
    for index, node in enumerate(graph.nodes):
        if node.op != "gather" or not _depends(graph, node.args[0], product):
            continue
        source, chosen = node.args
        rows, columns = graph.nodes[source].shape[:-1], graph.nodes[source].shape[-1]
        whole, kind = (*rows, columns), graph.nodes[chosen].dtype
        first = len(nodes)
        nodes += [
            Node("iota", (), (columns,), "int64"),
            Node("view", (first,), (*("1" for _ in rows), columns), "int64", (*(None for _ in rows), 0)),
            Node("view", (chosen,), (*rows, "1"), kind, (*range(len(rows)), None)),
            Node("cast", (first + 2,), (*rows, "1"), "int64"),
            Node("map", (first + 1, first + 3), whole, "bool", ("equal",)),
            Node("constant", (), (), node.dtype, (0,)),
            Node("map", (first + 4, source, first + 5), whole, node.dtype, ("where",)),
            Node("reduce", (first + 6,), node.shape, node.dtype, ("sum", len(rows)), node.name or "chosen"),
        ]
        later[index] = first + 7
    if not later:
        return graph
    nodes = [replace(one, args=tuple(later.get(arg, arg) for arg in one.args)) for one in nodes]
    return Graph(tuple(nodes), tuple(later.get(one, one) for one in graph.outputs))


def _depends(graph: Graph, index: int, product: int) -> bool:
    """Returns True if a value is computed from a product."""
    stack, seen = [index], set[int]()
    while stack:
        one = stack.pop()
        if one == product:
            return True
        if one not in seen:
            seen.add(one)
            stack += graph.nodes[one].args
    return False


class _Levels:
    """The reductions of a product's rows that one pass over the product computes.

    Attributes:
        plan: of the rows.
        first: reductions of values of the product.
        second: sums of exponentials relative to maxima among them.
        online: the maximum's node for each node of `second`.

    Raises:
        Refused: they need the product twice, or are of a type for which there is no text.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        ranks: dict[Key, int] = {}
        for key in walk(plan):
            rank = max((ranks[one] for one in plan.operands(key)), default=0)
            ranks[key] = rank + (plan.node(key).op == "reduce")
        reductions = [key for key in ranks if plan.node(key).op == "reduce"]
        self.first, self.second = ([key for key in reductions if ranks[key] == rank] for rank in (1, 2))
        self.online = online_of(plan, [self.first, self.second]) if self.second else {}
        if len(self.first) + len(self.second) < len(reductions) or {key[0] for key in self.second} != {*self.online}:
            raise Refused("it needs a product's rows twice")
        if any(plan.node(key).data[0] == "prod" for key in reductions):
            raise Refused("it reduces a product's rows other than to sums or extremes")


def reduction_local(kernel: KernelText, said: str, kind: str) -> str:
    """Returns a new local for a reduction of a row, named as in the reference if that name is free."""
    # A position's name is not that of the value that comes with it.
    names = kernel.names
    return names.fresh(said if said and names.is_free(said) and not is_extreme(kind) else _NAMES[kind])


class _ReducedProducts(TiledContraction):
    """Writer of the kernel's text for one tile."""

    def __init__(self, shape: ContractionShape, levels: _Levels, kernel: KernelText, tile: ContractionTile) -> None:
        super().__init__(shape, kernel, tile)
        self.rows, self.levels = levels.plan, levels
        if self.outside or shape.whole[-1] != shape.n:
            raise Refused("its product has further factors, or rows in another order")
        self.lanes = tile.n // tile.side
        self.reductions = Reductions(self.rows.graph, kernel, Team("warp", self.lanes, BLOCK), "")
        self.of_rows = Expressions(self.rows, kernel, self._leaf_of_rows, frozenset({"flat", "column"}))
        self.product = next(key for key in walk(self.rows) if self.rows.node(key).data[:1] == (PRODUCT,))
        self.of_rows.hints[self.product] = self.rows.node(self.product).name or "value"
        self.arrays = self._arrays()
        self.locals: dict[Key, str] = {}
        self.places: dict[Key, str] = {}
        self.maxima: dict[Key, str] = {}
        for key in sorted([*levels.first, *levels.second], key=lambda one: not is_extreme(self._kind(one))):
            self._name(key)

    def stored(self) -> list[str]:
        """Returns an empty list, since the product is not stored."""
        return []

    def untouched(self) -> list[str]:
        """Returns an empty list, since every row has results."""
        return []

    def _arrays(self) -> list[str]:
        """Returns the arrays that are read besides the product's operands.

        Raises:
            Refused: one is read where another thread may have written it.
        """
        results, found = {one.name for one in self.kernel.outputs()}, dict[str, None]()
        for key in walk(self.rows):
            node = self.rows.node(key)
            if node.op in ("input", "iota") and key != self.product:
                self._place(key)
            if node.op == "input" and key != self.product:
                name = str(node.data[0])
                if name in results and self.rows.access(key) != "row":
                    raise Refused(f"{name} is read where another thread may have written it")
                found[name] = None
        return list(found)

    def _kind(self, key: Key) -> str:
        return str(self.rows.node(key).data[0])

    def _leaf_of_rows(self, key: Key) -> str:
        """Returns an element of the product, or of another array, at a row and a column."""
        node, names = self.rows.node(key), self.names
        if key == self.product:
            return f"{names.sum}[{names.i}][{names.j}]"
        if node.op == "iota":
            place = self._place(key)
            return place if place == "0" else f"static_cast<long long>({place})"
        name = str(node.data[0])
        return self.kernel.loaded(name, name if node.op == "scalar" else f"{name}[{self._place(key)}]")

    def _place(self, key: Key) -> str:
        """Returns the index of an element at a row and a column.

        Raises:
            Refused: it is not one of a row, a column, both or neither.
        """
        access, shape = self.rows.access(key), self.shape
        if access == "once":
            return "0"
        if access == "column":
            return self.at[shape.n]
        if self.rows.node(key).op == "iota" and (access != "row" or shape.whole != [shape.m, shape.n]):
            raise Refused("it uses positions along an axis that is merged with others")
        if access not in ("row", "flat"):
            raise Refused("it reads an array along some axes of a product's rows")
        return address(tuple(shape.whole[:-1] if access == "row" else shape.whole), self.lengths, self.at)

    def _name(self, key: Key) -> None:
        """Names the locals of a reduction, which have an element for each row of a thread.

        Raises:
            Refused: there is no text for its type.
        """
        names, kind = self.kernel.names, self._kind(key)
        same = [one for one in self.locals if EXTREMES.get(self._kind(one), ("",))[0] == kind]
        for other in same:
            if self.rows.operands(other) == self.rows.operands(key):
                self.locals[key] = self.locals[other]
                return
        ctype = self._type(key)
        if ctype != self.kernel.real and ctype not in LOWEST:
            raise Refused(f"the {kind} of {ctype} of a product's rows")
        self.locals[key] = reduction_local(self.kernel, self.rows.node(key).name, kind)
        if is_extreme(kind):
            self.places[key] = names.fresh(kind)

    def _type(self, key: Key) -> str:
        """Returns the C++ type of the values that a reduction compares or adds."""
        return self.of_rows.type_of(self.rows.operands(key)[0] if is_extreme(self._kind(key)) else key)

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, tile = self.kernel, self.tile
        bounds, constants = self.launch_constants()
        sides = self.shape.axes.sides
        body = self.body()
        return WrittenKernel(
            f"reduced-products-{tile.m}x{tile.n}",
            f"Written from the reference: each block computes {tile.m} rows of the product in tiles of {tile.m} x {tile.n}, which "
            f"its threads reduce in registers and never store; the {self.lanes} threads of a row combine their results by shuffles."
            + self.promise(tile.m, tile.n, self.arrays),
            kernel.definition(kernel.head(bounds), body),
            "\n".join([*constants, "", *self.reductions.texts()]).strip(),
            (" * ".join([f"cdiv({sides[self.shape.m]}, {tile.m})", *(sides[one] for one in self.shape.batch)]),),
            BLOCK,
        )

    def tile_constants(self) -> list[str]:
        """Returns the declaration of the sides of a tile."""
        rows, columns = super().tile_constants()
        return [rows, columns.replace("of results of a block", "at a time")]

    def position(self) -> list[str]:
        """Returns the declarations of a block's rows, and of a thread's part of a tile."""
        names = self.names
        lines = self.position_in_grid(across=False)
        row = f"(blockIdx.x % {names.down})" if self.shape.batch else "blockIdx.x"
        return [*lines, f"const int {names.m_first} = {row} * {names.kTileM};", *self.thread_position()]

    def tile_results(self, sums: list[str], results: list[str]) -> list[str]:
        """Returns the loop over the tiles of the block's rows, and the results of these."""
        names = self.names
        head = f"for (int {names.n_first} = 0; {names.n_first} < {self.lengths[self.shape.n]}; {names.n_first} += {names.kTileN})"
        return [*self._started(), *block_of(head, [*sums, *results]), *self._finished()]

    def _started(self) -> list[str]:
        """Returns the declarations of the reductions' locals."""
        names, side = self.names, self.names.kSide
        infinity = [self.of_rows.number(sign * float("inf")) for sign in (-1, 1)]
        lines, first = list[str](), list[str]()
        for key in self._own():
            ctype, kind, name = self._type(key), self._kind(key), self.locals[key]
            if kind == "sum":
                lines.append(f"{ctype} {name}[{side}] = {{}};")
                continue
            lines.append(f"{ctype} {name}[{side}];")
            if key in self.places:
                lines.append(f"int {self.places[key]}[{side}] = {{}};")
            online = key[0] in self.levels.online.values()
            start = self.of_rows.number(LOWEST_REAL[ctype]) if online else start_of(kind, ctype, infinity)
            comment = "  // finite: the difference of two infinities is not a number" if online else ""
            first.append(f"{name}[{names.i}] = {start};{comment}")
        return [*lines, *(["#pragma unroll", *block_of(self.over(names.i), first)] if first else [])]

    def _own(self) -> list[Key]:
        """Returns the reductions that have locals of their own."""
        by_local = {name: key for key, name in reversed(self.locals.items())}
        return [by_local[name] for name in dict.fromkeys(self.locals.values())]

    def results(self) -> list[str]:
        """Returns statements that combine a tile's values into the reductions."""
        names, shape, lengths, rows = self.names, self.shape, self.lengths, self.of_rows
        first = [key for key in self._own() if key in self.levels.first]
        second = [key for key in self._own() if key in self.levels.second]
        lines: list[str] = []
        roots = [self.rows.operands(key)[0] for key in first]
        for key, root, text in zip(first, roots, rows.locals_for(roots, lines), strict=True):
            kind, ctype, name = self._kind(key), self._type(key), f"{self.locals[key]}[{names.i}]"
            scaled = [self.locals[one] for one in second if self.levels.online[one[0]] == key[0]]
            if (scaled or key in self.places) and not text.isidentifier():
                held = self.kernel.names.fresh("value")
                lines.append(f"const {ctype} {held} = {text};")
                text = rows.known[behind(self.rows, root)] = held
            if key in self.places:
                place = f"{self.places[key]}[{names.i}]"
                lines += self.reductions.extremes.taken(kind, ctype, text, names.n, name, place)
            elif scaled:
                exp = "expf" if self.kernel.real == "float" else "exp"
                inner = [f"{one}[{names.i}] *= {exp}({name} - {text});" for one in scaled]
                inner[0] += "  // the sum so far is relative to the maximum"
                lines += block_of(f"if ({self.reductions.is_larger(text, name)})", [*inner, f"{name} = {text};"])
            else:
                lines.append(self.reductions.combined(kind, name, text, ctype))
        rows.known |= {key: f"{self.locals[key]}[{names.i}]" for key in self.levels.first}
        sums = rows.locals_for([self.rows.operands(key)[0] for key in second], lines)
        lines += [f"{self.locals[key]}[{names.i}] += {text};" for key, text in zip(second, sums, strict=True)]
        outer, rows.outer, rows.known = rows.outer, [], {}
        column = self.spread(f"{names.n_first} + {names.n_thread}", names.j, names.kTileN)
        inner = [f"const int {names.n} = {column};", *block_of(f"if ({names.n} < {lengths[shape.n]})", lines)]
        each = [*outer, "#pragma unroll", *block_of(self.over(names.j), inner)]
        if re.search(rf"\b{names.m}\b", " ".join([*outer, *lines])):
            each = [self._row(), *block_of(f"if ({names.m} < {lengths[shape.m]})", each)]
        return ["#pragma unroll", *block_of(self.over(names.i), each)]

    def _row(self) -> str:
        """Returns the declaration of the row of a thread's results."""
        names = self.names
        row = self.spread(f"{names.m_first} + {names.m_thread}", names.i, names.kTileM)
        return f"const int {names.m} = {row};"

    def _finished(self) -> list[str]:
        """Returns statements that combine the threads' reductions, and compute and store the results of each row."""
        names, rows = self.names, self.of_rows
        lines = [line for key in self._own() for line in self._combined(key)]
        known = {}
        for key, name in self.locals.items():
            known[key] = f"{name}[{names.i}]"
            if key in self.places:
                place = f"{self.places[key]}[{names.i}]"
                used = any(
                    key[0] in one.args and one.op not in ("cast", "view", "reshape") for one in self.rows.graph.nodes
                )
                known[key] = f"static_cast<long long>({place})" if used else place
        rows.known = known
        stores: list[str] = []
        texts = rows.locals_for(self.rows.outputs, stores)
        outputs = self.kernel.outputs()
        place = address(tuple(self.shape.whole[:-1]), self.lengths, self.at)
        values = [
            self.kernel.stored(one.name, text, self.rows.node(key).dtype)
            for one, key, text in zip(outputs, self.rows.outputs, texts, strict=True)
        ]
        if len(outputs) > 1 and {one.name for one in outputs} & {*self.arrays}:
            raise Refused("a result is read for several results")
        stores += [f"{one.name}[{place}] = {value};" for one, value in zip(outputs, values, strict=True)]
        inside = f"{names.n_thread} == 0 && {names.m} < {self.lengths[self.shape.m]}"
        each = [*lines, self._row(), *block_of(f"if ({inside})", [*rows.outer, *stores])]
        return ["#pragma unroll", *block_of(self.over(names.i), each)]

    def _combined(self, key: Key) -> list[str]:
        """Returns the statements that give the threads of a row the combined result of one reduction."""
        kind, ctype, name = self._kind(key), self._type(key), f"{self.locals[key]}[{self.names.i}]"
        if key in self.places:
            function = self.reductions.extremes.function(kind, ctype, "int")
            return [f"{function}({name}, {self.places[key]}[{self.names.i}]);"]
        function = self.reductions.function(kind, ctype)
        if key[0] in self.levels.online.values():
            own = self._own_maximum(key)
            return [f"const {ctype} {own} = {name};", f"{name} = {function}({name});"]
        if key[0] not in self.levels.online:
            return [f"{name} = {function}({name});"]
        largest = next(one for one in self.levels.first if one[0] == self.levels.online[key[0]])
        exp = "expf" if self.kernel.real == "float" else "exp"
        scale = f"{exp}({self._own_maximum(largest)} - {self.locals[largest]}[{self.names.i}])"
        return [f"{name} = {function}({name} * {scale});"]

    def _own_maximum(self, key: Key) -> str:
        """Returns the local with a thread's own maximum, by which its sums are scaled."""
        if key not in self.maxima:
            self.maxima[key] = self.kernel.names.fresh("thread_max")
        return self.maxima[key]
