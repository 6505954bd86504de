"""Reductions of all beginnings or ends of an axis, as `x[:i + 1].sum()` in a loop over i, which become scans.

A loop's slices are whole axes under a mask of two positions, and their reduction has the square of the axis's elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelmate.synthesis.graph import Graph, Node, sorted_graph
from kernelmate.synthesis.index_maps import ORDINARY, OTHERWISE, AxisMap, Linear, existing, linear
from kernelmate.synthesis.reductions import STARTS

_BELOW = {"less": (1, 0), "less_equal": (1, -1), "greater": (-1, 0), "greater_equal": (-1, -1)}
"""For each comparison of a and b the sign s and the number c for which it is `s * (a - b) + c < 0`, of integers."""


@dataclass(frozen=True, slots=True)
class _Prefix:
    """The elements of an axis that a reduction takes.

    Attributes:
        value: the node that is reduced.
        along, at: the axes of the masked value that is reduced, and that has a result for each position.
        ends: whether it takes the elements from a position to the end.
        without: whether the element at the position is left out.
    """

    value: int
    along: int
    at: int
    ends: bool
    without: bool


def with_scans(graph: Graph) -> Graph:
    """Returns the graph with scans in place of reductions of beginnings and ends of an axis."""
    nodes = list(graph.nodes)
    for index, node in enumerate(graph.nodes):
        found = _prefix(graph, node) if node.op == "reduce" else None
        scan = None if found is None else _scanned(nodes, graph, node, found)
        if scan is not None:
            nodes[index] = scan
    if len(nodes) == len(graph.nodes):
        return graph
    same = _joined_views(nodes)
    kept = [replace(node, args=tuple(same.get(one, one) for one in node.args)) for node in nodes]
    return sorted_graph(kept, [same.get(one, one) for one in graph.outputs])


def _prefix(graph: Graph, reduction: Node) -> _Prefix | None:
    """Returns the elements that a reduction takes, if they are those up to or from each position."""
    nodes, (kind, along) = graph.nodes, reduction.data[:2]
    masked = nodes[reduction.args[0]]
    if masked.mapped != "where" or kind not in STARTS or (kind in ("max", "min") and "float" not in masked.dtype):
        return None
    condition, value, other = masked.args
    if nodes[other].op != "constant" or nodes[other].data[0] != STARTS[str(kind)]:
        return None
    rank, axis = len(masked.shape), int(along or 0)
    places: Sequence[int | None] = range(rank - len(nodes[condition].shape), rank)
    while nodes[condition].op == "view":
        turned = {source: places[own] for own, source in enumerate(nodes[condition].data) if source is not None}
        (condition,) = nodes[condition].args
        places = [turned.get(own) for own in range(len(nodes[condition].shape))]
    compared = nodes[condition]
    if compared.op != "map" or compared.data[0] not in _BELOW:
        return None
    first, second = (_position(graph, one, places[len(places) - len(nodes[one].shape) :]) for one in compared.args)
    if first is None or second is None:
        return None
    sign, constant = _BELOW[str(compared.data[0])]
    below = first.plus(second, -1).times(sign).plus(constant)
    others = [
        own
        for own in range(rank)
        if dict(below.terms) in ({f"__{axis}": 1, f"__{own}": -1}, {f"__{axis}": -1, f"__{own}": 1})
    ]
    if len(others) != 1 or masked.shape[others[0]] != masked.shape[axis] or below.constant not in (0, -1):
        return None
    return _Prefix(value, axis, others[0], dict(below.terms)[f"__{axis}"] < 0, below.constant == 0)


def _position(graph: Graph, index: int, places: Sequence[int | None]) -> Linear | None:
    """Returns a value as a sum of positions along axes, `__0` along the first, and sizes; None for other values."""
    node = graph.nodes[index]
    match node.op:
        case "iota":
            return None if places[0] is None else Linear(((f"__{places[0]}", 1),))
        case "constant" if isinstance(node.data[0], int):
            return Linear((), node.data[0])
        case "size":
            return linear(str(node.data[0]))
        case "view":
            turned = {source: places[own] for own, source in enumerate(node.data) if source is not None}
            source = graph.nodes[node.args[0]]
            return _position(graph, node.args[0], [turned.get(own) for own in range(len(source.shape))])
        case "map" if node.data[0] in ("add", "subtract"):
            first, second = (
                _position(graph, one, places[len(places) - len(graph.nodes[one].shape) :]) for one in node.args
            )
            return None if first is None or second is None else first.plus(second, 1 if node.data[0] == "add" else -1)
    return None


def _scanned(nodes: list[Node], graph: Graph, reduction: Node, prefix: _Prefix) -> Node | None:
    """Returns the node that stands for a reduction, a scan of its value in the order of the results' axes; scans are added.

    The result is None if the value differs between the positions at which it is taken.
    """
    value, shape = graph.nodes[prefix.value], graph.nodes[reduction.args[0]].shape
    skipped = len(shape) - len(value.shape)
    own = {place + skipped: place for place, side in enumerate(value.shape) if side != "1"}
    results = [place for place in range(len(shape)) if place != prefix.along]
    lost = any(shape[place] != "1" and place not in own for place in results if place != prefix.at)
    if prefix.at in own or prefix.along not in own or lost:
        return None
    axis = own[prefix.along]
    kind, scanned = reduction.data[0], prefix.value
    if value.dtype != reduction.dtype:
        nodes.append(Node("cast", (scanned,), value.shape, reduction.dtype))
        scanned = len(nodes) - 1
    nodes.append(Node("scan", (scanned,), value.shape, reduction.dtype, (kind, axis, prefix.ends), reduction.name))
    if prefix.without:
        start = Node("constant", (), value.shape, reduction.dtype, (STARTS[str(kind)],))
        step = 1 if prefix.ends else -1
        maps = [AxisMap("0", ((place, 1),)) for place in range(len(value.shape))]
        maps[axis] = AxisMap(str(step), ((axis, 1),), OTHERWISE)
        nodes += [start, Node("window", (len(nodes) - 1, len(nodes)), value.shape, reduction.dtype, tuple(one.text() for one in maps))]  # fmt: skip
    turned = tuple(axis if place == prefix.at else own.get(place) for place in results)
    return Node("view", (len(nodes) - 1,), reduction.shape, reduction.dtype, turned, reduction.name, reduction.line)


def _joined_views(nodes: list[Node]) -> dict[int, int]:
    """Merges each view of a view into one view; returns the views that change nothing, each with its operand."""
    same: dict[int, int] = {}
    for index, node in enumerate(nodes):
        source = nodes[node.args[0]] if node.op == "view" else node
        if node.op == "view" and source.op == "view":
            axes = tuple(None if one is None else source.data[int(one)] for one in node.data)
            nodes[index] = node = replace(node, args=source.args, data=axes)
        if node.op == "view" and node.data == (*range(len(nodes[node.args[0]].shape)),):
            same[index] = node.args[0]
    return same


def with_differences_for_shifts(graph: Graph) -> Graph:
    """Returns the graph with each exclusive prefix sum as the inclusive one less the element, which `scan` recognises.

    An exclusive prefix sum is a scan moved by one position, with a zero as first (or last) element.
    """
    nodes = list(graph.nodes)
    for index, node in enumerate(graph.nodes):
        scan = _moved_scan(graph, node)
        if scan is not None:
            source = nodes[scan]
            nodes[index] = Node(
                "map", (scan, source.args[0]), source.shape, node.dtype, ("subtract",), node.name, node.line
            )
    return Graph(tuple(nodes), graph.outputs)


def _moved_scan(graph: Graph, node: Node) -> int | None:
    """Returns the sum that a window moves by one position away from where it begins; None for another value."""
    nodes = graph.nodes
    if node.op != "window" or len(node.args) != 2:
        return None
    maps = [AxisMap.of(one) for one in node.data]
    joined = nodes[node.args[0]].op == "constant"  # as by np.concatenate
    other, (scan, offsets) = nodes[node.args[not joined]], _part(nodes, node.args[joined])
    if nodes[scan].op != "scan" or nodes[scan].data[0] != "sum" or other.op != "constant" or other.data != (0,):
        return None
    _, axis, backwards = nodes[scan].data
    place, length = int(axis or 0), linear(nodes[scan].shape[int(axis or 0)])
    own = [linear(one.offset) for one in maps]
    if joined and (other.shape[place] != "1" or backwards or any(one.terms or one.constant for one in own)):
        return None
    if not joined:
        offsets = [first.plus(second) for first, second in zip(own, offsets, strict=True)]
        if _if_not_empty(nodes[node.args[0]].shape[place]) not in (length, length.plus(-1)):
            return None
    step = [Linear((), (1 if backwards else -1) * (one == place)) for one in range(len(maps))]
    same = [_if_not_empty(one) for one in node.shape] == [linear(one) for one in nodes[scan].shape]
    return scan if same and _is_straight(maps) and offsets == step else None


def _part(nodes: Sequence[Node], index: int) -> tuple[int, list[Linear]]:
    """Returns the node below a node's straight windows, and the offset of the part along each axis."""
    node = nodes[index]
    offsets = [Linear() for _ in node.shape]
    while node.op == "window" and len(node.args) == 1:
        maps = [AxisMap.of(one) for one in node.data]
        if not _is_straight(maps) or any(one.beyond != ORDINARY for one in maps):
            break
        offsets = [first.plus(linear(one.offset)) for first, one in zip(offsets, maps, strict=True)]
        (index,) = node.args
        node = nodes[index]
    return index, offsets


def _is_straight(maps: Sequence[AxisMap]) -> bool:
    return all(one.terms == ((place, 1),) and one.every == 1 for place, one in enumerate(maps))


def _if_not_empty(side: str) -> Linear:
    """Returns the length of an axis in an array that is not empty: `n` for `max(n - 1, 0) + 1`."""
    whole = linear(side)
    found = Linear((), whole.constant)
    for name, factor in whole.terms:
        found = found.plus(existing(name), factor)
    return found
