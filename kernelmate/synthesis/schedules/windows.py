"""Windows: stencils, small convolutions, filters, pooling, joined and shifted arrays. A thread for each position of the result.

Traffic: each array is read and written once; neighbours come from L1. Arithmetic: that of the graph for each element.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, fresh_names, those_written
from kernelmate.synthesis.names import position_name, words_of
from kernelmate.synthesis.neutral import without_neutral
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.rolled import rolled
from kernelmate.synthesis.schedules.pointwise import row_block
from kernelmate.synthesis.schedules.window_columns import WindowColumns
from kernelmate.synthesis.schedules.window_threads import WindowThreads, with_locals
from kernelmate.synthesis.window_plan import (
    OutputShapes,
    Windows,
    output_shapes,
    walked,
    window_plan,
)
from kernelmate.synthesis.window_registers import RowsText
from kernelmate.synthesis.window_text import WindowText

ENOUGH = 300_000
"""Threads that fill the largest GPU: 132 multiprocessors of 2048 (H100)."""

MOST_READS = 30
"""Maximum number of elements that a thread reads for a result outside of loops: the 27 of a point in space and its neighbours, and a few."""

ROWS = 4
"""Adjacent rows per thread: six column loads instead of twelve for windows of three rows."""


def written(graph: Graph, kernel: KernelText, shapes: OutputShapes | None = None) -> Iterator[WrittenKernel]:
    """Yields the kernel's texts, the one expected to be fastest first.

    Args:
        graph: the traced reference.
        kernel: the kernel to write.
        shapes: shapes of the outputs in place of the contract's, each with as many elements; None for the contract's.

    Raises:
        Refused: the schedule does not apply.
    """
    contract = kernel.contract
    graph = without_neutral(rolled(graph))
    plan = window_plan(graph, contract.sizes, *(output_shapes(kernel) if shapes is None else shapes))
    reads = {key for key in walked(plan) if plan.node(key).op == "input"}
    if len(reads) > MOST_READS:
        raise Refused(f"each thread would read {len(reads)} elements for a result")
    count = math.prod(int(evaluate(side, contract.sizes[0])) for side in plan.domain)
    ways: list[type[WindowThreads]] = [WindowColumns, _WindowRows, WindowThreads]
    if count < ROWS * ENOUGH:
        ways.reverse()
    try:
        yield from those_written(partial(_text, plan, kernel, way) for way in ways)
    except Refused:
        yield _text(plan, kernel, _Grid)


def _text(plan: Windows, kernel: KernelText, way: type[WindowThreads]) -> WrittenKernel:
    return way(plan, kernel.again()).written()


class _WindowRows(WindowThreads):
    """Text of a kernel with a thread per group of adjacent rows, with shared elements in registers."""

    step = ROWS

    def __init__(self, plan: Windows, kernel: KernelText) -> None:
        super().__init__(plan, kernel)
        if self.rank < 2 or self._height() == 1:
            raise Refused("it has no rows that share anything")
        self.local = fresh_names(kernel, "kRows", "first", "j")

    def _row(self) -> str:
        return str(self.local.first)

    def _row_from(self, number: str) -> str:
        return f"const int {self.local.first} = ({number}) * {self.local.kRows};"

    def _blocks_down(self, local: str, rows: str) -> str:
        taken = f"(blockDim.y * {self.local.kRows})"
        return f"const int {local} = ({rows} + {taken[1:-1]} - 1) / {taken};"

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        lines = self._positions()
        row = self.names[1]
        local, height = self.local, self.lengths[1]
        variables = (f"__{self.rank - 2}", f"__{self.rank - 1}")
        text = RowsText(self.plan, self.kernel, self._variables(), *variables, (local.first, local.j, local.kRows))
        body: list[str] = []
        values = text.values(body, ROWS)
        body += self._stores(text, values, body)
        loop = [
            "#pragma unroll",
            *block_of(
                f"for (int {local.j} = 0; {local.j} < {local.kRows}; ++{local.j})",
                [f"const int {row} = {local.first} + {local.j};", f"if ({row} >= {height}) break;", *body],
            ),
        ]
        constant = (
            f"constexpr int {local.kRows} = {ROWS};  // rows per thread, which share their neighbours in registers"
        )
        return WrittenKernel(
            "windows-rows",
            f"Written from the reference: a thread for {ROWS} neighbouring rows of a column, which reads what they share into registers "
            "once." + self.kernel.promise(self._read()),
            self.kernel.definition(self.kernel.head(), [constant, *with_locals([*lines, *text.before, *loop])]),
            "",
            self._grid(),
            self.block,
        )


class _Grid(WindowThreads):
    """Text of a kernel with the baseline's grid and one block per result row, for sizes known only to the grid."""

    def __init__(self, plan: Windows, kernel: KernelText) -> None:
        grid = kernel.contract.grid
        if len(plan.domain) < 2 or sorted(grid) != sorted(plan.domain[:-1]) or len(set(grid)) != len(grid):
            raise Refused("it needs sizes that the kernel does not get")
        for side, letter in zip(grid, "xyz", strict=False):
            kernel.sizes.setdefault(side, f"gridDim.{letter}")
        super().__init__(plan, kernel)

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, column, sides = self.kernel, self.names[0], self.plan.domain
        positions = {f"__{self.rank - 1}": column}
        lines: list[str] = []
        for side, letter in zip(kernel.contract.grid, "xyz", strict=False):
            axis = self.sides.index(side)
            name = self.names[axis] if axis < len(self.names) else kernel.names.position(position_name(side))
            lines.append(f"const int {name} = blockIdx.{letter};")
            positions[f"__{sides.index(side)}"] = name
        length = kernel.size(sides[-1])
        if not re.fullmatch(r"\w+", length):
            local = kernel.size_name(length, "columns")
            lines.append(f"const int {local} = {length};")
            length = local
        text = WindowText(self.plan, kernel, positions)
        body: list[str] = []
        values = text.values(body)
        body += self._stores(text, values, body)
        outside, body = _with_row_pointers(*hoisted(body, column), kernel)
        lines += outside
        loop = block_of(f"for (int {column} = threadIdx.x; {column} < {length}; {column} += blockDim.x)", body)
        given, columns = kernel.contract.block, int(evaluate(sides[-1], kernel.contract.sizes[0]))
        return WrittenKernel(
            "windows-grid",
            "Written from the reference: one block per row of the result; what threads read in common comes from the L1 "
            "cache." + kernel.promise(self._read()),
            kernel.definition(kernel.head(), with_locals([*lines, *loop])),
            "",
            kernel.contract.grid,
            # A block by a formula follows the row's length.
            given if len(given) == 1 and not given[0].isdigit() else row_block(columns, 1),
        )


def hoisted(body: Sequence[str], column: str) -> tuple[list[str], list[str]]:
    """Splits lines into pointers and positions that are constant along a row, and the others."""
    outside: list[str] = []
    inside: list[str] = []
    moving = {column}
    for line in body:
        declared = re.match(r"(?:const )?[\w ]+\*? (\w+) = ", line)
        kept = moving & set(re.findall(r"\w+", line))
        if declared and not kept and re.match(r"const (?:int|long long) |(?:const )?\w+\* ", line):
            outside.append(line)
            continue
        inside.append(line)
        moving |= {declared[1]} if declared else set()
    return outside, inside


def _with_row_pointers(outside: list[str], inside: list[str], kernel: KernelText) -> tuple[list[str], list[str]]:
    """Returns the two groups of lines with a pointer for each row of an input that does not change within the loop."""
    moving = {found[1] for line in inside if (found := re.match(r"(?:const )?[\w ]+\*? (\w+) = ", line))}
    place = re.compile(r"\b(\w+)\[(static_cast<size_t>\((\w+)\) \* (\w+|\([^()]*\))) \+ ")
    pointers: dict[tuple[str, str], str] = {}
    for line in inside:
        for array, row, *words in place.findall(line):
            argument = kernel.arguments.get(array)
            if argument is not None and argument.direction == "in" and not moving & words_of(" ".join(words)):
                pointers.setdefault((array, row), kernel.names.fresh(f"{array}_row"))
    declared = [f"const {kernel.element(array)}* {name} = {array} + {row};" for (array, row), name in pointers.items()]
    for (array, row), name in pointers.items():
        inside = [re.sub(rf"\b{array}\[{re.escape(row)} \+ ", f"{name}[", line) for line in inside]
    return [*outside, *declared], inside
