"""From a traced graph to kernels: which schedule computes it, and the texts that the schedule writes."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.records import Contract, Kernel
from kernelmate.synthesis.elements import BY_NUMBER
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import KernelText, Written
from kernelmate.synthesis.plan import Refused, free_plan, plan_of
from kernelmate.synthesis.schedules import (
    columns,
    contraction,
    gather,
    histogram,
    permutation,
    pointwise,
    rows,
    scan,
    segments,
    total,
)

_SCHEDULES = {"map": pointwise, "rows": rows, "columns": columns}

_BY_OPERATION = {"scan": scan, "scatter": histogram, "segment": segments, "pick": gather, "along": gather}
"""Operations that decide the schedule, the first one of a graph that is found here."""


def kernels_for(graph: Graph, kernel: Kernel, contract: Contract) -> Iterator[Written]:
    """Kernels with the baseline's name and parameters that compute the graph, the likeliest first.

    Raises:
        Refused: no schedule computes it, or the kernel has a form that is not written.
    """
    text = KernelText(kernel, contract)
    found = {node.op for node in graph.nodes}
    for op, by_number in _BY_OPERATION.items():
        if op in found:
            yield from by_number.written(graph, text)
            return
    try:
        plan = plan_of(graph)
        schedule = total if plan.kind == "rows" and plan.split == 0 else _SCHEDULES[plan.kind]
        yield from schedule.written(plan, text)
    except Refused as reason:
        try:
            free = free_plan(graph)
            reduces = any(node.op == "reduce" for node in free.graph.nodes)
            yield from (contraction if reduces else permutation).written(free, text)
            return
        except Refused:
            pass
        try:
            if not any(node.op in BY_NUMBER for node in graph.nodes):
                raise reason
            yield from gather.written(graph, text)
        except Refused:
            raise reason from None
