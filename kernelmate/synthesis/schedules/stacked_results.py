"""Results that stack a value or several per row, column or whole array: each value is a result of its own.

Traffic and arithmetic: those of the schedule of rows, columns or whole arrays that computes the values in one launch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from kernelmate.records import Argument, Contract, Kernel
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel
from kernelmate.synthesis.plan import Refused, plan_of
from kernelmate.synthesis.schedules import columns, rows, total
from kernelmate.synthesis.sizes import product_text
from kernelmate.synthesis.stacked import StackedResult, separate_results


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: no result stacks values per row, column or whole array, or the rest is not computed by rows, columns or as a whole.
    """
    separate = separate_results(graph)
    if separate is None:
        raise Refused("none of its results is a stack of values")
    alone, results = separate
    names = [one.name for one in kernel.outputs()]
    stacked = {names[one.output] for one in results if one.axis is not None}
    if any(node.op == "input" and node.data[0] in stacked for node in alone.nodes):
        raise Refused("it reads an array of which it writes each value by itself")
    if any(node.op == "window" for node in alone.nodes):
        raise Refused("it stacks parts of arrays")
    plan = plan_of(alone)
    schedule = {"rows": rows if plan.split else total, "columns": columns}.get(plan.kind)
    if schedule is None:
        raise Refused("its stacked results are not reductions")
    kept = tuple(plan.domain[axis] for axis in plan.reduced)
    for one in results:
        outer = one.shape if one.axis is None else (*one.shape[: one.axis], *one.shape[one.axis + 1 :])
        if one.axis is not None and tuple(side for side in outer if side != "1") != kept:
            raise Refused("its stacked results have other shapes than one value for each row or column")
    yield from schedule.written(plan, _StackedText(kernel.kernel, kernel.contract, results, kernel))


class _StackedText(KernelText):
    """Text of a kernel in which each stacked result is written as one named result per value."""

    def __init__(self, kernel: Kernel, contract: Contract, results: Sequence[StackedResult], like: KernelText) -> None:
        names = [one.name for one in like.outputs()]
        self._results, self._like = results, like
        self._stacks = {
            f"{names[one.output]}_{one.number}" if one.axis is not None else names[one.output]: one for one in results
        }
        clash = {*self._stacks} & ({one.name for one in contract.args} - {*names})
        if clash:
            raise Refused(f"a parameter has the name {clash.pop()}")
        parts = {name: names[one.output] for name, one in self._stacks.items() if one.axis is not None}
        super().__init__(kernel, contract, {**like.others, **parts}, like.launched, finds_sizes=like.finds_sizes)

    def outputs(self) -> list[Argument]:
        """Returns an argument for each value of a stack, and the whole results."""
        return [self.arguments[name] for name in self._stacks]

    def at(self, name: str, index: str) -> str:
        """Returns the text of a value's element in its stack."""
        one = self._stacks[name]
        if one.axis is None:
            return super().at(name, index)
        array, number = self.others[name], one.number
        outer, inner = (
            [side for side in sides if side != "1"] for sides in (one.shape[: one.axis], one.shape[one.axis + 1 :])
        )
        if outer and inner:
            raise Refused("it stacks values along an axis between others")
        if outer:
            whole = index if index.isidentifier() else f"({index})"
            return f"{array}[{whole} * {one.shape[one.axis]}{f' + {number}' * bool(number)}]"
        if not inner:
            return f"{array}[{number}]"
        step = f"{f'{number} * ' * (number > 1)}static_cast<size_t>({self.size(product_text(inner))})"
        return f"{array}[{f'{step} + ' * bool(number)}{index}]"

    def again(self, others: Mapping[str, str] | None = None) -> KernelText:
        """Returns a new text of the same results."""
        if others:
            raise Refused("a stacked result takes parts of arrays")
        return _StackedText(self.kernel, self.contract, self._results, self._like)
