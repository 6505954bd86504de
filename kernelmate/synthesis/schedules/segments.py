"""Sums over the rows of a sparse matrix in CSR, and what follows from them: by lanes of a warp, or staged in shared memory.

Traffic: offsets, and what is stored for each element, are read once, neighbours by neighbouring lanes; elements by number come from
the cache. Arithmetic: that of the graph for each element, and a few steps by shuffles per row. The order depends on a row's length alone.
Short rows leave most lanes of a warp without work: there a block computes the elements of all its rows side by side, and each thread
adds up a row's.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.elements import Elements, Numbers
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import KernelText, Written, block_of, fresh_names, those_written
from kernelmate.synthesis.plan import Key, Refused, walk
from kernelmate.synthesis.reductions import WARP

BLOCK = 256

LONGEST_STAGED = 32
"""Elements of a row, on average, up to which they are staged in shared memory: a warp's worth."""

STAGED_BYTES = 32 << 10
"""Shared memory that staged elements of a block may take."""

ROW, ELEMENT = 0, 1
"""The two axes: rows, and elements of all rows behind one another."""


def written(graph: Graph, kernel: KernelText) -> Iterator[Written]:
    """The kernel's texts, the likeliest first.

    Raises:
        Refused: there is none.
    """
    plan = _plan(graph)
    rows, elements = (max(1, int(evaluate(side, kernel.contract.sizes[0]))) for side in plan.domain)
    lanes = 2
    while lanes < WARP and 2 * lanes <= elements // rows:
        lanes *= 2
    several = list(dict.fromkeys([lanes, min(WARP, 2 * lanes), max(2, lanes // 2)]))
    by_lanes = [partial(_text, plan, kernel, one) for one in several]
    if elements // rows <= LONGEST_STAGED:
        staged = partial(_staged, plan, kernel, max(1, elements // rows))
        yield from those_written([staged, *by_lanes[:1]], by_lanes[1:])
        return
    yield from those_written(by_lanes)


def _text(plan: Elements, kernel: KernelText, lanes: int) -> Written:
    return _Segments(plan, KernelText(kernel.kernel, kernel.contract), lanes).written()


def _staged(plan: Elements, kernel: KernelText, length: int) -> Written:
    return _Staged(plan, KernelText(kernel.kernel, kernel.contract), length).written()


def _plan(graph: Graph) -> Elements:
    """Rows and elements as two axes.

    Raises:
        Refused: rows are given by several vectors, or the results are not one for each row.
    """
    sums = [node for node in graph.nodes if node.op == "segment"]
    if len({(_offsets(graph, node.args[0]), node.shape, graph.nodes[node.args[1]].shape) for node in sums}) > 1:
        raise Refused("it sums along rows that several vectors describe")
    rows, elements = sums[0].shape[0], graph.nodes[sums[0].args[1]].shape[0]
    if any(len(graph.nodes[one].shape) != 1 or graph.nodes[one].shape[0] == elements for one in graph.outputs):
        raise Refused("it sums along rows, and has results that are not one for each row")
    outputs = tuple((one, (ROW,)) for one in graph.outputs)
    plan = Elements(graph, (rows, elements), 1, outputs, "map", (), frozenset({ELEMENT}), ELEMENT)
    if any(plan.operands(key) and _has_sums(plan, key) for key in walk(plan) if plan.node(key).op == "segment"):
        raise Refused("it sums what was summed")
    return plan


def _has_sums(plan: Elements, key: Key) -> bool:
    return any(plan.node(one).op == "segment" or _has_sums(plan, one) for one in plan.operands(key))


def _offsets(graph: Graph, index: int) -> str:
    """The argument that holds the offsets of rows."""
    node = graph.nodes[index]
    if node.op in ("cast", "view"):
        return _offsets(graph, node.args[0])
    if node.op != "input":
        raise Refused("its rows begin at offsets that it computes")
    return str(node.data[0])


class _Segments:
    """The text for so many lanes per row."""

    def __init__(self, plan: Elements, kernel: KernelText, lanes: int) -> None:
        self.plan, self.kernel, self.lanes = plan, kernel, lanes
        self.names = fresh_names(kernel, "kLanes", "row", "lane", "i", "end", "offset")
        self.outputs = [one.name for one in kernel.outputs()]
        self.sums = [key for key in walk(plan) if plan.node(key).op == "segment"]
        self.offsets = _offsets(plan.graph, plan.node(self.sums[0]).args[0])
        self.inputs = [self.offsets]
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

    def written(self) -> Written:
        """The text."""
        kernel, names, expressions = self.kernel, self.names, self.expressions
        row, lane, i, end = names.row, names.lane, names.i, names.end
        rows = kernel.count(self.plan.domain[:1])
        texts, body, hoisted = self.element()
        totals, declared = self.totals()
        body += [f"{total} += {text};" for total, text in zip(totals, texts, strict=True)]
        offset, index = self.offsets, kernel.element(self.offsets)
        start = "static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x"
        lines = [
            f"constexpr int {names.kLanes} = {self.lanes};  // of a warp, for each row: about as many as rows have elements",
            f"const size_t {row} = ({start}) / {names.kLanes};",
            f"const int {lane} = threadIdx.x % {names.kLanes};",
            "// Lanes behind the last row help to combine; they have no elements.",
            f"const {index} {end} = {row} < {rows} ? {offset}[{row} + 1] : 0;",
            *hoisted,
            *declared,
            *block_of(
                f"for ({index} {i} = {row} < {rows} ? {offset}[{row}] + {lane} : 0; {i} < {end}; {i} += {names.kLanes})",
                body,
            ),
            *block_of(
                f"for (int {names.offset} = {names.kLanes} / 2; {names.offset} > 0; {names.offset} /= 2)",
                [f"{total} += __shfl_xor_sync(0xffffffffu, {total}, {names.offset});" for total in totals],
            ),
        ]
        final = self.results(totals)
        lines += block_of(f"if ({lane} == 0 && {row} < {rows})", [*expressions.outer, *final])
        return Written(
            f"segments-{self.lanes}",
            f"Written from the reference: {self.lanes} neighbouring lanes of a warp for each row, which read neighbouring elements and combine "
            "their sums by shuffles." + kernel.promise(dict.fromkeys(self.inputs)),
            kernel.definition(kernel.head(), lines),
            "",
            (f"cdiv({self.plan.domain[0]} * {self.lanes}, {BLOCK})",),
            BLOCK,
        )

    def element(self) -> tuple[list[str], list[str], list[str]]:
        """What is summed of the element with number `i`, for each sum; statements before that; and those before the loop.

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
        """The locals of the sums, and their declarations."""
        names = [self.kernel.names.fresh("sum") for _ in self.sums]
        return names, [f"{kind} {name} = {self.zero(kind)};" for kind, name in zip(self.kinds, names, strict=True)]

    def zero(self, kind: str) -> str:
        """Zero of a C++ type."""
        return self.expressions.number(0.0) if kind == self.kernel.real else "0"

    def results(self, totals: list[str]) -> list[str]:
        """Statements that compute and store the outputs of one row from its sums."""
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
                local = kernel.names.fresh(f"{name}_value")
                final.append(f"const {kernel.element(name)} {local} = {value};")
                value = local
            held.append(f"{name}[{self.names.row}] = {value};")
        return [*final, *held]


class _Staged(_Segments):
    """A thread per row: a block computes its rows' elements side by side and stages them in shared memory.

    Args:
        length: elements of a row, on average.
    """

    def __init__(self, plan: Elements, kernel: KernelText, length: int) -> None:
        super().__init__(plan, kernel, 1)
        more = fresh_names(kernel, "kRows", "kStaged", "first", "last", "begin", "start", "count", "stop", "k")
        self.names.__dict__.update(more.__dict__)
        size = sum(8 if kind in ("double", "long long") else 4 for kind in self.kinds)
        self.count = BLOCK
        while self.count < 2 * BLOCK * length and 2 * self.count * size <= STAGED_BYTES:
            self.count *= 2

    def written(self) -> Written:
        """The text."""
        kernel, names = self.kernel, self.names
        rows, offset = kernel.count(self.plan.domain[:1]), self.offsets
        row, begin, end, i, k, start = names.row, names.begin, names.end, names.i, names.k, names.start
        texts, body, hoisted = self.element()
        totals, declared = self.totals()
        staged = [kernel.names.fresh("staged") for _ in self.sums]
        body += [f"{one}[{k}] = {text};" for one, text in zip(staged, texts, strict=True)]
        index, zero = ("int", "0") if kernel.element(offset) == "int" else ("long long", "0LL")
        inner = [
            f"{names.count} = min({names.stop} - {start}, {names.kStaged});",
            "__syncthreads();  // everybody has added up the last ones",
            "#pragma unroll 4",
            *block_of(
                f"for (int {k} = threadIdx.x; {k} < {names.count}; {k} += {names.kRows})",
                [f"const {index} {i} = {start} + {k};", *body],
            ),
            "__syncthreads();",
            *block_of(
                f"for ({index} {k} = max({begin} - {start}, {zero}); {k} < min({end} - {start}, {names.count}); ++{k})",
                [f"{total} += {one}[{k}];" for total, one in zip(totals, staged, strict=True)],
            ),
        ]
        lines = [
            f"constexpr int {names.kRows} = {BLOCK};  // of a block, a thread for each",
            f"constexpr {index} {names.kStaged} = {self.count};  // elements that are computed side by side before each thread adds up its own",
            *(f"__shared__ {kind} {one}[{names.kStaged}];" for kind, one in zip(self.kinds, staged, strict=True)),
            f"const size_t {names.first} = static_cast<size_t>(blockIdx.x) * {names.kRows};",
            f"const size_t {names.last} = min({names.first} + {names.kRows}, static_cast<size_t>({rows}));",
            f"const size_t {row} = {names.first} + threadIdx.x;",
            f"const {index} {begin} = {row} < {names.last} ? {offset}[{row}] : 0;",
            f"const {index} {end} = {row} < {names.last} ? {offset}[{row} + 1] : 0;",
            f"const {index} {names.stop} = {offset}[{names.last}];",
            *hoisted,
            *declared,
            *block_of(
                f"for ({index} {start} = {offset}[{names.first}], {names.count}; {start} < {names.stop}; {start} += {names.count})",
                inner,
            ),
        ]
        final = self.results(totals)
        lines += block_of(f"if ({row} < {names.last})", [*self.expressions.outer, *final])
        return Written(
            "segments-staged",
            f"Written from the reference: a block computes the elements of {BLOCK} rows side by side, in shared memory, and each thread adds up "
            "those of a row." + kernel.promise(dict.fromkeys(self.inputs)),
            kernel.definition(kernel.head(), lines),
            "",
            (f"cdiv({self.plan.domain[0]}, {BLOCK})",),
            BLOCK,
        )
