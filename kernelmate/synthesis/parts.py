"""Parts of arrays: slices of equal length along an axis, such as queries and keys in one array of projections."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernelmate.synthesis.graph import Graph, Node
from kernelmate.synthesis.index_maps import ORDINARY, AxisMap, linear
from kernelmate.synthesis.plan import sorted_graph
from kernelmate.synthesis.sizes import product_text

MOST_PARTS = 64


@dataclass(frozen=True, slots=True)
class _Part:
    """Part `number` of `count` equal parts along an axis; if strided, every `count`-th element from `number` on."""

    axis: int
    number: int
    count: int
    strided: bool = False


def with_parts(graph: Graph, taken: Sequence[str], *, strided: bool = False) -> tuple[Graph, dict[str, str]] | None:
    """Return the graph with slices as views of arrays with one more axis, whose length is `#1/3` for part 1 of 3.

    The original axis is split into the new axis and an axis for the positions within a part.

    Args:
        graph: the graph as traced.
        taken: names that additional names must differ from.
        strided: True if slices with a step count as parts.

    Returns:
        The graph, and the array that each additional name stands for; None if other windows remain, or there are no
            parts.
    """
    graph = _casts_last(graph)
    nodes, users = list(graph.nodes), _users(graph)
    names: dict[tuple[str, _Part | None], str] = {}
    others: dict[str, str] = {}
    parts = {index: _part_of(graph, index, strided=strided) for index, node in enumerate(nodes) if node.op == "window"}
    if not parts or any(part is None for part in parts.values()):
        return None
    whole = {str(node.data[0]) for index, node in enumerate(nodes) if node.op == "input" and {*users[index]} - {*parts}}
    names |= {(name, None): name for name in whole}
    for index, part in parts.items():
        assert part is not None
        source = nodes[nodes[index].args[0]]
        key = str(source.data[0]), part
        if key not in names:
            names[key] = _name(key[0], {*names.values(), *taken} if key[0] in names.values() else set())
            if names[key] != key[0]:
                others[names[key]] = key[0]
        for user in [one for one in users[index] if nodes[one].op == "reshape"] or [index]:
            shape = nodes[user].shape
            place = _place(nodes[index].shape[: part.axis + part.strided], shape)
            if place is None:
                return None
            sides = *shape[:place], f"#{part.number}/{part.count}", *shape[place:]
            nodes.append(Node("input", (), sides, source.dtype, (names[key],)))
            axes = tuple(axis for axis in range(len(sides)) if axis != place)
            nodes[user] = Node("view", (len(nodes) - 1,), shape, source.dtype, axes)
    return sorted_graph(nodes, graph.outputs), others


def with_both_sides(graph: Graph, taken: Sequence[str]) -> tuple[Graph, dict[str, str]] | None:
    """Return the graph with two names for an array that is multiplied by itself, as in `x @ x.T`.

    Args:
        graph: the graph as traced.
        taken: names that the additional name must differ from.

    Returns:
        The graph, and the array that the additional name stands for; None if there is no such product.
    """
    nodes, others = list(graph.nodes), dict[str, str]()
    for node in graph.nodes:
        if node.op != "reduce" or node.data[0] != "sum":
            continue
        place = node.args[0]
        while graph.nodes[place].op == "cast":
            place = graph.nodes[place].args[0]
        product = graph.nodes[place]
        if nodes[place] is not product:
            continue  # another sum's, which has its names
        if product.op != "map" or product.data[0] != "multiply":
            continue
        first, second = (_down_to_input(graph, one) for one in product.args)
        if not first or not second or first[-1] != second[-1] or first == second:
            continue
        source = graph.nodes[second[-1]]
        name = next((alias for alias, one in others.items() if one == source.data[0]), "")
        if not name:
            name = _name(f"{source.data[0]}_columns", {*taken, *others})
            others[name] = str(source.data[0])
        nodes.append(replace(source, data=(name,), name=name))
        for index in reversed(second[:-1]):
            nodes.append(replace(graph.nodes[index], args=(len(nodes) - 1,)))
        nodes[place] = replace(product, args=(product.args[0], len(nodes) - 1))
    return (sorted_graph(nodes, graph.outputs), others) if others else None


def _down_to_input(graph: Graph, index: int) -> list[int]:
    """Returns the chain of views and casts from a node to an input, which comes last; empty for other nodes."""
    found = [index]
    while graph.nodes[found[-1]].op in ("view", "cast"):
        found.append(graph.nodes[found[-1]].args[0])
    return found if graph.nodes[found[-1]].op == "input" else []


def _casts_last(graph: Graph) -> Graph:
    """Returns the graph in which slices of cast arrays are casts of slices."""
    nodes = list(graph.nodes)
    for index, node in enumerate(graph.nodes):
        source = graph.nodes[node.args[0]] if node.args else node
        if (
            node.op != "window"
            or len(node.args) != 1
            or source.op != "cast"
            or graph.nodes[source.args[0]].op != "input"
        ):
            continue
        nodes.append(replace(node, args=source.args, dtype=graph.nodes[source.args[0]].dtype, name=""))
        nodes[index] = Node("cast", (len(nodes) - 1,), node.shape, node.dtype, name=node.name)
    return sorted_graph(nodes, graph.outputs)


def _users(graph: Graph) -> list[list[int]]:
    users: list[list[int]] = [[] for _ in graph.nodes]
    for index, node in enumerate(graph.nodes):
        for one in node.args:
            users[one].append(index)
    return users


def _part_of(graph: Graph, index: int, *, strided: bool) -> _Part | None:
    """Returns the part that a window selects; None for other windows."""
    node = graph.nodes[index]
    source = graph.nodes[node.args[0]]
    if len(node.args) != 1 or source.op != "input" or len(source.shape) != len(node.shape):
        return None
    found: list[_Part] = []
    for axis, (text, long, short) in enumerate(zip(node.data, source.shape, node.shape, strict=True)):
        one = AxisMap.of(text)
        step = dict(one.terms).get(axis, 1)
        if one.terms != ((axis, step),) or one.beyond != ORDINARY or one.every != 1 or (step != 1 and not strided):
            return None
        length = linear(short)
        if step != 1:
            numbers = [number for number in range(step) if linear(one.offset) == linear(str(number))]
            if not numbers or linear(long) != length.times(step):
                return None
            found.append(_Part(axis, numbers[0], step, strided=True))
            continue
        if linear(long) == length:
            continue
        counts = [count for count in range(2, MOST_PARTS) if linear(long) == length.times(count)]
        numbers = [number for count in counts for number in range(count) if linear(one.offset) == length.times(number)]
        if not numbers:
            return None
        found.append(_Part(axis, numbers[0], counts[0]))
    return found[0] if len(found) == 1 else None


def _place(before: Sequence[str], shape: Sequence[str]) -> int | None:
    """Returns the first position in a shape before which there are as many elements as before the split axis."""
    wanted = product_text(before)
    return next((place for place in range(len(shape) + 1) if product_text(shape[:place]) == wanted), None)


def _name(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}_{number}", number + 1
    return name
