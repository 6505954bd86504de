"""Reductions along columns and operations on their results: a block for a few adjacent columns, without atomics.

Traffic: each array is read once for each pass, in whole sectors of 32 bytes. Arithmetic: that of the graph for each element and pass,
and for each column one combination per warp. The order of a sum depends on the number of rows alone, so results are bit-stable.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

from kernelmate.source import evaluate
from kernelmate.source.folding import folded
from kernelmate.synthesis.axes import Axes, Order, address, leaf_text, order_of
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kept_text import own_row
from kernelmate.synthesis.kernel_text import (
    GUARD,
    ITEM_BYTES,
    KernelText,
    WrittenKernel,
    block_of,
    fresh_names,
    those_written,
)
from kernelmate.synthesis.moments import Centred, Moments, centred_of
from kernelmate.synthesis.names import singular
from kernelmate.synthesis.plan import FLAT, Key, Plan, Refused, walk
from kernelmate.synthesis.reductions import WARP, Reductions, Team
from kernelmate.synthesis.schedules.passes import FEWEST_AHEAD, Passes

SECTOR = 32
"""Minimum transfer size of global memory in bytes: CUDA C++ Best Practices Guide, Coalesced Access."""

ALONE = 256
"""Threads per block if each thread takes a column."""

FEW_ROWS = 64
"""Number of rows up to which sharing a column between threads does not pay off."""

FEWEST = 64
"""Minimum threads of a block for a group of rows."""

SHORT_ROWS = 512
"""Length of rows up to which the threads of a block for a group share several rows, at the price of a division for each element."""

ENOUGH_BLOCKS = 256
"""Number of blocks that keeps a large GPU busy, about two per multiprocessor; with fewer, blocks are narrower."""


def written(plan: Plan, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the schedule does not apply.
    """
    size = kernel.contract.sizes[0]
    layout = ColumnLayout(plan)
    rows = int(evaluate(layout.axes.sides[layout.gone[-1]], size))
    if layout.column is None:
        threads, group = FEWEST, rows
        if len(layout.gone) > 1 and rows <= SHORT_ROWS:
            group *= int(evaluate(layout.axes.sides[layout.gone[-2]], size))
        while threads < 1024 and threads * 8 < group:
            threads *= 2
        # Fewer threads lose less at short groups, where most of a large block only takes part in its barriers.
        fewer = [one for one in (threads // 2, threads // 4) if one >= FEWEST]
        blocks = [partial(_text, plan, kernel, 1, one) for one in (threads, *fewer)]
        yield from those_written(blocks[:1], blocks[1:])
        return
    columns = int(evaluate(layout.axes.sides[layout.column], size))
    item = min((ITEM_BYTES[one.dtype] for one in kernel.contract.args if one.shape is not None), default=4)
    narrowest = max(1, min(WARP, SECTOR // item, 1 << max(1, (columns - 1).bit_length())))
    outer = math.prod(int(evaluate(layout.axes.sides[int(axis)], size)) for axis in layout.single) // max(1, columns)
    widths = [one for one in (WARP, WARP // 2) if one > narrowest and outer * (columns // one) >= ENOUGH_BLOCKS]
    wide, *_ = [*widths, narrowest]
    alone = [(ALONE, ALONE)] if rows <= FEW_ROWS and outer * columns >= ALONE * ENOUGH_BLOCKS else []
    sides = dict.fromkeys((wide, WARP, narrowest) if columns > narrowest else (narrowest,))
    teams = [*alone, *((side, 1024 if rows * side >= 4096 else 256) for side in sides)]
    more = [(width, threads) for width in dict.fromkeys((narrowest, max(sides))) for threads in (256, 512, 1024)]
    others = [team for team in dict.fromkeys(more) if team not in teams]
    makers = [partial(_text, plan, kernel, *team) for team in dict.fromkeys(teams)]
    yield from those_written(makers, [partial(_other_text, plan, kernel, *team) for team in others])


def _other_text(plan: Plan, kernel: KernelText, width: int, threads: int) -> WrittenKernel:
    return replace(_text(plan, kernel, width, threads), schedule=f"columns-{width}x{threads}")


def _text(plan: Plan, kernel: KernelText, width: int, threads: int) -> WrittenKernel:
    return Columns(plan, kernel.again(), width, threads).written()


class ColumnLayout:
    """The axes of a plan, merged if every array allows it.

    Attributes:
        orders: axes in memory order of each array that is read.
        every, single: orders of results with all elements, and with one for each reduction.
        gone: the axes that are reduced.
        column: the last axis, if it is not among them.
    """

    def __init__(self, plan: Plan) -> None:
        raw: dict[str, Order] = {}
        positions = []
        for key in walk(plan):
            node = plan.node(key)
            if node.op in ("gather", "take") or key[1] == (FLAT,):
                raise Refused("its arrays change their shape, or are gathered from")
            if node.op == "iota":
                positions.append(order_of(key[1]))
            if node.op == "input":
                name = str(node.data[0])
                if raw.setdefault(name, order_of(key[1])) != order_of(key[1]):
                    raise Refused(f"it reads {name} along different axes")
        every, kept = tuple(range(len(plan.domain))), tuple(plan.reduced)
        self.axes = Axes.merged(plan.domain, [every, kept, plan.gone, *raw.values(), *positions])
        self.orders = {name: self.axes.order(order) for name, order in raw.items()}
        self.every, self.single = self.axes.order(every), self.axes.order(kept)
        self.gone = [axis for axis in range(len(self.axes.sides)) if axis not in self.single]
        last = len(self.axes.sides) - 1
        self.column = None if last in self.gone else last


class _ColumnReductions(Reductions):
    """Device functions that combine the values of the threads of each column."""

    def __init__(self, graph: Graph, kernel: KernelText, threads: str, columns: str, width: int) -> None:
        super().__init__(graph, kernel, Team("column", 0, 0), threads)
        self.columns, self.width = columns, width
        self.slots, self.slot = f"[{columns}]", f"[threadIdx.x % {columns}]"
        self.leads = "" if width >= WARP else f"threadIdx.x % {WARP} < {columns}"

    def exchange(self, statements: Sequence[str]) -> list[str]:
        """Combines values of the same column within a warp, if it has several threads per column."""
        if self.width >= WARP:
            return []
        offset = self.names.offset
        return block_of(f"for (int {offset} = {WARP // 2}; {offset} >= {self.columns}; {offset} /= 2)", statements)

    def _texts(self) -> list[str]:
        lines: list[str] = []
        names = self.names
        value, partial_, warp = names.value, names.partial, names.warp
        column = self.kernel.names.fresh("column")
        test = f"if ({self.leads}) " if self.leads else ""
        for (kind, ctype), name in self._functions.items():
            warps = f"{self.threads} / {WARP}"
            body = [
                f"__shared__ {ctype} {partial_}[{warps}][{self.columns}];",
                f"const int {column} = threadIdx.x % {self.columns};",
                *self.exchange([self.exchanged(kind, ctype)]),
                GUARD,
                f"{test}{partial_}[threadIdx.x / {WARP}][{column}] = {value};",
                "__syncthreads();",
                f"{value} = {partial_}[0][{column}];",
                *block_of(
                    f"for (int {warp} = 1; {warp} < {warps}; ++{warp})",
                    [self.combined(kind, value, f"{partial_}[{warp}][{column}]", ctype)],
                ),
                f"return {value};",
            ]
            word = {"sum": "Sum", "prod": "Product", "max": "Maximum", "min": "Minimum"}.get(kind, "Result")
            comment = f"// {word} over the threads of the block that have the same column."
            lines += [*folded(comment, self.kernel.width), self._device(f"{ctype} {name}({ctype} {value})", body), ""]
        return lines


class Columns(Passes):
    """Text of a kernel for a number of columns and of threads per block."""

    over = "column"

    def __init__(self, plan: Plan, kernel: KernelText, width: int, threads: int) -> None:
        self.plan, self.kernel, self.width, self.threads = plan, kernel, width, threads
        self.layout = layout = ColumnLayout(plan)
        across = "" if layout.column is None else layout.axes.sides[layout.column]
        own = own_row(kernel.kernel.source, across, kernel.contract.grid) if across else ""
        wanted = own or "column"
        self.names = names = fresh_names(kernel, "row", "first", wanted=wanted, column=f"{wanted}_read", across="tiles")
        names.kThreads, self.constants = kernel.threads(threads)
        names.kColumns = "1"
        if width > 1:
            names.kColumns, declared = kernel.constant("Columns", width, "columns per block: whole 32-byte sectors")
            self.constants = [*declared, *self.constants]
        self.outputs = [one.name for one in kernel.outputs()]
        self.inputs = self.accesses(self.outputs, "column")
        for name, access in self.inputs.items():
            if name in self.outputs and layout.orders[name] != (layout.every if access == "flat" else layout.single):
                raise Refused(f"{name} is read where another thread may have written it")
        self.opening: list[str] = []
        self.lengths = layout.axes.lengths(kernel, {}, self.opening, self._unneeded())
        outer = [axis for axis in range(len(self.lengths)) if axis not in (layout.gone[-1], layout.column)]
        self.at: dict[int | str, str] = {
            axis: kernel.names.fresh(singular(layout.axes.sides[axis], "outer")) for axis in outer
        }
        self.at[layout.gone[-1]] = names.row
        short = int(evaluate(layout.axes.sides[layout.gone[-1]], kernel.contract.sizes[0])) <= SHORT_ROWS
        self.element = self.count = ""
        if width == 1 and len(layout.gone) > 1 and short:
            self.element, self.count = kernel.names.fresh("element"), kernel.names.fresh("elements")
            sides = (self.lengths[axis] for axis in layout.gone[-2:])
            self.opening.append(f"const int {self.count} = {' * '.join(sides)};")
        if layout.column is not None:
            self.at[layout.column] = names.column
        self.expressions = Expressions(plan, kernel, self._leaf, frozenset({"flat"}))
        self.step = names.kThreads if width == 1 else f"{names.kThreads} / {names.kColumns}"
        self.ahead = self._ahead()
        self.alone = width == threads
        self.centred = None if self.alone else centred_of(plan, kernel.contract, self.levels())
        if width == 1:
            self.reductions = Reductions(plan.graph, kernel, Team("block", threads, threads), names.kThreads)
        else:
            self.reductions = _ColumnReductions(plan.graph, kernel, names.kThreads, names.kColumns, width)

    def _ahead(self) -> int:
        """Returns the number of loads in flight: at most a thread's elements at the first size."""
        shared = self.layout.gone[-2 if self.element else -1 :]
        height = math.prod(
            int(evaluate(self.layout.axes.sides[axis], self.kernel.contract.sizes[0])) for axis in shared
        )
        share = height * self.width // self.threads
        return max(FEWEST_AHEAD, min(self.most_ahead(), 1 << max(0, share.bit_length() - 1)))

    def _unneeded(self) -> int | None:
        """Returns the axis whose extent only the grid needs: the first axis of every array; None if there is none."""
        layout = self.layout
        first = int(layout.single[0]) if layout.single else None
        if first is None or first == layout.column:
            return None
        orders = [*layout.orders.values(), layout.every, layout.single]
        return first if all(first not in order[1:] for order in orders) else None

    def _leaf(self, key: Key) -> str:
        order = () if self.plan.node(key).op == "scalar" else self.layout.axes.order(order_of(key[1]))
        return leaf_text(
            self.kernel, self.plan.node(key),
            lambda: self.at[order[0]] if order else "0", lambda: address(order, self.lengths, self.at),
        )  # fmt: skip

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, sides = self.kernel, self.names, self.layout.axes.sides
        body = self._opening()
        constants, helpers = list(self.constants), list[str]()
        if self.centred is not None:
            ahead, declared = kernel.constant("Ahead", self.ahead, "elements per thread whose loads overlap")
            constants += declared
            moments = Moments(self.reductions, names.kColumns, ahead, apart=self.width >= WARP)
            body += ["", *self._moments(self.centred, moments, ahead)]
            helpers = moments.texts()
        else:
            for keys in self.levels():
                body += ["", *self.reduction(keys)]
        body += ["", *self._results()]
        if {*self.inputs.values()} <= {"flat"}:  # what is read is read within loops, which other threads do not enter
            clamp = f"const int {names.column} = min("
            body = [re.sub(rf"\b{names.column}\b", names.wanted, line) for line in body if not line.startswith(clamp)]
        passes = (1 if self.centred else len(self.levels())) + any(map(self.is_whole, self.plan.outputs))
        what = f"{self.width} neighbouring columns" if self.width > 1 else "each group of rows"
        means = "in shared memory" if self.width >= WARP else "by shuffles and in shared memory"
        how = "each of them by a thread" if self.alone else f"and combines partial results {means}"
        why = (
            f"Written from the reference: a block of {self.threads} threads for {what}, which reads them "
            f"{'once' if passes == 1 else f'{passes} times'}{',' * self.alone} {how}, without atomics."
            + kernel.promise(self.inputs)
        )
        column = self.layout.column
        blocks = [f"cdiv({sides[column]}, {self.width})"] if column is not None else []
        blocks += [sides[int(axis)] for axis in self.layout.single if axis != column]
        return WrittenKernel(
            f"columns-{self.width}" if self.width > 1 else f"groups-{self.threads}",
            why,
            kernel.definition(kernel.head(), body),
            "\n".join([*constants, "", *self.reductions.texts(), *helpers]).strip(),
            (" * ".join(blocks),),
            self.threads,
        )

    def _opening(self) -> list[str]:
        """Emits the block's columns and the first rows of its threads."""
        names, layout, lines = self.names, self.layout, list(self.opening)
        rest = [int(axis) for axis in reversed(layout.single) if axis != layout.column]
        left = block = "blockIdx.x"
        if layout.column is not None and rest:
            columns = self.lengths[layout.column]
            lines.append(f"const int {names.across} = ({columns} + {names.kColumns} - 1) / {names.kColumns};")
            left, block = f"blockIdx.x / {names.across}", f"blockIdx.x % {names.across}"
        for number, axis in enumerate(rest, 1):
            lines.append(
                f"const int {self.at[axis]} = {left}{'' if number == len(rest) else f' % {self.lengths[axis]}'};"
            )
            left = f"{left} / {self.lengths[axis]}"
        if layout.column is None:
            return [*lines, f"const int {names.first} = threadIdx.x;"]
        columns, height = self.lengths[layout.column], self.lengths[layout.gone[-1]]
        return [
            *lines,
            f"const int {names.wanted} = {block} * {names.kColumns} + threadIdx.x % {names.kColumns};",
            *self._past(),
            f"const int {names.column} = min({names.wanted}, {columns} - 1);",
            f"const int {names.first} = {names.wanted} < {columns} ? threadIdx.x / {names.kColumns} : {height};",
        ]

    def _past(self) -> list[str]:
        """Returns the comment on threads without a column; none if no thread waits for them."""
        if self.alone:
            return []
        means = "barriers" if self.width >= WARP else "shuffles and barriers"
        return [f"// Threads past the last column only take part in the {means}."]

    def position(self) -> tuple[str, str]:
        """Returns the index of an element in its column, and its type."""
        if len(self.layout.gone) > 1:
            raise Refused("it finds a position along several axes")
        return self.names.row, "int"

    def loop(
        self, roots: Sequence[Key], body: list[str], stores: Sequence[str], before: Sequence[str] = ()
    ) -> list[str]:
        """Returns a pass over the reduced axes, with several elements per thread in flight."""
        place, height, found = self._shared()
        head = f"for (int {place} = {self.names.first}; {place} < {height}; {place} += {self.step})"
        body = [*found, *body]
        return self._pass(before, [f"#pragma unroll {FEWEST_AHEAD if stores else self.ahead}", *block_of(head, body)])

    def _shared(self) -> tuple[str, str, list[str]]:
        """Returns the index that threads share, its bound, and the positions along the reduced axes that follow from it."""
        row, height = self.names.row, self.lengths[self.layout.gone[-1]]
        if not self.element:
            return row, height, []
        outer = self.at[self.layout.gone[-2]]
        found = [f"const int {outer} = {self.element} / {height};", f"const int {row} = {self.element} % {height};"]
        return self.element, self.count, found

    def _pass(self, before: Sequence[str], lines: list[str]) -> list[str]:
        """Returns a loop over the last axis, within loops over the other reduced axes."""
        outer, self.expressions.outer = self.expressions.outer, []
        for axis in reversed(self.layout.gone[: -2 if self.element else -1]):
            name = self.at[axis]
            lines = block_of(f"for (int {name} = 0; {name} < {self.lengths[axis]}; ++{name})", lines)
        known = self.expressions.known
        self.expressions.known = {
            key: name for key, name in known.items() if key[0] < 0 or not self.expressions.varies(key)
        }
        return [*outer, *before, *lines]

    def _moments(self, centred: Centred, moments: Moments, ahead: str) -> list[str]:
        """Returns one pass that computes both moments of a variance, with a few elements in flight."""
        names = fresh_names(self.kernel, "moments", "begin", "number", "values", "j", "step")
        place, height, found = self._shared()
        opening, step = [f"{moments.type} {names.moments} = {{}};"], self.names.kThreads
        if self.width > 1:
            opening, step = [f"constexpr int {names.step} = {self.step};", *opening], names.step
        body: list[str] = []
        (text,) = self.expressions.locals_for([centred.value], body)
        lines = [
            f"const int {names.number} = min({ahead}, ({height} - {names.begin} - 1) / {step} + 1);",
            f"{self.kernel.real} {names.values}[{ahead}] = {{}};",
            "#pragma unroll",
            *block_of(
                f"for (int {names.j} = 0; {names.j} < {ahead}; ++{names.j})",
                [
                    f"const int {place} = {names.begin} + {names.j} * {step};",
                    *block_of(f"if ({place} < {height})", [*found, *body, f"{names.values}[{names.j}] = {text};"]),
                ],
            ),
            f"{names.moments} = {moments.joined}({names.moments}, {moments.part}({names.values}, {names.number}));",
        ]
        head = (
            f"for (int {names.begin} = {self.names.first}; {names.begin} < {height}; {names.begin} += {ahead} * {step})"
        )
        lines = self._pass(opening, block_of(head, lines))
        self.expressions.known |= {
            centred.total: f"{names.moments}.total",
            centred.squares: f"{names.moments}.squares",
        }
        return [*lines, f"{names.moments} = {moments.block}({names.moments});"]

    def _results(self) -> list[str]:
        """Returns the outputs: full-size ones in a last pass, one element per column by one thread."""
        names, layout = self.names, self.layout
        pairs = list(zip(self.plan.outputs, self.outputs, strict=True))
        lines: list[str] = []
        single = [(key, name) for key, name in pairs if not self.is_whole(key)]
        if single:
            known = dict(self.expressions.known)
            place = address(layout.single, self.lengths, self.at)
            body = self.stores(single, lambda name: self.kernel.at(name, place))
            inside = "threadIdx.x == 0"
            if layout.column is not None:
                inside = f"threadIdx.x < {names.kColumns} && {names.wanted} < {self.lengths[layout.column]}"
            lines += block_of(f"if ({inside})", body)
            self.expressions.known = known
        whole = [(key, name) for key, name in pairs if self.is_whole(key)]
        if whole:
            place = address(layout.every, self.lengths, self.at)
            body = self.stores(whole, lambda name: f"{name}[{place}]")
            lines += self.loop([key for key, _ in whole], body, [name for _, name in whole])
        return lines
