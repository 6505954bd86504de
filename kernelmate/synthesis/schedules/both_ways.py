"""Results along rows and sums down columns of the same arrays, as in a normalisation's gradients, in separate blocks.

Traffic: rows are read as the schedule of rows reads them, and once more by the blocks that take columns, partly from L2. Arithmetic:
that of both results. One block computes each sum, in the same order in each run, without atomics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from kernelmate.records import Argument, Contract, Kernel
from kernelmate.source import evaluate
from kernelmate.synthesis.graph import Graph, pruned
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of
from kernelmate.synthesis.plan import Plan, Refused, plan_of
from kernelmate.synthesis.reductions import Team
from kernelmate.synthesis.schedules.columns import ENOUGH_BLOCKS, Columns
from kernelmate.synthesis.schedules.rows import Rows

THREADS = 256
WIDTHS = (32, 16, 8)
"""Numbers of adjacent columns per block, the largest first."""


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the schedule does not apply.
    """
    names = [one.name for one in kernel.outputs()]
    down: list[int] = []
    for place in range(len(names)):
        alone = pruned(graph.nodes, [graph.outputs[place]])
        if any(node.op == "reduce" for node in alone.nodes) and plan_of(alone).kind == "columns":
            down.append(place)
    along = [place for place in range(len(names)) if place not in down]
    if not down or not along:
        raise Refused("it has no results along rows beside sums down columns")
    row_plan, column_plan = (
        plan_of(pruned(graph.nodes, [graph.outputs[one] for one in places])) for places in (along, down)
    )
    if row_plan.kind == "map" and len(row_plan.domain) > 1:
        row_plan = replace(row_plan, kind="rows", split=len(row_plan.domain) - 1)
    if row_plan.kind != "rows" or row_plan.split == 0 or column_plan.kind != "columns":
        raise Refused("its results are not along rows and down columns")
    rows = Rows(
        row_plan,
        _PartialKernel(kernel.kernel, kernel.contract, [names[one] for one in along]),
        Team("block", THREADS, THREADS),
    )
    columns = _columns(column_plan, _PartialKernel(kernel.kernel, kernel.contract, [names[one] for one in down]))
    if {*rows.outputs} & {*columns.inputs} or {*columns.outputs} & {*rows.inputs}:
        raise Refused("an array is read where another thread may have written it")
    yield _joined(kernel, rows.written(), columns.written(), columns.names.kColumns)


class _PartialKernel(KernelText):
    """Text of a kernel that computes only some results."""

    def __init__(self, kernel: Kernel, contract: Contract, names: Sequence[str]) -> None:
        super().__init__(kernel, contract)
        self._only = set(names)
        self.indent = "  "  # until the parts are joined

    def outputs(self) -> list[Argument]:
        """Returns the outputs of the part."""
        return [one for one in super().outputs() if one.name in self._only]


def _columns(plan: Plan, kernel: KernelText) -> Columns:
    """Returns the text for columns, with blocks narrow enough that most multiprocessors have one."""
    count = int(evaluate(plan.domain[-1], kernel.contract.sizes[0]))
    width = next((one for one in WIDTHS if count >= one * ENOUGH_BLOCKS // 4), WIDTHS[-1])
    return Columns(plan, kernel, width, THREADS)


def _joined(kernel: KernelText, rows: WrittenKernel, columns: WrittenKernel, width: str) -> WrittenKernel:
    """Joins two kernels: blocks after those of the columns take a row each."""
    (grid,) = columns.grid
    if " * " in grid or not grid.startswith("cdiv("):
        raise Refused("its sums down columns have several results for each column")
    side = grid.removeprefix("cdiv(").rpartition(",")[0]
    length, bare = kernel.size(side), kernel.base_name
    function, block = kernel.names.outermost(f"{bare}_columns"), kernel.names.fresh("block")
    blocks, passed = kernel.names.fresh("column_blocks"), list(kernel.parameters)
    length = length if length.isidentifier() else f"({length})"
    head = kernel.wrapped(
        f"static __device__ __forceinline__ void {function}(", [*kernel.declared(passed), f"int {block}"]
    )
    body = [line.replace("blockIdx.x", block) for line in _body(columns.definition)]
    own = [line.replace("blockIdx.x", f"blockIdx.x - {blocks}") for line in _body(rows.definition)]
    text = [
        f"const int {blocks} = ({length} + {width} - 1) / {width};",
        *block_of(f"if (blockIdx.x < {blocks})", [f"{function}({', '.join([*passed, 'blockIdx.x'])});", "return;"]),
        *own,
    ]
    comment = "// Sums of a few neighbouring columns by a block."
    parts = [kernel.styled(one) for one in _together(columns.helpers, rows.helpers)]
    helpers = [*parts, "\n".join([comment, kernel.definition(head, body)])]
    why = f"{rows.why} In the same launch, other blocks of {THREADS} threads take the sums of neighbouring columns each, without atomics."
    definition = kernel.definition(kernel.head(), text)
    return WrittenKernel(
        "rows-and-columns", why, definition, "\n\n".join(helpers), (f"{grid} + {rows.grid[0]}",), THREADS
    )


def _body(definition: str) -> list[str]:
    """Returns the lines of a function's body from its schedule."""
    inside = definition[definition.index("{") + 1 : definition.rindex("}")]
    return [line.removeprefix("  ") for line in inside.strip("\n").splitlines()]


def _together(first: str, second: str) -> list[str]:
    """Joins the paragraphs of two texts, constants first, each once.

    Raises:
        Refused: both define a name differently.
    """
    constants: list[str] = []
    found: list[str] = []
    for paragraph in (*first.split("\n\n"), *second.split("\n\n")):
        lines = paragraph.strip("\n").splitlines()
        while lines and lines[0].startswith("constexpr"):
            line = lines.pop(0)
            constants += [line] if line not in constants else []
        text = "\n".join(lines)
        found += [text] if text and text not in found else []
    names = [line.partition("=")[0] for line in constants]
    if len({*names}) != len(names):
        raise Refused("two parts of a kernel need different constants of one name")
    return ["\n".join(constants), *found]
