"""Elements or rows assigned by index (`y[index] = x`): a block finds the last index that names each of its own rows, then writes them.

Traffic: results are written once, and what was there before is read once, in packs of 16 bytes; each block reads all indices, from L2.
If the results replace an array, the other rows are neither read nor written.
Arithmetic: an atomic maximum in shared memory for each index that lies in the block's rows, so that of several values for one
row the last one is assigned, whatever the order of the threads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.axes import in_sum
from kernelmate.synthesis.elements import Elements, may_be_negative
from kernelmate.synthesis.graph import Graph, Node, pruned
from kernelmate.synthesis.kernel_text import MULTIPROCESSORS, KernelText, WrittenKernel, block_of, those_written
from kernelmate.synthesis.packs import ALIGNED_ROWS
from kernelmate.synthesis.plan import Key, Refused, walk, without_reshapes
from kernelmate.synthesis.reductions import WARP
from kernelmate.synthesis.schedules.gather import Gather
from kernelmate.synthesis.schedules.pointwise import row_block
from kernelmate.synthesis.size_text import MissingSize
from kernelmate.synthesis.sizes import factors_of

THREADS = 256
RESIDENT = 2
"""Blocks per multiprocessor: more blocks would search all indices more often."""

LANES = 128
"""Fewest threads that look for a later place of the same row."""

MOST_ROWS = 4096
"""Maximum number of rows of a block: 16 KB of shared memory."""


def is_place(graph: Graph, node: Node) -> bool:
    """Returns True for a node that gives, for each row, its last position among the indices of an assignment."""
    if node.op != "scatter" or node.data != ("max",) or node.dtype != "int32":
        return False
    places = graph.nodes[node.args[1]]
    return places.op == "cast" and graph.nodes[places.args[0]].op == "iota"


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields the generated kernel.

    Raises:
        Refused: it is not an assignment by index along the results' first axis.
    """
    graph = without_reshapes(graph)
    shape = graph.nodes[graph.outputs[0]].shape
    if any(graph.nodes[one].shape != shape for one in graph.outputs) or len(shape) not in (1, 2):
        raise Refused("it assigns by index, and has other results besides")
    replaced = _replaced(graph, [one.name for one in kernel.outputs()])
    graph = replaced or graph
    axes = tuple(range(len(shape)))
    outputs = tuple((one, axes) for one in graph.outputs)
    kind = "map" if axes[1:] else "free"  # places then vary between the elements of a pack
    plan = Elements(graph, shape, 0, outputs, kind, (), frozenset({axes[-1]}), len(shape))
    makers = [partial(_text, plan, kernel, _Assigned, in_place=replaced is not None)]
    if replaced is not None and axes[1:]:
        makers.insert(0, partial(_text, plan, kernel, _AssignedPlaces, in_place=True))
    yield from those_written(makers)


def _text(plan: Elements, kernel: KernelText, writer: type[_Assigned], *, in_place: bool) -> WrittenKernel:
    return writer(plan, kernel.again(), in_place=in_place).written()


def _replaced(graph: Graph, outputs: Sequence[str]) -> Graph | None:
    """Returns the graph of the assigned values, if each result keeps its other elements; else None."""
    nodes, results = list(graph.nodes), list[int]()
    for output, name in zip(graph.outputs, outputs, strict=True):
        node = graph.nodes[output]
        if node.mapped != "where" or graph.nodes[node.args[2]].data != (name,):
            return None
        results.append(node.args[1])
        if nodes[node.args[1]].shape != node.shape:
            nodes.append(Node("constant", (), node.shape, node.dtype, (0,)))
            nodes.append(Node("map", (node.args[1], len(nodes) - 1), node.shape, node.dtype, ("add",)))
            results[-1] = len(nodes) - 1
    places = [index for index, node in enumerate(nodes) if is_place(graph, node)]
    found = pruned(nodes, [*results, *places])  # a number that is assigned needs the places, too
    return replace(found, outputs=found.outputs[: len(results)])


class _Assigned(Gather):
    """Writer of the kernel's text."""

    def __init__(self, plan: Elements, kernel: KernelText, *, in_place: bool) -> None:
        self.in_place = in_place
        places = [key for key in walk(plan) if is_place(plan.graph, plan.node(key))]
        if in_place and not places:
            places = [(index, (0,)) for index, node in enumerate(plan.graph.nodes) if is_place(plan.graph, node)]
        if len(places) != 1 or places[0][1] != (0,):
            raise Refused("it assigns by several arrays of numbers, or along another axis than the first")
        self.place: Key = places[0]
        super().__init__(plan, kernel, by_rows=len(plan.domain) > 1)
        if any(one in self.inputs for one in self.outputs):
            raise Refused("it assigns by index to an array that it reads")
        if in_place and not self.last:
            self.packs.width = 1  # neighbours may stay as they are
        names = self.names
        for name in ("last", "first", "mine", "r", "own"):
            setattr(names, name, kernel.names.fresh(name))
        self._divide()
        self.numbers.at = {**self.numbers.at, plan.summed: names.i}
        self.more = [f"int {names.last}"] if self.last else [f"const int* {names.last}"]
        last = names.last if self.last else f"{names.last}[{names.j}]"
        self.expressions.known[self.place] = last
        if in_place:  # where something is assigned, there is a last place
            clamped = (key for key in walk(plan) if plan.node(key).mapped == "maximum")
            self.expressions.known |= {key: last for key in clamped if plan.operands(key)[0] == self.place}

    def _divide(self) -> None:
        """Divides the result's rows, or its elements, among blocks."""
        kernel, names, plan = self.kernel, self.names, self.plan
        names.kThreads, self.constants = kernel.threads(THREADS)
        rows = int(evaluate(plan.domain[0], kernel.contract.sizes[0]))
        self.rows = min(-(-rows // (MULTIPROCESSORS * RESIDENT)), MOST_ROWS)
        if not self.last:
            self.rows = max(-(-self.rows // THREADS), 1) * THREADS
        names.kRows, own = kernel.constant(
            "Rows", self.rows, f"neighbouring {'rows' if self.last else 'elements'} of the result for a block"
        )
        self.constants += own

    def _leaf(self, key: Key) -> str:
        of_places = self.plan.node(key).op == "iota" and key[1] == (self.plan.summed,)
        return f"static_cast<long long>({self.names.i})" if of_places else super()._leaf(key)

    def _numbered(self) -> tuple[list[str], list[str], str]:
        """Returns statements independent of the position, statements that compute its row's index, and the text of this index."""
        kernel, plan = self.kernel, self.plan
        numbers = plan.operands(self.place)[0]
        while plan.node(numbers).op == "cast" and plan.graph.nodes[plan.node(numbers).args[0]].dtype[:3] in ("int", "uin"):  # fmt: skip
            numbers = plan.operands(numbers)[0]
        before, self.expressions.outer = self.expressions.outer, []
        lines: list[str] = []
        self.numbers.taken([numbers], self.expressions, lines)
        (text,) = self.expressions.locals_for([numbers], lines)
        constants, self.expressions.outer = self.expressions.outer, before
        number = in_sum(text)
        if may_be_negative(plan.graph, numbers[0]):
            name = kernel.names.fresh("number")
            lines.append(f"const long long {name} = {text};")
            number = f"({name} < 0 ? {name} + {self._rows_text()} : {name})"
        own = [one for one in constants if re.search(rf"\b{self.names.i}\b", one)]
        return [one for one in constants if one not in own], [*own, *lines], number

    def _searched(self) -> list[str]:
        """Returns the statements that search for the last index that names each of the block's rows."""
        kernel, names, plan = self.kernel, self.names, self.plan
        rows = self._rows_text()
        constants, lines, number = self._numbered()
        count = kernel.size(plan.graph.nodes[plan.node(self.place).args[0]].shape[0])
        search = [
            *constants,
            *lines,
            f"const long long {names.own} = {number} - {names.first};",
            f"if (0 <= {names.own} && {names.own} < {names.kRows}) atomicMax(&{names.last}[{names.own}], {names.i});",
        ]
        i = names.i
        return [
            f"__shared__ int {names.last}[{names.kRows}];  // the last place of each row's number; -1 without one",
            f"const long long {names.first} = static_cast<long long>(blockIdx.x) * {names.kRows};",
            *block_of(f"for (int {i} = threadIdx.x; {i} < {names.kRows}; {i} += {names.kThreads})", [f"{names.last}[{i}] = -1;"]),
            "__syncthreads();",
            *block_of(f"for (int {i} = threadIdx.x; {i} < {count}; {i} += {names.kThreads})", search),
            "__syncthreads();",
            f"const int {names.mine} = static_cast<int>(min(static_cast<long long>({names.kRows}), {rows} - {names.first}));",
        ]  # fmt: skip

    def _rows_text(self) -> str:
        """Returns the number of rows, or of elements of several axes, which may exceed 32 bits."""
        whole = self.kernel.size(self.plan.domain[0])
        if re.fullmatch(r"\w+", whole):
            return whole
        first, *others = map(self.kernel.size, factors_of(self.plan.domain[0]))
        grouped = [one if re.fullmatch(r"\w+", one) else f"({one})" for one in others]
        return " * ".join([f"static_cast<long long>({first})", *grouped])

    def _launched(self, helper: str, passed: Sequence[str], text: str, opening: Sequence[str]) -> WrittenKernel:
        """Returns the kernel, whose blocks search before they write."""
        kernel, names, width, wide = self.kernel, self.names, self.packs.width, self.packs.wide
        arguments = ", ".join(passed)
        whole = [f"{names.columns} % {wide} == 0"] if self.last else []
        guard = " && ".join(filter(None, [*whole, self.packs.aligned(wide)])) or "true"
        body = [*(opening if self.last else []), *([self.packs.constant(), ALIGNED_ROWS] if width > 1 else [])]
        write = self._rows_written if self.last else self._elements_written
        body += [*self._searched(), *write(f"{helper}<{{}}>({arguments}", guard)]
        several = "each row" if self.rows == 1 else f"{self.rows} neighbouring {'rows' if self.last else 'elements'}"
        known = [name for name, places in self.inputs.items() if self._along(places)]
        indices = kernel.size(self.plan.graph.nodes[self.plan.node(self.place).args[0]].shape[0])
        return WrittenKernel(
            "assign", f"Written from the reference: a block for {several} of the result finds the last place of each "
            f"among all {indices} numbers, then writes {'those that have one' if self.in_place else 'them'} {width} elements at a time in accesses of 16 bytes where addresses allow it."
            + kernel.promise(known),
            kernel.definition(kernel.head(), body), "\n\n".join(["\n".join(self.constants), text]),
            (f"cdiv({self.plan.domain[0]}, {self.rows})",), THREADS,
        )  # fmt: skip

    def _rows_written(self, call: str, guard: str) -> list[str]:
        """Returns the loops over the block's rows: neighbouring lanes take the packs of a row."""
        names, width, wide = self.names, self.packs.width, self.packs.wide
        columns = int(evaluate(self.plan.domain[1], self.kernel.contract.sizes[0]))
        lanes = 1
        while lanes < WARP and lanes * width < columns:
            lanes *= 2
        r, c = names.r, names.column

        def loop(pack: str) -> list[str]:
            scale = f" * {pack}" if pack != "1" else ""
            first, step = f"threadIdx.x % {lanes}{scale}", f"{lanes}{scale}"
            row, rows = f"threadIdx.x / {lanes}", f"{names.kThreads} / {lanes}"
            if lanes == 1:
                first, step, row, rows = "0", pack, "threadIdx.x", names.kThreads
            done = f"{call.format(pack)}, {names.last}[{r}], static_cast<size_t>({names.first} + {r}), {c});"
            head = f"for (int {c} = {first}; {c} < {names.columns}; {f'++{c}' if step == '1' else f'{c} += {step}'})"
            kept = [f"if ({names.last}[{r}] < 0) continue;  // the row stays as it was"] * self.in_place
            body = [*kept, *block_of(head, [done])]
            return block_of(f"for (int {r} = {row}; {r} < {names.mine}; {r} += {rows})", body)

        if width == 1:
            return loop("1")
        return [
            f"if ({guard}) {{",
            *("  " + one for one in loop(wide)),
            "} else {",
            *("  " + one for one in loop("1")),
            "}",
        ]

    def _elements_written(self, call: str, guard: str) -> list[str]:
        """Returns the loops over the block's elements: whole packs where aligned, then the rest."""
        names, width, wide = self.names, self.packs.width, self.packs.wide
        i = names.i

        def loop(pack: str, head: str) -> list[str]:
            test = f"if ({names.last}[{i}] >= 0) " * self.in_place
            return block_of(head, [f"{test}{call.format(pack)}, {names.last} + {i}, {names.first} + {i});"])

        if width == 1:
            return loop("1", f"for (int {i} = threadIdx.x; {i} < {names.mine}; {i} += {names.kThreads})")
        done = self.kernel.names.fresh("packed")
        return [
            f"const int {done} = {guard} ? {names.mine} / {wide} * {wide} : 0;",
            *loop(wide, f"for (int {i} = threadIdx.x * {wide}; {i} < {done}; {i} += {names.kThreads} * {wide})"),
            *loop("1", f"for (int {i} = {done} + threadIdx.x; {i} < {names.mine}; {i} += {names.kThreads})"),
        ]


class _AssignedPlaces(_Assigned):
    """Writer for few rows of a long array: a block per index, which writes unless a later index names the same row."""

    def _divide(self) -> None:
        """Divides nothing: each index has a block."""

    def _launched(self, helper: str, passed: Sequence[str], text: str, opening: Sequence[str]) -> WrittenKernel:
        """Returns the kernel, whose blocks first check whether a later index assigns their row."""
        kernel, names, width, wide = self.kernel, self.names, self.packs.width, self.packs.wide
        side = self.plan.graph.nodes[self.plan.node(self.place).args[0]].shape[0]
        constants, lines, number = self._numbered()
        place, own, later, number_of = (kernel.names.fresh(one) for one in ("place", "number", "later", "number_of"))
        try:
            count = kernel.size(side)
        except MissingSize:
            count = "static_cast<int>(gridDim.x)"
        i, c = names.i, names.column
        guard = " && ".join(filter(None, [f"{names.columns} % {wide} == 0", self.packs.aligned(wide)]))

        def loop(pack: str) -> list[str]:
            scale = f" * {pack}" if pack != "1" else ""
            head = f"for (int {c} = threadIdx.x{scale}; {c} < {names.columns}; {c} += blockDim.x{scale})"
            done = f"{helper}<{pack}>({', '.join(passed)}, {place}, static_cast<size_t>({own}), {c});"
            return block_of(head, [done])

        packs = [
            f"if ({guard}) {{",
            *("  " + one for one in loop(wide)),
            "} else {",
            *("  " + one for one in loop("1")),
            "}",
        ]
        body = [
            *opening,
            *constants,
            f"const auto {number_of} = [&](int {i}) -> long long {{",
            *(f"  {one}" for one in [*lines, f"return {number};"]),
            "};",
            f"const int {place} = blockIdx.x;",
            f"const long long {own} = {number_of}({place});",
            "// Of several places with one number, the last one counts.",
            f"bool {later} = false;",
            *block_of(
                f"for (int {i} = {place} + 1 + threadIdx.x; {i} < {count}; {i} += blockDim.x)",
                [f"{later} |= {number_of}({i}) == {own};"],
            ),
            f"if (__syncthreads_or({later})) return;",
            *([self.packs.constant(), ALIGNED_ROWS, *packs] if width > 1 else loop("1")),
        ]
        columns = int(evaluate(self.plan.domain[1], kernel.contract.sizes[0]))
        known = [name for name, places in self.inputs.items() if self._along(places)]
        return WrittenKernel(
            "assign-places", f"Written from the reference: a block for each number writes its row, {width} elements at a time in accesses "
            "of 16 bytes where addresses allow it, unless a later number is the same; the other rows are not touched." + kernel.promise(known),
            kernel.definition(kernel.head(), body), text, (side,), max(row_block(columns, width), LANES),
        )  # fmt: skip
