"""Operations with a neutral constant, as `1.0 * x` in an unrolled loop over weights, which the kernel need not compute."""

from __future__ import annotations

from dataclasses import replace

from kernelmate.synthesis.graph import Datum, Graph, Node, sorted_graph

_NEUTRAL: dict[str, tuple[Datum, bool]] = {
    "multiply": (1, True), "divide": (1, False), "bitwise_or": (0, True), "bitwise_xor": (0, True),
    "left_shift": (0, False), "right_shift": (0, False),
}  # fmt: skip
"""For each operation the number that changes nothing, and True if it may be the first operand.

The sum with 0 is not among them, because it makes 0 of -0.
"""


def without_neutral(graph: Graph) -> Graph:
    """Returns the graph without operations by neutral constants; the product with -1 becomes a change of sign."""
    nodes, moved = list[Node](), dict[int, int]()
    for index, node in enumerate(graph.nodes):
        node = replace(node, args=tuple(moved[one] for one in node.args))
        kept = _kept(nodes, node)
        if kept is None:
            nodes.append(_signed(nodes, node))
        moved[index] = len(nodes) - 1 if kept is None else kept
    return sorted_graph(nodes, [moved[one] for one in graph.outputs])


def _kept(nodes: list[Node], node: Node) -> int | None:
    """Returns the operand that an operation leaves as it is; None if it changes both."""
    if node.op != "map" or node.data[0] not in _NEUTRAL or len(node.args) != 2:
        return None
    neutral, either = _NEUTRAL[str(node.data[0])]
    for constant, other in ((node.args[1], node.args[0]), node.args)[: 1 + either]:
        if _is(nodes[constant], neutral) and (nodes[other].dtype, nodes[other].shape) == (node.dtype, node.shape):
            return other
    return None


def _is(node: Node, number: Datum) -> bool:
    return node.op == "constant" and not isinstance(node.data[0], bool) and node.data[0] == number


def _signed(nodes: list[Node], node: Node) -> Node:
    """Returns `-x` for a product of x and -1, `a - x` for a sum of a and `-x`, and other nodes unchanged."""
    if node.op != "map" or not node.dtype.startswith("float") or len(node.args) != 2:
        return node
    first, second = node.args
    if node.data[0] == "multiply":
        for constant, other in ((first, second), (second, first)):
            like = (nodes[other].dtype, nodes[other].shape) == (node.dtype, node.shape)
            if _is(nodes[constant], -1) and nodes[other].op != "constant" and like:
                return replace(node, args=(other,), data=("negative",))
    turned = {"add": "subtract", "subtract": "add"}.get(str(node.data[0]))
    if (
        turned
        and nodes[second].op == "map"
        and nodes[second].data[0] == "negative"
        and nodes[second].dtype == node.dtype
    ):
        return replace(node, args=(first, nodes[second].args[0]), data=(turned,))
    return node
