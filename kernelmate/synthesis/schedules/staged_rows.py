"""Chains of reductions and products for each row: normalisation before a projection, low-rank products, gated projections.

Traffic: arrays of rows once; arrays that all rows share once for each block of `rows` rows, most of it from L2; what is computed of a row in between
stays in shared memory. Arithmetic: that of the graph, nothing twice.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator, Sequence
from functools import partial

from kernelmate.records import Size
from kernelmate.source import evaluate
from kernelmate.synthesis.axes import address, order_of
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import (
    ITEM_BYTES,
    MULTIPROCESSORS,
    STATIC_BYTES,
    WIDEST,
    KernelText,
    WrittenKernel,
    block_of,
    fresh_names,
    those_written,
)
from kernelmate.synthesis.merging import merged
from kernelmate.synthesis.plan import Key, Refused, walk
from kernelmate.synthesis.reductions import WARP, Reductions, Team
from kernelmate.synthesis.row_stages import RowStage, row_stages
from kernelmate.synthesis.schedules.passes import FEWEST_AHEAD

STAGED = "staged-rows"
"""Prefix of the schedules' names."""

BLOCK = 256
"""Threads per block."""

ROWS = (8, 4, 2, 1)
"""Numbers of rows per block: an element of an array that all rows share is read once for all of them."""

_NAMES = {"sum": "row_sum", "max": "row_max", "min": "row_min"}
_SUMS = {"sum": "sums", "max": "largest", "min": "smallest"}


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: rows depend on each other, or no row fits into shared memory.
    """
    stages = _stages(graph)
    if any(not one.plan.node(one.plan.outputs[0]).dtype.startswith("float") for one in stages if one.output is None):
        raise Refused("its intermediate values are whole numbers")
    sizes = kernel.contract.sizes
    rows = stages[0].plan.domain[stages[0].row]
    each = [_shared_elements(stages, size) * _item_bytes(kernel) for size in sizes]
    few = int(evaluate(rows, sizes[0])) // MULTIPROCESSORS
    counts = [one for one in ROWS if one * max(each) <= STATIC_BYTES and one <= max(few, 1)]
    if not counts:
        raise Refused("its intermediate values of a row need more than a block's shared memory")
    yield from those_written(partial(_text, stages, kernel, one) for one in counts[:2])


def _stages(graph: Graph) -> list[RowStage]:
    """Returns the stages of rows, along the merged leading axes if all arrays have them in the same order, else the first axis."""
    try:
        return row_stages(merged(graph))
    except Refused:
        return row_stages(graph)


def _item_bytes(kernel: KernelText) -> int:
    return ITEM_BYTES["float64" if kernel.real == "double" else "float32"]


def _shared_elements(stages: Sequence[RowStage], size: Size) -> int:
    """Returns the elements of shared memory for one row."""
    held = [one for one in stages if one.output is None]
    return sum(math.prod(int(evaluate(one.plan.domain[axis], size)) for axis in one.kept) for one in held)


def _text(stages: Sequence[RowStage], kernel: KernelText, rows: int) -> WrittenKernel:
    return _StagedRows(stages, kernel.again(), rows).written()


class _StagedRows:
    """Writer of the kernel's text for a number of rows per block.

    Attributes:
        arrays: the shared array of each stage's value, by its target.
        sides: the sides of these arrays, but for the rows', as contract expressions.
    """

    def __init__(self, stages: Sequence[RowStage], kernel: KernelText, rows: int) -> None:
        self.stages, self.kernel, self.rows = stages, kernel, rows
        self.names = names = fresh_names(kernel, "row", "r", "col", "k", "lane", "warp", "shared", first="first_row")
        names.kThreads, self.constants = kernel.threads(BLOCK)
        names.kRows, declared = kernel.constant("Rows", rows, "rows per block, for which shared arrays are read once")
        self.constants += declared
        self.total = stages[0].plan.domain[stages[0].row]
        self.reductions = Reductions(stages[0].plan.graph, kernel, Team("warp", WARP, BLOCK), names.kThreads)
        self.outputs = [one.name for one in kernel.outputs()]
        self.arrays: dict[int, str] = {}
        self.sides: dict[int, list[str]] = {}
        for one in stages:
            if one.output is None:
                self.arrays[one.target] = kernel.names.fresh(self._wanted(one))
                self.sides[one.target] = [one.plan.domain[axis] for axis in one.kept]
        self.lengths: dict[str, str] = {}
        self.opening: list[str] = []
        self.more = [kernel.names.fresh(one) for one in ("i", "j")]
        self.loop_names: dict[int | str, str] = {}
        self._refuse_overwritten()

    def _refuse_overwritten(self) -> None:
        """Refuses reads of a result's old values that another thread may have replaced.

        Blocks have separate rows, and a barrier ends each stage except the stage of the only result.
        """
        for stage in self.stages:
            for key in walk(stage.plan):
                node = stage.plan.node(key)
                name = str(node.data[0]) if node.op == "input" else ""
                if name not in self.outputs:
                    continue
                own = stage.output is None or (
                    self.outputs[stage.output] == name and key[1] == stage.plan.outputs[0][1]
                )
                if len(self.outputs) > 1 or stage.row not in key[1] or not own:
                    raise Refused(f"{name} is read where another thread may have written it")

    def _wanted(self, stage: RowStage) -> str:
        """Returns a name for a stage's value: the reference's, or that of its reduction."""
        nodes = stage.plan.graph.nodes
        name = nodes[stage.plan.outputs[0][0]].name
        if name and self.kernel.names.is_free(name):
            return name
        found = stage.reduction
        kind = "" if found is None else str(stage.plan.node(found).data[0])
        if kind and not stage.kept:
            return "row_norm" if nodes[stage.plan.outputs[0][0]].mapped == "sqrt" else _NAMES[kind]
        return "products" if kind else "values"

    def length(self, side: str) -> str:
        """Returns the length of an axis in C++, as a local if it is more than a name."""
        if side not in self.lengths:
            text = self.kernel.size(side)
            if not text.isidentifier() and not text.isdigit():
                name = self.kernel.size_name(text, "length")
                self.opening.append(f"const int {name} = {text};")
                text = name
            self.lengths[side] = text
        return self.lengths[side]

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names = self.kernel, self.names
        self.length(self.total)
        stages = [line for one in self.stages for line in self._stage(one)]
        ranks = [
            (names.lane, f"const int {names.lane} = threadIdx.x % {WARP};"),
            (names.warp, f"const int {names.warp} = threadIdx.x / {WARP};"),
        ]
        used = "\n".join(stages)
        lines = [
            *self.opening,
            *self._shared(),
            f"const int {names.first} = blockIdx.x * {names.kRows};",
            *(declared for name, declared in ranks if _uses(used, str(name))),
            *stages,
        ]
        each = " + ".join(" * ".join(sides) for sides in self.sides.values() if sides)
        width = self.rows * _item_bytes(kernel)
        read = dict.fromkeys(
            str(one.plan.node(key).data[0])
            for one in self.stages
            for key in walk(one.plan)
            if one.plan.node(key).op == "input" and str(one.plan.node(key).data[0])[0] != "@"
        )
        return WrittenKernel(
            f"{STAGED}-{self.rows}",
            f"Written from the reference: a block for {self.rows} row{'s' * (self.rows > 1)} of the result, which reads what rows have in common once for all "
            f"of them{' and keeps intermediate results in shared memory' * bool(each)}." + kernel.promise(read),
            kernel.definition(kernel.head(), lines),
            "\n".join([*self.constants, "", *self.reductions.texts()]).strip(),
            (f"cdiv({self.total}, {self.rows})",),
            BLOCK,
            shared=f"{width} * {f'({each})' if '+' in each else each}" if each else 0,
        )

    def _shared(self) -> list[str]:
        """Returns the declarations of the stages' values: those of whole rows in dynamic shared memory."""
        names, real = self.names, self.kernel.real
        lines = [
            f"__shared__ {real} {self.arrays[one]}[{names.kRows}];" for one, sides in self.sides.items() if not sides
        ]
        whole = [one for one, sides in self.sides.items() if sides]
        if not whole:
            return lines
        lines.append(f"extern __shared__ __align__({WIDEST}) {real} {names.shared}[];")
        before = str(names.shared)
        for one in whole:
            sides = " x ".join(self.length(side) for side in self.sides[one])
            lines.append(f"{real}* {self.arrays[one]} = {before};  // {sides} x {names.kRows}")
            before = f"{self.arrays[one]} + {self._product(self.sides[one])} * {names.kRows}"
        return lines

    def _product(self, sides: Sequence[str]) -> str:
        return " * ".join(self.length(side) for side in sides)

    def _leaf(self, stage: RowStage, key: Key) -> str:
        """Returns an element of an array, of an earlier stage's value, or a position."""
        node, names = stage.plan.node(key), self.names
        at: dict[int | str, str] = {**self.loop_names, stage.row: str(names.row)}
        if node.op == "iota":
            axes = [one for one in key[1] if one is not None]
            return f"static_cast<long long>({at[axes[0]]})" if axes else "0"
        name = str(node.data[0])
        if node.op == "scalar":
            return self.kernel.loaded(name, name)
        order = order_of(key[1])
        if name.startswith("@"):
            target = int(name[1:])
            return f"{self.arrays[target]}[{self._place(stage, [int(one) for one in order if one != stage.row])}]"
        lengths = {axis: self.length(side) for axis, side in enumerate(stage.plan.domain) if axis in order[1:]}
        return self.kernel.loaded(name, f"{name}[{address(order, lengths, at)}]")

    def _place(self, stage: RowStage, axes: Sequence[int]) -> str:
        """Returns the index of an element in a shared array, whose last axis is the block's rows."""
        text = ""
        for axis in axes:
            length = self.length(stage.plan.domain[axis])
            grouped = f"({text})" if " " in text else text
            text = f"{grouped} * {length} + {self.loop_names[axis]}" if text else self.loop_names[axis]
        grouped = f"({text})" if " " in text else text
        return f"{grouped} * {self.names.kRows} + {self.names.r}" if text else str(self.names.r)

    def _stage(self, stage: RowStage) -> list[str]:
        """Returns the statements of one stage."""
        names, plan = self.names, stage.plan
        self.loop_names = {}
        spare = itertools.chain(self.more, (self.kernel.names.fresh("n") for _ in itertools.count()))
        for axis in [*stage.kept[-1:], *stage.kept[:-1]]:
            self.loop_names[axis] = str(names.col) if axis == stage.kept[-1] else next(spare)
        for axis in reversed(stage.gone):
            self.loop_names[axis] = str(names.k) if axis == stage.gone[-1] else next(spare)
        expressions = Expressions(plan, self.kernel, partial(self._leaf, stage), frozenset({"flat"}))
        for key in walk(plan):
            name = str(plan.node(key).data[0]) if plan.node(key).op == "input" else ""
            if name.startswith("@"):
                array = self.arrays.get(int(name[1:]))
                if array is None:
                    raise Refused("a result of it is also an operand of a product")
                expressions.hints[key] = self.kernel.names.element_name(array)
        reduction = stage.reduction
        if reduction is None:
            lines = self._map(stage, expressions)
        elif not stage.kept:
            lines = self._row_reduction(stage, expressions, reduction)
        else:
            lines = self._products(stage, expressions, reduction)
        for name in re.findall(r"^ *(?:const )?\w+ (\w+)(?:\[\w+\])?(?: = |;)", "\n".join(lines), re.MULTILINE):
            self.kernel.names.release(name)  # the next stage may use it again
        return ["", *expressions.outer, *lines, *(["__syncthreads();"] if stage.output is None else [])]

    def _row(self, lines: Sequence[str]) -> list[str]:
        """Returns the declaration of the row that is `r`-th of the block, if statements use it; rows after the last one repeat it."""
        names = self.names
        if not _uses("\n".join(lines), str(names.row)):
            return []
        total = self.length(self.total)
        last = str(int(total) - 1) if total.isdigit() else f"{total} - 1"
        return [f"const int {names.row} = min({names.first} + {names.r}, {last});"]

    def _stored(self, stage: RowStage, expressions: Expressions, condition: str = "") -> list[str]:
        """Returns the statements that compute a stage's value and store it."""
        names, lines = self.names, list[str]()
        (text,) = expressions.locals_for([stage.plan.outputs[0]], lines)
        conditions = [condition] if condition else []
        if stage.output is None:
            store = f"{self.arrays[stage.target]}[{self._place(stage, stage.kept)}] = {text};"
        else:
            name = self.outputs[stage.output]
            index = stage.plan.outputs[0][1]
            order = order_of(index)
            at: dict[int | str, str] = {**self.loop_names, stage.row: f"{names.first} + {names.r}"}
            lengths = {axis: self.length(side) for axis, side in enumerate(stage.plan.domain) if axis in order[1:]}
            value = self.kernel.stored(name, text, stage.plan.node(stage.plan.outputs[0]).dtype)
            store = f"{name}[{address(order, lengths, at)}] = {value};"
            conditions.append(f"{names.first} + {names.r} < {self.length(self.total)}")
        inner = [*lines, store]
        inner = [*self._row(inner), *inner]
        if not conditions:
            return inner
        return (
            block_of(f"if ({' && '.join(conditions)})", inner)
            if len(inner) > 1
            else [f"if ({' && '.join(conditions)}) {inner[0]}"]
        )

    def _over_rows(
        self, lines: Sequence[str], *, unrolled: bool = False, first: str = "0", step: str = "1"
    ) -> list[str]:
        names = self.names
        move = f"++{names.r}" if step == "1" else f"{names.r} += {step}"
        head = f"for (int {names.r} = {first}; {names.r} < {names.kRows}; {move})"
        return [*(["#pragma unroll"] if unrolled else []), *block_of(head, lines)]

    def _around(
        self, axes: Sequence[int], stage: RowStage, lines: list[str], first: str = "0", step: str = "1"
    ) -> list[str]:
        """Returns loops along axes around statements, the last axis innermost, from `first` in steps of `step`."""
        for number, axis in enumerate(reversed(axes)):
            name, length = self.loop_names[axis], self.length(stage.plan.domain[axis])
            own = number == 0 and step != "1"
            move = f"{name} += {step}" if own else f"++{name}"
            lines = block_of(f"for (int {name} = {first if own else '0'}; {name} < {length}; {move})", lines)
            if number == 0 and axes[-1] in stage.gone:
                lines = [f"#pragma unroll {FEWEST_AHEAD}", *lines]
        return lines

    def _map(self, stage: RowStage, expressions: Expressions) -> list[str]:
        """Returns the statements of a stage without a reduction: threads along its last axis."""
        names = self.names
        if not stage.kept:
            return self._over_rows(self._stored(stage, expressions), first="threadIdx.x", step=str(names.kThreads))
        lines = self._over_rows(self._stored(stage, expressions), unrolled=True)
        return self._around(stage.kept, stage, lines, "threadIdx.x", str(names.kThreads))

    def _row_reduction(self, stage: RowStage, expressions: Expressions, reduction: Key) -> list[str]:
        """Returns the statements of a reduction of whole rows: a warp per row."""
        names, kind = self.names, str(stage.plan.node(reduction).data[0])
        body: list[str] = []
        (root,) = stage.plan.operands(reduction)
        (text,) = expressions.locals_for([root], body)
        name = self.kernel.names.fresh(kind if kind == "sum" else f"{kind}_value")
        ctype = self._type(kind, expressions, reduction)
        body.append(self.reductions.combined(kind, name, text, ctype))
        loop = self._around(stage.gone, stage, body, str(names.lane), str(WARP))
        expressions.known = {reduction: name}
        store = self._stored(stage, expressions, f"{names.lane} == 0")
        lines = [
            f"{ctype} {name} = {self._start(kind, expressions) if ctype == self.kernel.real else '0'};",
            *loop,
            f"{name} = {self.reductions.function(kind, ctype)}({name});",
            *store,
        ]
        return self._over_rows([*self._row(loop), *lines], first=str(names.warp), step=f"{names.kThreads} / {WARP}")

    def _type(self, kind: str, expressions: Expressions, reduction: Key) -> str:
        """Returns the C++ type of a reduction.

        Raises:
            Refused: it is a maximum or minimum of integers.
        """
        ctype = expressions.type_of(reduction)
        if ctype != self.kernel.real and (kind != "sum" or ctype == "bool"):
            raise Refused(f"the {kind} of {ctype}")
        return ctype

    def _start(self, kind: str, expressions: Expressions) -> str:
        infinity = float("inf")
        return expressions.number({"sum": 0.0, "max": -infinity, "min": infinity}[kind])

    def _products(self, stage: RowStage, expressions: Expressions, reduction: Key) -> list[str]:
        """Returns the statements of a stage with several sums per row: a thread or a warp per sum, for all rows."""
        names, plan = self.names, stage.plan
        kind = str(plan.node(reduction).data[0])
        by_warp = self._is_along(stage)
        shared: list[str] = []
        (root,) = plan.operands(reduction)
        for key in self._alike(stage, root):
            expressions.named(key, shared, f"{plan.node(key).data[0]}_i")
        inner: list[str] = []
        (text,) = expressions.locals_for([root], inner)
        sums = self.kernel.names.fresh(_SUMS[kind])
        one = f"{sums}[{names.r}]"
        ctype = self._type(kind, expressions, reduction)
        inner.append(self.reductions.combined(kind, one, text, ctype))
        body = [*shared, *self._over_rows([*self._row(inner), *inner], unrolled=True)]
        loop = self._around(stage.gone, stage, body, str(names.lane), str(WARP)) if by_warp else self._around(stage.gone, stage, body)  # fmt: skip
        expressions.known = {reduction: one}
        after = []
        if by_warp:
            after.append(f"{one} = {self.reductions.function(kind, ctype)}({one});")
        after += self._stored(stage, expressions, f"{names.lane} == 0" if by_warp else "")
        begin = [f"{ctype} {sums}[{names.kRows}] = {{}};"]
        if kind != "sum":
            begin = [f"{self.kernel.real} {sums}[{names.kRows}];", *self._over_rows([f"{one} = {self._start(kind, expressions)};"], unrolled=True)]  # fmt: skip
        lines = [*begin, *loop, *self._over_rows(after, unrolled=True)]
        first, step = (str(names.warp), f"{names.kThreads} / {WARP}") if by_warp else ("threadIdx.x", str(names.kThreads))  # fmt: skip
        return self._around(stage.kept, stage, lines, first, step)

    def _alike(self, stage: RowStage, root: Key) -> list[Key]:
        """Returns the elements that a product reads from arrays that all rows share."""
        found, stack = list[Key](), [root]
        while stack:
            key = stack.pop()
            node = stage.plan.node(key)
            if node.op == "input" and stage.row not in key[1] and any(one is not None for one in key[1]):
                found.append(key)
            stack += stage.plan.operands(key)
        return list(dict.fromkeys(found))

    def _is_along(self, stage: RowStage) -> bool:
        """Returns True if lanes of a warp share a result, since shared arrays are contiguous along the reduced axis."""
        (root,) = stage.plan.operands(stage.reduction) if stage.reduction is not None else ()
        ends = [order_of(key[1])[-1] for key in self._alike(stage, root)]
        side = stage.plan.domain[stage.kept[-1]]
        few = int(evaluate(side, self.kernel.contract.sizes[0])) < BLOCK // 4
        return any(one in stage.gone for one in ends) or (few and not ends)


def _uses(text: str, name: str) -> bool:
    """Returns True if a text has an identifier."""
    return re.search(rf"\b{name}\b", text) is not None
