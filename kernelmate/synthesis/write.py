"""From a traced graph to kernels: which schedule computes it, and the texts that the schedule writes."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.records import Contract, Kernel
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import KernelText, Written
from kernelmate.synthesis.plan import Refused, free_plan, plan_of
from kernelmate.synthesis.schedules import columns, contraction, permutation, pointwise, rows, scan, total, windows

_SCHEDULES = {"map": pointwise, "rows": rows, "columns": columns}
_OWN = {"scan": scan, "window": windows}


def kernels_for(graph: Graph, kernel: Kernel, contract: Contract) -> Iterator[Written]:
    """Kernels with the baseline's name and parameters that compute the graph, the likeliest first.

    Raises:
        Refused: no schedule computes it, or the kernel has a form that is not written.
    """
    text = KernelText(kernel, contract)
    own = next((_OWN[node.op] for node in graph.nodes if node.op in _OWN), None)
    if own is not None:
        yield from own.written(graph, text)
        return
    try:
        plan = plan_of(graph)
        schedule = total if plan.kind == "rows" and plan.split == 0 else _SCHEDULES[plan.kind]
        yield from schedule.written(plan, text)
    except Refused as reason:
        others = [_free] + [windows.written] * any(node.op == "reshape" for node in graph.nodes)
        for other in others:
            try:
                yield from other(graph, KernelText(kernel, contract))
                return
            except Refused:
                continue
        raise reason from None


def _free(graph: Graph, text: KernelText) -> Iterator[Written]:
    """Kernels that meet arrays in any order of the axes."""
    free = free_plan(graph)
    reduces = any(node.op == "reduce" for node in free.graph.nodes)
    yield from (contraction if reduces else permutation).written(free, text)
