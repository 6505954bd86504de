"""Merges adjacent axes that a graph treats alike, such as the batches and channels of images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelmate.synthesis.graph import Datum, Graph, Node
from kernelmate.synthesis.index_maps import ORDINARY, AxisMap
from kernelmate.synthesis.sizes import joined


class _CannotMerge(Exception):
    """Raised if an operation treats the two axes differently."""


def merged(graph: Graph) -> Graph:
    """Returns the graph with its leading result axes merged, as many as no operation treats differently."""
    while True:
        if any(len(graph.nodes[one].shape) < 2 for one in graph.outputs):
            return graph
        try:
            graph = _Merging(graph).merged()
        except _CannotMerge:
            return graph


def merged_shape(shape: tuple[str, ...], rank: int) -> tuple[str, ...]:
    """Returns a shape with its first axes merged, so that it has `rank` axes."""
    while len(shape) > rank:
        shape = _joined_at(shape, 0)
    return shape


class _Merging:
    """Rebuilds the graph with one pair of axes merged; nodes used with and without the pair are built twice."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._nodes: list[Node] = []
        self._known: dict[tuple[int, int | None], int] = {}

    def merged(self) -> Graph:
        """Returns the graph whose results have their first two axes merged.

        Raises:
            _CannotMerge: an operation distinguishes them.
        """
        outputs = [self._written(one, 0) for one in self._graph.outputs]
        return Graph(tuple(self._nodes), tuple(outputs))

    def _written(self, index: int, pair: int | None) -> int:
        """Returns the new index of a node with the axes `pair` and `pair + 1` merged; with None, no axes are merged."""
        if (index, pair) not in self._known:
            node = self._graph.nodes[index]
            data, pairs = (node.data, [None] * len(node.args)) if pair is None else self._merging(node, pair)
            args = tuple(self._written(arg, one) for arg, one in zip(node.args, pairs, strict=True))
            shape = node.shape if pair is None else _joined_at(node.shape, pair)
            self._known[index, pair] = len(self._nodes)
            self._nodes.append(replace(node, args=args, shape=shape, data=data))
        return self._known[index, pair]

    def _merging(self, node: Node, pair: int) -> tuple[tuple[Datum, ...], Sequence[int | None]]:
        """Returns a node's data with two axes merged, and the position of the pair in each operand."""
        match node.op:
            case "input" | "constant":
                return node.data, []
            case "map" | "cast":
                return node.data, [self._aligned(node, arg, pair) for arg in node.args]
            case "view":
                return self._viewed(node, pair)
            case "reshape":
                source = self._graph.nodes[node.args[0]].shape
                if source[: pair + 2] != node.shape[: pair + 2]:
                    raise _CannotMerge
                return node.data, [pair]
            case "reduce":
                axis = int(node.data[1] or 0)
                if axis == pair + 1:
                    raise _CannotMerge
                return (node.data[0], axis - (axis > pair)), [pair if axis > pair else pair + 1]
            case "window":
                return self._windowed(node, pair)
        raise _CannotMerge

    def _aligned(self, node: Node, arg: int, pair: int) -> int | None:
        """Returns the position of the pair of axes in an operand, by NumPy's broadcasting rules."""
        shape = self._graph.nodes[arg].shape
        place = pair - len(node.shape) + len(shape)
        sides = [shape[one] if one >= 0 else "1" for one in (place, place + 1)]
        if sides == ["1", "1"]:
            return place if place >= 0 else None  # an axis of length 1 stands for both as for one
        if sides != list(node.shape[pair : pair + 2]):
            raise _CannotMerge
        return place if place >= 0 else None  # it lacks the first axis, which has length 1

    def _viewed(self, node: Node, pair: int) -> tuple[tuple[Datum, ...], Sequence[int | None]]:
        first, second = node.data[pair : pair + 2]
        rest = (*node.data[:pair], *node.data[pair + 2 :])
        if first is None and second is None:
            return (*node.data[:pair], *node.data[pair + 1 :]), [None]
        if first is None or second is None or int(second) != int(first) + 1:
            raise _CannotMerge
        moved = [None if one is None else int(one) - (int(one) > int(first)) for one in rest]
        return (*moved[:pair], int(first), *moved[pair:]), [int(first)]

    def _windowed(self, node: Node, pair: int) -> tuple[tuple[Datum, ...], Sequence[int | None]]:
        entries = [AxisMap.of(one) for one in node.data]
        sides = self._graph.nodes[node.args[0]].shape
        found = [place for place, one in enumerate(entries) if any(axis in (pair, pair + 1) for axis, _ in one.terms)]
        plain = [AxisMap("0", ((axis, 1),)) for axis in (pair, pair + 1)]
        if (
            len(found) != 2
            or found[1] != found[0] + 1
            or [replace(entries[one], beyond=ORDINARY) for one in found] != plain
        ):
            raise _CannotMerge
        place = found[0]
        if sides[place : place + 2] != node.shape[pair : pair + 2]:
            raise _CannotMerge
        kept = [*entries[: place + 1], *entries[place + 2 :]]
        kept[place] = AxisMap("0", ((pair, 1),))
        moved = [replace(one, terms=tuple((axis - (axis > pair), step) for axis, step in one.terms)) for one in kept]
        others = [self._aligned(node, arg, pair) for arg in node.args[1:]]
        return tuple(one.text() for one in moved), [place, *others]


def _joined_at(shape: tuple[str, ...], pair: int) -> tuple[str, ...]:
    return (*shape[:pair], joined(shape[pair], "*", shape[pair + 1]), *shape[pair + 2 :])
