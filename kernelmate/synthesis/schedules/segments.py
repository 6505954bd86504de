"""Reductions over the rows of a sparse matrix in CSR, and operations on the results: adjacent lanes per row.

Traffic: offsets and arrays of elements are read once, adjacent elements by adjacent lanes; elements by index come from
the cache. Arithmetic: that of the graph for each element, and a few steps by shuffles per row. The order depends
on a row's length alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.bag_plan import NAMES, START, combined, offsets_of
from kernelmate.synthesis.elements import Elements, Numbers
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph, Node, sorted_graph
from kernelmate.synthesis.index_maps import ORDINARY, AxisMap, linear
from kernelmate.synthesis.kept_text import own_row
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, fresh_names, those_written
from kernelmate.synthesis.plan import Key, Refused, walk
from kernelmate.synthesis.reductions import WARP
from kernelmate.synthesis.schedules import bags

BLOCK = 256

ROW, ELEMENT = 0, 1
"""The two axes: rows, and the elements of all rows in order."""


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the schedule does not apply.
    """
    if len(graph.nodes[graph.outputs[0]].shape) > 1:
        yield from bags.written(graph, kernel)
        return
    plan = _plan(graph)
    rows, elements = (max(1, int(evaluate(side, kernel.contract.sizes[0]))) for side in plan.domain)
    lanes = 2
    while lanes < WARP and 2 * lanes <= elements // rows:
        lanes *= 2
    several = dict.fromkeys([lanes, min(WARP, 2 * lanes), max(2, lanes // 2)])
    yield from those_written(partial(_text, plan, kernel, one) for one in several)


def offsets_by_number(graph: Graph) -> Graph:
    """Returns the graph with shifted integer vectors replaced by elements at computed indices.

    An example is `offsets[r + 1]` in a loop over rows.
    """
    nodes = list(graph.nodes)
    for index, node in enumerate(graph.nodes):
        source = graph.nodes[node.args[0]] if node.args else node
        if node.op != "window" or len(node.args) != 1 or source.op != "input" or source.dtype[:3] not in ("int", "uin"):
            continue
        maps = [AxisMap.of(one) for one in node.data]
        place = linear(maps[0].offset)
        if len(maps) != 1 or maps[0].terms != ((0, 1),) or maps[0].beyond != ORDINARY or place.terms:
            continue
        first = len(nodes)
        nodes += [
            Node("iota", (), node.shape, "int64"),
            Node("constant", (), (), "int64", (place.constant,)),
            Node("map", (first, first + 1), node.shape, "int64", ("add",)),
        ]
        nodes[index] = Node(
            "pick", (node.args[0], first + 2 if place.constant else first), node.shape, node.dtype, (0,)
        )
    return sorted_graph(nodes, graph.outputs)


def _text(plan: Elements, kernel: KernelText, lanes: int) -> WrittenKernel:
    return _Segments(plan, kernel.again(), lanes).written()


def _plan(graph: Graph) -> Elements:
    """Returns rows and elements as two axes.

    Raises:
        Refused: rows are given by several vectors, or the results are not one for each row.
    """
    sums = [node for node in graph.nodes if node.op == "segment"]
    rows, elements = offsets_of(graph).rows, graph.nodes[sums[0].args[1]].shape[0]
    if any(len(graph.nodes[one].shape) != 1 or graph.nodes[one].shape[0] == elements for one in graph.outputs):
        raise Refused("it sums along rows, and has results that are not one for each row")
    outputs = tuple((one, (ROW,)) for one in graph.outputs)
    plan = Elements(graph, (rows, elements), 1, outputs, "map", (), frozenset({ELEMENT}), ELEMENT)
    if any(plan.operands(key) and _has_sums(plan, key) for key in walk(plan) if plan.node(key).op == "segment"):
        raise Refused("it sums what was summed")
    return plan


def _has_sums(plan: Elements, key: Key) -> bool:
    return any(plan.node(one).op == "segment" or _has_sums(plan, one) for one in plan.operands(key))


class _Segments:
    """Text for a number of lanes per row."""

    def __init__(self, plan: Elements, kernel: KernelText, lanes: int) -> None:
        self.plan, self.kernel, self.lanes = plan, kernel, lanes
        own = own_row(kernel.kernel.source, plan.domain[0], kernel.contract.grid)
        self.names = fresh_names(kernel, "kLanes", "lane", "i", "begin", "end", "offset", row=own or "row")
        self.outputs = [one.name for one in kernel.outputs()]
        self.sums = [key for key in walk(plan) if plan.node(key).op == "segment"]
        self.offsets = offsets_of(plan.graph)
        self.inputs = [self.offsets.name]
        for key in walk(plan):
            node = plan.node(key)
            if node.op == "input":
                self.inputs.append(str(node.data[0]))
                if node.data[0] in self.outputs and key[1] != (ROW,):
                    raise Refused(f"{node.data[0]} is read where another thread may have written it")
        self.numbers = Numbers(plan, kernel, {ROW: self.names.row, ELEMENT: self.names.i})
        self.expressions = Expressions(plan, kernel, self._leaf, frozenset({"inner"}))
        self.kinds = [self.expressions.type_of(key) for key in self.sums]

    def _leaf(self, key: Key) -> str:
        node = self.plan.node(key)
        if node.op == "scalar":
            return self.kernel.loaded(str(node.data[0]), str(node.data[0]))
        if node.op == "iota":
            return (
                f"static_cast<long long>({self.names.row if key[1] == (ROW,) else self.names.i})"
                if key[1][0] is not None
                else "0"
            )
        name = str(node.data[0])
        return self.kernel.loaded(name, f"{name}[{self.numbers.address(key, self.expressions)}]")

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, expressions = self.kernel, self.names, self.expressions
        row, lane, i, begin, end = names.row, names.lane, names.i, names.begin, names.end
        rows = kernel.count(self.plan.domain[:1])
        texts, body, hoisted = self.element()
        totals, declared = self.totals()
        exchanged: list[str] = []
        for key, total, kind, text in zip(self.sums, totals, self.kinds, texts, strict=True):
            how = str(self.plan.node(key).data[0])
            body += combined(how, total, text, kind, kernel)
            other = f"__shfl_xor_sync(0xffffffffu, {total}, {names.offset})"
            exchanged += combined(how, total, other, kind, kernel)
        index = kernel.element(self.offsets.name)
        first, behind = self.offsets.bounds(row, kernel)
        behind = f"({behind})" if "?" in behind and not behind.startswith("max(") else behind
        start = "static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x"
        lines = [
            f"constexpr int {names.kLanes} = {self.lanes};  // lanes per row, for rows of about as many elements",
            f"const size_t {row} = ({start}) / {names.kLanes};",
            f"const int {lane} = threadIdx.x % {names.kLanes};",
            "// Lanes past the last row only take part in the shuffles.",
            f"const {index} {begin} = {row} < {rows} ? {first} : 0;",
            f"const {index} {end} = {row} < {rows} ? {behind} : 0;{self.offsets.note}",
            *hoisted,
            *declared,
            *block_of(
                f"for ({index} {i} = {begin} + {lane}; {i} < {end}; {i} += {names.kLanes})",
                body,
            ),
            *block_of(
                f"for (int {names.offset} = {names.kLanes} / 2; {names.offset} > 0; {names.offset} /= 2)",
                exchanged,
            ),
        ]
        final = self.results(totals)
        for text, local in ((behind, end), (first, begin)):
            final = [re.sub(rf"(?<!\w){re.escape(text)}", local, line) for line in final]
        lines += block_of(f"if ({lane} == 0 && {row} < {rows})", [*expressions.outer, *final])
        return WrittenKernel(
            f"segments-{self.lanes}",
            f"Written from the reference: {self.lanes} neighbouring lanes of a warp for each row, which read neighbouring elements and combine "
            "their results by shuffles." + kernel.promise(dict.fromkeys(self.inputs)),
            kernel.definition(kernel.head(), lines),
            "",
            (f"cdiv({self.plan.domain[0]} * {self.lanes}, block)",),
            BLOCK,
        )

    def element(self) -> tuple[list[str], list[str], list[str]]:
        """Returns each sum's addend at element `i`, the statements before it, and the statements before the loop.

        Raises:
            Refused: values of each row are used inside of the sums.
        """
        roots = [self.plan.operands(key)[0] for key in self.sums]
        body: list[str] = []
        self.numbers.taken(roots, self.expressions, body)
        texts = self.expressions.locals_for(roots, body)
        hoisted, self.expressions.outer = self.expressions.outer, []
        if any("[" in line for line in hoisted):
            raise Refused("it multiplies sums along rows by values of each row, inside of the sums")
        return texts, body, hoisted

    def totals(self) -> tuple[list[str], list[str]]:
        """Returns the locals of the sums, and their declarations."""
        names, declared = [], []
        for key, ctype in zip(self.sums, self.kinds, strict=True):
            how = str(self.plan.node(key).data[0])
            names.append(self.kernel.names.fresh(NAMES[how]))
            start = self.expressions.number(START[how]) if ctype == self.kernel.real else "0"
            declared.append(f"{ctype} {names[-1]} = {start};")
        return names, declared

    def results(self, totals: list[str]) -> list[str]:
        """Returns statements that compute and store the outputs of one row from its sums."""
        kernel, expressions = self.kernel, self.expressions
        known = {key: name for key, name in expressions.known.items() if not expressions.varies(key)}
        expressions.known = {**known, **dict(zip(self.sums, totals, strict=True))}
        final: list[str] = []
        self.numbers.taken(self.plan.outputs, expressions, final)
        values = expressions.locals_for(self.plan.outputs, final)
        held = []
        for key, name, text in zip(self.plan.outputs, self.outputs, values, strict=True):
            value = kernel.stored(name, text, self.plan.node(key).dtype)
            if len(self.outputs) > 1:  # an array that is changed may still be read for the next output
                local = kernel.names.element(name)
                final.append(f"const {kernel.element(name)} {local} = {value};")
                value = local
            held.append(f"{name}[{self.names.row}] = {value};")
        return [*final, *held]
