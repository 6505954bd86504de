"""Rows that are reduced, by index or between offsets: bags of embeddings, sparse matrices times dense ones, fixed rows (ELL).

A thread sums a pack of adjacent elements of the result over the elements of a bag, or some lanes of a warp share a row of
contiguous elements. Traffic: numbers and weights are read once per bag, from one address by all of its lanes; selected rows are
read in packs of 16 bytes. Arithmetic: that of the graph for each element. The order of additions depends on the length alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.bag_plan import (
    REDUCING,
    START,
    Bags,
    bags_of,
    behind_one_another,
    combined,
    inside,
    sums_of,
    taken,
)
from kernelmate.synthesis.elements import BY_NUMBER, Numbers, axes_in, chosen_by
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, fresh_names, those_written
from kernelmate.synthesis.names import position_name
from kernelmate.synthesis.packs import ALIGNED_ROWS
from kernelmate.synthesis.plan import Key, Refused, walk
from kernelmate.synthesis.reductions import WARP
from kernelmate.synthesis.schedules.gather import Gather

BLOCK = 256

LONG = 512
"""Number of elements per result row from which a block takes a single row."""

UNROLLED = 4
"""Elements of a bag whose loads are in flight at once."""


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the schedule does not apply.
    """
    plan = bags_of(graph)
    size = kernel.contract.sizes[0]
    if plan.offsets is None and behind_one_another(plan):
        depth, lanes = max(1, int(evaluate(plan.depth, size))), 2
        while lanes < WARP and 2 * lanes <= depth:
            lanes *= 2
        several = dict.fromkeys([lanes, max(2, lanes // 2)])
        yield from those_written(partial(_lanes, plan, kernel, one) for one in several)
        return
    columns = int(evaluate(plan.domain[-1], size))
    ways = [(True, False), (False, False)] if columns >= LONG else [(False, False), (True, True), (True, False)]
    yield from those_written(partial(_packs, plan, kernel, by_rows, shared) for by_rows, shared in ways)


def _lanes(plan: Bags, kernel: KernelText, lanes: int) -> WrittenKernel:
    return _Lanes(plan, kernel.again(), lanes).written()


def _packs(plan: Bags, kernel: KernelText, by_rows: bool, shared: bool) -> WrittenKernel:
    kernel = kernel.again()
    return _SharedBags(plan, kernel).written() if shared else _BagPacks(plan, kernel, by_rows).written()


class _Expressions(Expressions):
    """Expressions of results; values that follow from a reduction are unknown before the loop over a bag."""

    def varies(self, key: Key) -> bool:
        """Returns True if a value differs between the elements of a pack, or follows from a reduction."""
        return self.plan.node(key).op in REDUCING or super().varies(key)


class _BagPacks(Gather):
    """Text of a kernel in which each thread computes a pack of the result, with the sums in registers."""

    name, what = "bags", "what a bag holds read once for all of its elements"

    def __init__(self, plan: Bags, kernel: KernelText, by_rows: bool) -> None:
        super().__init__(plan, kernel, by_rows)
        self.bags = plan
        self.k = kernel.names.fresh("k" if plan.offsets is None else "entry")
        self.end = kernel.names.fresh("end")
        if plan.offsets is not None:
            self.what = "a row's entries read once for all elements of a pack"
        at = {**self.at, self.last: f"({self.names.column} + {self.names.j})", plan.summed: self.k}
        self.numbers = Numbers(plan, kernel, at)
        self.expressions = _Expressions(plan, kernel, self._leaf, frozenset({"inner"}))

    def _leaf(self, key: Key) -> str:
        if self.plan.node(key).op == "iota" and key[1] == (self.bags.summed,):
            return self.k
        return super()._leaf(key)

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        plan = self.bags
        before = self._loop()
        results: list[str] = []
        self.numbers.taken(plan.outputs, self.expressions, results)
        results += self.stored(results)
        return self.packed(before, results, self.loads(key for key in walk(plan) if not self._in_bag(key)))

    def steps(self, first: str, end: str) -> tuple[str, str]:
        """Returns the index at which a thread starts in a bag, and its step."""
        return first, f"++{self.k}"

    def bounds(self) -> tuple[list[str], str, str, str]:
        """Returns the statements before the loop over a bag, the type of the loop's index, its start, and its end."""
        offsets = self.bags.offsets
        if offsets is None:
            return [], "int", "0", self.kernel.size(self.bags.depth)
        index = self.kernel.element(offsets.name)
        first, end = offsets.bounds(self.at[0], self.kernel)
        return [f"const {index} {self.end} = {end};{offsets.note}"], index, first, self.end

    def exchanged(self, sums: Mapping[Key, tuple[str, str]]) -> list[str]:
        """Returns the statements after the loop over a bag."""
        return []

    def _in_bag(self, key: Key) -> bool:
        return self.bags.summed in axes_in(key[1])

    def _loop(self) -> list[str]:
        """Returns the loop over a bag, with the sums of the result's elements in register arrays."""
        plan, names, kernel, expressions = self.bags, self.names, self.kernel, self.expressions
        sums = sums_of(plan)
        roots = [plan.operands(key)[0] for key in sums]
        deep = any(self.last in axes_in([chosen_by(plan.graph, key)[1]]) for key in inside(plan, roots) if plan.node(key).op in BY_NUMBER)  # fmt: skip
        once: list[str] = []
        body: list[str] = []
        self.numbers.taken(roots, expressions, body if deep else once)
        loads = self.loads(key for key in inside(plan, roots) if self._in_bag(key))
        for key in inside(plan, roots, expressions.known):  # what is the same for all elements of a pack
            own = plan.node(key).op == "input" and self._in_bag(key) and self.last not in axes_in(key[1])
            if own and key not in expressions.known:
                expressions.known[key] = kernel.names.fresh(f"{plan.node(key).data[0]}_i")
                once.append(f"const {expressions.type_of(key)} {expressions.known[key]} = {self._leaf(key)};")
        texts = expressions.locals_for(roots, body)
        lines, locals_ = taken(plan, sums, kernel, expressions, texts, f"[{names.j}]")
        expressions.known = {key: one for key, one in expressions.known.items() if not expressions.varies(key)}
        expressions.known |= {key: f"{name}[{names.j}]" for key, (name, _) in locals_.items()}
        starts, over = [], f"for (int {names.j} = 0; {names.j} < {names.kPack}; ++{names.j})"
        for key, (name, ctype) in locals_.items():
            first = START[str(plan.node(key).data[0])]
            starts += [f"{ctype} {name}[{names.kPack}];"] if first else [f"{ctype} {name}[{names.kPack}] = {{}};"]
            if first:
                starts += ["#pragma unroll", *block_of(over, [f"{name}[{names.j}] = {expressions.number(first)};"])]
        each = ["#pragma unroll", *block_of(over, [*body, *lines])]
        opening, index, begin, end = self.bounds()
        start, step = self.steps(begin, end)
        head = f"for ({index} {self.k} = {start}; {self.k} < {end}; {step})"
        loop = block_of(head, [*once, *dict.fromkeys(loads), *each])
        few = end.isdigit() and int(end) <= 4 * UNROLLED
        return [
            *opening,
            *starts,
            "#pragma unroll" if few else f"#pragma unroll {UNROLLED}",
            *loop,
            *self.exchanged(locals_),
        ]


class _SharedBags(_BagPacks):
    """Text of a kernel with a warp per bag, for few packs: lanes of a pack share its elements and combine sums."""

    name = "bags-shared"

    def __init__(self, plan: Bags, kernel: KernelText) -> None:
        super().__init__(plan, kernel, by_rows=True)
        packs = -(-int(evaluate(plan.domain[-1], kernel.contract.sizes[0])) // self.packs.width)
        self.lanes = 1 << (packs - 1).bit_length()
        if self.lanes >= WARP:
            raise Refused("a row of the result has enough packs for a warp")
        self.own = fresh_names(kernel, "first", "offset", "lane")
        self.lane_count = kernel.names.outermost("kLanes")

    def loads(self, keys: Iterable[Key]) -> list[str]:
        """Returns the loads of packs; lanes beyond the row load nothing."""
        several = list(keys)
        found = super().loads(several)
        if found and not all(self._in_bag(key) for key in several):
            raise Refused("it needs packs besides those of a bag")
        return found

    def steps(self, first: str, end: str) -> tuple[str, str]:
        """Assigns adjacent elements to adjacent groups of lanes."""
        within = f"{self.names.column} < {self._length()}"
        own = f"threadIdx.x / {self.lane_count}"
        return (
            f"{within} ? {own if first == '0' else f'{first} + {own}'} : {end}",
            f"{self.k} += {WARP} / {self.lane_count}",
        )

    def _length(self) -> str:
        return self.kernel.size(self.plan.domain[-1])

    def exchanged(self, sums: Mapping[Key, tuple[str, str]]) -> list[str]:
        """Returns statements that combine the sums of lanes with the same pack; one of these lanes continues."""
        names, own, lines = self.names, self.own, list[str]()
        for key, (name, ctype) in sums.items():
            value = f"__shfl_xor_sync(0xffffffffu, {name}[{names.j}], {own.offset})"
            lines += combined(str(self.plan.node(key).data[0]), f"{name}[{names.j}]", value, ctype, self.kernel)
        each = block_of(f"for (int {names.j} = 0; {names.j} < {names.kPack}; ++{names.j})", lines)
        return [
            *block_of(f"for (int {own.offset} = {self.lane_count}; {own.offset} < {WARP}; {own.offset} *= 2)", ["#pragma unroll", *each]),
            f"if (threadIdx.x >= {self.lane_count} || {names.column} >= {self._length()}) return;",
        ]  # fmt: skip

    def _launched(self, helper: str, passed: Sequence[str], text: str, opening: Sequence[str]) -> WrittenKernel:
        kernel, names, own, width = self.kernel, self.names, self.own, self.packs.width
        arguments = ", ".join([*passed, names.row])

        wide = self.packs.wide

        def loop(pack: str) -> list[str]:
            scale = f" * {pack}" if pack != "1" else ""
            head = f"for (int {own.first} = 0; {own.first} < {names.columns}; {own.first} += {self.lane_count}{scale})"
            return block_of(head, [f"{helper}<{pack}>({arguments}, {own.first} + {own.lane}{scale});"])

        guard = " && ".join(filter(None, [f"{names.columns} % {wide} == 0", self.packs.aligned(wide)]))
        body = [
            *opening,
            f"const size_t {names.row} = blockIdx.x;",
            *kernel.row_guard(names.row, self.plan.domain[:-1], [*passed, *opening]),
            f"const int {own.lane} = threadIdx.x % {self.lane_count};",
        ]
        if width > 1:
            body += [
                self.packs.constant(),
                ALIGNED_ROWS,
                f"if ({guard}) {{",
                *("  " + one for one in loop(wide)),
            ]
            body += ["} else {", *("  " + one for one in loop("1")), "}"]
        else:
            body += loop("1")
        known = [name for name, several in self.inputs.items() if self._along(several)]
        constant = f"constexpr int {self.lane_count} = {self.lanes};  // of a warp, for the packs of a row; the others share its bag"
        return WrittenKernel(
            self.name,
            f"Written from the reference: a warp for each row of the result, {width} elements at a time in accesses of 16 bytes where "
            f"addresses allow it; groups of {self.lanes} lanes share the elements of a bag." + kernel.promise(known),
            kernel.definition(kernel.head(), body),
            f"{constant}\n\n{text}",
            (" * ".join(self.plan.domain[:-1]),),
            WARP,
        )


class _Lanes:
    """Text of a kernel in which several lanes of a warp share a row of contiguous elements."""

    def __init__(self, plan: Bags, kernel: KernelText, lanes: int) -> None:
        self.plan, self.kernel, self.lanes = plan, kernel, lanes
        self.names = fresh_names(kernel, "kLanes", "row", "lane", "k", "offset", "count", "other")
        self.outputs = [one.name for one in kernel.outputs()]
        rank = len(plan.domain)
        self.at = (
            {axis: kernel.names.position(position_name(plan.domain[axis])) for axis in range(rank)}
            if rank > 1
            else {0: self.names.row}
        )
        self.numbers = Numbers(plan, kernel, {**self.at, plan.summed: self.names.k})
        for key in walk(plan):
            whole = tuple(one for one in key[1] if one is not None) == tuple(range(rank))
            if plan.node(key).op == "input" and plan.node(key).data[0] in self.outputs and not whole:
                raise Refused(f"{plan.node(key).data[0]} is read where another thread may have written it")
        # rows differ between threads, but not between the elements of one
        self.expressions = Expressions(plan, kernel, self._leaf, frozenset({"inner"}))

    def _leaf(self, key: Key) -> str:
        node = self.plan.node(key)
        if node.op == "scalar":
            return self.kernel.loaded(str(node.data[0]), str(node.data[0]))
        if node.op == "iota":
            axis = key[1][0]
            if isinstance(axis, tuple):
                raise Refused("it needs reductions by index inside of others")
            place = "0" if axis is None else self.numbers.at[int(axis)]
            return f"static_cast<long long>({place})" if place == self.names.row else place
        name = str(node.data[0])
        return self.kernel.loaded(name, f"{name}[{self.numbers.address(key, self.expressions)}]")

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        plan, kernel, names, expressions = self.plan, self.kernel, self.names, self.expressions
        sums = sums_of(plan)
        roots = [plan.operands(key)[0] for key in sums]
        body: list[str] = []
        self.numbers.taken(roots, expressions, body)
        texts = expressions.locals_for(roots, body)
        lines, locals_ = taken(plan, sums, kernel, expressions, texts)
        if any("[" in line for line in expressions.outer):
            raise Refused("it multiplies sums along rows by values of each row, inside of the sums")
        outer, expressions.outer = expressions.outer, []
        starts, exchanged = [], []
        for key, (name, ctype) in locals_.items():
            kind = str(plan.node(key).data[0])
            start = expressions.number(START[kind]) if ctype == kernel.real else "0"
            starts.append(f"{ctype} {name} = {start};")
            exchanged += combined(kind, name, f"__shfl_xor_sync(0xffffffffu, {name}, {names.offset})", ctype, kernel)
        expressions.known = {key: one for key, one in expressions.known.items() if not expressions.varies(key)}
        expressions.known |= {key: name for key, (name, _) in locals_.items()}
        final: list[str] = []
        self.numbers.taken(plan.outputs, expressions, final)
        values = expressions.locals_for(plan.outputs, final)
        stores = []
        for key, name, value in zip(plan.outputs, self.outputs, values, strict=True):
            stored = kernel.stored(name, value, plan.node(key).dtype)
            if len(self.outputs) > 1:  # an array that is changed may still be read for the next output
                local = kernel.names.element(name)
                final.append(f"const {kernel.element(name)} {local} = {stored};")
                stored = local
            stores.append(f"{name}[{names.row}] = {stored};")
        return self._around([*outer, *starts], [*body, *lines], exchanged, [*expressions.outer, *final, *stores])

    def _around(
        self, starts: Sequence[str], body: Sequence[str], exchanged: Sequence[str], final: Sequence[str]
    ) -> WrittenKernel:
        kernel, names, plan = self.kernel, self.names, self.plan
        rows = kernel.count(plan.domain)
        opening = [] if rows.isidentifier() else [f"const size_t {names.count} = {rows};"]
        rows = rows if rows.isidentifier() else names.count
        depth = kernel.size(plan.depth)
        start = "static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x"
        known = [str(plan.node(key).data[0]) for key in walk(plan) if plan.node(key).op == "input" and not any(isinstance(one, tuple) for one in key[1])]  # fmt: skip
        lines = [
            f"constexpr int {names.kLanes} = {self.lanes};  // per row",
            *opening,
            f"const size_t {names.row} = ({start}) / {names.kLanes};",
            f"const int {names.lane} = threadIdx.x % {names.kLanes};",
            *self._coordinates([*body, *final]),
            *starts,
            "// Lanes past the last row only take part in the shuffles.",
            *block_of(
                f"for (int {names.k} = {names.row} < {rows} ? {names.lane} : {depth}; {names.k} < {depth}; {names.k} += {names.kLanes})",
                body,
            ),
            *block_of(
                f"for (int {names.offset} = {names.kLanes} / 2; {names.offset} > 0; {names.offset} /= 2)", exchanged
            ),
            *block_of(f"if ({names.lane} == 0 && {names.row} < {rows})", final),
        ]
        return WrittenKernel(
            f"bags-{self.lanes}",
            f"Written from the reference: {self.lanes} neighbouring lanes of a warp for each row, which read neighbouring elements and combine "
            "what they found by shuffles." + kernel.promise(dict.fromkeys(known)),
            kernel.definition(kernel.head(), lines),
            "",
            (f"cdiv({' * '.join(plan.domain)} * {self.lanes}, block)",),
            BLOCK,
        )

    def _coordinates(self, lines: Sequence[str]) -> list[str]:
        """Emits the positions along the result's axes that are used, from the row number."""
        if len(self.plan.domain) < 2:
            return []
        found: list[str] = []
        left = self.names.row
        for axis in reversed(range(len(self.plan.domain))):
            text = left
            if axis:
                side = self.kernel.size(self.plan.domain[axis])
                side = side if side.isidentifier() or side.isdigit() else f"({side})"
                text, left = f"{left} % {side}", f"{left} / {side}"
            if any(self.at[axis] in line for line in lines):
                found.insert(0, f"const size_t {self.at[axis]} = {text};")
        return found
