"""Filters whose number of taps is a size: signal tile and taps in shared memory, results in registers.

A thread computes adjacent results, and moves a window of the signal in registers along the taps.

Traffic: the signal once for each group of taps that a block takes at a time, nearly all of it from L1 and L2 after the
first; results once. Arithmetic: that of the graph; two accesses of 16 bytes to shared memory for sixteen products.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kernelmate.source import evaluate
from kernelmate.synthesis.elements import Elements
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph, Node, sorted_graph
from kernelmate.synthesis.index_maps import ORDINARY, OTHERWISE, AxisMap, Linear, linear
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, fresh_names
from kernelmate.synthesis.plan import Key, Refused, walk

BLOCK = 256

EACH = 4
"""Number of adjacent results per thread: as floats, they are one access of 16 bytes."""

TAPS = 64
"""Taps per step."""

FEWEST = 16
"""Minimum number of taps for which a tile pays for its barriers; fewer are read from L1."""


@dataclass(frozen=True, slots=True)
class _SignalPlace:
    """A position along an axis of an array: an offset, and a number of steps along each axis of the plan."""

    steps: dict[int, int]
    offset: Linear


@dataclass(frozen=True, slots=True)
class _Filter(Elements):
    """Results along their axes, of which the last is the signal's; products have one more axis, of the taps."""

    def operands(self, key: Key) -> tuple[Key, ...]:
        """Returns the keys of an operation's operands; slices of arrays are kept as one operand."""
        node, index = self.node(key), key[1]
        if node.op == "window":
            return ()
        if node.op != "reduce":
            return Elements.operands(self, key)
        axis = int(node.data[1] or 0)
        return ((node.args[0], (*index[:axis], self.summed, *index[axis:])),)

    def bare(self, key: Key) -> Key:
        """Returns the key of the operand of any views and casts between floats."""
        node = self.node(key)
        floats = node.op == "cast" and self.graph.nodes[node.args[0]].dtype.startswith("float")
        return self.bare(self.operands(key)[0]) if node.op == "view" or floats else key

    def places(self, key: Key) -> tuple[str, list[_SignalPlace]]:
        """Returns the array of which a value is an element, and its position along each axis.

        Raises:
            Refused: it is another value, or replaced by one beyond the ends of the array that is not zero.
        """
        node, nodes = self.node(key), self.graph.nodes
        here = [_SignalPlace({} if one is None else {int(one): 1}, Linear()) for one in key[1]]
        while node.op != "input":
            source = nodes[node.args[0]] if node.args else node
            if node.op == "window":
                here = [self._moved(node.args, AxisMap.of(entry), here) for entry in node.data]
            elif node.op == "view":
                axes = {axis: place for place, axis in enumerate(node.data) if axis is not None}
                here = [
                    here[axes[axis]] if axis in axes else _SignalPlace({}, Linear())
                    for axis in range(len(source.shape))
                ]
            elif node.op != "cast" or not source.dtype.startswith("float"):
                raise Refused("it filters other than an array")
            node = source
        return str(node.data[0]), here

    def _moved(self, args: tuple[int, ...], axis: AxisMap, here: list[_SignalPlace]) -> _SignalPlace:
        beyond = self.graph.nodes[args[1]] if len(args) > 1 else None
        zero = beyond is not None and (beyond.op, beyond.data[:1]) == ("constant", (0,))
        if axis.every != 1 or not (axis.beyond == ORDINARY or (axis.beyond == OTHERWISE and zero)):
            raise Refused("it filters a signal that goes on beyond its ends otherwise than by zeros")
        steps: dict[int, int] = {}
        offset = linear(axis.offset)
        for place, step in axis.terms:
            offset = offset.plus(here[place].offset, step)
            for one, count in here[place].steps.items():
                steps[one] = steps.get(one, 0) + step * count
        return _SignalPlace(steps, offset)


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields the generated kernel.

    Raises:
        Refused: it is not a filter along the last axis of vectors or rows, or its taps are few or of a fixed number.
    """
    yield _FilterText(_plan(graph), kernel.again()).written()


def _sliced_first(graph: Graph) -> Graph:
    """Returns the graph with slices of a sum moved before the sum and the products that it adds."""
    nodes = list(graph.nodes)
    for index, node in enumerate(graph.nodes):
        if node.op != "window" or len(node.args) != 1 or nodes[node.args[0]].op != "reduce":
            continue
        source = nodes[node.args[0]]
        axis, product = int(source.data[1] or 0), nodes[source.args[0]]
        maps = [AxisMap.of(entry) for entry in node.data]
        maps = [replace(one, terms=tuple((at + (at >= axis), step) for at, step in one.terms)) for one in maps]
        maps.insert(axis, AxisMap("0", ((axis, 1),)))
        if product.op != "map" or any(one.beyond != ORDINARY for one in maps):
            continue
        shape = (*node.shape[:axis], product.shape[axis], *node.shape[axis:])
        args = []
        for one in product.args:
            sides = nodes[one].shape
            whole = len(sides) == len(shape) and "1" not in sides
            first = len(shape) - len(sides)
            if not whole and any(side != "1" and place + first != axis for place, side in enumerate(sides)):
                break
            args.append(len(nodes) if whole else one)
            nodes += [Node("window", (one,), shape, nodes[one].dtype, tuple(each.text() for each in maps))] * whole
        else:
            nodes.append(replace(product, args=tuple(args), shape=shape))
            nodes[index] = replace(source, args=(len(nodes) - 1,), shape=node.shape)
    return sorted_graph(nodes, graph.outputs)


def _plan(graph: Graph) -> _Filter:
    graph = _sliced_first(graph)
    reductions = [node for node in graph.nodes if node.op == "reduce"]
    if len(reductions) != 1 or reductions[0].data[0] != "sum" or len(graph.outputs) != 1:
        raise Refused("it is not a single sum over the taps of a filter")
    domain = graph.nodes[graph.outputs[0]].shape
    taps = graph.nodes[reductions[0].args[0]].shape[int(reductions[0].data[1] or 0)]
    same = len(domain) == len(reductions[0].shape) and all(
        linear(one) == linear(other) for one, other in zip(domain, reductions[0].shape, strict=False)
    )
    if not same or len(domain) not in (1, 2) or taps.isdigit() or "1" in domain:
        raise Refused("its taps are of a fixed number, or it has more axes than rows of a signal")
    index = tuple(range(len(domain)))
    last = len(domain) - 1
    return _Filter(graph, (*domain, taps), 0, ((graph.outputs[0], index),), "map", (), frozenset({last}), len(domain))


class _FilterText:
    """Writer of the kernel's text."""

    def __init__(self, plan: _Filter, kernel: KernelText) -> None:
        self.plan, self.kernel = plan, kernel
        self.last, self.output = plan.summed - 1, kernel.outputs()[0].name
        self.sum = next(key for key in walk(plan) if plan.node(key).op == "reduce")
        if kernel.real != "float":
            raise Refused("it filters in double")
        if int(evaluate(plan.domain[plan.summed], kernel.contract.sizes[0])) < FEWEST:
            raise Refused("it has few taps")
        self._operands()
        self.names = fresh_names(
            kernel, "kTaps", "kEach", "tile", "taps", "first", "row", "tiles", "count", "tap", "i", "j", "r", "t", "at", "in_tile",
            "window", "sums", "mine", own="own_tile",
        )  # fmt: skip
        self.names.kThreads, self.constants = kernel.threads(BLOCK)
        self.expressions = Expressions(plan, kernel, self._leaf, frozenset({"inner"}))

    def _operands(self) -> None:
        """Determines which operand is the signal and which has the taps, and the positions at which both are read."""
        plan = self.plan
        product = plan.bare(plan.operands(self.sum)[0])
        if plan.node(product).op != "map" or plan.node(product).data[0] != "multiply":
            raise Refused("it sums other than products of taps and a signal")
        found = [plan.places(plan.bare(one)) for one in plan.operands(product)]
        signals = [one for one in found if self.last in one[1][-1].steps]
        filters = [one for one in found if one not in signals]
        if len(signals) != 1 or len(filters) != 1:
            raise Refused("it sums other than products of taps and a signal")
        (self.signal, across), (self.taps, along) = signals[0], filters[0]
        self.back = across[-1].steps.get(plan.summed) == -1
        rows = all(not one.offset.terms and not one.offset.constant and one.steps in ({}, {0: 1}) for one in (*across[:-1], *along[:-1]))  # fmt: skip
        if across[-1].steps not in ({self.last: 1, plan.summed: 1}, {self.last: 1, plan.summed: -1}) or not rows:
            raise Refused("it steps through its signal otherwise than by one")
        if along[-1] != _SignalPlace({plan.summed: 1}, Linear()) or self.signal == self.output:
            raise Refused("it takes its taps otherwise than one after another")
        ends = linear(plan.domain[plan.summed]).plus(-1)
        self.offset = across[-1].offset.plus(ends, -1) if self.back else across[-1].offset
        self.by_row = [any(one.steps for one in places[:-1]) for places in (across, along)]

    def _leaf(self, key: Key) -> str:
        node, names = self.plan.node(key), self.names
        at: dict[int, str] = {0: names.row, self.last: f"{names.mine} + {names.r}"}
        if node.op == "scalar":
            return self.kernel.loaded(str(node.data[0]), str(node.data[0]))
        axes = [int(one) for one in key[1] if one is not None]
        if node.op == "iota":
            return f"static_cast<long long>({at[axes[0]]})" if axes else "0"
        if node.op != "input" or axes != sorted(axes):
            raise Refused("more follows from a filter than operations on single elements")
        name = str(node.data[0])
        place = self._at_row(at[self.last]) if axes == [0, 1] else at[axes[0]] if axes else "0"
        return self.kernel.loaded(name, f"{name}[{place}]")

    def _at_row(self, place: str) -> str:
        """Returns the index of an element in the results' row."""
        if not self.last:
            return place
        return f"{self.names.row} * {self.names.count} + {place}"

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, plan = self.kernel, self.names, self.plan
        self.expressions.known[self.sum] = f"{names.sums}[{names.r}]"
        final: list[str] = []
        (value,) = self.expressions.locals_for(plan.outputs, final)
        stored = kernel.stored(self.output, value, plan.node(plan.outputs[0]).dtype)
        final.append(f"{self.output}[{self._at_row(f'{names.mine} + {names.r}')}] = {stored};")
        each = f"for (int {names.r} = 0; {names.r} < {names.kEach}; ++{names.r})"
        results = linear(plan.domain[self.last])
        length, taps = kernel.size(results.bare()), kernel.size(plan.domain[plan.summed])
        lines = [
            f"constexpr int {names.kEach} = {EACH};  // neighbouring results of a thread",
            f"constexpr int {names.kTaps} = {TAPS};  // taps at a time",
            f"__shared__ alignas({4 * EACH}) float {names.tile}[{names.kThreads} * {names.kEach} + {names.kTaps}], {names.taps}[{names.kTaps}];",
            f"const long long {names.count} = {length};",
            *self._positions(),
            *self.expressions.outer,
            f"float {names.sums}[{names.kEach}] = {{}};",
            *block_of(f"for (int {names.tap} = 0; {names.tap} < {taps}; {names.tap} += {names.kTaps})", self._taken(taps, each)),
            *block_of(f"for (int {names.r} = 0; {names.r} < {names.kEach} && {names.mine} + {names.r} < {names.count}; ++{names.r})", final),
        ]  # fmt: skip
        read = dict.fromkeys([self.signal, self.taps, *(str(plan.node(key).data[0]) for key in walk(plan) if plan.node(key).op == "input")])  # fmt: skip
        tiles = f"cdiv({results.bare()}, block * {EACH})"
        return WrittenKernel(
            "filter",
            f"Written from the reference: a tile of the signal and {TAPS} taps at a time in shared memory, {EACH} neighbouring results in a "
            "thread's registers." + kernel.promise(read),
            kernel.definition(kernel.head(), lines),
            "\n".join(self.constants),
            (f"{tiles} * ({plan.domain[0]})" if self.last else tiles,),
            BLOCK,
        )

    def _positions(self) -> list[str]:
        names = self.names
        block = "static_cast<long long>(blockIdx.x)"
        lines = []
        if self.last:
            whole = f"{names.kThreads} * {names.kEach}"
            lines = [
                f"const long long {names.tiles} = ({names.count} + {whole} - 1) / ({whole});",
                f"const long long {names.row} = blockIdx.x / {names.tiles};",
            ]
            block = f"(blockIdx.x % {names.tiles})"
        return [
            *lines,
            f"const long long {names.first} = {block} * {names.kThreads} * {names.kEach};",
            f"const long long {names.mine} = {names.first} + threadIdx.x * {names.kEach};",
        ]

    def _added(self, offset: Linear) -> str:
        """Returns an offset as a further term of a sum, in C++."""
        sign, other = " + ", offset
        if sum(factor for _, factor in offset.terms) < 0 or (not offset.terms and offset.constant < 0):
            sign, other = " - ", offset.times(-1)
        text = self.kernel.size(other.bare()) if other.terms else str(other.constant)
        return "" if text == "0" else f"{sign}{text if text.isalnum() else f'({text})'}"

    def _taken(self, taps: str, each: str) -> list[str]:
        """Returns the body of the loop over the taps in shared memory."""
        kernel, names = self.kernel, self.names
        side = kernel.arguments[self.signal].shape or ("1",)
        length = kernel.size(side[-1])
        length = length if length.isidentifier() else f"({length})"
        offset = self.offset
        moved = f"{names.first} + {names.tap} + {names.i}"
        moved += self._added(offset)
        before = "" if not offset.terms and offset.constant >= 0 else f"{names.at} >= 0 && "
        signal = f"{names.row} * {length} + {names.at}" if self.by_row[0] else names.at
        tap = f"{taps} - 1 - ({names.tap} + {names.i})" if self.back else f"{names.tap} + {names.i}"
        tap = f"{names.row} * {taps} + {tap}" if self.by_row[1] else tap
        every = f"{names.kThreads} * {names.kEach} + {names.kTaps}"
        x, w = kernel.loaded(self.signal, f"{self.signal}[{signal}]"), kernel.loaded(self.taps, f"{self.taps}[{tap}]")
        window, four = names.window, names.kEach
        wide = [
            f"*reinterpret_cast<float4*>(&{window}[{four}]) = {names.own}[{names.j} / {four} + 1];",
            "#pragma unroll",
            *block_of(f"for (int {names.t} = 0; {names.t} < {four}; ++{names.t})", ["#pragma unroll", *block_of(each, [f"{names.sums}[{names.r}] += {names.taps}[{names.j} + {names.t}] * {window}[{names.t} + {names.r}];"])]),
            "#pragma unroll",
            *block_of(each, [f"{window}[{names.r}] = {window}[{names.r} + {four}];"]),
        ]  # fmt: skip
        rest = f"{names.sums}[{names.r}] += {names.taps}[{names.j}] * {names.tile}[threadIdx.x * {four} + {names.j} + {names.r}];"
        return [
            *block_of(f"for (int {names.i} = threadIdx.x; {names.i} < {every}; {names.i} += {names.kThreads})", [
                f"const long long {names.at} = {moved};",
                f"{names.tile}[{names.i}] = {before}{names.at} < {length} ? {x} : 0.0f;",
            ]),
            f"const int {names.in_tile} = min({names.kTaps}, {taps} - {names.tap});",
            *block_of(f"for (int {names.i} = threadIdx.x; {names.i} < {names.in_tile}; {names.i} += {names.kThreads})", [f"{names.taps}[{names.i}] = {w};"]),
            "__syncthreads();",
            f"alignas({4 * EACH}) float {window}[2 * {four}];",
            f"const float4* {names.own} = reinterpret_cast<const float4*>(&{names.tile}[threadIdx.x * {four}]);",
            f"*reinterpret_cast<float4*>({window}) = {names.own}[0];",
            f"int {names.j} = 0;",
            *block_of(f"for (; {names.j} + {four} <= {names.in_tile}; {names.j} += {four})", wide),
            *block_of(f"for (; {names.j} < {names.in_tile}; ++{names.j})", ["#pragma unroll", *block_of(each, [rest])]),
            "__syncthreads();  // before the tile is overwritten",
        ]  # fmt: skip
