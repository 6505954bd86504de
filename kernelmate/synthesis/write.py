"""From a traced graph to kernels: which schedule computes it, and the texts that the schedule writes."""

from __future__ import annotations

from collections.abc import Iterator

from kernelmate.records import Contract, Kernel
from kernelmate.synthesis.attention_plan import attention_of
from kernelmate.synthesis.elements import BY_NUMBER
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import KernelText, Written
from kernelmate.synthesis.plan import Refused, free_plan, plan_of
from kernelmate.synthesis.schedules import (
    attention,
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
    windows,
)

_SCHEDULES = {"map": pointwise, "rows": rows, "columns": columns}

_OWN = {
    "scan": scan, "scatter": histogram, "segment": segments, "window": windows, "pick": gather, "along": gather,
}  # fmt: skip
"""Operations that decide the schedule, the first one of a graph that is found here."""


def kernels_for(graph: Graph, kernel: Kernel, contract: Contract) -> Iterator[Written]:
    """Kernels with the baseline's name and parameters that compute the graph, the likeliest first.

    Raises:
        Refused: no schedule computes it, or the kernel has a form that is not written.
    """
    text = KernelText(kernel, contract)
    attended = attention_of(graph, contract)
    if attended is not None:
        yield from attention.written(attended, text)
        return
    found = {node.op for node in graph.nodes}
    if "window" in found and found & {"pick", "along", "scatter", "segment"}:
        raise Refused("it has elements by number beside parts of arrays")
    for op, own in _OWN.items():
        if op in found:
            yield from own.written(graph, text)
            return
    try:
        plan = plan_of(graph)
        schedule = total if plan.kind == "rows" and plan.split == 0 else _SCHEDULES[plan.kind]
        yield from schedule.written(plan, text)
    except Refused as reason:
        others = [_free] + [windows.written] * any(node.op == "reshape" for node in graph.nodes)
        others += [gather.written] * any(node.op in BY_NUMBER for node in graph.nodes)
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
