"""Sums of results of rows into one number: the kernel of the rows' results adds each of them atomically instead of storing it.

Traffic and arithmetic: those of the rows' schedule, and one atomic addition for each row. The order of the additions differs from run to
run: it is used only where the baseline adds atomically.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace

from kernelmate.synthesis.graph import Graph, Node, pruned
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel
from kernelmate.synthesis.plan import Refused

Writer = Callable[[Graph, KernelText], Iterator[WrittenKernel]]


def written(graph: Graph, kernel: KernelText, writer: Writer) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Args:
        graph: with one result, a number to which the results of rows are added.
        kernel: the baseline.
        writer: writes the kernels that store a result for each row.

    Raises:
        Refused: the result is another, additions may not be made in any order, or no schedule stores each row's result once.
    """
    outputs = kernel.outputs()
    if len(outputs) != 1 or outputs[0].direction != "inout" or outputs[0].dtype != "float32":
        raise Refused("it adds to no single number")
    if kernel.contract.deterministic or "atomicAdd" not in kernel.kernel.source:
        raise Refused("it sums the results of rows, and the baseline does so in the same order in each run")
    name = outputs[0].name
    summed, factor = _sum_of(graph, kernel, name)
    rows = graph.nodes[summed]
    if any(node.op == "input" and node.data[0] == name for node in pruned(graph.nodes, [summed]).nodes):
        raise Refused(f"the results of rows need {name}")
    args = tuple(
        replace(one, direction="out", shape=rows.shape, distribution=None) if one.name == name else one
        for one in kernel.contract.args
    )
    each = KernelText(kernel.kernel, replace(kernel.contract, args=args))
    for one in writer(pruned(graph.nodes, [summed]), each):
        yield replace(
            one,
            schedule=f"{one.schedule}-added",
            why=one.why.replace(
                "Written from the reference: ", f"Written from the reference: each row's result is added to {name}; ", 1
            ),
            definition=_added(one.definition, name, factor),
        )


def _sum_of(graph: Graph, kernel: KernelText, name: str) -> tuple[int, str]:
    """Returns the place of the summed results in the graph, and the factor of the sum as text, such as ` / n`.

    Raises:
        Refused: the output is not its earlier content and a multiple of a sum of rows.
    """
    nodes, factor = graph.nodes, ""
    node = _without_views(graph, nodes[graph.outputs[0]])
    if node.op != "map" or node.data[0] != "add":
        raise Refused("it adds nothing to what its result holds")
    sides = [_without_views(graph, nodes[one]) for one in node.args]
    rest = [one for one in sides if not (one.op == "input" and one.data[0] == name)]
    if len(rest) != 1:
        raise Refused("it adds nothing to what its result holds")
    node = rest[0]
    while node.op == "map" and node.data[0] in ("multiply", "divide"):
        first, second = (_without_views(graph, nodes[one]) for one in node.args)
        if node.data[0] == "multiply" and _scalar(second, kernel) is None:
            first, second = second, first
        text = _scalar(second, kernel)
        if text is None:
            raise Refused("it scales its sum by other than a number")
        factor = f" {'*' if node.data[0] == 'multiply' else '/'} {text}{factor}"
        node = first
    if node.op != "reduce" or node.data[0] != "sum" or node.shape not in ((), ("1",)):
        raise Refused("it adds other than a sum")
    rows = node.args[0]
    if len(nodes[rows].shape) != 1 or not nodes[rows].dtype.startswith("float"):
        raise Refused("it sums other than one result for each row")
    return rows, factor


def _without_views(graph: Graph, node: Node) -> Node:
    """Returns the node that views and casts between floats are applied to, which do not change a sum."""
    while node.op == "view" or (
        node.op == "cast" and {node.dtype[:5], graph.nodes[node.args[0]].dtype[:5]} == {"float"}
    ):
        node = graph.nodes[node.args[0]]
    return node


def _scalar(node: Node, kernel: KernelText) -> str | None:
    """Returns a constant, a scalar or a size as text of the kernel; None for another value."""
    if node.op == "constant" and isinstance(node.data[0], int | float):
        return f"{float(node.data[0])!r}f"
    if node.op == "size":
        return f"static_cast<float>({kernel.size(str(node.data[0]))})"
    if node.op == "scalar" and node.dtype in ("float32", "float64"):
        return str(node.data[0])
    return None


def _added(definition: str, name: str, factor: str) -> str:
    """Returns the definition in which the only store of a row's result is an atomic addition.

    Raises:
        Refused: the results are stored otherwise.
    """
    stores = [*re.finditer(rf"(?<![\w.*&]){name}\[[^;=]*\] = (?P<value>[^;]*);", definition)]
    head = definition.partition("{")[0]
    if len(stores) != 1 or len(re.findall(rf"\b{name}\b", definition)) != 1 + len(re.findall(rf"\b{name}\b", head)):
        raise Refused(f"it stores the results of rows in other ways than one {name} for each")
    value = " ".join(stores[0]["value"].split())
    value = f"({value}){factor}" if factor and not re.fullmatch(r"\w+", value) else f"{value}{factor}"
    start, end = stores[0].span()
    return f"{definition[:start]}atomicAdd({name}, {value});{definition[end:]}"
