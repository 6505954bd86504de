"""Grouped values, such as scales of quantised weights, as values along the ungrouped axis; also packed elements.

`(w.reshape(n, groups, -1) * scales[..., None]).reshape(n, k)` becomes `w * scales[:, k // size]`. The elements of a
stack along the last axis, flattened, become a selection by `k % 2` between the members' elements `k // 2`.
"""

from __future__ import annotations

from dataclasses import replace

from kernelmate.synthesis.graph import Graph, Node
from kernelmate.synthesis.index_maps import ABOVE, ORDINARY, AxisMap, linear
from kernelmate.synthesis.plan import Refused, sorted_graph

MOST = 4
"""Maximum number of members of a stack that are selected from."""


def regrouped(graph: Graph) -> Graph | None:
    """Returns the graph without reshapes that merge the last two axes of a computed value; None without any."""
    writer, found = _Joined(graph), False
    for index, node in enumerate(graph.nodes):
        if not _joins(graph, node):
            continue
        try:
            writer.nodes[index] = writer.nodes[writer.flat(node.args[0], node.shape[-1])]
            found = True
        except Refused:
            continue
    return sorted_graph(writer.nodes, graph.outputs) if found else None


def _joins(graph: Graph, node: Node) -> bool:
    """Returns True for a reshape that merges the last two axes of a value other than an input."""
    if node.op != "reshape":
        return False
    before = graph.nodes[node.args[0]]
    return before.op != "input" and len(before.shape) == len(node.shape) + 1 and before.shape[:-2] == node.shape[:-1]


class _Joined:
    """Builder of values whose last two axes are merged.

    Attributes:
        nodes: of the graph, and new ones.
    """

    def __init__(self, graph: Graph) -> None:
        self.nodes = list(graph.nodes)

    def _added(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1

    def flat(self, index: int, side: str) -> int:
        """Returns the index of a value with its last two axes merged to one of length `side`.

        Raises:
            Refused: an operation along these axes is not supported.
        """
        node = self.nodes[index]
        if len(node.shape) < 2:
            if node.shape == () or node.shape == ("1",):
                return index
            return self._along_last(index, node.shape[-1], side)
        if node.op == "reshape" and self.nodes[node.args[0]].shape == (*node.shape[:-2], side):
            return node.args[0]
        if node.shape[-2:] == ("1", "1"):
            raise Refused("it joins two axes of length 1")
        if node.op in ("map", "cast"):
            args = tuple(self._operand(node, one, side) for one in node.args)
            return self._added(replace(node, args=args, shape=(*node.shape[:-2], side)))
        if node.op == "window":
            return self._stacked(node, side)
        raise Refused("it joins axes of what it computes")

    def _operand(self, node: Node, arg: int, side: str) -> int:
        """Returns the index of an operand with its last two axes merged, by NumPy's broadcasting rules."""
        shape = self.nodes[arg].shape
        length = node.shape[-1]
        if not shape:
            return arg
        if len(shape) == 1:
            return arg if shape == ("1",) else self._along_last(arg, length, side)
        if shape[-1] == "1" and shape[-2] != "1":
            return self._repeated(arg, length, side)
        if shape[-2] == "1":
            raise Refused("it joins axes of which an operand has one")
        return self.flat(arg, side)

    def _position(self, side: str, name: str, length: str) -> int:
        """Returns the quotient or the remainder of positions by the length of a group."""
        iota = self._added(Node("iota", (), (side,), "int64"))
        by = (
            Node("constant", (), (), "int64", (int(length),))
            if length.isdigit()
            else Node("size", (), (), "int64", (length,))
        )
        return self._added(Node("map", (iota, self._added(by)), (side,), "int64", (name,)))

    def _repeated(self, arg: int, length: str, side: str) -> int:
        """Returns the value of a group for each of its elements."""
        node = self.nodes[arg]
        if node.op != "view" or list(node.data) != [*range(len(node.data) - 1), None]:
            raise Refused("it joins axes of what it computes, or in another order")
        return self._picked(node.args[0], self._position(side, "floor_divide", length), side)

    def _picked(self, index: int, number: int, side: str) -> int:
        """Returns elements of the last axis by index, selected from the inputs that the value is computed from."""
        node = self.nodes[index]
        if not node.shape or node.shape[-1] == "1":
            return index
        shape = (*node.shape[:-1], side)
        if node.op in ("map", "cast"):
            args = tuple(self._picked(one, number, side) for one in node.args)
            return self._added(replace(node, args=args, shape=shape))
        if node.op == "iota":
            return number
        if node.op == "view" and node.data[-1] == len(self.nodes[node.args[0]].shape) - 1:
            source = self._picked(node.args[0], number, side)
            return self._added(replace(node, args=(source,), shape=shape))
        if node.op != "input":
            raise Refused("it joins axes of what it reduces or chooses")
        return self._added(Node("pick", (index, number), shape, node.dtype, (len(node.shape) - 1,), node.name))

    def _along_last(self, arg: int, length: str, side: str) -> int:
        """Returns a value for each position within a group, repeated for all groups."""
        return self._picked(arg, self._position(side, "remainder", length), side)

    def _stacked(self, node: Node, side: str) -> int:
        """Returns the elements of a stack of a few values along the last axis, interleaved."""
        length = node.shape[-1]
        if not length.isdigit() or int(length) > MOST:
            raise Refused("it joins axes of a long stack")
        members = [self._member(node, place) for place in range(int(length))]
        number, which = self._position(side, "floor_divide", length), self._position(side, "remainder", length)
        chosen = [self._picked(one, number, side) for one in members]
        last = chosen[-1]
        for place, one in reversed(list(enumerate(chosen[:-1]))):
            wanted = self._added(Node("constant", (), (), "int64", (place,)))
            test = self._added(Node("map", (which, wanted), (side,), "bool", ("equal",)))
            last = self._added(Node("map", (test, one, last), self.nodes[one].shape, node.dtype, ("where",)))
        return last

    def _member(self, node: Node, place: int) -> int:
        """Returns the member of a stack at a position of the last axis, without that axis."""
        entry = AxisMap.of(node.data[-1])
        plain = all(AxisMap.of(one) == AxisMap("0", ((axis, 1),)) for axis, one in enumerate(node.data[:-1]))
        at = linear(entry.offset)
        if not plain or at.terms or entry.terms != ((len(node.data) - 1, 1),) or entry.every != 1:
            raise Refused("it joins axes of parts of arrays")
        source, other = self.nodes[node.args[0]], node.args[1] if len(node.args) > 1 else None
        here = place + at.constant
        inside = 0 <= here < int(source.shape[-1]) if source.shape[-1].isdigit() else None
        if entry.beyond in (ORDINARY, ABOVE) and inside is None:
            raise Refused("it joins axes of parts of arrays")
        if inside:
            return self._element(node.args[0], here)
        if other is None:
            raise Refused("it joins axes of parts of arrays")
        return self._element(other, place)

    def _element(self, index: int, place: int) -> int:
        """Returns the value along the last axis at a position: the only element, or a member of a stack."""
        node = self.nodes[index]
        if node.op == "window":
            return self._member(node, place)
        if node.op == "view" and node.data[-1] is None and list(node.data[:-1]) == list(range(len(node.data) - 1)):
            return node.args[0]
        raise Refused("it joins axes of parts of arrays")
