"""Sums over a stack of shifted arrays, as `np.stack` and `einsum` write them, as chains of terms that loops can take the place of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelmate.synthesis.graph import Graph, Node
from kernelmate.synthesis.index_maps import ABOVE, ORDINARY, AxisMap, linear

MOST = 128
"""Terms of a chain; longer stacks stay as they are."""

_CHAINS = {"sum": "add", "max": "maximum", "min": "minimum"}


def spread_stacks(graph: Graph, least: int) -> Graph:
    """Returns the graph with each reduction along a stack of at least `least` arrays replaced by a chain of terms.

    The graph is unchanged if there is none. A stack lies along the first axis and is joined from arrays of constant
    lengths.
    """
    nodes: list[Node] = []
    moved: list[int] = []
    spread = _Slices(nodes)
    for node in graph.nodes:
        node = replace(node, args=tuple(moved[arg] for arg in node.args))
        moved.append(spread.chain(node, least) or spread.added(node))
    return Graph(tuple(nodes), tuple(moved[one] for one in graph.outputs)) if spread.count else graph


class _Slices:
    """Builder of nodes for single elements along the first axis of nodes.

    Attributes:
        count: number of reductions that were replaced by chains.
    """

    def __init__(self, nodes: list[Node]) -> None:
        self._nodes = nodes
        self._lines: dict[int, int] = {}
        self.count = 0

    def added(self, node: Node) -> int:
        """Appends a node and returns its index."""
        self._nodes.append(node)
        return len(self._nodes) - 1

    def chain(self, node: Node, least: int) -> int | None:
        """Returns the node of the chain that replaces a reduction; None if it is not along a stack."""
        if node.op != "reduce" or node.data[0] not in _CHAINS or node.data[1] != 0:
            return None
        source = self._nodes[node.args[0]]
        length = source.shape[0]
        if source.dtype != node.dtype or not length.isdigit() or not least <= int(length) <= MOST:
            return None
        if not self._has_stack(node.args[0]):
            return None
        before = len(self._nodes)
        terms = [self._slice(node.args[0], place) for place in range(int(length))]
        if any(term is None for term in terms):
            del self._nodes[before:]
            self._lines = {one: line for one, line in self._lines.items() if line < before}
            return None
        self.count += 1
        found, *rest = [term for term in terms if term is not None]
        for term in rest:
            found = self.added(Node("map", (found, term), node.shape, node.dtype, (_CHAINS[str(node.data[0])],)))
        return found

    def _has_stack(self, index: int) -> bool:
        node = self._nodes[index]
        if node.op == "window" and len(node.args) == 2:
            return AxisMap.of(node.data[0]).beyond == ABOVE
        return node.op == "map" and any(
            len(self._nodes[arg].shape) == len(node.shape) and self._has_stack(arg) for arg in node.args
        )

    def _slice(self, index: int, place: int) -> int | None:
        """Returns the node of an element along the first axis; None if the node's kind cannot be split."""
        node = self._nodes[index]
        if not node.shape:
            return index
        if node.shape[0] == "1":
            place = 0
        shape = node.shape[1:]
        if node.op == "map":
            args = [
                arg if len(self._nodes[arg].shape) < len(node.shape) else self._slice(arg, place) for arg in node.args
            ]
            return self._like(node, args, shape)
        if node.op == "view":
            return self._viewed(node, place)
        if node.op == "reshape" and set(shape) <= {"1"}:
            return self._of_line(node, index, place)
        return self._joined(node, place) if node.op == "window" else None

    def _of_line(self, node: Node, index: int, place: int) -> int:
        """Returns the node of one element of an array that is reshaped to one line, followed by axes of length 1."""
        if index not in self._lines:
            self._lines[index] = self.added(Node("reshape", node.args, node.shape[:1], node.dtype))
        at = AxisMap.of(f"{ORDINARY}|1|{place}|0*1").text()
        one = self.added(Node("window", (self._lines[index],), ("1",), node.dtype, (at,)))
        return self._view(one, [None] * (len(node.shape) - 1), node.shape[1:])

    def _like(self, node: Node, args: list[int | None], shape: tuple[str, ...]) -> int | None:
        known = [arg for arg in args if arg is not None]
        return self.added(replace(node, args=tuple(known), shape=shape, name="")) if len(known) == len(args) else None

    def _viewed(self, node: Node, place: int) -> int:
        """Returns an element of a view: the source itself if the axis was only broadcast, else one element of the source."""
        first, *others = node.data
        source = self._nodes[node.args[0]]
        if first is None:
            same = [*range(len(source.shape))] == others and node.shape[1:] == source.shape
            return node.args[0] if same else self._view(node.args[0], others, node.shape[1:])
        axis = int(first)
        maps = [
            AxisMap.of(f"{ORDINARY}|1|{place if one == axis else 0}|{one}*1").text() for one in range(len(source.shape))
        ]
        sides = tuple("1" if one == axis else side for one, side in enumerate(source.shape))
        return self._view(self.added(Node("window", node.args, sides, node.dtype, tuple(maps))), others, node.shape[1:])

    def _view(self, source: int, axes: Sequence[object], shape: tuple[str, ...]) -> int:
        data = tuple(None if one is None else int(str(one)) for one in axes)
        return self.added(Node("view", (source,), shape, self._nodes[source].dtype, data))

    def _joined(self, node: Node, place: int) -> int | None:
        """Returns an element of joined arrays, from the array that contains it.

        The result is None for windows that move along other axes.
        """
        maps = [AxisMap.of(str(one)) for one in node.data]
        plain = all(
            one.terms == ((axis, 1),)
            and one.every == 1
            and (axis == 0 or (one.offset == "0" and one.beyond == ORDINARY))
            for axis, one in enumerate(maps)
        )
        offset, length = linear(maps[0].offset), self._nodes[node.args[0]].shape[0]
        if not plain or offset.terms or not length.isdigit() or maps[0].beyond not in (ORDINARY, ABOVE):
            return None
        at = place + offset.constant
        if maps[0].beyond == ABOVE and at >= int(length):
            return self._slice(node.args[1], place)
        return self._slice(node.args[0], at) if 0 <= at < int(length) else None
