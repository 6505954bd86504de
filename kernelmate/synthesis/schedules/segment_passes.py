"""Results for each element of rows between offsets, from reductions of the rows: adjacent lanes per row.

Softmax, normalisation and the like of the rows of a sparse matrix. Lanes go through their row once for the reductions that need no
others, once more for those that need these, and a last time for the results; a row of usual length stays in the L1 cache meanwhile.
Traffic: everything is read from memory once, and neighbours by neighbouring lanes. The order depends on a row's length alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.bag_plan import NAMES, START, combined, offsets_of
from kernelmate.synthesis.elements import Elements, Numbers, axes_in
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, fresh_names, those_written
from kernelmate.synthesis.names import RESERVED
from kernelmate.synthesis.plan import Key, Refused, walk
from kernelmate.synthesis.reductions import WARP

BLOCK = 256

ROW, ELEMENT = 0, 1
"""The two axes: rows, and the elements of all rows in order."""


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the schedule does not apply.
    """
    plan = _plan(graph)
    rows, elements = (max(1, int(evaluate(side, kernel.contract.sizes[0]))) for side in plan.domain)
    lanes = 2
    while lanes < WARP and 2 * lanes <= elements // rows:
        lanes *= 2
    several = dict.fromkeys([lanes, min(WARP, 2 * lanes), max(2, lanes // 2)])
    yield from those_written(partial(_text, plan, kernel, one) for one in several)


def _text(plan: Elements, kernel: KernelText, lanes: int) -> WrittenKernel:
    return _Passes(plan, kernel.again(), lanes).written()


def _plan(graph: Graph) -> Elements:
    """Returns rows and elements as two axes.

    Raises:
        Refused: rows are given by several vectors, or have elements that are rows themselves.
    """
    repeated = next(node for node in graph.nodes if node.op == "repeat")
    elements, rows = repeated.shape[0], graph.nodes[repeated.args[1]].shape[0]
    shapes = {graph.nodes[one].shape for one in graph.outputs}
    if not shapes <= {(rows,), (elements,)} or rows == elements:
        raise Refused("it has rows between offsets, and results that are not one for each row, or for each element")
    if (rows,) not in shapes:  # what reduceat has for rows without elements is met nowhere
        nodes = [replace(one, data=(one.data[0], 0)) if one.op == "segment" else one for one in graph.nodes]
        graph = replace(graph, nodes=tuple(nodes))
    elif any(node.op == "segment" and node.data[1] for node in graph.nodes):
        raise Refused("it has results for each row of reduceat beside results for each element")
    offsets = offsets_of(graph)
    if offsets.rows != rows:
        raise Refused("it has rows between offsets of different numbers")
    outputs = tuple((one, (ROW if graph.nodes[one].shape == (rows,) else ELEMENT,)) for one in graph.outputs)
    return Elements(graph, (rows, elements), 1, outputs, "map", (), frozenset({ELEMENT}), ELEMENT)


class _Passes:
    """Text for a number of lanes per row."""

    def __init__(self, plan: Elements, kernel: KernelText, lanes: int) -> None:
        self.plan, self.kernel, self.lanes = plan, kernel, lanes
        self.names = fresh_names(kernel, "kLanes", "row", "lane", "i", "begin", "end", "offset", "mask")
        self.outputs = dict(zip((one.name for one in kernel.outputs()), plan.outputs, strict=True))
        self.offsets = offsets_of(plan.graph)
        self.sums = [key for key in walk(plan) if plan.node(key).op == "segment"]
        self.inputs = [self.offsets.name]
        for key in walk(plan):
            node = plan.node(key)
            if node.op == "input":
                self._read(str(node.data[0]), key)
        self.numbers = Numbers(plan, kernel, {ROW: self.names.row, ELEMENT: self.names.i})
        self.expressions = Expressions(plan, kernel, self._leaf, frozenset({"inner"}))

    def _read(self, name: str, key: Key) -> None:
        self.inputs.append(name)
        if name in self.outputs and (key[1] != (ELEMENT,) or self.outputs[name][1] != (ELEMENT,)):
            raise Refused(f"{name} is read where another thread may have written it")

    def _leaf(self, key: Key) -> str:
        node = self.plan.node(key)
        if node.op == "scalar":
            return self.kernel.loaded(str(node.data[0]), str(node.data[0]))
        if node.op == "iota":
            return f"static_cast<long long>({self.names.row if key[1] == (ROW,) else self.names.i})" if axes_in(key[1]) else "0"  # fmt: skip
        name = str(node.data[0])
        return self.kernel.loaded(name, f"{name}[{self.numbers.address(key, self.expressions)}]")

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names = self.kernel, self.names
        row, lane, lanes = names.row, names.lane, names.kLanes
        index = kernel.element(self.offsets.name)
        first, behind = self.offsets.bounds(row, kernel)
        mask = "0xffffffffu" if self.lanes == WARP else f"0x{(1 << self.lanes) - 1:x}u << threadIdx.x % {WARP} / {lanes} * {lanes}"  # fmt: skip
        lines = [
            f"constexpr int {lanes} = {self.lanes};  // per row: about as many as a row has elements",
            f"const size_t {row} = (static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x) / {lanes};",
            f"if ({row} >= {kernel.count(self.plan.domain[:1])}) return;",
            f"const int {lane} = threadIdx.x % {lanes};",
            *([f"const unsigned int {names.mask} = {mask};  // lanes of the row"] if self.sums else []),
            f"const {index} {names.begin} = {first} + {lane};",
            f"const {index} {names.end} = {behind};",
        ]
        for level in self._levels():
            lines += ["", *self._reduced(level)]
        lines += ["", *self._results()]
        return WrittenKernel(
            f"segment-passes-{self.lanes}",
            f"Written from the reference: {self.lanes} neighbouring lanes of a warp for each row, which combine the row's reductions by shuffles "
            "and compute the results of its elements from them." + kernel.promise(dict.fromkeys(self.inputs)),
            kernel.definition(kernel.head(), lines),
            "",
            (f"cdiv({self.plan.domain[0]} * {self.lanes}, block)",),
            BLOCK,
        )

    def _levels(self) -> list[list[Key]]:
        """Returns the reductions in order of dependency."""
        depth: dict[Key, int] = {}
        for key in walk(self.plan):
            below = max((depth[one] for one in self.plan.operands(key)), default=0)
            depth[key] = below + (self.plan.node(key).op == "segment")
        deepest = max((depth[key] for key in self.sums), default=0)
        return [[key for key in self.sums if depth[key] == level + 1] for level in range(deepest)]

    def _reduced(self, sums: Sequence[Key]) -> list[str]:
        """Returns statements that compute reductions whose operands are known."""
        kernel, names, expressions = self.kernel, self.names, self.expressions
        texts, body, hoisted = self._body([self.plan.operands(key)[0] for key in sums])
        declared, exchanged, known = list[str](), list[str](), dict[Key, str]()
        for key, text in zip(sums, texts, strict=True):
            how, kind = str(self.plan.node(key).data[0]), expressions.type_of(key)
            own = self.plan.node(key).name
            total = kernel.names.fresh(own if kernel.names.is_free(own) and own not in RESERVED else NAMES[how])
            declared.append(f"{kind} {total} = {expressions.number(START[how]) if kind == kernel.real else '0'};")
            body += combined(how, total, text, kind, kernel)
            other = f"__shfl_xor_sync({names.mask}, {total}, {names.offset})"
            if how != "sum":
                held = kernel.names.fresh("other")
                exchanged.append(f"const {kind} {held} = {other};")
                other = held
            exchanged += combined(how, total, other, kind, kernel)
            known[key] = total
        halved = f"int {names.offset} = {names.kLanes} / 2; {names.offset} > 0; {names.offset} /= 2"
        self._forget()
        expressions.known |= known
        return [*hoisted, *declared, *self._loop(body), *block_of(f"for ({halved})", exchanged)]

    def _loop(self, body: Sequence[str]) -> list[str]:
        index, i = self.kernel.element(self.offsets.name), self.names.i
        head = f"for ({index} {i} = {self.names.begin}; {i} < {self.names.end}; {i} += {self.names.kLanes})"
        return block_of(head, body)

    def _body(self, roots: Sequence[Key]) -> tuple[list[str], list[str], list[str]]:
        """Returns values at element `i`, the statements before them, and those before the loop over elements."""
        body: list[str] = []
        self.numbers.taken(roots, self.expressions, body)
        texts = self.expressions.locals_for(roots, body)
        hoisted, self.expressions.outer = self.expressions.outer, []
        return texts, body, hoisted

    def _forget(self) -> None:
        """Removes the locals of a loop's body; reciprocals, with negative keys, belong to the row and stay."""
        known, varies = self.expressions.known, self.expressions.varies
        self.expressions.known = {key: name for key, name in known.items() if key[0] < 0 or not varies(key)}

    def _results(self) -> list[str]:
        """Returns statements that compute and store the results of the row and of its elements."""
        lines = self._stored([name for name, key in self.outputs.items() if key[1] == (ELEMENT,)], self.names.i)
        rows = self._stored([name for name, key in self.outputs.items() if key[1] == (ROW,)], self.names.row)
        return [*lines, *rows]

    def _stored(self, outputs: Sequence[str], at: str) -> list[str]:
        if not outputs:
            return []
        keys = [self.outputs[name] for name in outputs]
        texts, body, hoisted = self._body(keys)
        stores = list[str]()
        for name, key, text in zip(outputs, keys, texts, strict=True):
            value = self.kernel.stored(name, text, self.plan.node(key).dtype)
            if len(outputs) > 1:  # an array that is changed may still be read for the next output
                local = self.kernel.names.element(name)
                body.append(f"const {self.kernel.element(name)} {local} = {value};")
                value = local
            stores.append(f"{name}[{at}] = {value};")
        self._forget()
        if at == self.names.i:
            return [*hoisted, *self._loop([*body, *stores])]
        return block_of(f"if ({self.names.lane} == 0)", [*hoisted, *body, *stores])
