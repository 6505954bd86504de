"""Sums of row results, such as the loss of a batch: the threads of a row add its result atomically.

Traffic: that of `rows`. Arithmetic: one atomic addition per row, whose order differs from run to run.
"""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.synthesis.graph import Graph, Node, sorted_graph
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel
from kernelmate.synthesis.plan import Refused, plan_of
from kernelmate.synthesis.schedules import rows


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the result is not the sum of rows' results, or the baseline does not add atomically.
    """
    (output, *others) = kernel.outputs()
    if sum(node.op == "reduce" for node in graph.nodes) < 2:
        raise Refused("it reduces no rows before their sum")
    if others or output.dtype not in ("float32", "float64") or "atomicAdd" not in kernel.kernel.source:
        raise Refused("it does not add its results atomically")
    if output.shape not in ((), ("1",)):
        raise Refused("it adds the sum of rows' results to several elements")
    if kernel.contract.deterministic:
        raise Refused("the contract asks for the same result in each run, and rows would be added in any order")
    plan = plan_of(_row_results(graph, output.name))
    if plan.kind != "rows" or plan.split == 0:
        raise Refused("it sums something else than results of rows")
    yield from rows.written(plan, kernel, _RowTotals)


def _row_results(graph: Graph, total: str) -> Graph:
    """Returns the graph of the values that rows add, including factors of the sum."""
    nodes = list(graph.nodes)

    def behind(index: int) -> int:
        """Returns the node below views, and below casts between float32 and float64."""
        node = nodes[index]
        wide = node.op == "cast" and {node.dtype, nodes[node.args[0]].dtype} <= {"float32", "float64"}
        return behind(node.args[0]) if node.op in ("view", "reshape") or wide else index

    def added(index: int) -> int:
        """Returns the node of the row results of which a value is the sum."""
        node = nodes[behind(index)]
        if node.op == "reduce" and node.data == ("sum", 0) and len(nodes[node.args[0]].shape) == 1:
            return node.args[0]
        if node.op == "map" and node.data[0] in ("multiply", "divide"):
            first, second = node.args
            # The sum of scaled results, not the scaled sum, is what rows add.
            if nodes[behind(second)].op in ("constant", "size", "scalar"):
                summed = added(first)
                nodes.append(Node("map", (summed, behind(second)), nodes[summed].shape, node.dtype, node.data))
                return len(nodes) - 1
            if node.data[0] == "multiply" and nodes[behind(first)].op in ("constant", "size", "scalar"):
                summed = added(second)
                nodes.append(Node("map", (behind(first), summed), nodes[summed].shape, node.dtype, node.data))
                return len(nodes) - 1
        raise Refused("it does not add a sum of rows' results")

    node = nodes[behind(graph.outputs[0])]
    if node.op != "map" or node.data[0] != "add":
        raise Refused("it adds nothing to what its result held")
    for old, new in (node.args, node.args[::-1]):
        if nodes[behind(old)].op == "input" and nodes[behind(old)].data[0] == total:
            result = added(new)
            return sorted_graph(nodes, [result])
    raise Refused("it adds nothing to what its result held")


class _RowTotals(rows.Rows):
    """Text of a kernel for rows, which adds results instead of storing them."""

    def store(self, place: str, value: str) -> str:
        """Returns the statement that adds a row's result to the total."""
        return f"atomicAdd({place.partition('[')[0]}, {value});"
