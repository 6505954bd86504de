"""Sums of rows by index, as gradients of an embedding: a block searches for the rows of its results.

Traffic: summed rows are read once, a row of the result once for each row added to it, and the indices once per block,
from L2. Arithmetic: one addition per element; each sum is computed by one thread, in the order of the indices, without
atomics.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from kernelmate.source import evaluate
from kernelmate.synthesis.elements import Elements, may_be_negative
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph, Node, sorted_graph
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, camel, fresh_names, those_written
from kernelmate.synthesis.packs import ALIGNED_ROWS, Packs
from kernelmate.synthesis.plan import Key, Refused, walk, without_reshapes
from kernelmate.synthesis.reductions import WARP
from kernelmate.synthesis.schedules import added_rows
from kernelmate.synthesis.schedules.assigned import is_place
from kernelmate.synthesis.size_text import MissingSize

THREADS = 256
NUMBERS = 4
"""Number of adjacent indices that a thread examines per step."""

BLOCKS = 1056
"""Eight blocks for each of 132 multiprocessors, so that all blocks search at the same time."""

MOST_SEARCHED = 1 << 26
"""Maximum number of pairs of a result and a sample that are compared if each result searches all samples."""

SUMMED = 2
"""The axis of the indices, after those of the result."""


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first; they add atomically if the baseline does.

    Raises:
        Refused: it is not the sum of rows by index, added to what the result had or to what is computed for each element.
    """
    plan = _plan(graph)
    try:
        yield from added_rows.written(plan, kernel)
    except MissingSize:
        raise
    except Refused:
        yield _RowSums(plan, kernel.again()).written()
        return
    yield from those_written([], [lambda: _RowSums(plan, kernel.again()).written()])


def _plan(graph: Graph) -> Elements:
    graph = without_reshapes(_through_maps(graph))
    sums = [node for node in graph.nodes if node.op == "scatter"]
    if len(sums) != 1 or len(sums[0].shape) != 2 or len(graph.outputs) != 1 or len(sums[0].args) != 2:
        raise Refused("it sums by index, and has other results besides")
    (output,) = graph.outputs
    if graph.nodes[output].shape != sums[0].shape or sums[0].dtype not in ("float32", "float64", "int32", "int64"):
        raise Refused("it changes the shape or the type of sums by index")
    numbers = graph.nodes[sums[0].args[0]].shape[0]
    return Elements(graph, (*sums[0].shape, numbers), 0, ((output, (0, 1)),), "map", (), frozenset({1}), SUMMED)


def _through_maps(graph: Graph) -> Graph:
    """Returns the graph with changes of shape moved before element-wise operations."""
    nodes = list(graph.nodes)

    def shaped(index: int, shape: tuple[str, ...]) -> int:
        node = nodes[index]
        if node.shape == shape:
            return index
        if node.op in ("cast", "map") and all(nodes[one].shape in (node.shape, ()) for one in node.args):
            args = tuple(one if nodes[one].shape == () else shaped(one, shape) for one in node.args)
            nodes.append(replace(node, args=args, shape=shape))
        else:
            nodes.append(Node("reshape", (index,), shape, node.dtype))
        return len(nodes) - 1

    moved: dict[int, int] = {}
    for index, node in enumerate(graph.nodes):
        changed = replace(node, args=tuple(moved.get(one, one) for one in node.args))
        nodes[index] = changed
        if node.op == "reshape":
            moved[index] = shaped(changed.args[0], node.shape)
    return sorted_graph(nodes, [moved.get(one, one) for one in graph.outputs])


class _RowSums:
    """Writer of the kernel's text."""

    def __init__(self, plan: Elements, kernel: KernelText) -> None:
        self.plan, self.kernel = plan, kernel
        self.scatter = next(key for key in walk(plan) if plan.node(key).op == "scatter")
        self.output = kernel.outputs()[0].name
        self.numbers, self.summand = plan.operands(self.scatter)
        self.base = self._base()
        if may_be_negative(plan.graph, self.numbers[0]):
            raise Refused("it sums by indices that may count from the end")
        if kernel.arguments[self.output].dtype not in ("float32", "float64", "int32", "int64"):
            raise Refused(
                f"sums by index of {kernel.arguments[self.output].dtype} would be rounded after each addition"
            )
        self.names = fresh_names(
            kernel, "kPack", "row", "i", "c", "j", "columns", "found", "counts", "votes", "first_row", "start", "place",
            "total", "lane", "warp", "mine", "k", "n", "packed",
        )  # fmt: skip
        bare = kernel.base_name
        self.names.kThreads, self.constants = kernel.threads(THREADS)
        self.names.kRows = kernel.names.outermost(f"k{camel(bare)}Rows")
        self.add = kernel.names.outermost(f"{bare}_add")
        self.begin = kernel.names.outermost(f"{bare}_begin")
        flat = self._flat([self.summand, *([] if self.base is None else [self.base])])
        if self.output in flat and flat[self.output] != (0, 1):
            raise Refused(f"{self.output} is read where another thread may have written it")
        arrays = [one.name for one in kernel.contract.args if one.name in {*flat, self.output}]
        self.index = {**flat, self.output: (0, 1)}
        self.packs = Packs(kernel, arrays, kernel.names, self.names.kPack)
        self.expressions = Expressions(plan, kernel, self._leaf, frozenset({"inner"}))
        rows = int(evaluate(plan.domain[0], kernel.contract.sizes[0]))
        self.rows = max(1, -(-rows // BLOCKS))

    def _base(self) -> Key | None:
        """Returns the value to which the sums are added; None for the output's earlier contents.

        Raises:
            Refused: more follows from the sums than an addition.
        """
        key = self._behind(self.plan.outputs[0])
        if key == self.scatter:
            return (-1, ())
        if self.plan.node(key).op != "map" or self.plan.node(key).data[0] != "add":
            raise Refused("more follows from sums of rows by index than an addition")
        pair = [self._behind(one) for one in self.plan.operands(key)]
        others = [one for one in pair if one != self.scatter]
        if len(others) != 1:
            raise Refused("more follows from sums of rows by index than an addition")
        node = self.plan.node(others[0])
        return None if node.op == "input" and node.data[0] == self.output else others[0]

    def _behind(self, key: Key) -> Key:
        node = self.plan.node(key)
        return self._behind(self.plan.operands(key)[0]) if node.op in ("view", "cast") else key

    def _flat(self, roots: Sequence[Key]) -> dict[str, tuple[object, ...]]:
        """Returns the arrays that are read along the columns, with their axes."""
        found: dict[str, tuple[object, ...]] = {}
        stack, seen = [one for one in roots if one[0] >= 0], set[Key]()
        while stack:
            key = stack.pop()
            if key in seen:
                continue
            seen.add(key)
            node = self.plan.node(key)
            if node.op == "input" and 1 in key[1]:
                axes = tuple(one for one in key[1] if one is not None)
                if axes not in ((SUMMED, 1), (1,), (0, 1)) or found.setdefault(str(node.data[0]), axes) != axes:
                    raise Refused("it reads arrays of summed rows along other axes")
            elif node.op == "iota" and 1 in key[1]:
                raise Refused("it uses the positions of columns beside sums of rows by index")
            stack += self.plan.operands(key)
        return found

    def _leaf(self, key: Key) -> str:
        node, names = self.plan.node(key), self.names
        at: dict[object, str] = {0: names.row, SUMMED: names.i}
        axes = [one for one in key[1] if one is not None]
        if node.op == "iota":
            return f"static_cast<long long>({at[axes[0]]})" if axes else "0"
        name = str(node.data[0])
        if node.op == "scalar":
            return self.kernel.loaded(name, name)
        if 1 in axes:
            return self.kernel.loaded(name, f"{self.packs.locals[name]}.at[{names.j}]")
        if len(axes) > 1:
            raise Refused("it reads arrays of summed rows along other axes")
        return self.kernel.loaded(name, f"{name}[{at[axes[0]] if axes else 0}]")

    def _pointer(self, name: str) -> str:
        axes, names = self.index[name], self.names
        row = {(SUMMED, 1): names.i, (0, 1): names.row}.get(axes)  # type: ignore[arg-type]
        return f"{name} + static_cast<size_t>({row}) * {names.columns} + {names.c}" if row else f"{name} + {names.c}"

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, plan = self.kernel, self.names, self.plan
        length = kernel.size(plan.domain[1])
        names.columns = length if length.isidentifier() else names.columns
        self.sizes = [] if length.isidentifier() else [f"const int {names.columns} = {length};"]
        (added,) = self._line([self.summand])
        own = kernel.loaded(self.output, f"{self.packs.locals[self.output]}_next.at[{names.j}]")
        helpers = [self._function(self.add, self.summand, f"{own} + {added}", f"size_t {names.row}, int {names.i}")]
        if self.base is not None:
            start = "0" if self.base[0] < 0 else self._line([self.base])[0]
            helpers.append(self._function(self.begin, self.base, start, f"size_t {names.row}"))
        constants = [
            f"constexpr int {names.kRows} = {self.rows};  // neighbouring rows of the result of a block",
            *self.constants,
        ]
        number = int(evaluate(plan.domain[SUMMED], kernel.contract.sizes[0]))
        read = dict.fromkeys(str(plan.node(key).data[0]) for key in walk(plan) if plan.node(key).op == "input")
        return WrittenKernel(
            "scatter-rows",
            f"Written from the reference: a block for {self.rows} row{'s' * (self.rows > 1)} of the result looks at all {number} "
            "numbers for its own, and adds what belongs to them in their order, without atomics."
            + kernel.promise([one for one in read if one != self.output]),
            kernel.definition(kernel.head(), self._kernel(helpers)),
            "\n\n".join(["\n".join(constants), *helpers]),
            (f"cdiv({plan.domain[0]}, {self.rows})",),
            THREADS,
        )

    def _line(self, roots: Sequence[Key]) -> list[str]:
        """Returns the texts of values, without locals before the loop over columns."""
        self.lines: list[str] = []
        self.expressions.known, self.expressions.outer = {}, []
        texts = self.expressions.locals_for(roots, self.lines)
        self.outer, self.expressions.outer = self.expressions.outer, []
        return texts

    def _function(self, name: str, root: Key, value: str, places: str) -> str:
        """Returns the function that initialises a row of the result, or adds a row to it."""
        kernel, names, packs = self.kernel, self.names, self.packs
        wide = packs.width > 1
        kpack = names.kPack if wide else "1"
        adds = name == self.add
        needed = self._flat([root])
        loads = [packs.load(one, self._pointer(one)) for one in packs.arrays if one in needed and one != self.output]
        pack, own = packs.type_of(self.output), f"{packs.locals[self.output]}_next"
        place = f"{self.output} + static_cast<size_t>({names.row}) * {names.columns} + {names.c}"
        loads.append(f"{pack} {own}{f' = *reinterpret_cast<const {pack}*>({place})' if adds else ''};")
        kind = self.plan.node(self.scatter).dtype if root[0] < 0 or adds else self.plan.node(root).dtype
        stored = kernel.stored(self.output, value, kind)
        each = block_of(
            f"for (int {names.j} = 0; {names.j} < {kpack}; ++{names.j})",
            [*self.lines, f"{own}.at[{names.j}] = {stored};"],
        )
        step = f"{names.kThreads} * {kpack}" if wide else str(names.kThreads)
        head = f"for (int {names.c} = threadIdx.x{f' * {kpack}' if wide else ''}; {names.c} < {names.columns}; {names.c} += {step})"
        body = [
            *packs.structs(kpack),
            *self.sizes,
            *self.outer,
            *block_of(head, [*loads, "#pragma unroll", *each, f"*reinterpret_cast<{pack}*>({place}) = {own};"]),
        ]
        front = kernel.wrapped(
            f"static __device__ __forceinline__ void {name}(",
            [*kernel.declared(list(kernel.parameters)), *places.split(", ")],
        )
        comment = f"// {'Adds one row to' if adds else 'Begins'} a row of {self.output}."
        template = f"template <int {names.kPack}>\n" if wide else ""
        return f"{comment}\n{kernel.definition(template + front, body)}"

    def _call(self, name: str, more: str) -> list[str]:
        """Returns a function's call, for packs if aligned."""
        passed = ", ".join([*self.kernel.parameters, more])
        if self.packs.width == 1:
            return [f"{name}({passed});"]
        return [
            f"if ({self.names.packed}) {{",
            f"  {name}<{self.packs.wide}>({passed});",
            "} else {",
            f"  {name}<1>({passed});",
            "}",
        ]

    def _kernel(self, helpers: Sequence[str]) -> list[str]:
        names, kernel = self.names, self.kernel
        count = kernel.size(self.plan.domain[SUMMED])
        lines = [*self.sizes]
        if not count.isidentifier():
            lines.append(f"const int {names.n} = {count};")
            count = names.n
        if self.packs.width > 1:
            wide = self.packs.wide
            guard = " && ".join(filter(None, [f"{names.columns} % {wide} == 0", self.packs.aligned(wide)]))
            lines += [self.packs.constant(), ALIGNED_ROWS, f"const bool {names.packed} = {guard};"]
        first = f"static_cast<long long>(blockIdx.x) * {names.kRows}"
        lines += [
            f"__shared__ int {names.found}[{names.kThreads} * {NUMBERS}], {names.counts}[{names.kThreads} / {WARP}];",
            f"const long long {names.first_row} = {first};",
            f"const int {names.lane} = threadIdx.x % {WARP}, {names.warp} = threadIdx.x / {WARP};",
        ]
        if self.base is not None:
            rows = kernel.size(self.plan.domain[0])
            row = f"long long {names.row} = {names.first_row}; {names.row} < {names.first_row} + {names.kRows} && {names.row} < {rows}; ++{names.row}"
            lines += block_of(f"for ({row})", self._call(self.begin, f"static_cast<size_t>({names.row})"))
        self._line([])
        looking: list[str] = []
        (number,) = self.expressions.locals_for([self.numbers], looking)
        looking = [
            f"const int {names.i} = {names.start} + threadIdx.x * {NUMBERS} + {names.k};",
            f"long long {names.row} = -1;",
            *block_of(f"if ({names.i} < {count})", [*looking, f"{names.row} = {number} - {names.first_row};"]),
            f"{names.mine}[{names.k}] = {names.row} >= 0 && {names.row} < {names.kRows};",
            f"const unsigned int {names.votes} = __ballot_sync(0xffffffffu, {names.mine}[{names.k}]);",
        ]
        self._line([])
        adding: list[str] = []
        (number,) = self.expressions.locals_for([self.numbers], adding)
        adding = [
            f"const int {names.i} = {names.found}[{names.place}];",
            *adding,
            *self._call(self.add, f"static_cast<size_t>({number}), {names.i}"),
        ]
        over = f"for (int {names.k} = 0; {names.k} < {NUMBERS}; ++{names.k})"
        body = [
            f"bool {names.mine}[{NUMBERS}];",
            f"int {names.place} = 0, {names.total} = 0;",
            "#pragma unroll",
            *block_of(over, [*looking, f"{names.total} += __popc({names.votes});", f"{names.place} += __popc({names.votes} & ((1u << {names.lane}) - 1));"]),
            f"if ({names.lane} == 0) {names.counts}[{names.warp}] = {names.total};",
            "__syncthreads();  // the sums of the last step are complete",
            f"{names.total} = 0;",
            *block_of(
                f"for (int {names.k} = 0; {names.k} < {names.kThreads} / {WARP}; ++{names.k})",
                [
                    f"if ({names.k} < {names.warp}) {names.place} += {names.counts}[{names.k}];",
                    f"{names.total} += {names.counts}[{names.k}];",
                ],
            ),
            "#pragma unroll",
            *block_of(over, [f"if ({names.mine}[{names.k}]) {names.found}[{names.place}++] = {names.start} + threadIdx.x * {NUMBERS} + {names.k};"]),
            "__syncthreads();",
            *block_of(f"for ({names.place} = 0; {names.place} < {names.total}; ++{names.place})", adding),
        ]  # fmt: skip
        head = f"for (int {names.start} = 0; {names.start} < {count}; {names.start} += {names.kThreads} * {NUMBERS})"
        return [
            *lines,
            "// Samples that are found keep the order of the numbers: sums are the same in each run.",
            *block_of(head, body),
        ]


def as_masked(graph: Graph, kernel: KernelText) -> Graph:
    """Returns a graph in which sums and extremes by index are reductions over all samples that skip samples with other indices.

    Each result then searches all samples for its own, in the same order in each run.

    Raises:
        Refused: there are too many results and samples for that, or nothing is computed of the sums.
    """
    if not _uses_sums(graph):
        raise Refused("its sums by index are its results")
    nodes = list(graph.nodes)
    for index, node in enumerate(graph.nodes):
        if node.op != "scatter" or is_place(graph, node):
            continue
        compared = node.shape[0], graph.nodes[node.args[0]].shape[0]
        if math.prod(int(evaluate(side, kernel.contract.sizes[0])) for side in compared) > MOST_SEARCHED:
            raise Refused("it sums by index, with other results besides, and has too many samples to search for each")
        nodes[index] = _masked(nodes, node)
    return sorted_graph(nodes, graph.outputs)


def _masked(nodes: list[Node], scatter: Node) -> Node:
    """Returns the reduction over all samples that equals a sum or an extreme by index, after adding the nodes that it needs."""

    def add(node: Node) -> int:
        nodes.append(node)
        return len(nodes) - 1

    numbers, *values = scatter.args
    (results, *rest), samples = scatter.shape, nodes[numbers].shape[0]
    ones, new = ("1",) * len(rest), (None,) * len(rest)
    if nodes[numbers].dtype.startswith("uint"):
        numbers = add(Node("cast", (numbers,), (samples,), "int64"))
    place = add(Node("iota", (), (results,), "int64"))
    own = add(Node("view", (place,), (results, "1", *ones), "int64", (0, None, *new)))
    given = add(Node("view", (numbers,), ("1", samples, *ones), "int64", (None, 0, *new)))
    equal = add(Node("map", (given, own), (results, samples, *ones), "bool", ("equal",)))
    if values:
        source = nodes[values[0]]
        axes = (None, *range(len(source.shape)))
        added = add(Node("view", (values[0],), ("1", *source.shape), source.dtype, axes))
    else:
        added = add(Node("constant", (), (), scatter.dtype, (1,)))
    kind = str((scatter.data or ("sum",))[0])
    neutral = add(Node("constant", (), (), scatter.dtype, (_neutral(kind, scatter.dtype),)))
    kept = add(Node("map", (equal, added, neutral), (results, samples, *rest), scatter.dtype, ("where",)))
    return Node("reduce", (kept,), scatter.shape, scatter.dtype, (kind, 1), scatter.name)


def _neutral(kind: str, dtype: str) -> float:
    """Returns the number that changes no sum, maximum or minimum."""
    if kind == "sum":
        return 0
    if dtype.startswith("float"):
        return -math.inf if kind == "max" else math.inf
    limits = np.iinfo(dtype)
    return int(limits.min if kind == "max" else limits.max)


def _uses_sums(graph: Graph) -> bool:
    """Returns True if sums by index have another use than being added to an argument."""
    sums = set[int]()
    for index, node in enumerate(graph.nodes):
        added = node.op == "map" and node.data == ("add",)
        if node.op == "scatter" or (sums.intersection(node.args) and (added or node.op in ("view", "cast", "reshape"))):
            sums.add(index)
        elif sums.intersection(node.args):
            return True
    return False
