"""Values along an axis of a stack, as `np.stack` and `einsum` write it, as nodes of their own: chains of terms, or separate results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelmate.synthesis.graph import Graph, Node, sorted_graph
from kernelmate.synthesis.index_maps import ABOVE, ORDINARY, OTHERWISE, AxisMap, linear

MOST = 128
"""Maximum number of terms of a chain; longer stacks are not changed."""

MOST_RESULTS = 16
"""Maximum number of values of a stack that are separate results."""

_CHAINS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}


def spread_stacks(graph: Graph, least: int) -> Graph:
    """Returns the graph with each reduction along a stack of at least `least` arrays replaced by a chain of terms.

    The graph is unchanged if there is none. A stack is joined from arrays of constant lengths.
    """
    nodes: list[Node] = []
    moved: list[int] = []
    spread = _Slices(nodes)
    for node in graph.nodes:
        node = replace(node, args=tuple(moved[arg] for arg in node.args))
        moved.append(spread.chain(node, least) or spread.added(node))
    return Graph(tuple(nodes), tuple(moved[one] for one in graph.outputs)) if spread.count else graph


@dataclass(frozen=True, slots=True)
class StackedResult:
    """A value of a stack of results, or a whole result.

    Attributes:
        output: the number of the kernel's output.
        number: its index in the stack.
        shape: the output's shape.
        axis: the stack's axis in it; None for a whole result.
    """

    output: int
    number: int
    shape: tuple[str, ...]
    axis: int | None


def separate_results(graph: Graph) -> tuple[Graph, list[StackedResult]] | None:
    """Returns the graph with each value of stacked results as a separate result, and the position of each in its stack.

    The result is None if no result is a stack of at most `MOST_RESULTS` values.
    """
    graph = spread_stacks(graph, 2)
    slices = _Slices(list(graph.nodes), (ABOVE, OTHERWISE))
    outputs: list[int] = []
    places: list[StackedResult] = []
    for output, index in enumerate(graph.outputs):
        shape = graph.nodes[index].shape
        values = next(filter(None, (slices.values(index, axis) for axis in range(len(shape)))), None)
        if values is None:
            outputs.append(index)
            places.append(StackedResult(output, 0, shape, None))
            continue
        axis, found = values
        outputs += found
        places += [StackedResult(output, number, shape, axis) for number in range(len(found))]
    if len(outputs) == len(graph.outputs):
        return None
    return sorted_graph(slices.nodes, outputs), places


def with_joined_results(graph: Graph) -> Graph:
    """Returns the graph; a result whose values along a short axis are computed one by one becomes a join of these values.

    Schedules of windows compute all parts of a join in one thread, which reads what they share once.
    """
    slices = _Slices(list(graph.nodes), (ABOVE, OTHERWISE))
    outputs: list[int] = []
    for index in graph.outputs:
        node = graph.nodes[index]
        axes = range(len(node.shape)) if not _is_join(node) else ()
        values = next(filter(None, (slices.values(index, axis) for axis in axes)), None)
        outputs.append(index if values is None else slices.join(node, *values))
    return graph if outputs == [*graph.outputs] else sorted_graph(slices.nodes, outputs)


def _is_join(node: Node) -> bool:
    return node.op == "window" and any(AxisMap.of(one).beyond == ABOVE for one in node.data)


def joined(nodes: list[Node], parts: Sequence[int], axis: int, shape: tuple[str, ...], dtype: str) -> int:
    """Adds nodes that join parts of length 1 along an axis into an array of a shape; returns the last node's number."""
    result = -1
    for number, part in reversed([*enumerate(parts)]):
        maps = [AxisMap("0", ((one, 1),)) for one in range(len(shape))]
        maps[axis] = AxisMap(str(-number), ((axis, 1),), ORDINARY if result < 0 else ABOVE)
        args = (part,) if result < 0 else (part, result)
        nodes.append(Node("window", args, shape, dtype, tuple(one.text() for one in maps)))
        result = len(nodes) - 1
    return result


class _Slices:
    """Builder of nodes for single elements along an axis of nodes.

    Args:
        nodes: of the graph, to which others are added.
        beyond: kinds of index maps of a stack's axis: joined arrays alone, or assigned parts too.

    Attributes:
        count: number of reductions that were replaced by chains.
    """

    def __init__(self, nodes: list[Node], beyond: Sequence[str] = (ABOVE,)) -> None:
        self.nodes, self._beyond = nodes, beyond
        self._lines: dict[int, int] = {}
        self._known = {node: index for index, node in enumerate(nodes)}
        self.count = 0

    def added(self, node: Node) -> int:
        """Appends a node, unless there is an equal one, and returns its index."""
        if node not in self._known:
            self._known[node] = len(self.nodes)
            self.nodes.append(node)
        return self._known[node]

    def chain(self, node: Node, least: int) -> int | None:
        """Returns the node of the chain that replaces a reduction; None if it is not along a stack."""
        if node.op != "reduce" or node.data[0] not in _CHAINS:
            return None
        source, axis = self.nodes[node.args[0]], int(node.data[1] or 0)
        length = source.shape[axis]
        if source.dtype != node.dtype or not length.isdigit() or not least <= int(length) <= MOST:
            return None
        terms = self._slices(node.args[0], axis)
        if terms is None:
            return None
        self.count += 1
        found, *rest = terms
        for term in rest:
            found = self.added(Node("map", (found, term), node.shape, node.dtype, (_CHAINS[str(node.data[0])],)))
        return found

    def values(self, index: int, axis: int) -> tuple[int, list[int]] | None:
        """Returns the axis, and the nodes of all elements along it; None if it is not a short stack's."""
        length = self.nodes[index].shape[axis]
        if not length.isdigit() or not 2 <= int(length) <= MOST_RESULTS:
            return None
        found = self._slices(index, axis)
        return None if found is None else (axis, found)

    def join(self, node: Node, axis: int, values: Sequence[int]) -> int:
        """Adds nodes that join values along an axis into an array of `node`'s shape, as `np.stack`; returns the last one."""
        rank = len(node.shape)
        sides = (*node.shape[:axis], "1", *node.shape[axis + 1 :])
        axes = [None if one == axis else one - (one > axis) for one in range(rank)]
        return joined(self.nodes, [self._view(one, axes, sides) for one in values], axis, node.shape, node.dtype)

    def _slices(self, index: int, axis: int) -> list[int] | None:
        """Returns the nodes of all elements along an axis; None if it is not a stack's, or a node cannot be split."""
        if not self._has_stack(index, axis):
            return None
        before = len(self.nodes)
        found = [self._slice(index, axis, place) for place in range(int(self.nodes[index].shape[axis]))]
        if all(one is not None for one in found):
            return [one for one in found if one is not None]
        for node in self.nodes[before:]:
            del self._known[node]
        del self.nodes[before:]
        self._lines = {one: line for one, line in self._lines.items() if line < before}
        return None

    def _has_stack(self, index: int, axis: int) -> bool:
        node = self.nodes[index]
        if node.op == "window" and len(node.args) == 2:
            return AxisMap.of(node.data[axis]).beyond in self._beyond
        if node.op == "view":
            source = node.data[axis]
            return source is not None and self._has_stack(node.args[0], int(source))
        if node.op == "along" and axis == int(node.data[0] or 0):
            return self._has_stack(node.args[1], axis)
        operands = ((arg, axis - len(node.shape) + len(self.nodes[arg].shape)) for arg in node.args)
        return node.op in ("map", "cast") and any(at >= 0 and self._has_stack(arg, at) for arg, at in operands)

    def _slice(self, index: int, axis: int, place: int) -> int | None:
        """Returns the node of an element along an axis; None if the node's kind cannot be split."""
        node = self.nodes[index]
        if axis < 0:
            return index
        if node.shape[axis] == "1":
            place = 0
        shape = (*node.shape[:axis], *node.shape[axis + 1 :])
        if node.op in ("map", "cast"):
            args = [self._slice(arg, axis - len(node.shape) + len(self.nodes[arg].shape), place) for arg in node.args]
            return self._like(node, args, shape)
        if node.op == "view":
            return self._viewed(node, axis, place)
        if node.op == "along" and axis == int(node.data[0] or 0):
            return self._chosen(node, axis, place)
        if node.op == "reshape" and axis == 0 and set(shape) <= {"1"}:
            return self._of_line(node, index, place)
        if node.op == "window":
            return self._joined(node, axis, place)
        kept = [one for one in range(len(node.shape)) if one != axis]
        return self._view(index, kept, shape) if node.shape[axis] == "1" else None

    def _chosen(self, node: Node, axis: int, place: int) -> int | None:
        """Returns an element that is selected by index, from the index's position in a stack."""
        number = self._slice(node.args[1], axis, place)
        if number is None:
            return None
        shape = (*node.shape[:axis], *node.shape[axis + 1 :])
        if axis == len(node.shape) - 1:
            extreme = self._extreme(node.args[0], number)
            return extreme or self.added(Node("gather", (node.args[0], number), shape, node.dtype))
        sides = (*node.shape[:axis], "1", *node.shape[axis + 1 :])
        number = self._view(number, [None if one == axis else one - (one > axis) for one in range(len(sides))], sides)
        chosen = self.added(Node("along", (node.args[0], number), sides, node.dtype, node.data))
        return self._view(chosen, [one for one in range(len(sides)) if one != axis], shape)

    def _extreme(self, source: int, number: int) -> int | None:
        """Returns a new `max` or `min` of `source` if node `number` is its argmax or argmin along an axis; None otherwise."""
        while self.nodes[number].op in ("cast", "view"):
            number = self.nodes[number].args[0]
        place = self.nodes[number]
        if place.op != "reduce" or place.data[0] not in ("argmax", "argmin"):
            return None
        left = place.args[0]
        while self.nodes[left].mapped == "where" and left != source:  # those found before and NaN are left out
            left = self.nodes[left].args[2]
        if left != source or self.nodes[source].dtype != self.nodes[place.args[0]].dtype:
            return None
        kind = str(place.data[0]).removeprefix("arg")
        return self.added(Node("reduce", place.args, place.shape, self.nodes[source].dtype, (kind, place.data[1])))

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

    def _viewed(self, node: Node, axis: int, place: int) -> int | None:
        """Returns an element of a view: the source itself if the axis was only broadcast, else one element of the source."""
        others = [*node.data[:axis], *node.data[axis + 1 :]]
        shape = (*node.shape[:axis], *node.shape[axis + 1 :])
        source = self.nodes[node.args[0]]
        if node.data[axis] is None:
            same = [*range(len(source.shape))] == others and shape == source.shape
            return node.args[0] if same else self._view(node.args[0], others, shape)
        moved = int(node.data[axis] or 0)
        if self._has_stack(node.args[0], moved):
            inner = self._slice(node.args[0], moved, place)
            axes = [None if one is None else int(one) - (int(one) > moved) for one in others]
            return None if inner is None else self._view(inner, axes, shape)
        maps = [
            AxisMap.of(f"{ORDINARY}|1|{place if one == moved else 0}|{one}*1").text()
            for one in range(len(source.shape))
        ]
        sides = tuple("1" if one == moved else side for one, side in enumerate(source.shape))
        return self._view(self.added(Node("window", node.args, sides, node.dtype, tuple(maps))), others, shape)

    def _view(self, source: int, axes: Sequence[object], shape: tuple[str, ...]) -> int:
        data = tuple(None if one is None else int(str(one)) for one in axes)
        if [*data] == [*range(len(self.nodes[source].shape))]:
            return source
        return self.added(Node("view", (source,), shape, self.nodes[source].dtype, data))

    def _joined(self, node: Node, axis: int, place: int) -> int | None:
        """Returns an element of joined arrays, from the array that contains it.

        The result is None for windows that move along other axes.
        """
        maps = [AxisMap.of(str(one)) for one in node.data]
        plain = all(
            one.terms == ((at, 1),)
            and one.every == 1
            and (at == axis or (one.offset == "0" and one.beyond == ORDINARY))
            for at, one in enumerate(maps)
        )
        offset, length = linear(maps[axis].offset), self.nodes[node.args[0]].shape[axis]
        if not plain or offset.terms or not length.isdigit() or maps[axis].beyond not in (ORDINARY, *self._beyond):
            return None
        at = place + offset.constant
        if len(node.args) == 2 and maps[axis].beyond != ORDINARY and not 0 <= at < int(length):
            return self._slice(node.args[1], axis, place)
        return self._slice(node.args[0], axis, at) if 0 <= at < int(length) else None
