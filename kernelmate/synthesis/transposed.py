"""Reductions along rows of a transposed array, as in `A.T @ x`, which become reductions along columns of the array."""

from __future__ import annotations

from dataclasses import replace

from kernelmate.synthesis.graph import Graph, Node, sorted_graph


def with_columns(graph: Graph) -> Graph:
    """Returns the graph with reductions along columns of the array, so that neighbouring threads read neighbours.

    The graph stays as it is if a result has as many elements as the array, or if another array is not transposed.
    """
    if any(len(graph.nodes[one].shape) > 1 for one in graph.outputs):
        return graph
    nodes, changed = list(graph.nodes), False
    for index, node in enumerate(graph.nodes):
        if (
            node.op != "reduce"
            or len(graph.nodes[node.args[0]].shape) != 2
            or not _reads_transposed(graph, node.args[0])
        ):
            continue
        kind, axis, *more = node.data
        turned = _turned(nodes, node.args[0])
        if turned is not None:
            nodes[index] = replace(node, args=(turned,), data=(kind, 1 - int(axis or 0), *more))
            changed = True
    return sorted_graph(nodes, graph.outputs) if changed else graph


def _reads_transposed(graph: Graph, index: int) -> bool:
    """Returns True if a value is computed from the elements of a transposed array."""
    node = graph.nodes[index]
    if node.op in ("map", "cast"):
        return any(_reads_transposed(graph, one) for one in node.args)
    return node.op == "view" and node.data == (1, 0)


def _turned(nodes: list[Node], index: int) -> int | None:
    """Returns the transpose of a value, added to the nodes; None if an array is read that is not transposed."""
    node = nodes[index]
    if not node.shape:
        return index
    if len(node.shape) == 1:
        return _added(nodes, Node("view", (index,), (*node.shape, "1"), node.dtype, (0, None)))
    shape = (node.shape[1], node.shape[0])
    if node.op == "view":
        data = (node.data[1], node.data[0])
        return node.args[0] if data == (0, 1) else _added(nodes, replace(node, shape=shape, data=data))
    if node.op not in ("map", "cast"):
        return None
    args = [_turned(nodes, one) for one in node.args]
    known = [one for one in args if one is not None]
    return _added(nodes, replace(node, args=tuple(known), shape=shape)) if len(known) == len(args) else None


def _added(nodes: list[Node], node: Node) -> int:
    nodes.append(node)
    return len(nodes) - 1
