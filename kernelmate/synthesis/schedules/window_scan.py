"""Scans along rows of values that are computed from neighbouring elements: numbers of runs, lengths of paths, integrals.

Traffic: as of `scan`; neighbours come from the cache. Arithmetic: that of the values for each element, and a few operations of the scan.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from kernelmate.synthesis.graph import Graph, Node, pruned, sorted_graph
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel
from kernelmate.synthesis.plan import Key, Plan, Refused
from kernelmate.synthesis.reductions import Team
from kernelmate.synthesis.schedules.row_windows import row_positions
from kernelmate.synthesis.schedules.scan import RowScan, written_by
from kernelmate.synthesis.schedules.windows import hoisted
from kernelmate.synthesis.window_plan import Windows, walked, window_plan
from kernelmate.synthesis.window_text import WindowText


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the graph does not scan rows of values that windows make.
    """
    scans = [index for index, node in enumerate(graph.nodes) if node.op == "scan"]
    shapes = {graph.nodes[one].shape for one in scans}
    (shape, *others) = shapes
    if others or any(int(graph.nodes[one].data[1] or 0) != len(shape) - 1 for one in scans):
        raise Refused("it scans along other axes than its rows, or arrays of different shapes")
    nodes = list(graph.nodes)
    values = pruned(nodes, [nodes[one].args[0] for one in scans])
    for place, one in enumerate(scans):
        operand = nodes[nodes[one].args[0]]
        nodes[nodes[one].args[0]] = Node("input", (), operand.shape, operand.dtype, (f"@{place}",))
    rest = sorted_graph(nodes, graph.outputs)
    names = tuple(f"@{place}" for place in range(len(scans)))
    plan = window_plan(values, kernel.contract.sizes, names, (shape,) * len(names), together=True)
    results = {one.name for one in kernel.outputs()}
    if len(plan.domain) != len(shape) or any(plan.name(key) in results for key in walked(plan) if plan.is_leaf(key)):
        raise Refused("it scans rows of length 1, or what another thread may have written")
    yield from written_by(rest, kernel, partial(_WindowScan, plan))


class _WindowScan(RowScan):
    """Text for one team of threads.

    Args:
        values: the plan of the values that are scanned.
        plan: the plan of the results, in which these values are the arrays `@0`, `@1`, ...
        kernel: the kernel's text.
        team: the threads of a row.
    """

    schedule = "window-scan"

    def __init__(self, values: Windows, plan: Plan, kernel: KernelText, team: Team) -> None:
        super().__init__(plan, kernel, team)
        self._values = values
        for name in [one for one in self.inputs if one.startswith("@")]:
            del self.inputs[name]
        read = dict.fromkeys(values.name(key) for key in walked(values) if values.is_leaf(key))
        self.inputs |= {name: "near" for name in read if name in kernel.arguments}

    def _leaf(self, key: Key) -> str:
        if str(self.plan.node(key).data[:1]).startswith("('@"):
            raise Refused("it scans values of neighbouring elements, and also uses them in another way")
        return super()._leaf(key)

    def scanned(self, values: Sequence[Key], body: list[str]) -> list[str]:
        """Overrides `RowScan.scanned`, from neighbouring elements."""
        names, rows = self.names, self._values.domain[:-1]
        lines, positions = row_positions(self.kernel, rows, str(names.row))
        column = self.kernel.names.fresh("column")
        found: list[str] = []
        text = WindowText(self._values, self.kernel, {**positions, f"__{len(rows)}": column})
        texts = text.values(found)
        outside, inside = hoisted(found, column)
        self.expressions.outer += [*lines, *outside]
        body += [f"const int {column} = {names.c} + {names.j};", *inside]
        places = {f"@{place}": one for place, one in enumerate(texts)}
        return [places[str(self.plan.node(self.expressions.bare(one)).data[0])] for one in values]
