"""Parts of arrays and of results, as computation on slices.

An array may have slices of equal length along an axis, such as queries and keys in one array of projections. Slices of
results (gates of a recurrent cell, halves of a gated unit) become computation on slices of arrays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelmate.records import Contract, Size
from kernelmate.source import evaluate
from kernelmate.synthesis.graph import Datum, Graph, Node, sorted_graph
from kernelmate.synthesis.identities import always, multiples_of
from kernelmate.synthesis.index_maps import ORDINARY, AxisMap, linear
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.sizes import product_text

MOST_PARTS = 64


@dataclass(frozen=True, slots=True)
class _Part:
    """Part `number` of `count` equal parts along an axis; if strided, every `count`-th element from `number` on."""

    axis: int
    number: int
    count: int
    strided: bool = False


def with_parts(graph: Graph, taken: Sequence[str], *, strided: bool = False) -> tuple[Graph, dict[str, str]] | None:
    """Returns the graph with slices as views of arrays with one more axis, whose length is `#1/3` for part 1 of 3.

    The original axis is split into the new axis and an axis for the positions within a part.

    Args:
        graph: the graph as traced.
        taken: names that additional names must differ from.
        strided: True if slices with a step count as parts.

    Returns:
        The graph, and the array that each additional name stands for; None if other windows remain, or there are no
            parts.
    """
    graph = _casts_last(graph)
    nodes, users = list(graph.nodes), _users(graph)
    names: dict[tuple[str, _Part | None], str] = {}
    others: dict[str, str] = {}
    parts = {index: _part_of(graph, index, strided=strided) for index, node in enumerate(nodes) if node.op == "window"}
    if not parts or any(part is None for part in parts.values()):
        return None
    whole = {str(node.data[0]) for index, node in enumerate(nodes) if node.op == "input" and {*users[index]} - {*parts}}
    names |= {(name, None): name for name in whole}
    for index, part in parts.items():
        assert part is not None
        source = nodes[nodes[index].args[0]]
        key = str(source.data[0]), part
        if key not in names:
            names[key] = _name(key[0], {*names.values(), *taken} if key[0] in names.values() else set())
            if names[key] != key[0]:
                others[names[key]] = key[0]
        for user in [one for one in users[index] if nodes[one].op == "reshape"] or [index]:
            shape = nodes[user].shape
            place = _place(nodes[index].shape[: part.axis + part.strided], shape)
            if place is None:
                return None
            sides = *shape[:place], f"#{part.number}/{part.count}", *shape[place:]
            nodes.append(Node("input", (), sides, source.dtype, (names[key],)))
            axes = tuple(axis for axis in range(len(sides)) if axis != place)
            nodes[user] = Node("view", (len(nodes) - 1,), shape, source.dtype, axes)
    return sorted_graph(nodes, graph.outputs), others


def with_both_sides(graph: Graph, taken: Sequence[str]) -> tuple[Graph, dict[str, str]] | None:
    """Returns the graph with two names for an array that is multiplied by itself, as in `x @ x.T`.

    Args:
        graph: the graph as traced.
        taken: names that the additional name must differ from.

    Returns:
        The graph, and the array that the additional name stands for; None if there is no such product.
    """
    nodes, others = list(graph.nodes), dict[str, str]()
    for node in graph.nodes:
        if node.op != "reduce" or node.data[0] != "sum":
            continue
        place = node.args[0]
        while graph.nodes[place].op == "cast":
            place = graph.nodes[place].args[0]
        product = graph.nodes[place]
        if nodes[place] is not product:
            continue  # another sum's, which has its names
        if product.op != "map" or product.data[0] != "multiply":
            continue
        first, second = (_down_to_input(graph, one) for one in product.args)
        if not first or not second or first[-1] != second[-1] or first == second:
            continue
        source = graph.nodes[second[-1]]
        name = next((alias for alias, one in others.items() if one == source.data[0]), "")
        if not name:
            name = _name(f"{source.data[0]}_columns", {*taken, *others})
            others[name] = str(source.data[0])
        nodes.append(replace(source, data=(name,), name=name))
        for index in reversed(second[:-1]):
            nodes.append(replace(graph.nodes[index], args=(len(nodes) - 1,)))
        nodes[place] = replace(product, args=(product.args[0], len(nodes) - 1))
    return (sorted_graph(nodes, graph.outputs), others) if others else None


def _down_to_input(graph: Graph, index: int) -> list[int]:
    """Returns the chain of views and casts from a node to an input, which comes last; empty for other nodes."""
    found = [index]
    while graph.nodes[found[-1]].op in ("view", "cast"):
        found.append(graph.nodes[found[-1]].args[0])
    return found if graph.nodes[found[-1]].op == "input" else []


def _casts_last(graph: Graph) -> Graph:
    """Returns the graph in which slices of cast arrays are casts of slices."""
    nodes = list(graph.nodes)
    for index, node in enumerate(graph.nodes):
        source = graph.nodes[node.args[0]] if node.args else node
        if (
            node.op != "window"
            or len(node.args) != 1
            or source.op != "cast"
            or graph.nodes[source.args[0]].op != "input"
        ):
            continue
        nodes.append(replace(node, args=source.args, dtype=graph.nodes[source.args[0]].dtype, name=""))
        nodes[index] = Node("cast", (len(nodes) - 1,), node.shape, node.dtype, name=node.name)
    return sorted_graph(nodes, graph.outputs)


def _users(graph: Graph) -> list[list[int]]:
    users: list[list[int]] = [[] for _ in graph.nodes]
    for index, node in enumerate(graph.nodes):
        for one in node.args:
            users[one].append(index)
    return users


def _part_of(graph: Graph, index: int, *, strided: bool) -> _Part | None:
    """Returns the part that a window selects; None for other windows."""
    node = graph.nodes[index]
    source = graph.nodes[node.args[0]]
    if len(node.args) != 1 or source.op != "input" or len(source.shape) != len(node.shape):
        return None
    found: list[_Part] = []
    for axis, (text, long, short) in enumerate(zip(node.data, source.shape, node.shape, strict=True)):
        one = AxisMap.of(text)
        step = dict(one.terms).get(axis, 1)
        if one.terms != ((axis, step),) or one.beyond != ORDINARY or one.every != 1 or (step != 1 and not strided):
            return None
        length = linear(short)
        if step != 1:
            numbers = [number for number in range(step) if linear(one.offset) == linear(str(number))]
            if not numbers or linear(long) != length.times(step):
                return None
            found.append(_Part(axis, numbers[0], step, strided=True))
            continue
        if linear(long) == length:
            continue
        counts = [count for count in range(2, MOST_PARTS) if linear(long) == length.times(count)]
        numbers = [number for count in counts for number in range(count) if linear(one.offset) == length.times(number)]
        if not numbers:
            return None
        found.append(_Part(axis, numbers[0], counts[0]))
    return found[0] if len(found) == 1 else None


def _place(before: Sequence[str], shape: Sequence[str]) -> int | None:
    """Returns the first position in a shape before which there are as many elements as before the split axis."""
    wanted = product_text(before)
    return next((place for place in range(len(shape) + 1) if product_text(shape[:place]) == wanted), None)


def _name(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    return name


def slices_first(graph: Graph, contract: Contract) -> Graph | None:
    """Returns the graph with slices of results moved to the arrays; None if it slices no result.

    Sizes are written as multiples of others where `require` says so, so that a slice is seen as a part of its array.

    Args:
        graph: as it was traced.
        contract: the kernel's.
    """
    if not any(_is_of_result(graph, node) for node in graph.nodes):
        return None
    nodes = _SideTexts(graph, contract).nodes()
    slicer = _Slicer(nodes)
    found = False
    for index, node in enumerate(graph.nodes):
        if not _is_of_result(graph, node):
            continue
        try:
            nodes[index] = nodes[slicer.sliced(node.args[0], _ranges(nodes[index]))]
            found = True
        except Refused:
            continue
    return sorted_graph(nodes, graph.outputs) if found else None


def _is_of_result(graph: Graph, node: Node) -> bool:
    """Returns True for a slice of a computed value rather than of an array."""
    return node.op == "window" and len(node.args) == 1 and graph.nodes[node.args[0]].op not in ("input", "window")


class _SideTexts:
    """Rewrites sizes as multiples of others, and equal lengths as the shortest of their expressions."""

    def __init__(self, graph: Graph, contract: Contract) -> None:
        self._graph, self._contract = graph, contract
        self._multiples = list(multiples_of(contract.require))
        texts = " ".join(side for node in graph.nodes for side in node.shape)
        for one in contract.require:  # n is twice n // 2
            found = re.fullmatch(r"(\w+) % (\d+) == 0", one)
            if found is not None and f"({found[1]} // {found[2]})" in texts:
                self._multiples.append((found[1], int(found[2]), f"({found[1]} // {found[2]})"))
        self._sides = {name: name for name in contract.sizes[0] if self._written(name) == name}
        for side in sorted({self._written(one) for node in graph.nodes for one in node.shape}, key=len):
            self._sides[side] = self._shortest(side)

    def _shortest(self, text: str) -> str:
        """Returns the first known length that always equals an expression; the expression itself if there is none."""

        def equal(size: Size) -> bool:
            return evaluate(one, size) == evaluate(text, size)

        for one in dict.fromkeys(self._sides.values()):
            if always(self._contract, equal):
                return one
        return text

    def _written(self, text: str) -> str:
        for name, factor, of in self._multiples:
            parts = text.split(of) if name in of else [text]
            text = of.join(re.sub(rf"\b{name}\b", f"({factor} * {of})", one) for one in parts)
        return text

    def nodes(self) -> list[Node]:
        """Returns the graph's nodes with the rewritten sizes."""
        return [self._node(node) for node in self._graph.nodes]

    def _node(self, node: Node) -> Node:
        data: tuple[Datum, ...] = node.data
        if node.op == "size":
            data = (self._written(str(node.data[0])),)
        if node.op == "window":
            maps = [AxisMap.of(one) for one in node.data]
            data = tuple(replace(one, offset=self._shortest(self._written(one.offset))).text() for one in maps)
        return replace(node, shape=tuple(self._sides[self._written(side)] for side in node.shape), data=data)


Range = tuple[str, str]
"""The first position along an axis, and the number of positions."""


def _ranges(node: Node) -> dict[int, Range]:
    """Returns the range that a window takes along each axis.

    Raises:
        Refused: it is not a slice.
    """
    maps = [AxisMap.of(entry) for entry in node.data]
    if len(maps) != len(node.shape):
        raise Refused("it takes single elements")
    for axis, one in enumerate(maps):
        if one.terms != ((axis, 1),) or one.every != 1 or one.beyond != ORDINARY:
            raise Refused("it takes more than a slice")
    return {axis: (one.offset, node.shape[axis]) for axis, one in enumerate(maps)}


class _Slicer:
    """Appends the nodes of sliced values to a graph's nodes."""

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        self._known: dict[tuple[int, tuple[tuple[int, Range], ...]], int] = {}

    def sliced(self, index: int, ranges: dict[int, Range]) -> int:
        """Returns the index of a value's slice.

        Raises:
            Refused: an operation along a sliced axis.
        """
        node = self._nodes[index]
        parts = {axis: one for axis, one in ranges.items() if linear(one[1]) != linear(node.shape[axis])}
        if not parts:
            return index
        key = index, tuple(sorted(parts.items()))
        if key not in self._known:
            made = self._made(index, node, parts)
            self._nodes.append(made)
            self._known[key] = len(self._nodes) - 1
        return self._known[key]

    def _made(self, index: int, node: Node, parts: dict[int, Range]) -> Node:
        shape = tuple(parts[axis][1] if axis in parts else side for axis, side in enumerate(node.shape))
        if node.op == "input":
            maps = [AxisMap(parts[axis][0] if axis in parts else "0", ((axis, 1),)) for axis in range(len(shape))]
            return Node("window", (index,), shape, node.dtype, tuple(one.text() for one in maps))
        if node.op in ("map", "cast"):
            return replace(node, args=tuple(self._operand(node, one, parts) for one in node.args), shape=shape)
        if node.op == "view":
            moved = {
                int(source): parts[axis]
                for axis, source in enumerate(node.data)
                if axis in parts and source is not None
            }
            return replace(node, args=(self.sliced(node.args[0], moved),), shape=shape)
        if node.op == "reduce":
            gone = int(node.data[1] or 0)
            return replace(node, args=(self.sliced(node.args[0], {axis + (axis >= gone): one for axis, one in parts.items()}),), shape=shape)  # fmt: skip
        raise Refused(f"it takes parts of a {node.op}")

    def _operand(self, node: Node, arg: int, parts: dict[int, Range]) -> int:
        """Returns the node of an operand's slice, under NumPy's broadcasting."""
        shape = self._nodes[arg].shape
        more = len(node.shape) - len(shape)
        moved = {axis - more: one for axis, one in parts.items() if axis >= more and shape[axis - more] != "1"}
        return self.sliced(arg, moved)
