"""Rows added by index with atomic additions, as in the baseline: packs over all elements of the added rows.

Traffic: added rows are read once in packs of 16 bytes, and an index once per pack; each element is one atomic addition,
by adjacent threads to adjacent addresses.

Arithmetic: that of the graph for each element. The order of the additions differs between runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.elements import Elements, may_be_negative
from kernelmate.synthesis.graph import Graph, pruned
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, those_written
from kernelmate.synthesis.plan import Refused, walk
from kernelmate.synthesis.schedules.gather import Gather
from kernelmate.synthesis.schedules.histogram import ATOMIC, is_added
from kernelmate.synthesis.schedules.pointwise import LONG_ROW

ROW, COLUMN = 0, 1


def written(plan: Elements, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Args:
        plan: the plan of one sum of rows by index, whose result has two axes.
        kernel: the baseline.

    Raises:
        Refused: the kernel adds in a fixed order, or more follows from the sums than an addition to what was there.
    """
    scatter = next(key for key in walk(plan) if plan.node(key).op == "scatter")
    (output,) = kernel.outputs()
    contract = kernel.contract
    if output.dtype not in ATOMIC or output.dtype.startswith("float") != plan.node(scatter).dtype.startswith("float"):
        raise Refused(f"atomic additions to {output.dtype} are not written")
    if not kernel.adds_atomically or (contract.deterministic and output.dtype.startswith("float")):
        raise Refused("it sums rows by index, and the baseline does so in the same order in each run")
    if not is_added(plan, scatter, output):
        raise Refused(f"{output.name} does not begin with zeros to which several blocks could add")
    numbers, values = plan.node(scatter).args
    if may_be_negative(plan.graph, numbers):
        raise Refused("it sums by indices that may count from the end")
    added = pruned(plan.graph.nodes, [values, numbers])
    if len(added.nodes[added.outputs[0]].shape) != len(plan.node(scatter).shape):
        raise Refused("it sums rows by index that differ in shape from those of the result")
    columns = int(evaluate(plan.domain[COLUMN], contract.sizes[0]))
    several = [True, False] if columns >= LONG_ROW else [False, True]
    yield from those_written(partial(_text, added, kernel, by_rows) for by_rows in several)


def _text(added: Graph, kernel: KernelText, by_rows: bool) -> WrittenKernel:
    rows = added.nodes[added.outputs[0]].shape
    index = tuple(None if side == "1" else axis for axis, side in enumerate(rows))
    outputs = ((added.outputs[0], index), (added.outputs[1], (ROW,)))
    plan = Elements(added, rows, 0, outputs, "map", (), frozenset({COLUMN}))
    return _AddedRows(plan, kernel.again(), by_rows).written()


class _AddedRows(Gather):
    """Text of a kernel that adds rows in packs, over all rows or with a block per row."""

    name, what, whole = "scatter-atomic", "each of them added atomically", "what is added"

    def __init__(self, plan: Elements, kernel: KernelText, by_rows: bool) -> None:
        super().__init__(plan, kernel, by_rows)
        self.target = self.outputs[0]
        if self.target in self.inputs:
            raise Refused(f"{self.target} is read where another thread may have written it")
        self.outputs = []
        self.packs.arrays.remove(self.target)

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        names, kernel, expressions = self.names, self.kernel, self.expressions
        added, number = self.plan.outputs
        results: list[str] = []
        self.numbers.taken([number, added], expressions, results)
        row, value = expressions.locals_for([number, added], results)
        columns = kernel.size(self.plan.domain[COLUMN])
        pointer = kernel.names.fresh(f"{self.target}_row")
        columns = columns if columns.isidentifier() or columns.isdigit() else names.columns
        start = f"{self.target} + static_cast<size_t>({row}) * {columns} + {names.column}"
        expressions.outer.append(f"{kernel.element(self.target)}* {pointer} = {start};")
        kind = self.plan.node(added).dtype
        results.append(f"atomicAdd(&{pointer}[{names.j}], {kernel.stored(self.target, value, kind)});")
        return self.packed([], results, self.loads(walk(self.plan)))
