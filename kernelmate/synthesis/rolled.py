"""Converts sums that a reference's unrolled loops produce to reductions, so that the kernel has loops."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kernelmate.synthesis.graph import Datum, Graph, Node
from kernelmate.synthesis.index_maps import AxisMap, linear
from kernelmate.synthesis.stacked import spread_stacks

LEAST = 9
"""Minimum number of taps for which a loop is used: 3 x 3, which the compiler unrolls."""

LEAST_TABLE = 16
"""Minimum number of taps with a number each for which these are a table."""

_KINDS = {"add": "sum", "maximum": "max", "minimum": "min"}


def rolled(graph: Graph) -> Graph:
    """Returns the graph with long chains of sums, maxima or minima of shifted terms as reductions.

    Reductions along a stack of shifted terms count as chains.
    """
    spread = spread_stacks(graph, LEAST)
    found = _rolled(spread)
    return _rolled(graph) if found is spread and spread is not graph else found


def _rolled(graph: Graph) -> Graph:
    nodes, moved = list(graph.nodes), list(range(len(graph.nodes)))
    used = {arg for node in nodes for arg in node.args if node.op == "map"}
    for top, node in enumerate(graph.nodes):
        kind = str(node.data[0]) if node.op == "map" else ""
        inner = top in used and any(
            one.op == "map" and one.data == node.data and one.args[0] == top for one in graph.nodes
        )
        if kind not in _KINDS or inner:
            continue
        start, terms = _chain(graph, top)
        found = _differences(graph, terms) if len(terms) >= LEAST else None
        counts = None if found is None else _counts(found.shifts, len(terms))
        if found is None or counts is None or (found.numbers and len(terms) < LEAST_TABLE):
            continue
        moved[top] = _Rolling(graph, nodes, found, counts).reduced(terms[0], start, kind, node.name)
    return graph if len(nodes) == len(graph.nodes) else _ordered(nodes, moved, graph)


def _chain(graph: Graph, top: int) -> tuple[int | None, list[int]]:
    """Returns the initial operand of a chain of one operation if it is not a term, and the terms in order."""
    terms: list[int] = []
    node = graph.nodes[top]
    at = top
    while graph.nodes[at].op == "map" and graph.nodes[at].data == node.data and graph.nodes[at].dtype == node.dtype:
        if (
            graph.nodes[graph.nodes[at].args[1]].op == "constant"
        ):  # the initial operand of a chain, broadcast to its terms' shape
            break
        terms.append(graph.nodes[at].args[1])
        at = graph.nodes[at].args[0]
    terms.reverse()
    if terms and _differences(graph, [at, terms[0]]) is not None:
        return None, [at, *terms]
    return at, terms


@dataclass(slots=True)
class _Differences:
    """Differences between the terms of a chain.

    Attributes:
        shifts: the constant offsets of the windows in each term, by node of the first term and axis.
        numbers: the constants in each term, by node of the first term.
        met: nodes of the term that is compared, by node of the first term.
    """

    shifts: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    numbers: dict[int, list[Datum]] = field(default_factory=dict)
    met: dict[int, int] = field(default_factory=dict)


def _differences(graph: Graph, terms: list[int]) -> _Differences | None:
    """Returns the offsets and the numbers in which terms differ; None if they differ otherwise."""
    found = _Differences()
    for term in terms:
        found.met.clear()
        if not _match(graph, terms[0], term, found):
            return None
    lengths = {*map(len, found.shifts.values()), *map(len, found.numbers.values())}
    if lengths - {len(terms)}:
        return None
    found.shifts = {place: values for place, values in found.shifts.items() if len(set(values)) > 1}
    found.numbers = {place: values for place, values in found.numbers.items() if len(set(values)) > 1}
    return found


def _match(graph: Graph, first: int, other: int, found: _Differences) -> bool:
    """Compares two terms and records the offsets and numbers of the second, each once."""
    mine, theirs = graph.nodes[first], graph.nodes[other]
    if first in found.met:
        return found.met[first] == other
    found.met[first] = other
    if mine.op != theirs.op or len(mine.args) != len(theirs.args) or mine.dtype != theirs.dtype:
        return False
    if mine.op == "window":
        if mine.args != theirs.args or mine.shape != theirs.shape:
            return False
        for axis, (one, two) in enumerate(zip(map(AxisMap.of, mine.data), map(AxisMap.of, theirs.data), strict=True)):
            offset = linear(two.offset)
            if replace(one, offset="0") != replace(two, offset="0") or linear(one.offset).terms != offset.terms:
                return False
            found.shifts.setdefault((first, axis), []).append(offset.constant)
        return True
    if mine.op == "constant" and mine.shape == theirs.shape == () and mine.dtype.startswith("float"):
        found.numbers.setdefault(first, []).append(theirs.data[0])
        return True
    if mine.data != theirs.data or mine.shape != theirs.shape:
        return False
    if not mine.args:
        return first == other
    if first == other:
        return all(not _windows(graph, arg) for arg in mine.args) or all(
            _match(graph, arg, arg, found) for arg in mine.args
        )
    return all(_match(graph, one, two, found) for one, two in zip(mine.args, theirs.args, strict=True))


def _windows(graph: Graph, index: int) -> bool:
    node = graph.nodes[index]
    return node.op == "window" or any(_windows(graph, arg) for arg in node.args)


def _counts(shifts: Mapping[tuple[int, int], list[int]], count: int) -> tuple[int, int] | None:
    """Returns the lengths of two nested loops over which all offsets increase evenly; 1 if one loop suffices."""
    for inner in sorted((one for one in range(2, count + 1) if count % one == 0), reverse=True):
        outer = count // inner
        steps = [_steps(values, inner) for values in shifts.values()]
        if steps and all(
            value == values[0] + k // inner * by[0] + k % inner * by[1]
            for values, by in zip(shifts.values(), steps, strict=True)
            for k, value in enumerate(values)
        ):
            return outer, inner
    return None


def _steps(values: list[int], inner: int) -> tuple[int, int]:
    return (values[inner] - values[0] if inner < len(values) else 0), values[1] - values[0]


class _Rolling:
    """Builds copies of a term with two additional leading axes, along which its windows move."""

    def __init__(self, graph: Graph, nodes: list[Node], found: _Differences, counts: tuple[int, int]) -> None:
        self._graph, self._nodes, self._shifts, self._numbers = graph, nodes, found.shifts, found.numbers
        self._counts = tuple(map(str, counts))
        self._inner = counts[1]
        self._copies: dict[int, int] = {}

    def reduced(self, term: int, start: int | None, kind: str, name: str) -> int:
        """Returns the node of a reduction that replaces the whole chain, whose result has a name."""
        found, first = self._copy(term), self._graph.nodes[term]
        for axes in (1, 0):
            shape = (*self._counts[:axes], *first.shape)
            found = self._add(Node("reduce", (found,), shape, first.dtype, (_KINDS[kind], axes), name))
        return found if start is None else self._add(Node("map", (start, found), first.shape, first.dtype, (kind,)))

    def _add(self, node: Node) -> int:
        self._nodes.append(node)
        return len(self._nodes) - 1

    def _moves(self, index: int) -> bool:
        """True if something differs between the terms."""
        if index in self._numbers or any(place[0] == index for place in self._shifts):
            return True
        node = self._graph.nodes[index]
        return node.op != "window" and any(self._moves(arg) for arg in node.args)

    def _copy(self, index: int) -> int:
        if index in self._copies:
            return self._copies[index]
        node = self._graph.nodes[index]
        shape = (*self._counts, *node.shape)
        data: tuple[Datum, ...] = node.data
        args = node.args
        if node.op == "window":
            data = tuple(self._moved(index, axis, AxisMap.of(entry)).text() for axis, entry in enumerate(node.data))
        elif index in self._numbers:
            self._copies[index] = self._add(Node("table", (), shape, node.dtype, tuple(self._numbers[index])))
            return self._copies[index]
        elif node.op == "view":
            data = (0, 1, *(None if axis is None else int(axis) + 2 for axis in node.data))
            args = (self._copy(args[0]),)
        else:
            args = tuple(self._widened(arg, len(node.shape)) if self._moves(arg) else arg for arg in args)
        self._copies[index] = self._add(Node(node.op, args, shape, node.dtype, data))
        return self._copies[index]

    def _moved(self, index: int, axis: int, entry: AxisMap) -> AxisMap:
        values = self._shifts.get((index, axis))
        outer, inner = (0, 0) if values is None else _steps(values, self._inner)
        more = tuple((place, step) for place, step in ((0, outer), (1, inner)) if step)
        return replace(entry, terms=(*more, *((place + 2, step) for place, step in entry.terms)))

    def _widened(self, index: int, rank: int) -> int:
        """Returns a copy of an operand with axes of length 1 after the two, so that they broadcast with the result's."""
        found, node = self._copy(index), self._graph.nodes[index]
        missing = rank - len(node.shape)
        if not missing:
            return found
        shape = (*self._counts, *("1",) * missing, *node.shape)
        axes = (0, 1, *(None,) * missing, *range(2, 2 + len(node.shape)))
        return self._add(Node("view", (found,), shape, node.dtype, axes))


def _ordered(nodes: list[Node], moved: list[int], graph: Graph) -> Graph:
    """Returns the nodes that the outputs need, operands first, with the chains replaced."""
    order: dict[int, int] = {}
    kept: list[Node] = []
    known: dict[Node, int] = {}  # chains may have operands in common

    def visit(index: int) -> int:
        index = moved[index] if index < len(moved) else index
        if index not in order:
            node = replace(nodes[index], args=tuple(visit(arg) for arg in nodes[index].args))
            if node not in known:
                known[node] = len(kept)
                kept.append(node)
            order[index] = known[node]
        return order[index]

    outputs = tuple(visit(one) for one in graph.outputs)
    return Graph(tuple(kept), outputs)
