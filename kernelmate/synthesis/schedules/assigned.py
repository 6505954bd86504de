"""Elements or rows assigned by index (`y[index] = x`): a block finds the last place of each of its own rows, then writes them.

Traffic: results are written once, and what was there before is read once, in packs of 16 bytes; each block reads all indices, from L2.
Arithmetic: an atomic maximum in shared memory for each index that lies in the block's rows, so that of several values for one
row the last one is assigned, whatever the order of the threads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kernelmate.source import evaluate
from kernelmate.synthesis.axes import in_sum
from kernelmate.synthesis.elements import Elements, may_be_negative
from kernelmate.synthesis.graph import Graph, Node
from kernelmate.synthesis.kernel_text import MULTIPROCESSORS, KernelText, WrittenKernel, block_of
from kernelmate.synthesis.packs import ALIGNED_ROWS
from kernelmate.synthesis.plan import Key, Refused, walk, without_reshapes
from kernelmate.synthesis.reductions import WARP
from kernelmate.synthesis.schedules.gather import Gather
from kernelmate.synthesis.sizes import factors_of

THREADS = 256
RESIDENT = 2
"""Blocks per multiprocessor: more blocks would search all indices more often."""

MOST_ROWS = 4096
"""Rows of a block: 16 KB of shared memory."""


def is_place(graph: Graph, node: Node) -> bool:
    """Returns True for the last place of each row's number among the indices of an assignment."""
    if node.op != "scatter" or node.data != ("max",) or node.dtype != "int32":
        return False
    places = graph.nodes[node.args[1]]
    return places.op == "cast" and graph.nodes[places.args[0]].op == "iota"


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields the generated kernel.

    Raises:
        Refused: it is no assignment by index along the results' first axis.
    """
    graph = without_reshapes(graph)
    shape = graph.nodes[graph.outputs[0]].shape
    if any(graph.nodes[one].shape != shape for one in graph.outputs) or len(shape) not in (1, 2):
        raise Refused("it assigns by index, and has other results besides")
    axes = tuple(range(len(shape)))
    outputs = tuple((one, axes) for one in graph.outputs)
    kind = "map" if axes[1:] else "free"  # places then vary between the elements of a pack
    plan = Elements(graph, shape, 0, outputs, kind, (), frozenset({axes[-1]}), len(shape))
    yield _Assigned(plan, kernel.again()).written()


class _Assigned(Gather):
    """Writer of the kernel's text."""

    def __init__(self, plan: Elements, kernel: KernelText) -> None:
        places = [key for key in walk(plan) if is_place(plan.graph, plan.node(key))]
        if len(places) != 1 or places[0][1] != (0,):
            raise Refused("it assigns by several arrays of numbers, or along another axis than the first")
        self.place: Key = places[0]
        super().__init__(plan, kernel, by_rows=len(plan.domain) > 1)
        if any(one in self.inputs for one in self.outputs):
            raise Refused("it assigns by index to an array that it reads")
        names = self.names
        for name in ("last", "first", "mine", "r", "own"):
            setattr(names, name, kernel.names.fresh(name))
        names.kThreads, self.constants = kernel.threads(THREADS)
        rows = int(evaluate(plan.domain[0], kernel.contract.sizes[0]))
        self.rows = min(-(-rows // (MULTIPROCESSORS * RESIDENT)), MOST_ROWS)
        if not self.last:
            self.rows = max(-(-self.rows // THREADS), 1) * THREADS
        names.kRows, own = kernel.constant(
            "Rows", self.rows, f"neighbouring {'rows' if self.last else 'elements'} of the result for a block"
        )
        self.constants += own
        self.numbers.at = {**self.numbers.at, plan.summed: names.i}
        self.more = [f"int {names.last}"] if self.last else [f"const int* {names.last}"]
        self.expressions.known[self.place] = names.last if self.last else f"{names.last}[{names.j}]"

    def _searched(self) -> list[str]:
        """Returns the search for the last place of each of the block's rows."""
        kernel, names, plan = self.kernel, self.names, self.plan
        numbers = plan.operands(self.place)[0]
        while plan.node(numbers).op == "cast" and plan.graph.nodes[plan.node(numbers).args[0]].dtype[:3] in ("int", "uin"):  # fmt: skip
            numbers = plan.operands(numbers)[0]
        before, self.expressions.outer = self.expressions.outer, []
        rows = self._rows_text()
        lines: list[str] = []
        self.numbers.taken([numbers], self.expressions, lines)
        (text,) = self.expressions.locals_for([numbers], lines)
        constants, self.expressions.outer = self.expressions.outer, before
        number = in_sum(text)
        if may_be_negative(plan.graph, numbers[0]):
            name = kernel.names.fresh("number")
            lines.append(f"const long long {name} = {text};")
            number = f"({name} < 0 ? {name} + {rows} : {name})"
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
            f"among all {indices} numbers, then writes them {width} elements at a time in accesses of 16 bytes where addresses allow it."
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
            return block_of(f"for (int {r} = {row}; {r} < {names.mine}; {r} += {rows})", block_of(head, [done]))

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
            return block_of(head, [f"{call.format(pack)}, {names.last} + {i}, {names.first} + {i});"])

        if width == 1:
            return loop("1", f"for (int {i} = threadIdx.x; {i} < {names.mine}; {i} += {names.kThreads})")
        done = self.kernel.names.fresh("packed")
        return [
            f"const int {done} = {guard} ? {names.mine} / {wide} * {wide} : 0;",
            *loop(wide, f"for (int {i} = threadIdx.x * {wide}; {i} < {done}; {i} += {names.kThreads} * {wide})"),
            *loop("1", f"for (int {i} = {done} + threadIdx.x; {i} < {names.mine}; {i} += {names.kThreads})"),
        ]
