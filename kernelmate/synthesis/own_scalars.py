"""Scalar arguments in place of the numbers that a reference has for them, such as `1e-5` for `eps` or `sqrt(d)` for `scale`.

A reference may compute such a number itself and not take the argument. A kernel with the number in its text would ignore
what callers pass.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from kernelmate.errors import ContractError
from kernelmate.records import Contract, Kernel, Size
from kernelmate.source import scalar_value
from kernelmate.synthesis.graph import Graph, Node, sorted_graph, value_of
from kernelmate.synthesis.names import without_comments

_NUMBER = re.compile(r"(?<![\w.])(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?=[fFlL]?\b)")
_CLOSE = 1e-6
"""Relative deviation up to which a number is an argument's value, which is rounded to float32."""

Values = tuple[float, ...]
"""Values at each of some sizes."""


def with_own_scalars(graph: Graph, kernel: Kernel, contract: Contract) -> Graph:
    """Returns the graph with floating-point scalars of the kernel in place of numbers that have their values at every listed size.

    A scalar takes a number's place if the kernel reads it, the graph has no other use of it, no other scalar has its value, and the
    kernel's own code does not contain the number. A division by a number is a product with the scalar of the reciprocal value.

    Args:
        graph: the reference's graph.
        kernel: the baseline.
        contract: its contract.
    """
    scalars = _unread(graph, kernel, contract)
    if not scalars:
        return graph
    numbers = _numbers(graph.nodes, _with_another(contract.sizes))
    own = {float(one) for one in _NUMBER.findall(without_comments(kernel.source))}
    nodes = list(graph.nodes)
    for name, values in scalars.items():
        if len({*values}) == 1 and values[0] in own:
            continue
        scalar = Node("scalar", (), (), "float64", (name,))
        same = [index for index, found in numbers.items() if _equal(found, values)]
        for index in same:
            nodes[index] = replace(scalar, name=nodes[index].name)
        if not same and all(values):
            _divide(
                nodes, {index for index, found in numbers.items() if _equal(found, [1 / one for one in values])}, scalar
            )
    return sorted_graph(nodes, graph.outputs)


def _unread(graph: Graph, kernel: Kernel, contract: Contract) -> dict[str, Values]:
    """Returns the scalars of distinct values that the kernel reads and the graph does not, with their values at the listed sizes."""
    code = without_comments(kernel.source).partition("{")[2]
    read = {str(node.data[0]) for node in graph.nodes if node.op == "scalar"}
    found: dict[str, Values] = {}
    for argument in contract.args:
        if argument.shape is None and "float" in argument.dtype and argument.name not in read:
            try:
                values = tuple(float(scalar_value(argument, size)) for size in _with_another(contract.sizes))
            except ContractError:
                continue
            if re.search(rf"\b{argument.name}\b", code) and np.isfinite(values).all():
                found[argument.name] = values
    return {name: values for name, values in found.items() if list(found.values()).count(values) == 1}


def _with_another(sizes: Sequence[Size]) -> list[Size]:
    """Returns the sizes and one more, at which a number that depends on a size has another value."""
    return [*sizes, {name: 2 * value + 1 for name, value in sizes[0].items()}]


def _numbers(nodes: Sequence[Node], sizes: Sequence[Size]) -> Mapping[int, Values]:
    """Returns the nodes that are computed from sizes and constants alone, with their values at each size."""
    found: dict[int, Values] = {}
    for index, node in enumerate(nodes):
        known = node.op in ("constant", "size") or (
            node.op in ("map", "cast") and all(one in found for one in node.args)
        )
        if known and not node.shape:
            with np.errstate(all="ignore"):
                found[index] = tuple(
                    float(value_of(node, [np.float64(found[one][place]) for one in node.args], {}, size))
                    for place, size in enumerate(sizes)
                )
    return {index: values for index, values in found.items() if "float" in nodes[index].dtype}


def _divide(nodes: list[Node], numbers: set[int], scalar: Node) -> None:
    """Replaces divisions by some numbers with products of a scalar; adds its node."""
    for index, node in enumerate(list(nodes)):
        if node.mapped in ("divide", "true_divide") and node.args[1] in numbers:
            nodes.append(scalar)
            nodes[index] = replace(node, args=(node.args[0], len(nodes) - 1), data=("multiply",))


def _equal(found: Sequence[float], values: Sequence[float]) -> bool:
    return bool(np.allclose(found, values, rtol=_CLOSE, atol=0))
