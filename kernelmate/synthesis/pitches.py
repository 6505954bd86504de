"""Rows that are the beginnings of longer ones: the graph without the padding, and the distance between rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from kernelmate.synthesis.graph import Graph, Node, pruned
from kernelmate.synthesis.index_maps import ABOVE, ORDINARY, OTHERWISE, AxisMap, linear


def with_pitches(graph: Graph, outputs: Sequence[str]) -> tuple[Graph, dict[str, str]] | None:
    """Returns the graph with arrays of the used parts of rows, and the row pitch in elements by array.

    The result is None if other parts of arrays remain, or if an array is used both as a whole and by parts.

    Args:
        graph: as it was traced.
        outputs: names of the results, whose padding stays as it was.
    """
    nodes, results, pitches = list(graph.nodes), list(graph.outputs), dict[str, str]()
    for index, node in enumerate(nodes):
        source = nodes[node.args[0]] if node.op == "window" else node
        if (
            node.op == "window"
            and len(node.args) == 1
            and source.op == "input"
            and _begins(node, source.shape, node.shape)
        ):
            pitches[str(source.data[0])] = source.shape[-1]
            nodes[index] = replace(source, shape=node.shape)
    for place, (output, name) in enumerate(zip(graph.outputs, outputs, strict=True)):
        node = nodes[output]
        if node.op != "window" or len(node.args) != 2:
            continue
        value, old = (nodes[one] for one in node.args)
        if (old.op, old.data[:1]) == ("input", (name,)) and _begins(node, node.shape, value.shape, (OTHERWISE, ABOVE)):
            pitches[name], results[place] = node.shape[-1], node.args[0]
    kept = pruned(nodes, results)
    both = any(one.op == "input" and pitches.get(str(one.data[0])) == one.shape[-1] for one in kept.nodes if one.shape)
    if not pitches or both or any(one.op == "window" for one in kept.nodes):
        return None
    return kept, pitches


def _begins(node: Node, long: Sequence[str], short: Sequence[str], beyond: Sequence[str] = (ORDINARY,)) -> bool:
    """Returns True if a window only reads, or only replaces, the beginning of each row."""
    if len(long) != len(short) or not long or linear(long[-1]) == linear(short[-1]):
        return False
    if any(linear(one) != linear(other) for one, other in zip(long[:-1], short[:-1], strict=True)):
        return False
    maps = [AxisMap.of(one) for one in node.data]
    same = all(one.terms == ((axis, 1),) and one.offset == "0" and one.every == 1 for axis, one in enumerate(maps))
    return same and maps[-1].beyond in beyond and all(one.beyond == ORDINARY for one in maps[:-1])
