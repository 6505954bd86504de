"""Diagonals of computed matrices as computations along one axis: of products, one dot product for each row of both sides."""

from __future__ import annotations

from dataclasses import replace

from kernelmate.synthesis.graph import Graph, Node, sorted_graph
from kernelmate.synthesis.index_maps import AxisMap
from kernelmate.synthesis.plan import Refused


def diagonals_first(graph: Graph) -> Graph | None:
    """Returns the graph in which diagonals are taken of arrays instead of results; None if it takes no diagonal of a result.

    The diagonal of an operation on each element is the operation on the diagonals, and a sum along another axis of the
    diagonal is the diagonal of the sum.
    """
    diagonals = _Diagonals(list(graph.nodes))
    found = False
    for index, node in enumerate(graph.nodes):
        axes = _axes_of(graph, node)
        if axes is None:
            continue
        try:
            diagonals.nodes[index] = diagonals.nodes[diagonals.of(node.args[0], *axes)]
            found = True
        except Refused:
            continue
    return sorted_graph(diagonals.nodes, graph.outputs) if found else None


def _axes_of(graph: Graph, node: Node) -> tuple[int, int] | None:
    """Returns the two axes of a computed value whose main diagonal a node is; None for other nodes."""
    if node.op != "window" or len(node.args) != 1 or graph.nodes[node.args[0]].op in ("input", "window"):
        return None
    source = graph.nodes[node.args[0]]
    maps = [AxisMap.of(one) for one in node.data]
    if any(one.offset != "0" or one.every != 1 or [step for _, step in one.terms] != [1] for one in maps):
        return None
    places = [one.terms[0][0] for one in maps]
    pairs = [(p, q) for q, at in enumerate(places) for p in range(q) if places[p] == at]
    if len(pairs) != 1 or len(node.shape) != len(places) - 1:
        return None
    p, q = pairs[0]
    kept = [axis for axis in range(len(places)) if axis != q]
    same = source.shape[p] == source.shape[q] and [places[axis] for axis in kept] == list(range(len(kept)))
    return (p, q) if same and [source.shape[axis] for axis in kept] == list(node.shape) else None


class _Diagonals:
    """Builder of the new graph; `nodes` are those of the graph, and new ones after them."""

    def __init__(self, nodes: list[Node]) -> None:
        self.nodes = nodes
        self._known: dict[tuple[int, int, int], int] = {}

    def of(self, index: int, p: int, q: int) -> int:
        """Returns the place of a node's diagonal along the axes p < q, which lies along p.

        Raises:
            Refused: an operation has no diagonal of its operands' diagonals.
        """
        key = index, p, q
        if key not in self._known:
            self._known[key] = self._made(index, p, q)
        return self._known[key]

    def _made(self, index: int, p: int, q: int) -> int:
        node = self.nodes[index]
        shape = tuple(side for axis, side in enumerate(node.shape) if axis != q)
        if node.op in ("map", "cast"):
            return self._put(
                replace(node, args=tuple(self._operand(one, node, p, q) for one in node.args), shape=shape)
            )
        if node.op == "reduce" and isinstance(node.data[1], int):
            axis = int(node.data[1])
            inner = (p + (p >= axis), q + (q >= axis))
            operand = self.of(node.args[0], *inner)
            return self._put(replace(node, args=(operand,), shape=shape, data=(node.data[0], axis - (axis > inner[1]))))
        if node.op == "view":
            return self._of_view(node, p, q, shape)
        raise Refused(f"it takes the diagonal of the result of {node.op}")

    def _operand(self, index: int, node: Node, p: int, q: int) -> int:
        """Returns an operand's part that the diagonal of an element-wise operation needs; shapes align at their last axes."""
        operand = self.nodes[index]
        missing = len(node.shape) - len(operand.shape)
        mine, other = p - missing, q - missing
        if other < 0:
            return index
        if mine < 0:  # varies along q alone, and the result lies along p: the axes between move
            if other or p + 1 != q:
                raise Refused("it takes the diagonal of operands of other shapes")
            return index
        if operand.op not in ("map", "cast", "reduce", "view") or "1" in (operand.shape[mine], operand.shape[other]):
            return self._without(index, mine, other)
        return self.of(index, mine, other)

    def _without(self, index: int, p: int, q: int) -> int:
        """Returns a value that is constant along one of two axes, without that axis."""
        node = self.nodes[index]
        if "1" not in (node.shape[p], node.shape[q]):
            raise Refused(f"it takes the diagonal of the result of {node.op}")
        kept = p if node.shape[q] == "1" else q
        data: list[int | None] = [axis for axis in range(len(node.shape)) if axis != q]
        data[p] = kept
        shape = tuple(node.shape[int(axis or 0)] for axis in data)
        if node.op == "view":
            return self._put(replace(node, shape=shape, data=tuple(node.data[int(axis or 0)] for axis in data)))
        return self._put(Node("view", (index,), shape, node.dtype, tuple(data), line=node.line))

    def _of_view(self, node: Node, p: int, q: int, shape: tuple[str, ...]) -> int:
        """Returns the diagonal of a view, as a view of its source's diagonal if both axes are the source's."""
        first, second = node.data[p], node.data[q]
        if first is None or second is None:
            raise Refused("it takes the diagonal of axes of length 1")
        one, other = sorted((int(first), int(second)))
        source = self.of(node.args[0], one, other)
        data = tuple(
            None if axis is None else one if number == p else int(axis) - (int(axis) > other)
            for number, axis in enumerate(node.data)
            if number != q
        )
        return self._put(replace(node, args=(source,), shape=shape, data=data))

    def _put(self, node: Node) -> int:
        """Appends a node and returns its place; a view of views is one view, and one of the whole value is that value."""
        while node.op == "view" and self.nodes[node.args[0]].op == "view":
            source = self.nodes[node.args[0]]
            data = tuple(None if axis is None else source.data[int(axis)] for axis in node.data)
            node = replace(node, args=source.args, data=data)
        if (
            node.op == "view"
            and node.data == (*range(len(node.shape)),)
            and self.nodes[node.args[0]].shape == node.shape
        ):
            return node.args[0]
        self.nodes.append(node)
        return len(self.nodes) - 1
