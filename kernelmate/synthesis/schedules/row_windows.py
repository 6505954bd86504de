"""Reductions along rows of functions of adjacent elements: total variation, trapezoids, energies of differences.

Traffic: each array is read once, and elements that several threads read come from the L1 cache. Arithmetic: that of the
graph for each element, and shuffles for each row.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph, Node, pruned, sorted_graph
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, fresh_names, those_written
from kernelmate.synthesis.plan import Key, Refused, plan_of
from kernelmate.synthesis.reductions import EXTREMES, LOWEST, WARP, Reductions, Team, is_extreme, start_of
from kernelmate.synthesis.schedules.reduced_products import reduction_local
from kernelmate.synthesis.schedules.rows import ROWS_PER_BLOCK, SHORT_ROW
from kernelmate.synthesis.schedules.windows import hoisted
from kernelmate.synthesis.window_plan import Windows, walked, window_plan
from kernelmate.synthesis.window_text import WindowText

AHEAD = 4
"""Number of a thread's elements whose loads overlap."""


@dataclass(frozen=True, slots=True)
class RowParts:
    """A graph split into reduced values and results of the reductions.

    Attributes:
        values: the graph of the reduced values, with an output per reduction.
        kinds: the kinds of the reductions.
        reductions: the nodes of the reductions.
        rest: the graph of the results, in which the reductions are the arrays `@0`, `@1`, ...
        whole: the graph itself.
    """

    values: Graph
    kinds: tuple[str, ...]
    reductions: tuple[Node, ...]
    rest: Graph
    whole: Graph


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the graph does not reduce rows of values that windows make.
    """
    parts = row_parts(graph)
    shape = parts.values.nodes[parts.values.outputs[0]].shape
    names = tuple(f"@{place}" for place in range(len(parts.kinds)))
    plan = window_plan(parts.values, kernel.contract.sizes, names, (shape,) * len(names), together=True)
    results = {one.name for one in kernel.outputs()}
    for key in walked(plan):
        if plan.is_leaf(key) and plan.name(key) in results:
            raise Refused(f"{plan.name(key)} is read where another thread may have written it")
    if len(plan.domain) != len(shape) or len(shape) < 2:
        raise Refused("it reduces rows of length 1, or an array as a whole")
    warp, block = Team("warp", WARP, WARP * ROWS_PER_BLOCK), Team("block", 256, 256)
    short = int(evaluate(shape[-1], kernel.contract.sizes[0])) <= SHORT_ROW
    yield from those_written(partial(_text, parts, plan, kernel, one) for one in ((warp, block) if short else (block, warp)))  # fmt: skip


def _text(parts: RowParts, plan: Windows, kernel: KernelText, team: Team) -> WrittenKernel:
    return RowWindows(parts, plan, kernel.again(), team).written()


def row_parts(graph: Graph) -> RowParts:
    """Returns a graph's reduced values, and its results as a graph of the reductions.

    Raises:
        Refused: it does not reduce rows of one length to one result for each.
    """
    nodes, found = list(graph.nodes), list[int]()
    for index, node in enumerate(nodes):
        last = node.op == "reduce" and int(node.data[1] or 0) == len(node.shape)
        if last and not nodes[node.args[0]].shape[-1].isdigit():
            found.append(index)
    shapes = {nodes[nodes[one].args[0]].shape for one in found}
    if len(shapes) != 1:
        raise Refused("it does not reduce rows of one length")
    values = pruned(nodes, [nodes[one].args[0] for one in found])
    for place, one in enumerate(found):
        nodes[one] = Node("input", (), nodes[one].shape, nodes[one].dtype, (f"@{place}",), nodes[one].name)
    rest = sorted_graph(nodes, graph.outputs)
    (shape,) = shapes
    if any(rest.nodes[one].shape != shape[:-1] for one in rest.outputs):
        raise Refused("its results are not one for each row")
    if any(node.op in ("window", "reduce") for node in rest.nodes):
        raise Refused("it combines results of neighbouring rows")
    kinds = tuple(str(graph.nodes[one].data[0]) for one in found)
    return RowParts(values, kinds, tuple(graph.nodes[one] for one in found), rest, graph)


def row_positions(kernel: KernelText, rows: Sequence[str], row: str) -> tuple[list[str], dict[str, str]]:
    """Returns the declarations of a row's positions along the axes that rows have, and these positions by variable."""
    lines, positions, left = list[str](), dict[str, str](), row
    for axis in range(len(rows) - 1, -1, -1):
        if len(rows) == 1:
            positions["__0"] = left
            break
        side = kernel.size(rows[axis])
        side = side if side.isidentifier() or side.isdigit() else f"({side})"
        local = kernel.names.fresh("outer")
        lines.append(f"const int {local} = {left}{f' % {side}' if axis else ''};")
        positions[f"__{axis}"], left = local, f"{left} / {side}"
    return lines, positions


class RowWindows:
    """Writer of the kernel's text for one team of threads."""

    def __init__(self, parts: RowParts, plan: Windows, kernel: KernelText, team: Team) -> None:
        self.parts, self.plan, self.kernel, self.team = parts, plan, kernel, team
        self.names = fresh_names(kernel, "row", column="col", rank="tid" if team.name == "block" else "lane")
        self.names.kThreads, self.constants = kernel.threads(team.block)
        self.rest = plan_of(parts.rest)
        self.types: list[str] = []
        self.reductions = Reductions(parts.whole, kernel, team, self.names.kThreads)
        self.of_rows = Expressions(self.rest, kernel, self._leaf, frozenset())
        self.locals: list[str] = []
        for kind, node in zip(parts.kinds, parts.reductions, strict=True):
            self.locals.append(reduction_local(kernel, node.name, kind))
        self.places = {place: kernel.names.fresh(kind) for place, kind in enumerate(parts.kinds) if is_extreme(kind)}
        self.arrays = [str(node.data[0]) for node in parts.rest.nodes if node.op == "input" and str(node.data[0])[0] != "@"]  # fmt: skip

    def _leaf(self, key: Key) -> str:
        """Returns the text of a reduction's result, or of an array element outside the reductions."""
        node = self.rest.node(key)
        if node.op == "iota":
            raise Refused("it uses positions of rows beside their reductions")
        name = str(node.data[0])
        if name.startswith("@"):
            place = int(name[1:])
            return f"static_cast<long long>({self.places[place]})" if place in self.places else self.locals[place]
        if node.op == "scalar":
            return self.kernel.loaded(name, name)
        access = self.rest.access(key)
        if access not in ("flat", "once"):
            raise Refused("it reads an array along some axes of its rows")
        return self.kernel.loaded(name, f"{name}[{self.names.row if access == 'flat' else '0'}]")

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, team = self.kernel, self.names, self.team
        rows = self.plan.domain[:-1]
        # A column is never less than zero, so that the end may be.
        count, length = kernel.count(rows), re.sub(r"^max\((.+), 0\)$", r"\1", kernel.size(self.plan.domain[-1]))
        lines, positions = self._positions(rows, count)
        text = WindowText(self.plan, kernel, positions)
        body: list[str] = []
        values = text.values(body)
        starts, steps = self._steps(text, values)
        outside, inside = hoisted([*body, *steps], names.column)
        head = (
            f"for (int {names.column} = {names.rank}; {names.column} < {length}; {names.column} += {self._threads()})"
        )
        lines += [*outside, *starts, f"#pragma unroll {AHEAD}", *block_of(head, inside), *self._combined()]
        lines += self._stores()
        grid = " * ".join(rows)
        read = dict.fromkeys(
            [*(self.plan.name(key) for key in walked(self.plan) if self.plan.is_leaf(key)), *self.arrays]
        )
        return WrittenKernel(
            f"row-windows-{team.name if team.name == 'warp' else f'block-{team.threads}'}",
            f"Written from the reference: one {team.name} per row computes a value of neighbouring elements per thread and step, and "
            "combines partial results by shuffles." + kernel.promise(read),
            kernel.definition(kernel.head(), lines),
            "\n".join([*self.constants, "", *self.reductions.texts()]).strip(),
            (grid if team.name == "block" else f"cdiv({grid}, block // {WARP})",),
            team.block,
        )

    def _stores(self) -> list[str]:
        """Returns the statements by which one thread of a row stores its results."""
        kernel, names = self.kernel, self.names
        stores: list[str] = []
        texts = self.of_rows.locals_for(self.rest.outputs, stores)
        for one, key, value in zip(kernel.outputs(), self.rest.outputs, texts, strict=True):
            stores.append(f"{one.name}[{names.row}] = {kernel.stored(one.name, value, self.rest.node(key).dtype)};")
        if len(stores) > 1 and {one.name for one in kernel.outputs()} & {*self.arrays}:
            raise Refused("a result is read for several results")
        return block_of(f"if ({names.rank} == 0)", [*self.of_rows.outer, *stores])

    def _threads(self) -> str:
        return str(WARP) if self.team.name == "warp" else str(self.names.kThreads)

    def _positions(self, rows: Sequence[str], count: str) -> tuple[list[str], dict[str, str]]:
        """Returns the declarations of a thread's row and rank, and the position along each axis."""
        names = self.names
        if self.team.name == "warp":
            lines = [
                f"const int {names.row} = blockIdx.x * ({names.kThreads} / {WARP}) + threadIdx.x / {WARP};",
                f"if ({names.row} >= {count}) return;",
                f"const int {names.rank} = threadIdx.x % {WARP};",
            ]
        else:
            lines = [f"const int {names.row} = blockIdx.x;", f"const int {names.rank} = threadIdx.x;"]
        more, positions = row_positions(self.kernel, rows, str(names.row))
        return [*lines, *more], {**positions, f"__{len(rows)}": str(names.column)}

    def _steps(self, text: WindowText, values: Sequence[str]) -> tuple[list[str], list[str]]:
        """Returns the declarations of the reductions' locals, and the statements that combine one more value of each."""
        starts, steps = list[str](), list[str]()
        infinity = [text.number(sign * float("inf")) for sign in (-1, 1)]
        self.types.clear()
        for place, (kind, name, value) in enumerate(zip(self.parts.kinds, self.locals, values, strict=True)):
            ctype = text.type_of(self.plan.outputs[place])
            if ctype != self.kernel.real and (ctype not in LOWEST or kind == "prod"):
                raise Refused(f"the {kind} of {ctype} of a row's windows")
            self.types.append(ctype)
            if kind in ("sum", "prod"):
                start = {"sum": "0", "prod": "1"}[kind]
                start = text.number(float(start)) if ctype == self.kernel.real else start
            else:
                start = start_of(kind, ctype, infinity)
            starts.append(f"{ctype} {name} = {start};")
            if place not in self.places:
                steps.append(self.reductions.combined(kind, name, value, ctype))
                continue
            starts.append(f"int {self.places[place]} = 0;")
            if not value.isidentifier():
                held = self.kernel.names.fresh("value")
                steps.append(f"const {ctype} {held} = {value};")
                value = held
            taken = self.reductions.extremes.taken
            steps += taken(kind, ctype, value, self.names.column, name, self.places[place])
        return starts, steps

    def _combined(self) -> list[str]:
        """Returns the statements that give the threads of a row the combined results."""
        lines = []
        for place, (kind, ctype, name) in enumerate(zip(self.parts.kinds, self.types, self.locals, strict=True)):
            if kind in EXTREMES:
                function = self.reductions.extremes.function(kind, ctype, "int")
                lines.append(f"{function}({name}, {self.places[place]});")
            else:
                lines.append(f"{name} = {self.reductions.function(kind, ctype)}({name});")
        return lines
