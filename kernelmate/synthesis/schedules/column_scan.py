"""Scans down columns, with operations before and after: a thread per column, or several row groups in parallel.

Traffic: each array is read and written once, in whole sectors. Arithmetic: that of the graph; where groups of rows are scanned side
by side, one more operation per element and, per tile, one per group. The order of a sum depends on the number of rows alone, so results
are bit-stable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from kernelmate.source import evaluate
from kernelmate.synthesis.axes import address, leaf_text, order_of, position_lines
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, fresh_names, indented
from kernelmate.synthesis.names import position_name
from kernelmate.synthesis.plan import Key, Plan, Refused, walk
from kernelmate.synthesis.reductions import STARTS, WARP, Reductions, Team
from kernelmate.synthesis.schedules.columns import ColumnLayout
from kernelmate.synthesis.schedules.passes import Passes

BLOCK = 64
"""Threads per block, one per column: few, so that the blocks spread over many multiprocessors."""

MANY_COLUMNS = 1 << 17
"""Number of columns from which one thread per column fills a large GPU."""

TILE_THREADS, TILE_WORDS = 512, 16
"""Threads per block for tile scans, and 32-bit words of prefixes per thread, which bounds the loads in flight."""

FEW_ROWS = 128
"""Number of rows below which no tiles are used."""

ENOUGH_BLOCKS = 96
"""Number of warp-wide blocks that keeps most multiprocessors busy; with fewer columns, half a warp's width is used."""

NAMES = {
    "sum": "sum", "prod": "product", "max": "max_value", "min": "min_value", "logaddexp": "log_sum", "linear": "steps",
}  # fmt: skip


def written(plan: Plan, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the schedule does not apply.
    """
    text = kernel.again()
    columns = ColumnScan(plan, text)
    size = kernel.contract.sizes[0]
    count = int(evaluate(columns.count, size))
    rows = int(evaluate(columns.layout.axes.sides[columns.along], size))
    if count < MANY_COLUMNS and rows >= FEW_ROWS:
        width = WARP if count >= ENOUGH_BLOCKS * WARP else WARP // 2
        yield Tiles(plan, kernel.again(), width).written()
    yield columns.written()


def _without_copies(lines: Sequence[str]) -> list[str]:
    """Returns the statements without locals that are only copies stored once."""
    kept = list(lines)
    for line in lines:
        declared = re.fullmatch(r"const [\w ]+ (\w+) = (.+);", line)
        if declared is None:
            continue
        uses = [place for place, one in enumerate(kept) if re.search(rf"\b{declared[1]}\b", one) and one != line]
        if len(uses) == 1 and kept[uses[0]].endswith(f"] = {declared[1]};"):
            kept[uses[0]] = kept[uses[0]].removesuffix(f"{declared[1]};") + f"{declared[2]};"
            kept.remove(line)
    return kept


def scans_of(plan: Plan) -> list[Key]:
    """Returns the scans, which must have the same direction.

    Raises:
        Refused: they have different directions.
    """
    found = [key for key in walk(plan) if plan.node(key).op == "scan"]
    if len({plan.node(key).data[2] for key in found} | {plan.node(key).data[4] for key in recurrences_of(plan)}) > 1:
        raise Refused("it scans in both directions")
    return list(dict.fromkeys(found))


def recurrences_of(plan: Plan) -> list[Key]:
    """Returns the results of recurrences."""
    return list(dict.fromkeys(key for key in walk(plan) if plan.node(key).op == "recur"))


def neutral(expressions: Expressions, kind: str, ctype: str) -> str:
    """Returns the neutral element of a kind of scan.

    Raises:
        Refused: there is none for an integer type.
    """
    if ctype == expressions.real:
        return expressions.number(STARTS[kind])
    if kind not in ("sum", "prod") or ctype == "bool":
        raise Refused(f"the scan {kind} of whole numbers")
    return str(int(STARTS[kind]))


class ColumnScan(Passes):
    """Text of a kernel with a thread per column: accesses are coalesced, and no synchronisation is needed.

    Attributes:
        scans: keys of the scans.
        along: the scanned axis.
        count: the number of columns, as an expression over sizes.
        kinds: kind and C++ type of each scan.
    """

    schedule = "scan-columns"
    words = ("column", "row")
    """Names of a thread's position, and of that along the scanned axis."""

    def __init__(self, plan: Plan, kernel: KernelText) -> None:
        self.plan, self.kernel = plan, kernel
        self.scans = scans_of(plan)
        if any(node.op == "reduce" for node in plan.graph.nodes):
            raise Refused("it scans columns, and reduces")
        self.outputs = [one.name for one in kernel.outputs()]
        self.inputs = self.accesses(self.outputs, "column", late=True)
        self.recurrences = recurrences_of(plan)
        if not self.recurrences and not all(map(self.is_whole, plan.outputs)):
            raise Refused("it scans, and has results of one element per column")
        self.layout = layout = ColumnLayout(plan)
        for name, output in zip(self.outputs, plan.outputs, strict=True):
            own = layout.every if self.is_whole(output) else layout.single
            if layout.orders.get(name, own) != own:
                raise Refused(f"{name} is read where another thread may have written it")
        self.names = fresh_names(kernel, "i", column=self.words[0], row=self.words[1])
        self.opening: list[str] = []
        self.lengths = layout.axes.lengths(kernel, {}, self.opening)
        self.along = layout.gone[-1]
        others = [int(axis) for axis in layout.single]
        self.count = " * ".join(layout.axes.sides[axis] for axis in others)
        self.at: dict[int | str, str] = {
            axis: kernel.names.position(position_name(layout.axes.sides[axis])) for axis in others[:-1]
        }
        self.at |= {others[-1]: self.names.column, self.along: self.names.row}
        self.expressions = Expressions(plan, kernel, self._leaf, frozenset({"flat"}))
        self.reductions = Reductions(plan.graph, kernel, Team("warp", WARP, WARP), "")
        self.kinds = [(str(plan.node(key).data[0]), self.expressions.type_of(key)) for key in self.scans]
        self.backwards = bool(
            plan.node(self.scans[0]).data[2] if self.scans else plan.node(self.recurrences[0]).data[4]
        )

    def _leaf(self, key: Key) -> str:
        order = () if self.plan.node(key).op == "scalar" else self.layout.axes.order(order_of(key[1]))
        return leaf_text(
            self.kernel, self.plan.node(key),
            lambda: self.at[order[0]] if order else "0", lambda: address(order, self.lengths, self.at),
        )  # fmt: skip

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names = self.kernel, self.names
        running, carried, body = self.running()
        self.expressions.known |= dict(zip(self.scans, running, strict=True))
        body += self.results()
        length = self.lengths[self.along]
        head = f"for (int {names.row} = 0; {names.row} < {length}; ++{names.row})"
        if self.backwards:
            head = f"for (int {names.row} = {length} - 1; {names.row} >= 0; --{names.row})"
        lines = [*self._thread(), *self.expressions.outer, *carried, "#pragma unroll 4", *block_of(head, body)]
        return WrittenKernel(
            self.schedule,
            "Written from the reference: a thread for each column, which neighbours read and write in whole sectors, each element once."
            + kernel.promise(self.inputs),
            "\n".join([*self.reductions.texts(), kernel.definition(kernel.head(), lines)]),
            "",
            (f"cdiv({self.count}, block)",),
            BLOCK,
        )

    def running(self) -> tuple[list[str], list[str], list[str]]:
        """Returns the running values' locals, their declarations, and the statements that add one more element."""
        body: list[str] = []
        carried: list[str] = []
        roots = [self.plan.operands(key)[0] for key in self.scans]
        texts = self.expressions.locals_for(roots, body)
        names = []
        for (kind, ctype), text in zip(self.kinds, texts, strict=True):
            name = self.kernel.names.fresh(NAMES[kind])
            carried.append(f"{ctype} {name} = {neutral(self.expressions, kind, ctype)};")
            body.append(self.reductions.combined(kind, name, text))
            names.append(name)
        return names, carried, body

    def results(self) -> list[str]:
        """Returns statements that compute and store the outputs of one element."""
        pairs = list(zip(self.plan.outputs, self.outputs, strict=True))
        place = address(self.layout.every, self.lengths, self.at)
        return self.stores(pairs, lambda name: f"{name}[{place}]")

    def _thread(self) -> list[str]:
        """Returns the declaration of a thread's column."""
        names, layout = self.names, self.layout
        count = self.kernel.count([layout.axes.sides[int(axis)] for axis in layout.single])
        if len(layout.single) == 1:
            place = "blockIdx.x * blockDim.x + threadIdx.x"
            return [*self.opening, self._column(place), f"if ({names.column} >= {count}) return;"]
        return [
            *self.opening,
            f"const size_t {names.i} = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;",
            f"if ({names.i} >= {count}) return;",
            *self._places(),
        ]

    def _column(self, place: str) -> str:
        """Returns the declaration of the position along the only axis, in a type that holds the number of columns."""
        side = self.layout.axes.sides[int(self.layout.single[0])]
        count = self.kernel.arguments.get(self.kernel.size(side))
        if count is not None and count.dtype == "int32":
            return f"const int {self.names.column} = {place};"
        return f"const size_t {self.names.column} = static_cast<size_t>({place.replace(' * ', ') * ', 1)};"

    def _places(self) -> list[str]:
        """Returns the declarations of the positions of column `i`."""
        others = [int(axis) for axis in self.layout.single]
        return position_lines(self.names.i, others, self.lengths, self.at) if len(others) > 1 else []


class Tiles(ColumnScan):
    """Text of a kernel whose blocks take a few adjacent columns: groups of threads scan groups of rows of a tile.

    Args:
        width: columns of a block.
    """

    schedule = "scan-column-tiles"

    def __init__(self, plan: Plan, kernel: KernelText, width: int) -> None:
        super().__init__(plan, kernel)
        self.width, self.groups = width, TILE_THREADS // width
        words = sum(2 if ctype in ("double", "long long") else 1 for _, ctype in self.kinds)
        self.rows = max(TILE_WORDS // words, 4)
        more = fresh_names(
            kernel, "kWidth", "kGroups", "kRows", "group", "lane", "end", "start", "k", "earlier", "place", "first", "load_rows"
        )  # fmt: skip
        self.names.__dict__.update(more.__dict__)
        self.sums, self.nexts, self.prefixes, self.carries, self.befores = (
            [kernel.names.fresh(one) for one in names]
            for names in zip(
                *((f"{NAMES[kind]}s", "next", "prefix", "carry", "before") for kind, _ in self.kinds), strict=True
            )
        )

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, length = self.kernel, self.names, self.lengths[self.along]
        loads, tile = self._loads(), self._tile()
        lines = [
            f"constexpr int {names.kWidth} = {self.width};  // columns of a block",
            f"constexpr int {names.kGroups} = {self.groups};  // groups of threads, each with its own rows of a tile",
            f"constexpr int {names.kRows} = {self.rows};  // rows of a group in a tile",
            *self._each("__shared__ {ctype} {sums}[kGroups][kWidth];"),
            *self.opening,
            f"const int {names.lane} = threadIdx.x % {names.kWidth}, {names.group} = threadIdx.x / {names.kWidth};",
            *self._end(length),
            *self._places(),
            *map(self._guarded, self.expressions.outer),
            *loads,
            *self._each("{ctype} {carry} = {start};"),
            f"{names.load_rows}(0);",
            "// Each group scans its rows of a tile by itself, then adds what the groups before it sum to.",
            *block_of(
                f"for (int {names.start} = 0; {names.start} < {length}; {names.start} += {names.kGroups} * {names.kRows})",
                tile,
            ),
        ]
        return WrittenKernel(
            self.schedule,
            f"Written from the reference: {self.groups} groups of threads scan {self.rows} rows each side by side and add what was "
            "before them, while the next rows are loaded." + kernel.promise(self.inputs),
            "\n".join(
                [*self.reductions.texts(), kernel.definition(kernel.head(f"__launch_bounds__({TILE_THREADS}) "), lines)]
            ),
            "",
            (f"cdiv({self.count}, {self.width})",),
            TILE_THREADS,
        )

    def _loads(self) -> list[str]:
        """Returns the function that loads a group's rows of the tile that begins at a row."""
        names = self.names
        lines: list[str] = []
        roots = [self.plan.operands(key)[0] for key in self.scans]
        texts = self.expressions.locals_for(roots, lines)
        position, inside = self._row(names.first)
        neutrals = [neutral(self.expressions, *kind) for kind in self.kinds]
        if lines:
            into = [f"{one}[{names.k}] = {text};" for one, text in zip(self.nexts, texts, strict=True)]
            body = [f"{one}[{names.k}] = {none};" for one, none in zip(self.nexts, neutrals, strict=True)]
            body += block_of(f"if ({inside})", [*lines, *into])
        else:
            body = [
                f"{one}[{names.k}] = {inside} ? {text} : {none};"
                for one, text, none in zip(self.nexts, texts, neutrals, strict=True)
            ]
        return [
            *self._each("{ctype} {next}[kRows];"),
            f"const auto {names.load_rows} = [&](int {names.first}) {{",
            "#pragma unroll",
            *indented(block_of(self._rows(), [position, *body])),
            "};",
        ]

    def _row(self, start: str) -> tuple[str, str]:
        """Returns the declaration of row `k` of a group in the tile at `start`, and the condition that there is one."""
        names = self.names
        row = f"{start} + {names.group} * {names.kRows} + {names.k}"
        if self.backwards:
            return f"const int {names.row} = {self.lengths[self.along]} - 1 - ({row});", f"{names.row} >= {names.end}"
        return f"const int {names.row} = {row};", f"{names.row} < {names.end}"

    def _rows(self) -> str:
        return f"for (int {self.names.k} = 0; {self.names.k} < {self.names.kRows}; ++{self.names.k})"

    def _tile(self) -> list[str]:
        """Returns the loop's body: a group's rows by themselves, the preceding prefix, and the results."""
        names = self.names
        kept, self.expressions.outer = self.expressions.outer, []
        # Locals of the first loop over a group's rows are unknown in the second.
        known = self.expressions.known
        self.expressions.known = {k: name for k, name in known.items() if k[0] < 0 or not self.expressions.varies(k)}
        inclusive = [self.kernel.names.fresh("inclusive") for _ in self.kinds]
        self.expressions.known |= dict(zip(self.scans, inclusive, strict=True))
        last = [
            f"const {ctype} {name} = {self.reductions.joined(kind, before, f'{prefix}[{names.k}]')};"
            for (kind, ctype), name, before, prefix in zip(
                self.kinds, inclusive, self.befores, self.prefixes, strict=True
            )
        ]
        last = _without_copies([*last, *self.results()])
        self.expressions.outer = [*kept, *self.expressions.outer]
        position, inside = self._row(names.start)
        running = [self.kernel.names.fresh(NAMES[kind]) for kind, _ in self.kinds]
        begun = [
            f"{kind[1]} {run} = {neutral(self.expressions, *kind)};"
            for kind, run in zip(self.kinds, running, strict=True)
        ]
        sums = [
            line
            for (kind, _), run, one, prefix in zip(self.kinds, running, self.nexts, self.prefixes, strict=True)
            for line in (
                self.reductions.combined(kind, run, f"{one}[{names.k}]"),
                f"{prefix}[{names.k}] = {run};",
            )
        ]
        return [
            *self._each("{ctype} {prefix}[kRows];"),
            *begun,
            "#pragma unroll",
            *block_of(self._rows(), sums),
            f"{names.load_rows}({names.start} + {names.kGroups} * {names.kRows});  // on their way while these are stored",
            "__syncthreads();  // the last tile may still be read",
            *(f"{one}[{names.group}][{names.lane}] = {run};" for one, run in zip(self.sums, running, strict=True)),
            "__syncthreads();",
            *self._before(),
            "#pragma unroll",
            *block_of(self._rows(), [position, *block_of(f"if ({inside})", last)]),
        ]

    def _each(self, line: str) -> list[str]:
        """Returns one line for each scan."""
        line = line.replace("[kGroups][kWidth]", f"[{self.names.kGroups}][{self.names.kWidth}]")
        line = line.replace("[kRows]", f"[{self.names.kRows}]")
        groups = zip(self.kinds, self.sums, self.nexts, self.prefixes, self.carries, self.befores, strict=True)
        return [
            line.format(
                ctype=kind[1],
                start=neutral(self.expressions, *kind),
                sums=sums,
                next=one,
                prefix=prefix,
                carry=carry,
                before=before,
            )
            for kind, sums, one, prefix, carry, before in groups
        ]

    def _guarded(self, line: str) -> str:
        """Returns the declaration of a constant, with a guard for threads without a column."""
        found = re.fullmatch(r"const ([\w ]+) (\w+) = (.*\[.*);", line)
        # Of several axes, such threads have the place of the first column.
        if found is None or len(self.layout.single) > 1:
            return line
        kind, name, value = found.groups()
        inside = f"{self.names.column} < {self.kernel.count([self.layout.axes.sides[int(self.layout.single[0])]])}"
        zero = self.expressions.number(0.0) if kind == self.kernel.real else "0"
        return f"const {kind} {name} = {inside} ? {value} : {zero};"

    def _end(self, length: str) -> list[str]:
        """Returns the end of a thread's rows; a thread without a column has no rows, but takes part in the barriers."""
        names = self.names
        count = self.kernel.count([self.layout.axes.sides[int(axis)] for axis in self.layout.single])
        some, none = ("0", length) if self.backwards else (length, "0")
        comment = "// Threads without a column have no rows; they stay for the barriers."
        if len(self.layout.single) == 1:
            return [
                self._column(f"blockIdx.x * {names.kWidth} + {names.lane}"),
                comment,
                f"const int {names.end} = {names.column} < {count} ? {some} : {none};",
            ]
        return [
            f"const size_t {names.place} = static_cast<size_t>(blockIdx.x) * {names.kWidth} + {names.lane};",
            comment,
            f"const int {names.end} = {names.place} < {count} ? {some} : {none};",
            f"const size_t {names.i} = {names.place} < {count} ? {names.place} : 0;",
        ]

    def _before(self) -> list[str]:
        """Returns statements that compute the prefix before a thread's rows, and the sum of the tile."""
        names = self.names
        loop: list[str] = []
        for (kind, _), sums, before, carry in zip(self.kinds, self.sums, self.befores, self.carries, strict=True):
            there = f"{sums}[{names.earlier}][{names.lane}]"
            loop += [
                f"if ({names.earlier} < {names.group}) {self.reductions.combined(kind, before, there)}",
                self.reductions.combined(kind, carry, there),
            ]
        head = f"for (int {names.earlier} = 0; {names.earlier} < {names.kGroups}; ++{names.earlier})"
        return [*self._each("{ctype} {before} = {carry};"), "#pragma unroll 8", *block_of(head, loop)]
