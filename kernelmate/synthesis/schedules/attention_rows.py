"""Attention of single queries, as in text generation: a block per query, whose warps divide the keys.

Traffic: keys and values once for each query. Arithmetic: that of the graph; the warps' results are combined once at the end.
"""

from __future__ import annotations

from dataclasses import replace

from kernelmate.source import evaluate
from kernelmate.synthesis.attention_plan import Attention
from kernelmate.synthesis.attention_text import AttentionText, over, unrolled
from kernelmate.synthesis.causal import reach
from kernelmate.synthesis.index_maps import Linear
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of
from kernelmate.synthesis.reductions import WARP

BLOCK = 256


def text(plan: Attention, kernel: KernelText, width: int) -> WrittenKernel:
    """Returns the generated kernel.

    Args:
        plan: the graph.
        kernel: the kernel that is replaced.
        width: the columns of the result of a block.

    Raises:
        Refused: it cannot be written.
    """
    width = max(WARP, min(width, BLOCK))
    single = replace(plan, query=None)
    return AttentionRows(single, kernel.again(), width, plan.query, reach(plan)).written()


class AttentionRows(AttentionText):
    """Text of a block per query.

    Attributes:
        threads: threads of a block.
        which: the text of the index of a thread's partial state.
        first_lane: the text of a thread's index among those that share it.
        kept: the text of the column within a state that is a lane's `j`-th.
    """

    threads = BLOCK
    sharers = "warps"
    thread_constant = ""

    def __init__(
        self, plan: Attention, kernel: KernelText, width: int, query: int | None, found: Linear | None
    ) -> None:
        super().__init__(plan, kernel, width)
        self.width, self.query, self.found = width, query, found
        depth = 32 if plan.product is None else int(evaluate(plan.domain[plan.depth], kernel.contract.sizes[0]))
        self.lanes = 8 if depth >= 16 else 4
        fresh = kernel.names.fresh
        self.partial = [fresh("warp_max"), fresh("warp_sum"), fresh("warp_acc")]
        self.lane_names = [fresh("kWarps"), fresh("kLanes")]
        self.which, self.first_lane = self.names.warp, self.names.lane
        self.kept = f"{self.names.lane} + {WARP} * {self.names.j}"

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, plan = self.kernel, self.names, self.plan
        self.keys = self.length(plan.key, names.keys)
        self.columns = self.length(plan.column, names.columns)
        self.depth = self.length(plan.depth, names.depth) if plan.product is not None else ""
        places, grid = self.blocks("", self.query)
        pointers = self.pointers("row" if self.query is not None else "head")
        start, loop, ends = self.start(), self.loop(), self.results()
        body = [*self.constants(), *self.opening, *places, *pointers, *self.expressions.outer, *start, *loop, *ends]
        return WrittenKernel(
            "attention-rows",
            "Written from the reference: a block per query, of which each warp takes 32 keys at a time and keeps its own largest score, sum and "
            "weighted values; they are combined once at the end." + self.promise(),
            kernel.definition(
                kernel.head(f"__launch_bounds__({self.thread_constant}) " if self.threads > BLOCK else ""), body
            ),
            "",
            (grid, f"cdiv({plan.domain[plan.column]}, {self.width})") if self.several else (grid,),
            BLOCK,
        )

    def constants(self) -> list[str]:
        """Returns the declarations of constants and shared memory."""
        names, (warps, lanes), low = self.names, self.lane_names, self.partial
        product = self.plan.product is not None
        return [
            f"constexpr int {warps} = {BLOCK // WARP};  // of a block",
            *([f"constexpr int {lanes} = {self.lanes};  // that share a product"] if product else []),
            f"constexpr int {names.kValues} = {self.width};  // columns of the result of a block",
            f"constexpr int {names.kColumns} = {names.kValues} / {WARP};  // columns of a lane",
            f"__shared__ float {low[0]}[{warps}], {low[1]}[{warps}], {low[2]}[{warps}][{names.kValues}];",
        ]

    def start(self) -> list[str]:
        """Returns the declarations of a thread's keys and columns, and of its state."""
        names, (_, lanes) = self.names, self.lane_names
        lines = [f"const int {names.warp} = threadIdx.x / {WARP}, {names.lane} = threadIdx.x % {WARP};"]
        if self.plan.product is not None:
            lines.append(f"const int {names.part} = {names.lane} % {lanes};")
        if self.several:
            lines.append(f"const int {names.column_first} = blockIdx.y * {names.kValues};")
        behind = "" if self.query is None else f"{self.at[self.query]} + 1"
        end = self.end(self.found, self.keys, behind)
        if end == self.keys:
            names.end = end
        else:
            lines.append(f"const int {names.end} = {end};  // keys from here on are masked")
        return [
            *lines,
            f"float {names.total}[{names.kColumns}] = {{}};",
            f"float {names.largest} = {self.low}, {names.sum} = 0.0f;",
        ]

    def loop(self) -> list[str]:
        """Returns the loop over a warp's keys, one per lane at a time."""
        names, (warps, _), low = self.names, self.lane_names, self.low
        exchanged = (
            f"{names.bound} = fmaxf({names.bound}, __shfl_xor_sync(0xffffffffu, {names.bound}, {names.offset}));"
        )
        lines = [
            f"float {names.score} = 0.0f;  // of the key that is this lane's",
            *(self._product() if self.plan.product is not None else []),
            *self._score(),
            f"float {names.bound} = fmaxf({names.largest}, {names.score});",
            *block_of(halves(names.offset, WARP), [exchanged]),
            "// Weights are relative to the largest score so far; while all are -inf, nothing is subtracted, so that none is NaN.",
            f"const float {names.shift} = {names.bound} == {low} ? 0.0f : {names.bound};",
            f"const float {names.factor} = expf({names.largest} - {names.shift});",
            f"const float {names.weight} = expf({names.score} - {names.shift});",
            f"{names.largest} = {names.bound};",
            f"{names.sum} = {names.sum} * {names.factor} + {names.weight};",
            *unrolled(names.j, names.kColumns, [f"{names.total}[{names.j}] *= {names.factor};"]),
            *self._values(),
        ]
        head = f"for (int {names.key_first} = {names.warp} * {WARP}; {names.key_first} < {names.end}; {names.key_first} += {warps} * {WARP})"
        reduced = f"{names.sum} += __shfl_xor_sync(0xffffffffu, {names.sum}, {names.offset});"
        return [*block_of(head, lines), *block_of(halves(names.offset, WARP), [reduced])]

    def _product(self) -> list[str]:
        """Returns the products of the query with 32 keys, several at a time, each computed by a few lanes."""
        names, plan, (_, lanes) = self.names, self.plan, self.lane_names
        inner: list[str] = []
        text = self.product_of([*plan.left, *plan.right], inner)
        added = [*inner, f"{names.product} += {text};"]
        turn = [
            f"const int {names.key} = {names.key_first} + {names.lane} - {names.part} + {names.i};",
            f"float {names.product} = 0.0f;",
            *block_of(
                f"if ({names.key} < {names.end})",
                block_of(f"for (int {names.c} = {names.part}; {names.c} < {self.depth}; {names.c} += {lanes})", added),
            ),
            *block_of(halves(names.offset, lanes), [f"{names.product} += __shfl_xor_sync(0xffffffffu, {names.product}, {names.offset});"]),
            f"if ({names.part} == {names.i}) {names.score} = {names.product};",
        ]  # fmt: skip
        return unrolled(names.i, lanes, turn)

    def _score(self) -> list[str]:
        """Returns the score of a lane's own key."""
        names, inner = self.names, list[str]()
        text = self.scored(names.score, inner)
        low = self.low
        key = f"const int {names.key} = {names.key_first} + {names.lane};"
        if not inner and text == names.score:
            return [f"if ({names.key_first} + {names.lane} >= {names.end}) {names.score} = {low};"]
        return [
            key,
            f"if ({names.key} < {names.end}) {{",
            *(f"  {line}" for line in [*inner, f"{names.score} = {text};"]),
            "} else {",
            f"  {names.score} = {low};",
            "}",
        ]

    def _values(self) -> list[str]:
        """Returns the weighted sums of values, for 32 adjacent columns at a time."""
        names, plan, inner = self.names, self.plan, list[str]()
        text = self.product_of(plan.values, inner)
        add = [*inner, f"{names.total}[{names.j}] += {names.slice} * {text};"]
        lines = [
            f"const int {names.key} = {names.key_first} + {names.i};",
            f"const float {names.slice} = __shfl_sync(0xffffffffu, {names.weight}, {names.i});",
            *unrolled(names.j, names.kColumns, [
                f"const int {names.column} = {self._column(names.lane)};",
                *block_of(f"if ({names.column} < {self.columns})", add),
            ]),
        ]  # fmt: skip
        return [
            f"const int {names.count} = min({WARP}, {names.end} - {names.key_first});",
            "#pragma unroll 4",
            *block_of(over(names.i, names.count), lines),
        ]

    def _column(self, lane: str) -> str:
        first = f"{self.names.column_first} + " if self.several else ""
        return f"{first}{lane} + {WARP} * {self.names.j}"

    def results(self) -> list[str]:
        """Combines all warps' results for every column."""
        names, plan, (warps, _) = self.names, self.plan, self.lane_names
        low = self.low
        largest, summed, total = self.partial
        names.weights, names.bound, names.product, names.has_column = (
            self.kernel.names.fresh(one) for one in ("total_weight", "all_max", "value", "has_column")
        )
        value = f"{names.product} / {names.weights}" if plan.normalised else names.product
        lines = self.stores(f"({value})" if plan.normalised else value, names.weights, names.bound, vectors=True)
        lines = [line.replace(f"= ({value});", f"= {value};") for line in lines]
        single = self.stores("", names.weights, names.bound, vectors=False)
        first = f"{names.column_first} + " if self.several else ""
        factor = f"const float {names.factor} = expf({largest}[{names.i}] - {names.shift});"
        once = "threadIdx.x == 0" + (" && blockIdx.y == 0" if self.several else "")
        if single:
            leave = [
                f"const bool {names.has_column} = threadIdx.x < {names.kValues} && {names.column} < {self.columns};",
                f"if (!{names.has_column} && !({once})) return;",
            ]
        else:
            leave = [f"if (threadIdx.x >= {names.kValues} || {names.column} >= {self.columns}) return;"]
        return [
            f"// The {self.sharers} hold results relative to their own largest scores; now all are relative to the largest of all.",
            *block_of(f"if ({self.first_lane} == 0)", [
                f"{largest}[{self.which}] = {names.largest};",
                f"{summed}[{self.which}] = {names.sum};",
            ]),
            *unrolled(names.j, names.kColumns, [f"{total}[{self.which}][{self.kept}] = {names.total}[{names.j}];"]),
            "__syncthreads();",
            f"const int {names.column} = {first}threadIdx.x;",
            *leave,
            f"float {names.bound} = {low};",
            *unrolled(names.i, warps, [f"{names.bound} = fmaxf({names.bound}, {largest}[{names.i}]);"]),
            f"const float {names.shift} = {names.bound} == {low} ? 0.0f : {names.bound};",
            f"float {names.weights} = 0.0f, {names.product} = 0.0f;",
            *unrolled(names.i, warps, [
                factor,
                f"{names.weights} += {summed}[{names.i}] * {names.factor};",
                f"{f'if ({names.has_column}) ' if single else ''}{names.product} += {total}[{names.i}][threadIdx.x] * {names.factor};",
            ]),
            *(block_of(f"if ({names.has_column})", lines) if single else lines),
            *(block_of(f"if ({once})", single) if single else []),
        ]  # fmt: skip


def halves(offset: str, lanes: str | int) -> str:
    """Returns the head of a loop in which groups of lanes exchange values."""
    return f"for (int {offset} = {lanes} / 2; {offset} > 0; {offset} /= 2)"
