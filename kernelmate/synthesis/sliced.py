"""Replaces slices of results by computation on slices of arrays: gates of a recurrent cell, halves of a gated unit."""

from __future__ import annotations

import re
from dataclasses import replace

from kernelmate.records import Contract, Size
from kernelmate.source import evaluate
from kernelmate.synthesis.graph import Datum, Graph, Node
from kernelmate.synthesis.identities import always
from kernelmate.synthesis.index_maps import ORDINARY, AxisMap, linear
from kernelmate.synthesis.multiples import multiples_of
from kernelmate.synthesis.plan import Refused, sorted_graph


def slices_first(graph: Graph, contract: Contract) -> Graph | None:
    """Return the graph with slices of arrays in place of slices of results; None if it has no such slices.

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
        """Returns the first known length that always equals an expression; the expression itself without one."""

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
        Refused: it is no slice.
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
        """Returns the slice of an operand, under NumPy's broadcasting."""
        shape = self._nodes[arg].shape
        more = len(node.shape) - len(shape)
        moved = {axis - more: one for axis, one in parts.items() if axis >= more and shape[axis - more] != "1"}
        return self.sliced(arg, moved)
