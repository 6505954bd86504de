"""Results of which every k-th element is assigned apart, as `out[..., 0::2] = a`, as a stack of these parts in another shape."""

from __future__ import annotations

from collections.abc import Sequence

from kernelmate.records import Contract
from kernelmate.synthesis.graph import Graph, Node, sorted_graph
from kernelmate.synthesis.identities import always_equal
from kernelmate.synthesis.index_maps import ORDINARY, OTHERWISE, AxisMap, linear
from kernelmate.synthesis.stacked import joined


def with_stacked_parts(graph: Graph, contract: Contract) -> Graph:
    """Returns the graph with each result that is assigned in interleaved parts as a reshaped stack of these parts."""
    nodes = list(graph.nodes)
    outputs = [_stacked(nodes, index, contract) or index for index in graph.outputs]
    return graph if outputs == [*graph.outputs] else sorted_graph(nodes, outputs)


def _stacked(nodes: list[Node], index: int, contract: Contract) -> int | None:
    """Adds a reshaped stack for a result that is fully assigned in interleaved parts; returns its node, else None."""
    node, found, places, rest = nodes[index], dict[int, int](), set[tuple[int, int]](), index
    while (part := _part(nodes[rest])) is not None:
        axis, every, first = part
        places.add((axis, every))
        found.setdefault(first, nodes[rest].args[0])  # the last assignment counts
        rest = nodes[rest].args[1]
    if len(places) != 1:
        return None
    ((axis, every),) = places
    sides = {nodes[one].shape for one in found.values()}
    whole = all(always_equal(contract, f"{every} * {side[axis]}", node.shape[axis]) for side in sides)
    if {*found} != {*range(every)} or not whole:
        return None
    shape = nodes[found[0]].shape
    parts = []
    for first in range(every):
        own = nodes[found[first]]
        kept = tuple(one if one <= axis else one - 1 for one in range(len(shape) + 1))
        data = tuple(None if place == axis + 1 else one for place, one in enumerate(kept))
        nodes.append(Node("view", (found[first],), (*shape[: axis + 1], "1", *shape[axis + 1 :]), own.dtype, data))
        parts.append(len(nodes) - 1)
    stack = joined(nodes, parts, axis + 1, (*shape[: axis + 1], str(every), *shape[axis + 1 :]), node.dtype)
    nodes.append(Node("reshape", (stack,), node.shape, node.dtype, (), node.name))
    return len(nodes) - 1


def _part(node: Node) -> tuple[int, int, int] | None:
    """Returns the axis, the distance and the first position of the elements that a window assigns; None for another node."""
    if node.op != "window" or len(node.args) != 2:
        return None
    maps = [AxisMap.of(one) for one in node.data]
    apart = [place for place, one in enumerate(maps) if one.every > 1]
    if len(apart) != 1 or any(one.terms != ((place, 1),) for place, one in enumerate(maps)):
        return None
    (axis,) = apart
    others: Sequence[AxisMap] = [one for place, one in enumerate(maps) if place != axis]
    offset = linear(maps[axis].offset)
    plain = all(one.offset == "0" and one.beyond == ORDINARY for one in others) and maps[axis].beyond == OTHERWISE
    return (axis, maps[axis].every, -offset.constant) if plain and not offset.terms else None
