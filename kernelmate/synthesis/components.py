"""Rewrites graphs without short axes of fixed length: each element, such as x of a point, becomes a separate value."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from dataclasses import replace

import numpy as np

from kernelmate.synthesis.elements import never_negative
from kernelmate.synthesis.graph import Graph, Node, sorted_graph, ufunc_of
from kernelmate.synthesis.index_maps import ABOVE, ORDINARY, OTHERWISE, AxisMap, linear
from kernelmate.synthesis.plan import Refused

MOST = 8
"""Maximum length of such an axis, and maximum number of elements of a result."""

_JOINED = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum"}

PLACES = {"argmax": ("less_equal", "maximum"), "argmin": ("greater_equal", "minimum")}
"""Reductions that find a place: the comparison of a value that leaves the place, and the operation that gives the extreme."""

Component = tuple[int | None, ...]
"""For each axis of a node, the index of the selected element, or None if the axis is kept."""


def with_components(graph: Graph) -> tuple[Graph, list[tuple[int, Component]]]:
    """Returns the graph with one output per element of the results along short axes, and those elements.

    Each element is given by the number of its result and its component. Inputs whose elements are selected have the
    component after their name in `data`; None stands for a kept axis.

    Raises:
        Refused: an operation on such an axis is not element-wise, a reduction, a view or a slice, or the axis is too
            long.
    """
    split = _Split(graph)
    outputs, places = [], []
    for place, output in enumerate(graph.outputs):
        sides = [range(int(side)) if _is_short(side) else (None,) for side in graph.nodes[output].shape]
        several = list(itertools.product(*sides))
        if len(several) > MOST:
            raise Refused("its results have too many elements along axes of a fixed length")
        for one in several:
            outputs.append(split.value(output, one))
            places.append((place, one))
    return Graph(tuple(split.nodes), tuple(outputs)), places


def with_terms(graph: Graph, kinds: Collection[str] = _JOINED) -> Graph | None:
    """Returns the graph with reductions along axes of a short fixed length written out term by term; None if there is none.

    Each term is then a slice of its own, such as an element of a solution that earlier elements determine.

    Args:
        graph: the graph.
        kinds: the reductions that are written out.
    """
    nodes, found = list(graph.nodes), False
    for index, node in enumerate(graph.nodes):
        if node.op != "reduce" or node.data[0] not in kinds:
            continue
        axis = int(node.data[1] or 0)
        if not _is_short(nodes[node.args[0]].shape[axis]):
            continue
        found, kind = True, str(node.data[0])
        terms = _terms(nodes, node, axis)
        total = _first_place(nodes, node, terms) if kind in PLACES else _chained(nodes, node, terms, _JOINED[kind])
        nodes[index] = replace(nodes[total], name=node.name)
    return sorted_graph(nodes, graph.outputs) if found else None


def _terms(nodes: list[Node], node: Node, axis: int) -> list[int]:
    """Appends the slices of a reduction's operand along its axis, and returns their node numbers."""
    source = nodes[node.args[0]]
    kept = [one for one in range(len(source.shape)) if one != axis]
    sides = tuple("1" if one == axis else side for one, side in enumerate(source.shape))
    found = []
    for place in range(int(source.shape[axis])):
        maps = (AxisMap(str(place) if one == axis else "0", ((one, 1),)) for one in range(len(source.shape)))
        nodes.append(Node("window", node.args, sides, source.dtype, tuple(one.text() for one in maps)))
        nodes.append(Node("view", (len(nodes) - 1,), node.shape, source.dtype, tuple(kept)))
        found.append(len(nodes) - 1)
    return found


def _chained(nodes: list[Node], node: Node, terms: Sequence[int], name: str) -> int:
    total, *rest = terms
    for term in rest:
        nodes.append(Node("map", (total, term), node.shape, node.dtype, (name,)))
        total = len(nodes) - 1
    return total


def _first_place(nodes: list[Node], node: Node, terms: Sequence[int]) -> int:
    """Appends nodes that select the index of the first extreme, or of the first NaN; returns the last node's number."""
    exceeded, larger = PLACES[str(node.data[0])]
    dtype = nodes[terms[0]].dtype

    def put(op: str, args: tuple[int, ...], kind: str, datum: str | int) -> int:
        nodes.append(Node(op, args, node.shape if args else (), kind, (datum,)))
        return len(nodes) - 1

    best, at = terms[0], put("constant", (), node.dtype, 0)
    for number, term in enumerate(terms[1:], 1):
        kept = put("map", (term, best), "bool", exceeded)
        if dtype.startswith("float"):
            kept = put("map", (kept, put("map", (best,), "bool", "isnan")), "bool", "logical_or")
        at = put("map", (kept, at, put("constant", (), node.dtype, number)), node.dtype, "where")
        best = put("map", (best, term), dtype, larger)
    return at


def _is_short(side: str) -> bool:
    return side.isdigit() and 1 < int(side) <= MOST


def suffix(shape: Sequence[str], element: Component) -> str:
    """Returns the suffix of an element's name: `_x` to `_w` for axes of two to four elements, else its index."""
    several = [(one, side) for one, side in zip(element, shape, strict=False) if one is not None and side != "1"]
    return "".join("_" + ("xyzw"[one] if side in ("2", "3", "4") else str(one)) for one, side in several)


class _Split:
    """Builder of the new graph."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes: list[Node] = []
        self._places: dict[Node, int] = {}
        self._known: dict[tuple[int, Component], int] = {}

    def value(self, index: int, element: Component) -> int:
        """Returns the new node of a component of an old node, without the split axes."""
        if (index, element) not in self._known:
            self._known[index, element] = self._value(self.graph.nodes[index], element)
        return self._known[index, element]

    def _put(self, op: str, args: Sequence[int], shape: Sequence[str], dtype: str, data: tuple[object, ...] = (), name: str = "") -> int:  # fmt: skip
        node = Node(op, tuple(args), tuple(shape), dtype, data, name)  # type: ignore[arg-type]
        if node not in self._places:
            self._places[node] = len(self.nodes)
            self.nodes.append(node)
        return self._places[node]

    def _value(self, node: Node, element: Component) -> int:
        shape = [side for side, one in zip(node.shape, element, strict=True) if one is None]
        name = f"{node.name}{suffix(node.shape, element)}" if node.name else ""
        match node.op:
            case "input" if any(one is not None for one in element):
                return self._put("input", (), shape, node.dtype, (node.data[0], *element), name)
            case "input" | "scalar" | "size" | "constant":
                return self._put(node.op, (), shape, node.dtype, node.data, name)
            case "iota" if element[0] is not None:
                return self._put("constant", (), (), node.dtype, (element[0],))
            case "iota":
                return self._put("iota", (), shape, node.dtype, node.data)
            case "map" | "cast":
                args = [self.value(one, self._aligned(one, element)) for one in node.args]
                return self._mapped(node, args, shape, name)
            case "view":
                return self._viewed(node, element, shape)
            case "reduce":
                return self._reduced(node, element, shape, name)
            case "window":
                return self._part(node, element)
        raise Refused(f"it has axes of a fixed length beside another operation ({node.op})")

    def _aligned(self, index: int, element: Component) -> Component:
        sides = self.graph.nodes[index].shape
        behind = element[len(element) - len(sides) :]
        return tuple(0 if side == "1" and one is not None else one for side, one in zip(sides, behind, strict=True))

    def _mapped(self, node: Node, args: list[int], shape: list[str], name: str) -> int:
        """Adds an element-wise operation; constants are folded, and a constant condition selects its operand."""
        operands = [self.nodes[one] for one in args]
        if node.op == "map" and all(one.op == "constant" and not one.shape for one in operands) and not shape:
            values = [np.asarray(one.data[0], dtype=one.dtype) for one in operands]
            found = np.where(*values) if node.data[0] == "where" else ufunc_of(str(node.data[0]))(*values)
            return self._put("constant", (), (), node.dtype, (found.item(),))
        if node.mapped == "where" and operands[0].op == "constant":
            chosen = args[1] if operands[0].data[0] else args[2]
            if self.nodes[chosen].shape == tuple(shape):
                return chosen
        halves = node.mapped == "power" and operands[1].op == "constant" and operands[1].data[0] in (0.5, 1.5)
        if halves and never_negative(Graph(tuple(self.nodes), ()), args[0]):
            root = self._put("map", args[:1], shape, node.dtype, ("sqrt",))
            several = (args[0], root)
            return root if operands[1].data[0] == 0.5 else self._put("map", several, shape, node.dtype, ("multiply",))
        return self._put(node.op, args, shape, node.dtype, node.data, name)

    def _viewed(self, node: Node, element: Component, shape: list[str]) -> int:
        source = self.graph.nodes[node.args[0]]
        places = {axis: place for place, axis in enumerate(node.data) if axis is not None}
        inner = tuple(element[places[axis]] if axis in places else 0 for axis in range(len(source.shape)))
        left = [axis for axis, one in enumerate(inner) if one is None]
        kept = [axis for axis, one in zip(node.data, element, strict=True) if one is None]
        value = self.value(node.args[0], inner)
        order = [None if axis is None else left.index(int(axis)) for axis in kept]
        return self._turned(value, order, shape)

    def _turned(self, value: int, order: Sequence[int | None], shape: Sequence[str]) -> int:
        """Returns a view of a new node with reordered axes."""
        node = self.nodes[value]
        if list(order) == list(range(len(node.shape))):
            return value
        return self._put("view", (value,), shape, node.dtype, tuple(order))

    def _reduced(self, node: Node, element: Component, shape: list[str], name: str) -> int:
        kind, axis = str(node.data[0]), int(node.data[1] or 0)
        source = self.graph.nodes[node.args[0]]
        if source.shape[axis] == "1" and kind in _JOINED:
            return self.value(node.args[0], (*element[:axis], 0, *element[axis:]))
        if not _is_short(source.shape[axis]):
            inner = (*element[:axis], None, *element[axis:])
            place = sum(one is None for one in element[:axis])
            return self._put("reduce", (self.value(node.args[0], inner),), shape, node.dtype, (kind, place), name)
        if kind not in _JOINED:
            raise Refused(f"it takes the {kind} along an axis of a fixed length")
        several = [self.value(node.args[0], (*element[:axis], one, *element[axis:])) for one in range(int(source.shape[axis]))]  # fmt: skip
        total = several[0]
        for place, one in enumerate(several[1:], 2):
            last = name if place == len(several) else ""
            total = self._put("map", (total, one), shape, node.dtype, (_JOINED[kind],), last)
        return total

    def _part(self, node: Node, element: Component) -> int:
        """Returns a component of a slice or of joined arrays; other axes are kept."""
        source = self.graph.nodes[node.args[0]]
        inner: list[int | None] = []
        axes: list[int] = []
        for entry, side in zip(node.data, source.shape, strict=True):
            axis = AxisMap.of(entry)
            chosen = [0 if node.shape[place] == "1" != side else element[place] for place, _ in axis.terms]
            offset = linear(axis.offset)
            if not any(one is None for one in chosen) and not offset.terms and axis.every == 1:
                at = offset.constant + sum(step * (one or 0) for one, (_, step) in zip(chosen, axis.terms, strict=True))
                outside = at < 0 or (side.isdigit() and at >= int(side))
                if outside and axis.beyond in (OTHERWISE, ABOVE) and len(node.args) == 2:
                    return self.value(node.args[1], self._aligned(node.args[1], element))
                if outside or axis.beyond not in (ORDINARY, OTHERWISE, ABOVE):
                    raise Refused("it takes elements beyond the ends of arrays")
                inner.append(at)
                continue
            whole = len(chosen) == 1 and axis.offset == "0" and axis.terms[0][1] == 1 and axis.every == 1
            if not whole or linear(node.shape[axis.terms[0][0]]) != linear(side):
                raise Refused("it takes parts of arrays along axes that are not short")
            inner.append(None)
            axes.append(axis.terms[0][0])
        kept = [place for place, one in enumerate(element) if one is None]
        if sorted(axes) != [one for one in kept if one in axes or node.shape[one] != "1"]:
            raise Refused("it repeats parts of arrays")
        order = [axes.index(one) if one in axes else None for one in kept]
        return self._turned(self.value(node.args[0], tuple(inner)), order, [node.shape[one] for one in kept])
