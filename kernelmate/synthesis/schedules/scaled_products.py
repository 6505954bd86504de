"""Sums along rows of quantised elements times a vector, with a scale for each group of neighbouring elements.

A warp or a block per row reads packs of 16 bytes of the narrowest array, and the scale of a pack once. Traffic: each array is read
once; the vector comes from the caches. Arithmetic: that of the graph for each element, and shuffles for each row.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.graph import Graph, Node, sorted_graph
from kernelmate.synthesis.kernel_text import (
    ITEM_BYTES,
    WIDEST,
    KernelText,
    WrittenKernel,
    block_of,
    fresh_names,
    those_written,
    type_word,
)
from kernelmate.synthesis.names import one_of
from kernelmate.synthesis.packs import ALIGNED_ROWS
from kernelmate.synthesis.plan import Key, Refused
from kernelmate.synthesis.reductions import WARP, Team
from kernelmate.synthesis.schedules.row_windows import RowParts, RowWindows, row_parts
from kernelmate.synthesis.schedules.rows import ROWS_PER_BLOCK
from kernelmate.synthesis.schedules.windows import hoisted
from kernelmate.synthesis.window_plan import Windows, parsed, walked, window_plan
from kernelmate.synthesis.window_text import WindowText

FEWEST = 4
"""Minimum number of elements of a pack."""

MOST_BYTES = 128
"""Maximum bytes of one array's pack in a thread's registers."""

LONG_ROW = 8192
"""Number of elements from which a block per row is tried first."""


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the graph is not a sum along rows with values of groups of columns.
    """
    graph = _with_halves(_with_scales_of_columns(_with_flat_rows(graph)))
    lengths = _group_lengths(graph)
    parts = row_parts(graph)
    if parts.kinds != ("sum",):
        raise Refused("it has other reductions than one sum along rows")
    shape = parts.values.nodes[parts.values.outputs[0]].shape
    plan = window_plan(parts.values, kernel.contract.sizes, ("@0",), (shape,), together=True)
    if len(plan.domain) != 2:
        raise Refused("its rows have several axes")
    results = {one.name for one in kernel.outputs()}
    if any(plan.is_leaf(key) and plan.name(key) in results for key in walked(plan)):
        raise Refused("it reads an array that other threads write")
    warp, block = Team("warp", WARP, WARP * ROWS_PER_BLOCK), Team("block", 256, 256)
    long = int(evaluate(shape[-1], kernel.contract.sizes[0])) >= LONG_ROW
    yield from those_written(
        partial(_text, parts, plan, kernel, one, lengths) for one in ((block, warp) if long else (warp, block))
    )


def _text(parts: RowParts, plan: Windows, kernel: KernelText, team: Team, lengths: tuple[int, ...]) -> WrittenKernel:
    return _ScaledProducts(parts, plan, kernel.again(), team, lengths).written()


def _with_flat_rows(graph: Graph) -> Graph:
    """Returns the graph with rows of groups, which are computed as such and joined, as rows of columns."""
    nodes = list(graph.nodes)
    for index, node in enumerate(graph.nodes):
        source = nodes[node.args[0]] if node.op == "reshape" else node
        if (
            len(node.shape) == 2
            and len(source.shape) == 3
            and source.op in ("map", "cast")
            and source.shape[2].isdigit()
        ):
            with suppress(Refused):
                nodes[index] = nodes[_flat(nodes, node.args[0], node.shape, int(source.shape[2]))]
    return sorted_graph(nodes, graph.outputs)


def _flat(nodes: list[Node], index: int, shape: tuple[str, ...], group: int) -> int:
    """Adds the nodes of a value of groups as one of columns; returns the last one.

    Raises:
        Refused: it is neither of all elements nor the same for each group.
    """
    node = nodes[index]
    if not node.shape:
        return index
    if node.op in ("map", "cast"):
        return _put(nodes, replace(node, args=tuple(_flat(nodes, one, shape, group) for one in node.args), shape=shape))
    if node.op == "reshape":
        return _put(nodes, replace(node, shape=shape))
    if node.op == "view" and node.data == (0, 1, None):
        return _of_groups(nodes, node.args[0], shape, group)
    raise Refused("it reads other values than elements and those of groups")


def _of_groups(nodes: list[Node], index: int, shape: tuple[str, ...], group: int) -> int:
    """Adds the nodes that give each column the value of its group; returns the last one."""
    columns = _put(nodes, Node("iota", (), shape[1:], "int64"))
    length = _put(nodes, Node("constant", (), (), "int64", (group,)))
    number = _put(nodes, Node("map", (columns, length), shape[1:], "int64", ("floor_divide",)))
    return _put(nodes, Node("pick", (index, number), shape, nodes[index].dtype, (1,)))


def _with_scales_of_columns(graph: Graph) -> Graph:
    """Returns the graph with scaled sums of groups, which are summed in turn, as one sum of scaled elements."""
    nodes = list(graph.nodes)
    for index, node in enumerate(graph.nodes):
        if node.op != "reduce" or node.data != ("sum", 1) or nodes[node.args[0]].data != ("multiply",):
            continue
        for inner, scale in (nodes[node.args[0]].args, nodes[node.args[0]].args[::-1]):
            part, of = nodes[inner], nodes[nodes[inner].args[0]] if nodes[inner].args else nodes[inner]
            group = of.shape[-1] if of.shape else ""
            if part.op != "reduce" or part.data != ("sum", 2) or of.op != "reshape" or not group.isdigit():
                continue
            whole = nodes[of.args[0]]
            if len(whole.shape) != 2 or nodes[scale].shape != part.shape:
                continue
            each = _of_groups(nodes, scale, whole.shape, int(group))
            nodes.append(Node("map", (of.args[0], each), whole.shape, node.dtype, ("multiply",)))
            nodes[index] = Node("reduce", (len(nodes) - 1,), node.shape, node.dtype, ("sum", 1), node.name)
            break
    return graph if len(nodes) == len(graph.nodes) else sorted_graph(nodes, graph.outputs)


def _with_halves(graph: Graph) -> Graph:
    """Returns the graph with a sum over two values of each byte, as of its nibbles, as a sum over bytes of both values' terms."""
    nodes = list(graph.nodes)
    for index, node in enumerate(graph.nodes):
        stacks = {one for one in _below(graph, index) if _is_pair(graph, one)}
        if node.op == "reduce" and node.data == ("sum", 1) and len(stacks) == 1:
            (stack,) = stacks
            side = graph.nodes[graph.nodes[stack].args[0]].shape[1]
            halves = [_half(nodes, node.args[0], side, part) for part in (0, 1)]
            shape = (*nodes[node.args[0]].shape[:-1], side)
            nodes.append(Node("map", (halves[0], halves[1]), shape, node.dtype, ("add",)))
            nodes[index] = Node("reduce", (len(nodes) - 1,), node.shape, node.dtype, ("sum", 1), node.name)
    return graph if len(nodes) == len(graph.nodes) else sorted_graph(nodes, graph.outputs)


def _below(graph: Graph, index: int) -> set[int]:
    """Returns the nodes that a value is computed from."""
    found, stack = set[int](), [*graph.nodes[index].args]
    while stack:
        one = stack.pop()
        if one not in found:
            found.add(one)
            stack += graph.nodes[one].args
    return found


def _is_pair(graph: Graph, index: int) -> bool:
    """Returns True for rows of pairs that are reshaped to longer rows."""
    node = graph.nodes[index]
    source = graph.nodes[node.args[0]].shape if node.op == "reshape" else ()
    return len(source) == 3 and source[2] == "2" and len(node.shape) == 2


def _half(nodes: list[Node], index: int, side: str, part: int) -> int:
    """Adds the nodes of a value's even or odd columns; returns the last one.

    Raises:
        Refused: the value has no such columns.
    """
    node = nodes[index]
    if not node.shape or node.shape[-1] == "1":
        return index
    shape, last = (*node.shape[:-1], side), len(node.shape) - 1
    whole = [f"inside|1|0|{axis}*1" for axis in range(last)]
    if node.op == "reshape" and nodes[node.args[0]].shape[-1] == "2":
        pairs = (*nodes[node.args[0]].shape[:-1], "1")
        data = (*(f"inside|1|0|{axis}*1" for axis in range(len(pairs) - 1)), f"inside|1|{part}|{len(pairs) - 1}*1")
        window = _put(nodes, Node("window", (node.args[0],), pairs, node.dtype, data))
        found = Node("view", (window,), shape, node.dtype, tuple(range(len(pairs) - 1)))
    elif node.op == "input":
        found = Node("window", (index,), shape, node.dtype, (*whole, f"inside|1|{part}|{last}*2"))
    elif node.op == "map" and node.data == ("floor_divide",) and nodes[node.args[0]].op == "iota":
        length = nodes[node.args[1]].data[0] if nodes[node.args[1]].op == "constant" else 0
        if not isinstance(length, int) or length < 2 or length % 2:
            raise Refused("its groups are not of whole bytes")
        positions = _put(nodes, Node("iota", (), shape, nodes[node.args[0]].dtype))
        found = replace(
            node, args=(positions, _put(nodes, Node("constant", (), (), "int64", (length // 2,)))), shape=shape, name=""
        )
    elif node.op == "pick" and node.data == (1,):
        found = replace(node, args=(node.args[0], _half(nodes, node.args[1], side, part)), shape=shape)
    elif node.op in ("map", "cast") or (node.op == "view" and node.data[-1] == len(nodes[node.args[0]].shape) - 1):
        found = replace(node, args=tuple(_half(nodes, one, side, part) for one in node.args), shape=shape, name="")
    else:
        raise Refused("it reads other values than elements of rows beside pairs")
    return _put(nodes, found)


def _put(nodes: list[Node], node: Node) -> int:
    """Returns the place of a node among others, to which it is added if it is new."""
    if node not in nodes:
        nodes.append(node)
    return nodes.index(node)


def _group_lengths(graph: Graph) -> tuple[int, ...]:
    """Returns the lengths of the groups of columns.

    Raises:
        Refused: there are none, or positions of columns are used otherwise.
    """
    nodes, found = graph.nodes, list[int]()
    positions = {index for index, node in enumerate(nodes) if node.op == "iota"}
    groups = set[int]()
    for index, node in enumerate(nodes):
        if not positions & {*node.args}:
            continue
        length = nodes[node.args[-1]].data[:1] if node.data[:1] == ("floor_divide",) else ()
        if not length or not isinstance(length[0], int) or node.args[0] not in positions:
            raise Refused("it uses positions of columns for more than their groups")
        found.append(length[0])
        groups.add(index)
    for node in nodes:
        if groups & {*node.args} and (node.op != "pick" or {*node.args[:1]} & groups):
            raise Refused("it uses the groups of columns for more than values of theirs")
    if not found:
        raise Refused("it has no values of groups of columns")
    return tuple(found)


def _step(key: Key, column: str) -> tuple[int, int] | None:
    """Returns the number of an array's neighbouring elements for each column, and the place among them; None for other leaves."""
    if not key[1] or any(column in str(one) for one in key[1][:-1]):
        return None
    at = parsed(str(key[1][-1]))
    step = dict(at.terms).get(column, 0)
    return (step, at.constant) if len(at.terms) == 1 and 0 <= at.constant < step else None


class _PackText(WindowText):
    """Text of a value of a pack: elements along the row come from packs, those of its group are read once."""

    def __init__(self, plan: Windows, kernel: KernelText, positions: dict[str, str], element: str) -> None:
        super().__init__(plan, kernel, positions)
        self.packs: dict[Key, tuple[str, int, int]] = {}
        self.element_at = element

    def _point(self, keys_read: Sequence[Key], lines: list[str]) -> None:
        self._lines = lines

    def address_of(self, key: Key) -> str:
        """Returns the array's element at which a pack begins."""
        found = re.search(rf"\b{self.plan.name(key)}\[.*\]", super()._element(key))
        if found is None:
            raise Refused("an element of a pack has no address")
        return found[0].removesuffix(")") if found[0].count("(") < found[0].count(")") else found[0]

    def _element(self, key: Key) -> str:
        if key in self.packs:
            name, step, place = self.packs[key]
            at = f"{step} * {self.element_at}" if step > 1 else self.element_at
            return self._kernel.loaded(self.plan.name(key), f"{name}.at[{at}{f' + {place}' if place else ''}]")
        return super()._element(key)


class _ScaledProducts(RowWindows):
    """Writer of the kernel's text for one team of threads."""

    def __init__(
        self, parts: RowParts, plan: Windows, kernel: KernelText, team: Team, lengths: tuple[int, ...]
    ) -> None:
        super().__init__(parts, plan, kernel, team)
        self.local = fresh_names(kernel, "kPack", "j", "packed")
        column = f"__{len(plan.domain) - 1}"
        keys = dict.fromkeys(key for key in walked(plan) if plan.is_leaf(key))
        self.steps = {key: step for key in keys if (step := _step(key, column))}
        self.along = [*self.steps]
        self.others = [key for key in keys if key not in self.along and any(column in str(one) for one in key[1])]
        if not self.along or any("value(" not in str(key[1]) for key in self.others):
            raise Refused("it reads neighbouring elements of rows")
        widths = [step * ITEM_BYTES[kernel.arguments[plan.name(key)].dtype] for key, (step, _) in self.steps.items()]
        self.pack = math.gcd(WIDEST // min(widths), *lengths)
        if self.pack < FEWEST or self.pack * max(widths) > MOST_BYTES:
            raise Refused("its groups are shorter than packs")

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, local, team = self.kernel, self.names, self.local, self.team
        rows = self.plan.domain[:-1]
        count = kernel.count(rows)
        opening, positions = self._positions(rows, count)
        text = _PackText(self.plan, kernel, positions, local.j)
        starts, lines = self._row_sum(text)
        (name,) = self.locals
        helper = kernel.names.outermost(f"{kernel.base_name}_{name}")
        passed = kernel.used(lines)
        head = kernel.wrapped(
            f"static __device__ __forceinline__ {self.types[0]} {helper}(",
            [*kernel.declared(passed), f"int {names.row}", f"int {names.rank}"],
        )
        comment = f"// Sum of a thread's elements of a row, {local.kPack} neighbouring ones per access."
        part = kernel.definition(f"template <int {local.kPack}>\n{head}", [*starts, *lines, f"return {name};"])
        arguments = ", ".join([*passed, str(names.row), str(names.rank)])
        body = [
            *opening,
            f"constexpr int {local.kPack} = {self.pack};  // neighbouring elements per access",
            ALIGNED_ROWS,
            f"const bool {local.packed} = {self._aligned()};",
            f"{self.types[0]} {name} =",
            f"    {local.packed} ? {helper}<{local.kPack}>({arguments}) : {helper}<1>({arguments});",
            *self._combined(),
            *self._stores(),
        ]
        read = dict.fromkeys([*(self.plan.name(key) for key in (*self.along, *self.others)), *self.arrays])
        grid = " * ".join(rows)
        return WrittenKernel(
            f"scaled-products-{team.name if team.name == 'warp' else f'block-{team.threads}'}",
            f"Written from the reference: one {team.name} per row reads {self.pack} neighbouring elements of each array per thread and "
            "step, and the scale of their group once, and combines partial sums by shuffles." + kernel.promise(read),
            kernel.definition(kernel.head(), body),
            "\n".join([*self.constants, "", *self.reductions.texts(), comment, part]).strip(),
            (grid if team.name == "block" else f"cdiv({grid}, block // {WARP})",),
            team.block,
        )

    def _row_sum(self, text: _PackText) -> tuple[list[str], list[str]]:
        """Returns the declaration of the sum, and the loop over packs that adds to it."""
        names, local = self.names, self.local
        declared, loads = self._packs(text)
        once, body = list[str](), list[str]()
        for key in self.others:
            text.named(key, once, one_of(self.plan.name(key)) or "scale")
        starts, steps = self._steps(text, text.values(body))
        outside, inside = hoisted([*body, *steps], local.j)
        length = self.kernel.size(self.plan.domain[-1])
        stride = f"{self._threads()} * {local.kPack}"
        head = f"for (int {names.column} = {names.rank} * {local.kPack}; {names.column} < {length}; {names.column} += {stride})"
        each = block_of(f"for (int {local.j} = 0; {local.j} < {local.kPack}; ++{local.j})", inside)
        return [*declared, *starts], [
            "#pragma unroll 2",
            *block_of(head, [*loads, *once, *outside, "#pragma unroll", *each]),
        ]

    def _packs(self, text: _PackText) -> tuple[list[str], list[str]]:
        """Returns the declarations of the types of packs, and their loads."""
        kernel, local = self.kernel, self.local
        loads, types, held = list[str](), dict[tuple[str, int], str](), dict[tuple[str, int], str]()
        elements = {kernel.element(self.plan.name(key)) for key in self.along}
        for key, (step, _) in self.steps.items():
            element = kernel.element(self.plan.name(key))
            if (element, step) not in types:
                word = f"{type_word(element) if len(elements) > 1 else ''}Pack{step if step > 1 else ''}"
                types[element, step] = kernel.names.fresh(word)
        declared = [
            line
            for (element, step), pack in types.items()
            for line in (f"struct alignas({local.kPack} * sizeof({element})) {pack} {{", f"  {element} at[{f'{step} * ' if step > 1 else ''}{local.kPack}];", "};")
        ]  # fmt: skip
        for key, (step, place) in self.steps.items():
            name = self.plan.name(key)
            if (name, step) not in held:
                pack = types[kernel.element(name), step]
                held[name, step] = kernel.names.fresh(f"{name}_pack")
                first = parsed(str(key[1][-1])).plus(-place).text()
                address = text.address_of((key[0], (*key[1][:-1], first)))
                loads.append(f"const {pack} {held[name, step]} = *reinterpret_cast<const {pack}*>(&{address});")
            text.packs[key] = held[name, step], step, place
        return declared, loads

    def _aligned(self) -> str:
        """Returns the condition that every row of every array begins at a whole pack."""
        kernel, local = self.kernel, self.local
        length = kernel.size(self.plan.domain[-1])
        tests = [f"{length if length.isidentifier() else f'({length})'} % {local.kPack} == 0"]
        for element in dict.fromkeys(kernel.element(self.plan.name(key)) for key in self.along):
            names = dict.fromkeys(
                self.plan.name(key) for key in self.along if kernel.element(self.plan.name(key)) == element
            )
            pointers = " | ".join(f"reinterpret_cast<size_t>({one})" for one in names)
            joined = f"({pointers})" if len(names) > 1 else pointers
            tests.append(f"{joined} % ({local.kPack} * sizeof({element})) == 0")
        return " && ".join(tests)
