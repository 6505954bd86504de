"""Rewrites squared distances |a|^2 + |b|^2 - 2 ab as sums of squared differences, which are more accurate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelmate.synthesis.graph import Graph, Node, sorted_graph

Labels = tuple[object, ...]
"""For each axis of an array: the axis of the result, `SUMMED`, or None for length 1."""

SUMMED = "summed"


@dataclass(frozen=True, slots=True)
class _Term:
    """A sum of products along an axis, with a constant factor."""

    scale: float
    factors: tuple[tuple[int, Labels], ...]


def with_differences(graph: Graph) -> Graph:
    """Returns the graph with every |a|^2 + |b|^2 - 2 ab replaced by a sum of squared differences."""
    nodes = list(graph.nodes)
    for index, node in enumerate(graph.nodes):
        if node.op != "map" or node.data[0] not in ("add", "subtract") or not node.dtype.startswith("float"):
            continue
        labels = tuple(None if side == "1" else axis for axis, side in enumerate(node.shape))
        pair = _pair(_terms(graph, index, labels, 1.0))
        if pair is None:
            continue
        rank = len(node.shape)
        views = []
        for base, own in pair:
            axes = [own.index(axis) if axis in own else None for axis in (*range(rank), SUMMED)]
            sides = tuple("1" if one is None else nodes[base].shape[one] for one in axes)
            nodes.append(Node("view", (base,), sides, nodes[base].dtype, tuple(axes)))
            views.append(len(nodes) - 1)
        depth = nodes[views[0]].shape[-1]
        nodes.append(Node("map", tuple(views), (*node.shape, depth), node.dtype, ("subtract",)))
        nodes.append(Node("map", (len(nodes) - 1,) * 2, (*node.shape, depth), node.dtype, ("multiply",)))
        nodes[index] = Node("reduce", (len(nodes) - 1,), node.shape, node.dtype, ("sum", rank))
    return graph if len(nodes) == len(graph.nodes) else sorted_graph(nodes, graph.outputs)


def _pair(terms: Sequence[_Term] | None) -> list[tuple[int, Labels]] | None:
    """Returns the two arrays if the terms are their squares and minus twice their product; else None."""
    if terms is None or len(terms) != 3 or any(len(one.factors) != 2 for one in terms):
        return None
    squares = [one.factors[0] for one in terms if one.factors[0] == one.factors[1] and one.scale == 1]
    products = [one for one in terms if one.factors[0] != one.factors[1] and one.scale == -2]
    if len(squares) != 2 or len(products) != 1 or {*squares} != {*products[0].factors}:
        return None
    return list(products[0].factors)


def _terms(graph: Graph, index: int, labels: Labels, scale: float) -> list[_Term] | None:
    """Returns the terms of a sum; None unless all are sums of products along an axis."""
    node = graph.nodes[index]
    if node.op == "cast" and node.dtype.startswith("float"):
        return _terms(graph, node.args[0], labels, scale)
    if node.op == "view":
        return _terms(graph, node.args[0], _viewed(graph, index, labels), scale)
    if node.op == "reduce" and node.data[0] == "sum":
        place = int(node.data[1] or 0)
        inner = (*labels[:place], SUMMED, *labels[place:])
        factor, factors = _factors(graph, node.args[0], inner)
        if len(factors) != 2 or any(SUMMED not in own for _, own in factors):
            return None
        return [_Term(scale * factor, tuple(factors))]
    if node.op != "map":
        return None
    args = [(one, _aligned(graph.nodes[one], labels)) for one in node.args]
    match node.data[0]:
        case "add" | "subtract":
            signs = (scale, scale if node.data[0] == "add" else -scale)
            parts = [_terms(graph, one, own, sign) for (one, own), sign in zip(args, signs, strict=True)]
            return None if parts[0] is None or parts[1] is None else [*parts[0], *parts[1]]
        case "negative":
            return _terms(graph, *args[0], -scale)
        case "multiply":
            for (one, own), (other, _) in (args, args[::-1]):
                value = _number(graph, other)
                if value is not None:
                    return _terms(graph, one, own, scale * value)
    return None


def _factors(graph: Graph, index: int, labels: Labels) -> tuple[float, list[tuple[int, Labels]]]:
    """Returns the constant factor of a product, and the other factors with their axis labels."""
    node = graph.nodes[index]
    value = _number(graph, index)
    if value is not None:
        return value, []
    if node.op == "cast" and node.dtype.startswith("float") and graph.nodes[node.args[0]].dtype.startswith("float"):
        return _factors(graph, node.args[0], labels)
    if node.op == "view":
        return _factors(graph, node.args[0], _viewed(graph, index, labels))
    if node.op == "map" and node.data[0] in ("multiply", "square", "power"):
        args = [(one, _aligned(graph.nodes[one], labels)) for one in node.args]
        if node.data[0] == "power" and _number(graph, node.args[1]) != 2:
            return 1.0, [(index, labels)]
        args = args if node.data[0] == "multiply" else [args[0], args[0]]
        found = [_factors(graph, one, own) for one, own in args]
        return found[0][0] * found[1][0], [*found[0][1], *found[1][1]]
    return 1.0, [(index, labels)]


def _number(graph: Graph, index: int) -> float | None:
    node = graph.nodes[index]
    if node.op in ("view", "cast"):
        return _number(graph, node.args[0])
    value = node.data[0] if node.op == "constant" else None
    return float(value) if isinstance(value, int | float) else None


def _aligned(arg: Node, labels: Labels) -> Labels:
    behind = labels[len(labels) - len(arg.shape) :]
    return tuple(None if side == "1" else one for side, one in zip(arg.shape, behind, strict=True))


def _viewed(graph: Graph, index: int, labels: Labels) -> Labels:
    node = graph.nodes[index]
    places = {axis: place for place, axis in enumerate(node.data) if axis is not None}
    sides = enumerate(graph.nodes[node.args[0]].shape)
    return tuple(None if side == "1" else labels[places[axis]] for axis, side in sides)
