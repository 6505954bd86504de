"""Reductions over all pairs of two sets, as forces between bodies, densities and nearest points: tiles of one set in shared memory.

Some neighbouring lanes of a warp share an element of the first set, whose values they keep in registers, and take turns over the elements
of a tile of the second. Traffic: the second set once for each block, nearly all from L2; from shared memory one access of up to 16 bytes
for each pair. Arithmetic: that of the graph; what depends on one of the sets alone is computed once for each of its elements, or tile.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.axes import leaf_text
from kernelmate.synthesis.bag_plan import NAMES, START, combined
from kernelmate.synthesis.components import Component, suffix, with_components
from kernelmate.synthesis.elements import Elements
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import (  # fmt: skip
    WIDEST,
    KernelText,
    WrittenKernel,
    block_of,
    fresh_names,
    those_written,
)
from kernelmate.synthesis.plan import Key, Refused, walk
from kernelmate.synthesis.reductions import WARP

BLOCK = 256

FILLING = 132 * 1024
"""Number of threads that occupies an H100: half of those resident on its multiprocessors."""

ROW, OTHER = 0, 1
"""The two axes: elements of the results, and those of the other set."""


@dataclass(frozen=True, slots=True)
class _Pairs(Elements):
    """Plan of a reduction over pairs: elements of both sets."""

    def operands(self, key: Key) -> tuple[Key, ...]:
        """Returns the keys of an operation's operands; for a reduction, along the other set."""
        node, index = self.node(key), key[1]
        if node.op != "reduce":
            return Elements.operands(self, key)
        axis = int(node.data[1] or 0)
        taken = None if self.graph.nodes[node.args[0]].shape[axis] == "1" else OTHER
        return ((node.args[0], (*index[:axis], taken, *index[axis:])),)

    def axes(self) -> dict[Key, frozenset[int]]:
        """Returns the axes along which each value varies."""
        found: dict[Key, frozenset[int]] = {}
        for key in walk(self):
            node = self.node(key)
            own = [one for one in key[1] if isinstance(one, int)] if node.op in ("input", "iota") else []
            below = frozenset(own).union(*(found[one] for one in self.operands(key)))
            found[key] = below - {OTHER} if node.op == "reduce" else below
        return found


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: it does not reduce over pairs of elements that a row and a column of arrays have.
    """
    if not any(node.op == "reduce" for node in graph.nodes):
        raise Refused("it reduces nothing")
    split, places = with_components(graph)
    plan = _plan(split)
    rows, others = (int(evaluate(side, kernel.contract.sizes[0])) for side in plan.domain)
    if rows * WARP < FILLING // 8 and others > rows:
        raise Refused("it has too few results for tiles that blocks share")
    lanes = 1
    while lanes < WARP and rows * lanes < FILLING:
        lanes *= 2
    several = dict.fromkeys([lanes, max(1, lanes // 2), min(WARP, 2 * lanes)])
    yield from those_written(partial(_text, plan, places, kernel, one) for one in several)


def _text(plan: _Pairs, places: list[tuple[int, Component]], kernel: KernelText, lanes: int) -> WrittenKernel:
    return _AllPairs(plan, places, kernel.again(), lanes).written()


def _plan(graph: Graph) -> _Pairs:
    nodes = graph.nodes
    reductions = [node for node in nodes if node.op == "reduce"]
    domain = nodes[graph.outputs[0]].shape
    others = {nodes[node.args[0]].shape[int(node.data[1] or 0)] for node in reductions}
    if len(domain) != 1 or any(nodes[one].shape != domain for one in graph.outputs) or len(others) != 1:
        raise Refused("it does not have one result for each element of a set")
    if any(node.data[0] not in START or not node.dtype.startswith("float") for node in reductions):
        raise Refused("it reduces pairs to other than sums and extremes of floats")
    outputs = tuple((one, (ROW,)) for one in graph.outputs)
    plan = _Pairs(graph, (*domain, others.pop()), 0, outputs, "map", (), frozenset({OTHER}))
    axes, reduced = plan.axes(), set[Key]()
    for key in walk(plan):
        if plan.node(key).op == "input" and {ROW, OTHER} <= axes[key]:
            raise Refused("it reads an array of all pairs")
        if any(one in reduced for one in plan.operands(key)):
            reduced.add(key)
        if plan.node(key).op == "reduce":
            (inner,) = plan.operands(key)
            if axes[inner] != {ROW, OTHER} or inner in reduced:
                raise Refused("it reduces other than values of pairs")
            reduced.add(key)
    return plan


class _AllPairs:
    """Writer of the kernel's text for a number of lanes per element of the results."""

    def __init__(self, plan: _Pairs, places: list[tuple[int, Component]], kernel: KernelText, lanes: int) -> None:
        self.plan, self.places, self.kernel, self.lanes = plan, places, kernel, lanes
        self.outputs = [one.name for one in kernel.outputs()]
        self.names = fresh_names(kernel, "kLanes", "row", "lane", "mine", "first", "k", "tile", "other", "in_tile", "offset", "Other", "other_row")  # fmt: skip
        self.names.kThreads, self.constants = kernel.threads(BLOCK)
        self.at = {ROW: self.names.mine, OTHER: f"{self.names.first} + {self.names.k}"}
        self.expressions = Expressions(plan, kernel, self._leaf, frozenset({"inner"}))
        self.sums = [key for key in walk(plan) if plan.node(key).op == "reduce"]
        for key in walk(plan):
            node = plan.node(key)
            if node.op == "input" and node.data[0] in self.outputs and OTHER in key[1]:
                raise Refused(f"{node.data[0]} is read where another thread may have written it")
            if node.op == "input" and ROW in key[1]:
                name = f"{self._word(key)}_i"
                self.expressions.hints[key] = kernel.names.fresh(name)
                kernel.names.release(self.expressions.hints[key])

    def _leaf(self, key: Key) -> str:
        along = key[1][0] if key[1] else None
        return leaf_text(
            self.kernel, self.plan.node(key),
            lambda: "0" if along is None else f"static_cast<long long>({self.at[int(along)]})", lambda: self._address(key),
        )  # fmt: skip

    def _address(self, key: Key) -> str:
        """Returns the index of an element in an array."""
        name, *numbers = self.plan.node(key).data
        sides = self.kernel.arguments[str(name)].shape or ()
        moving = iter(key[1])
        text = ""
        for side, number in zip(sides, numbers or [None] * len(sides), strict=True):
            one = next(moving) if number is None else None
            here = str(number) if number is not None else "" if one is None else self.at[int(one)]
            if text:
                length = self.kernel.size(side)
                front = text if text.isidentifier() else f"({text})"
                text = f"{front} * {length if length.isidentifier() or length.isdigit() else f'({length})'}"
            text = f"{text} + {here}" if text and here not in ("", "0") else text or here
        return text or "0"

    def _word(self, key: Key) -> str:
        """Returns a name for an element of an array: `p_x` of a point, else with its indices."""
        name, *numbers = self.plan.node(key).data
        element = tuple(one if isinstance(one, int) else None for one in numbers)
        return f"{name}{suffix(self.kernel.arguments[str(name)].shape or (), element)}"

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, expressions, plan = self.kernel, self.names, self.expressions, self.plan
        members = self._members()
        for key, (name, _, _) in members.items():
            expressions.known[key] = f"{names.other}.{name}"
        body: list[str] = []
        texts = expressions.locals_for([plan.operands(key)[0] for key in self.sums], body)
        kept, expressions.outer = expressions.outer, []
        totals, starts, exchanged = [], [], []
        for key, text in zip(self.sums, texts, strict=True):
            kind, ctype = str(plan.node(key).data[0]), expressions.type_of(key)
            totals.append(kernel.names.fresh(self._total(key) or NAMES[kind]))
            starts.append(f"{ctype} {totals[-1]} = {expressions.number(START[kind])};")
            body += combined(kind, totals[-1], text, ctype, kernel)
            shuffled = f"__shfl_xor_sync(0xffffffffu, {totals[-1]}, {names.offset})"
            exchanged += combined(kind, totals[-1], shuffled, ctype, kernel)
        lines = [*self._opening(), *kept, *starts, *self._loop(members, body)]
        if self.lanes > 1:
            head = f"for (int {names.offset} = {names.kLanes} / 2; {names.offset} > 0; {names.offset} /= 2)"
            lines += block_of(head, exchanged)
        lines += self._stores(dict(zip(self.sums, totals, strict=True)))
        share = f"{self.lanes} lanes for each result" if self.lanes > 1 else "a thread for each result"
        read = dict.fromkeys(str(plan.node(key).data[0]) for key in walk(plan) if plan.node(key).op == "input")
        return WrittenKernel(
            f"pairs-{self.lanes}",
            f"Written from the reference: {share}, and tiles of {BLOCK} elements of the other set in shared memory, each read once by "
            "a block." + kernel.promise(read),
            kernel.definition(kernel.head(), lines),
            "\n".join(self.constants),
            (f"cdiv({plan.domain[ROW]}{f' * {self.lanes}' if self.lanes > 1 else ''}, block)",),
            BLOCK,
        )

    def _total(self, key: Key) -> str:
        """Returns a name for the reduced value: the reference's, or its result's; else an empty text."""
        found = self.plan.node(key).name
        for (place, element), one in zip(self.places, self.plan.outputs, strict=True):
            if self.expressions.bare(one) == key and any(number is not None for number in element):
                name = self.outputs[place]
                found = found or f"{name}{suffix(self.kernel.arguments[name].shape or (), element)}"
        return found if self.kernel.names.is_free(found) else ""

    def _members(self) -> dict[Key, tuple[str, str, str]]:
        """Returns the values of each element of the other set that a tile holds: name, type and text by key.

        `other_row` is the element's index.
        """
        found: dict[Key, tuple[str, str, str]] = {}
        taken, seen, differs = {"unused"}, set[Key](), self.plan.axes()
        before, self.at[OTHER] = self.at[OTHER], self.names.other_row
        values = Expressions(self.plan, self.kernel, self._leaf, frozenset({"inner"}))

        def visit(key: Key) -> None:
            key = self.expressions.bare(key)
            if key in seen:
                return
            seen.add(key)
            axes = differs[key]
            if axes != {OTHER} or self.plan.node(key).dtype == "bool":
                for one in self.plan.operands(key) if OTHER in axes else ():
                    visit(one)
                return
            node = self.plan.node(key)
            if node.op == "iota":
                return
            word = self._word(key) if node.op == "input" else node.name or "value"
            name = next(one for one in (word, *(f"{word}_{number}" for number in range(2, 99))) if one not in taken)
            taken.add(name)
            lines: list[str] = []
            (text,) = values.locals_for([key], lines)
            if lines or values.outer:
                raise Refused("it computes a value of the other set from several others")
            found[key] = name, values.type_of(key), text

        for key in self.sums:
            visit(self.plan.operands(key)[0])
        self.at[OTHER] = before
        return found

    def _opening(self) -> list[str]:
        names, rows = self.names, self.kernel.size(self.plan.domain[ROW])
        thread = f"static_cast<size_t>(blockIdx.x) * {names.kThreads} + threadIdx.x"
        if self.lanes == 1:
            own = [f"const size_t {names.row} = {thread};"]
        else:
            own = [
                f"constexpr int {names.kLanes} = {self.lanes};  // of a warp, for each result: more threads than results fill the GPU",
                f"const size_t {names.row} = ({thread}) / {names.kLanes};",
                f"const int {names.lane} = threadIdx.x % {names.kLanes};",
            ]
        past = f"{names.row} < {rows} ? {names.row} : {rows} - 1"
        return [*own, f"const size_t {names.mine} = {past};  // past the last result, its values are computed again"]

    def _loop(self, members: dict[Key, tuple[str, str, str]], body: list[str]) -> list[str]:
        """Returns the loop over tiles of the other set."""
        names, others = self.names, self.kernel.size(self.plan.domain[OTHER])
        others = others if others.isidentifier() or others.isdigit() else f"({others})"
        types = [ctype for _, ctype, _ in members.values()]
        total = sum({"double": 8, "long long": 8}.get(one, 4) for one in types)
        align = min(WIDEST, 1 << max(0, total - 1).bit_length())
        declared = [f"  {ctype} {name};" for name, ctype, _ in members.values()]
        if total % align:
            count = -total % align // 4
            array = f"[{count}]" if count > 1 else ""
            declared.append(f"  int unused{array};  // so that an element is read in accesses of {align} bytes")
        values = ", ".join(text for _, _, text in members.values())
        start, step = ("0", f"++{names.k}") if self.lanes == 1 else (names.lane, f"{names.k} += {names.kLanes}")
        within = [
            f"const size_t {names.other_row} = {names.first} + threadIdx.x;",
            f"if ({names.other_row} < {others}) {names.tile}[threadIdx.x] = {{{values}}};",
            "__syncthreads();",
            f"const int {names.in_tile} = {others} - {names.first} < {names.kThreads} ? {others} - {names.first} : {names.kThreads};",
            "#pragma unroll 4",
            *block_of(
                f"for (int {names.k} = {start}; {names.k} < {names.in_tile}; {step})",
                [f"const {names.Other} {names.other} = {names.tile}[{names.k}];", *body],
            ),
            "__syncthreads();  // before the tile is overwritten",
        ]
        head = f"for (size_t {names.first} = 0; {names.first} < {others}; {names.first} += {names.kThreads})"
        return [
            f"struct alignas({align}) {names.Other} {{", *declared, "};",
            f"__shared__ {names.Other} {names.tile}[{names.kThreads}];",
            *block_of(head, within),
        ]  # fmt: skip

    def _stores(self, totals: dict[Key, str]) -> list[str]:
        """Returns statements that compute and store the results from the reduced values."""
        kernel, expressions, names = self.kernel, self.expressions, self.names
        known = {key: name for key, name in expressions.known.items() if not expressions.varies(key)}
        expressions.known = {**known, **totals}
        final: list[str] = []
        values = expressions.locals_for(self.plan.outputs, final)
        stored: list[str] = []
        for (place, element), key, text in zip(self.places, self.plan.outputs, values, strict=True):
            name = self.outputs[place]
            value = kernel.stored(name, text, self.plan.node(key).dtype)
            if len(self.places) > 1 and not re.fullmatch(r"\w+", value):  # an array that is changed may still be read
                local = kernel.names.element(name)
                final.append(f"const {kernel.element(name)} {local} = {value};")
                value = local
            stored.append(f"{name}[{self._place_of(name, element)}] = {value};")
        leads = f"{names.lane} == 0 && " if self.lanes > 1 else ""
        return block_of(
            f"if ({leads}{names.row} < {kernel.size(self.plan.domain[ROW])})", [*expressions.outer, *final, *stored]
        )

    def _place_of(self, name: str, element: Component) -> str:
        """Returns the index of an element of a result."""
        text = ""
        for side, one in zip(self.kernel.arguments[name].shape or (), element, strict=True):
            here = str(one) if one is not None else "" if side == "1" else self.names.row
            text = f"{text} * {self.kernel.size(side)}" if text else ""
            text = f"{text} + {here}" if text and here not in ("", "0") else text or here
        return text
