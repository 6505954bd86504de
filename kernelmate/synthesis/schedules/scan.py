"""Scans along rows, with operations before and after: a warp or a block per row.

Traffic: each array is read and written once, a row in packs of 16 bytes where rows and addresses allow it. Arithmetic:
that of the graph, and per pack of a row five steps by shuffles. The order of a sum depends on the length alone, so
results are bit-stable.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.graph import Graph, Node
from kernelmate.synthesis.kernel_text import GUARD, KernelText, WrittenKernel, block_of, fresh_names, those_written
from kernelmate.synthesis.plan import FLAT, Key, Plan, Refused, long_sides, walk, whole_index
from kernelmate.synthesis.prefixes import with_differences_for_shifts
from kernelmate.synthesis.reductions import WARP, Team
from kernelmate.synthesis.schedules import column_scan
from kernelmate.synthesis.schedules.column_scan import NAMES, neutral, scans_of
from kernelmate.synthesis.schedules.rows import ROWS_PER_BLOCK, SHORT_ROW, Rows
from kernelmate.synthesis.schedules.total import MOST_ALONE

FULL_MASK = "0xffffffffu"
"""Mask of shuffles in which all lanes of a warp take part."""


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the schedule does not apply.
    """
    yield from written_by(graph, kernel, RowScan)


def written_by(
    graph: Graph, kernel: KernelText, rows: Callable[[Plan, KernelText, Team], RowScan]
) -> Iterator[WrittenKernel]:
    """Yields generated kernels along rows, written by a class of writers.

    Raises:
        Refused: the schedule does not apply.
    """
    shifted = with_differences_for_shifts(graph)
    plan = plan_of_scans(shifted)
    if plan.kind == "columns" and shifted is not graph:
        plan = plan_of_scans(graph)
    if plan.kind == "columns":
        yield from column_scan.written(plan, kernel)
        return
    size = kernel.contract.sizes[0]
    headline = int(evaluate(plan.columns, size))
    alone = all(int(evaluate(side, {**size, "block": 1})) == 1 for side in kernel.contract.grid)
    if plan.split == 0 and headline > MOST_ALONE and not alone:
        raise Refused("it scans a whole array, which needs several launches")
    warp = Team("warp", WARP, WARP * ROWS_PER_BLOCK)
    threads = _tile_threads(headline)
    block = Team("block", threads, threads)
    teams = [warp, block] if headline <= SHORT_ROW else [block, warp]
    teams = teams if plan.split else [Team("block", 1024, 1024)]
    yield from those_written(partial(_text, plan, kernel, team, rows) for team in teams)


def _tile_threads(columns: int) -> int:
    """Returns the threads per block for a row length: one per pack of four, up to 512.

    Rows of at most 2048 elements are one tile.
    """
    fitting = 64
    while fitting < 512 and fitting * 4 < columns:
        fitting *= 2
    return fitting


def _text(
    plan: Plan, kernel: KernelText, team: Team, rows: Callable[[Plan, KernelText, Team], RowScan]
) -> WrittenKernel:
    return rows(plan, kernel.again(), team).written()


def plan_of_scans(graph: Graph) -> Plan:
    """Returns the rows or columns along which a graph scans.

    Raises:
        Refused: it scans along several axes, or scans or reduces what was scanned.
    """
    places = {_place(node) for node in graph.nodes if node.op in ("scan", "recur")}
    if len(places) > 1:
        raise Refused("it scans along different axes, or arrays of different shapes")
    shape, axis = places.pop()
    domain = tuple(side for side in shape if side != "1")
    gone = sum(side != "1" for side in shape[:axis])
    results = [long_sides(graph.nodes[one]) for one in graph.outputs]
    turned = next((one for one in results if one != domain and sorted(one) == sorted(domain)), None)
    if turned is not None:  # a loop over columns: the order of the results is that of the memory
        domain, gone = turned, _turned(graph, turned, axis)
    kind = "rows" if gone == len(domain) - 1 else "columns"
    split = gone if kind == "rows" else 0
    plan = Plan(graph, domain, split, (), kind, (gone,))
    kept = tuple(domain[one] for one in plan.reduced)
    outputs: list[Key] = []
    for one in graph.outputs:
        sides = graph.nodes[one].shape
        long = tuple(side for side in sides if side != "1")
        if long not in (domain, kept):
            raise Refused("its outputs have other shapes than what it scans")
        axes = iter(range(len(domain)) if long == domain else plan.reduced)
        outputs.append((one, tuple(None if side == "1" else next(axes) for side in sides)))
    plan = replace(plan, outputs=tuple(outputs))
    _check(plan, gone)
    return plan


def _turned(graph: Graph, domain: tuple[str, ...], axis: int) -> int:
    """Returns the axis of a domain along which a graph scans, if results and scans order their axes differently."""
    whole = [one for one in graph.outputs if long_sides(graph.nodes[one]) == domain]
    plan = Plan(graph, domain, 0, tuple((one, whole_index(graph.nodes[one], domain)) for one in whole), "map")
    found = {key[1][axis] for key in walk(plan) if plan.node(key).op in ("scan", "recur") and len(key[1]) > axis}
    places = [one for one in found if isinstance(one, int)]
    if len(found) != 1 or not places:
        raise Refused("it scans along different axes")
    return places[0]


def _place(node: Node) -> tuple[tuple[str, ...], int]:
    """Returns the shape of the scanned value, and the axis."""
    axis = int(node.data[1 if node.op == "scan" else 3] or 0)
    if node.op == "scan":
        return node.shape, axis
    return (*node.shape[:axis], str(node.data[5]), *node.shape[axis + 1 :]), axis


def _check(plan: Plan, gone: int) -> None:
    """Checks that a pass over rows supports all operations.

    Raises:
        Refused: it does not.
    """
    after: dict[Key, bool] = {}
    for key in walk(plan):
        node = plan.node(key)
        after[key] = any(after[one] for one in plan.operands(key))
        if node.op in ("scan", "recur"):
            if key[1] == (FLAT,) or key[1][_place(node)[1]] not in (gone, None):
                raise Refused("it changes the order of axes after a scan")
            if after[key]:
                raise Refused("it scans what was scanned")
            after[key] = True
        if node.op == "reduce":
            if after[key]:
                raise Refused("it reduces what was scanned")
            if [one for one in key[1] if one is not None] != plan.reduced:
                raise Refused("it uses the results of reductions along other axes than their own")
        if node.op in ("take", "gather", "pick", "along", "scatter", "segment"):
            raise Refused(f"it scans, and selects elements by index ({node.op})")
        if node.op in ("input", "iota"):
            plan.access(key)


_JOINED = {
    "sum": "Sum",
    "prod": "Product",
    "max": "Largest",
    "min": "Smallest",
    "logaddexp": "Logarithm of the sum of the exponentials",
}
"""First words of the comments on joined values, by the kind of a scan."""


@dataclass(frozen=True, slots=True)
class Joining:
    """Text that combines the values of a team's threads in order.

    Attributes:
        ctype: the type of the values.
        value, earlier: names of a thread's value and of a preceding one.
        start: the neutral value.
        comment: comment on the function, with `{total}` and `{team}`.
        shuffled: returns a value of another lane, by the kind of shuffle (`up_` or nothing), the value, and the distance or
            lane.
        after_earlier: returns a statement that combines a value with a preceding one.
        after_total: returns the same for a prefix and a total.
        with_later: returns a statement that combines a later value with a total.
    """

    ctype: str
    value: str
    earlier: str
    start: str
    comment: str
    shuffled: Callable[[str, str, str], str]
    after_earlier: Callable[[str, str], str]
    after_total: Callable[[str, str], str]
    with_later: Callable[[str, str], str]


class RowScan(Rows):
    """Text for one team: packs of a tile are scanned in threads, across threads, and joined with the prefix."""

    schedule = "scan"

    def __init__(self, plan: Plan, kernel: KernelText, team: Team) -> None:
        super().__init__(plan, kernel, team)
        self.scans = scans_of(plan)
        self.backwards = bool(plan.node(self.scans[0]).data[2])
        more = fresh_names(kernel, "start", "before", "other", "total", inside="local_prefix")
        self.names.__dict__.update({**more.__dict__, **self.reductions.names.__dict__})
        self.kinds = {(str(plan.node(key).data[0]), self.expressions.type_of(key)) for key in self.scans}
        self.functions = {
            one: kernel.names.outermost(f"{team.name}_exclusive_{NAMES[one[0]]}") for one in sorted(self.kinds)
        }

    def _ahead(self) -> int:
        """Overrides `Rows._ahead`; 0 without reductions, since only their passes have several packs in flight."""
        return super()._ahead() if self.levels() else 0

    def helpers(self) -> list[str]:
        """Returns the lines of device functions that combine the values of all preceding threads of a team."""
        return [line for (kind, ctype), name in self.functions.items() for line in self._function(kind, ctype, name)]

    def _joining(self, kind: str, ctype: str) -> Joining:
        """Returns the operations that combine the values of one kind."""
        reductions, names = self.reductions, self.names
        return Joining(
            ctype,
            names.value,
            names.other,
            neutral(self.expressions, kind, ctype),
            f"{_JOINED[kind]} of the values of all threads before this one; `{{total}}` is that of the whole {{team}}.",
            lambda how, value, by: f"__shfl_{how}sync({FULL_MASK}, {value}, {by})",
            partial(reductions.combined, kind),
            lambda before, total: f"{before} = {reductions.joined(kind, total, before)};",
            partial(reductions.combined, kind),
        )

    def _function(self, kind: str, ctype: str, name: str) -> list[str]:
        names, how = self.names, self._joining(kind, ctype)
        value, offset, before, total = how.value, names.offset, names.before, names.total
        shifted = [
            f"const {how.ctype} {how.earlier} = {how.shuffled('up_', value, offset)};",
            f"if (threadIdx.x % {WARP} >= {offset}) {how.after_earlier(value, how.earlier)}",
        ]
        body = [
            *block_of(f"for (int {offset} = 1; {offset} < {WARP}; {offset} *= 2)", shifted),
            f"{how.ctype} {before} = {how.shuffled('up_', value, '1')};",
            f"if (threadIdx.x % {WARP} == 0) {before} = {how.start};",
        ]
        if self.team.name == "warp":
            body += [f"{total} = {how.shuffled('', value, str(WARP - 1))};", f"return {before};"]
        else:
            warp, partial_, warps = names.warp, names.partial, f"{names.kThreads} / {WARP}"
            body.insert(0, f"__shared__ {how.ctype} {partial_}[{warps}];")
            loop = [
                f"if ({warp} == threadIdx.x / {WARP}) {how.after_total(before, total)}",
                how.with_later(total, f"{partial_}[{warp}]"),
            ]
            body += [
                GUARD,
                f"if (threadIdx.x % {WARP} == {WARP - 1}) {partial_}[threadIdx.x / {WARP}] = {value};",
                "__syncthreads();",
                f"{total} = {how.start};",
                *block_of(f"for (int {warp} = 0; {warp} < {warps}; ++{warp})", loop),
                f"return {before};",
            ]
        comment = f"// {how.comment.format(total=total, team=self.team.name)}"
        head = f"static __device__ __forceinline__ {how.ctype} {name}({how.ctype} {value}, {how.ctype}& {total})"
        return [comment, self.kernel.definition(head, body), ""]

    def results(self) -> list[str]:
        """Returns the last pass: tile after tile of the row, with the preceding prefix."""
        plan, names, packs = self.plan, self.names, self.packs
        if not all(self.full.values()):
            raise Refused("it scans, and has results of one element per row")
        wide = packs.width > 1
        kpack = names.kPack if wide else "1"
        body: list[str] = []
        roots = [plan.operands(key)[0] for key in self.scans]
        texts = self.scanned(roots, body)
        kinds = [(str(plan.node(key).data[0]), self.expressions.type_of(key)) for key in self.scans]
        fresh = self.kernel.names.fresh
        sums, befores, totals = (
            [getattr(names, name), *(fresh(name) for _ in self.scans[1:])] for name in ("inside", "before", "total")
        )
        running = [fresh(NAMES[kind]) for kind, _ in kinds]
        carries = [fresh("carry") for _ in self.scans]
        exclusive = {key: self._differences(key) for key in self.scans}
        for key, kind, sum_, run, text in zip(self.scans, kinds, sums, running, texts, strict=True):
            steps = [self.reductions.combined(kind[0], run, text), f"{sum_}[{names.j}] = {run};"]
            body += steps[::-1] if exclusive[key] else steps
        outer, self.expressions.outer = self.expressions.outer, []
        self._forget()
        starts = [neutral(self.expressions, *kind) for kind in kinds]
        carried = [f"{kind[1]} {name} = {start};" for kind, name, start in zip(kinds, carries, starts, strict=True)]
        lines = self._position_lines(kpack)
        lines += [f"{kind[1]} {sum_}[{kpack}];" for kind, sum_ in zip(kinds, sums, strict=True)]
        lines += [f"{kind[1]} {run} = {start};" for kind, run, start in zip(kinds, running, starts, strict=True)]
        read = self.read([*roots, *plan.outputs])
        lines += self.tile(read, kpack, body)
        after: list[str] = []
        for key, kind, sum_, run, before, total, carry in zip(
            self.scans, kinds, sums, running, befores, totals, carries, strict=True
        ):
            call = f"{self.functions[kind]}({run}, {total})"
            lines += [
                f"{kind[1]} {total};",
                f"const {kind[1]} {before} = {self.reductions.joined(kind[0], carry, call)};",
                self.reductions.combined(kind[0], carry, total),
            ]
            name = fresh("prefix")
            after.append(f"const {kind[1]} {name} = {self.reductions.joined(kind[0], before, f'{sum_}[{names.j}]')};")
            self.expressions.known |= dict.fromkeys(exclusive[key] or [key], name)
        pairs = list(zip(plan.outputs, self.outputs, strict=True))
        after += self.stores(pairs, lambda name: f"{self.stored_pack(name)}.at[{names.j}]")
        outer += self.expressions.outer
        return self.tiles([*outer, *carried], [*lines, *self.final(kpack, without_one_use(after))])

    def scanned(self, values: Sequence[Key], body: list[str]) -> list[str]:
        """Returns the texts of an element's values that are scanned; `body` receives their locals."""
        return self.expressions.locals_for(values, body)

    def _differences(self, scan: Key) -> list[Key]:
        """Returns the values that are exclusive prefix sums: the inclusive sum less the element.

        Subtracting a large element again would cancel smaller ones before it. The list is empty if the inclusive sum is
        needed, too.
        """
        plan, bare, found = self.plan, self.expressions.bare, list[Key]()
        element = bare(plan.operands(scan)[0])
        if plan.node(scan).data[0] != "sum" or any(bare(key) == scan for key in plan.outputs):
            return []
        for key in walk(plan):
            if scan not in (operands := [bare(one) for one in plan.operands(key)]) or bare(key) == scan:
                continue
            if plan.node(key).op != "map" or plan.node(key).data[0] != "subtract" or operands != [scan, element]:
                return []
            found.append(key)
        return found

    @property
    def inside(self) -> str:
        """Returns the condition that a thread has elements of a tile."""
        names = self.names
        return f"{names.c} >= 0" if self.backwards else f"{names.c} < {names.columns}"

    def tile(self, read: Sequence[str], kpack: str, body: Sequence[str]) -> list[str]:
        """Returns the loads of a thread's elements of a tile, and a loop over them."""
        packs, names = self.packs, self.names
        loads = [
            packs.load(one, f"{self.pointers.get(one, one)} + {names.c}").partition(" ")[2].partition(" ")[2]
            for one in read
        ]
        declared = [f"{packs.type_of(one)} {packs.locals[one]};" for one in read]
        return [*declared, *block_of(f"if ({self.inside})", [*loads, *self._each(kpack, body)])]

    def final(self, kpack: str, after: Sequence[str]) -> list[str]:
        """Returns a loop over a thread's elements that computes results, and their stores."""
        packs, names = self.packs, self.names
        lines = [f"{packs.type_of(one)} {self.stored_pack(one)};" for one in self.outputs]
        lines += self._each(kpack, after)
        lines += [
            f"*reinterpret_cast<{packs.type_of(one)}*>({self.pointers[one]} + {names.c}) = {self.stored_pack(one)};"
            for one in self.outputs
        ]
        return block_of(f"if ({self.inside})", lines)

    def tiles(self, before: Sequence[str], lines: Sequence[str]) -> list[str]:
        """Returns the loop over the tiles of a row."""
        names, wide = self.names, self.packs.width > 1
        threads = WARP if self.team.name == "warp" else names.kThreads
        step = f"{threads} * {names.kPack}" if wide else str(threads)
        head = f"for (int {names.start} = 0; {names.start} < {names.columns}; {names.start} += {step})"
        return [*before, "// Threads past the end of the row only take part in the scan.", *block_of(head, lines)]

    def _position_lines(self, kpack: str) -> list[str]:
        names = self.names
        place = f"{names.start} + {names.rank} * {kpack}" if kpack != "1" else f"{names.start} + {names.rank}"
        if self.backwards:
            return [f"const int {names.c} = {names.columns} - {kpack} - ({place});  // from the end"]
        return [f"const int {names.c} = {place};"]

    def _each(self, kpack: str, body: Sequence[str]) -> list[str]:
        """Returns a loop over the elements of a pack, in the scan's direction."""
        j = self.names.j
        head = f"for (int {j} = 0; {j} < {kpack}; ++{j})"
        if self.backwards:
            head = f"for (int {j} = {kpack} - 1; {j} >= 0; --{j})"
        return [*(["#pragma unroll"] if kpack != "1" else []), *block_of(head, body)]

    def _forget(self) -> None:
        """Removes the locals of a loop over elements."""
        known = self.expressions.known
        self.expressions.known = {k: name for k, name in known.items() if k[0] < 0 or not self.expressions.varies(k)}

    def why(self) -> str:
        """Returns a one-sentence explanation of the schedule."""
        how = "its threads' partial results are combined in order by shuffles, tile after tile of the row"
        return (
            f"Written from the reference: a {self.team.name} of {self.team.threads} threads per row, {self.packs.width} elements per load; "
            f"{how}." + self.kernel.promise(self.inputs)
        )


def without_one_use(lines: Sequence[str]) -> list[str]:
    """Inlines local variables whose only use is a store."""
    text = "\n".join(lines)
    for found in re.finditer(r"^const [\w ]+ (\w+) = (.+);$", text, re.MULTILINE):
        stored = f" = {found[1]};"
        if len(re.findall(rf"\b{found[1]}\b", text)) == 2 and stored in text:
            text = text.replace(f"{found[0]}\n", "").replace(stored, f" = {found[2]};")
    return text.split("\n")
