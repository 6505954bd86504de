"""Running sums along rows: a block per row, several neighbouring elements per thread, sums handed on by shuffles.

Traffic: each array once. A row longer than what a block's threads hold is taken in steps that carry the sum on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from kernelmate.source import evaluate
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import KernelText, Written, block_of, fresh_names
from kernelmate.synthesis.packs import Packs
from kernelmate.synthesis.plan import Key, Plan, Refused, long_sides, walk, whole_index
from kernelmate.synthesis.reductions import WARP
from kernelmate.synthesis.schedules.passes import Passes

MOST_THREADS = 512


def written(graph: Graph, kernel: KernelText) -> Iterator[Written]:
    """The kernel's text.

    Raises:
        Refused: there is none.
    """
    yield _Scan(_plan(graph), kernel).written()


def _plan(graph: Graph) -> Plan:
    """The plan of one running sum along the last axis and of maps before and after it.

    Raises:
        Refused: it is something else.
    """
    scans = [node for node in graph.nodes if node.op == "scan"]
    if len(scans) != 1 or any(node.op == "reduce" for node in graph.nodes):
        raise Refused("it has several running sums, or reductions beside them")
    domain, axis = long_sides(scans[0]), int(scans[0].data[0] or 0)
    if all(side == "1" for side in scans[0].shape[axis:]) or any(side != "1" for side in scans[0].shape[axis + 1 :]):
        raise Refused("its running sums are along another axis than the last")
    if any(long_sides(graph.nodes[one]) != domain for one in graph.outputs):
        raise Refused("its outputs have different shapes")
    last = len(domain) - 1
    outputs = tuple((one, whole_index(graph.nodes[one], domain)) for one in graph.outputs)
    return Plan(graph, domain, last, outputs, "rows", (last,))


class _Scan(Passes):
    """The text for a block per row."""

    def __init__(self, plan: Plan, kernel: KernelText) -> None:
        self.plan, self.kernel = plan, kernel
        self.outputs = [one.name for one in kernel.outputs()]
        self.inputs = self.accesses(self.outputs, "flat")
        self.scan = next(key for key in walk(plan) if plan.node(key).op == "scan")
        if any(plan.node(key).op in ("take", "gather") for key in walk(plan)):
            raise Refused("it gathers elements beside a running sum")
        self.names = fresh_names(
            kernel, "kPack", "row", "columns", "lane", "warp", "carry", "first", "c", "j", "total", "sums", "before",
            "offset", "other", "running", "packed", "warp_sums",
        )  # fmt: skip
        self.full = [name for name in kernel.parameters if self.inputs.get(name) == "flat" or name in self.outputs]
        self.read = [name for name in kernel.parameters if self.inputs.get(name) in ("flat", "column")]
        columns = [name for name in self.read if name not in self.full]
        self.packs = Packs(kernel, [*self.full, *columns], kernel.names)
        if self.packs.width == 1:
            raise Refused("its elements fill 16 bytes each")
        self.pointers = {name: kernel.names.fresh(f"{name}_row") for name in self.full}
        self.results = {
            name: kernel.names.fresh(f"{name}_sums") if name in self.inputs else self.packs.locals[name]
            for name in self.outputs
        }
        self.expressions = Expressions(plan, kernel, self._leaf, frozenset({"flat", "column"}))
        self.ctype = self.expressions.type_of(self.scan)
        headline = int(evaluate(plan.columns, kernel.contract.sizes[0]))
        threads = WARP
        while threads < MOST_THREADS and threads * self.packs.width < headline:
            threads *= 2
        self.threads = threads
        self.names.kThreads, self.constants = kernel.threads(threads)

    def _leaf(self, key: Key) -> str:
        node, names = self.plan.node(key), self.names
        access = "once" if node.op == "scalar" else self.plan.access(key)
        if node.op == "iota":
            place = {"column": f"{names.c} + {names.j}", "row": f"static_cast<long long>({names.row})", "once": "0"}
            if access not in place:
                raise Refused("it uses positions along other axes than a row's")
            return place[access]
        name = str(node.data[0])
        if node.op == "scalar":
            return self.kernel.loaded(name, name)
        if access not in ("flat", "column", "row", "once"):
            raise Refused(f"it meets {name} along some axes of the rows")
        texts = {"once": f"{name}[0]", "row": f"{name}[{names.row}]"}
        return self.kernel.loaded(name, texts.get(access) or f"{self.packs.locals[name]}.at[{names.j}]")

    def written(self) -> Written:
        """The text."""
        kernel, names, width = self.kernel, self.names, self.packs.width
        length = kernel.size(self.plan.columns)
        opening = [
            f"constexpr int {names.kPack} = {width};  // elements of a thread in each step: up to 16 bytes of each array",
            *self.packs.structs(names.kPack),
            f"__shared__ {self.ctype} {names.warp_sums}[{names.kThreads} / {WARP}];",
            f"const int {names.lane} = threadIdx.x % {WARP}, {names.warp} = threadIdx.x / {WARP};",
            f"const size_t {names.row} = blockIdx.x;",
        ]
        if length.isidentifier():
            names.columns = length
        else:
            opening.append(f"const int {names.columns} = {length};")
        for name in self.full:
            const = "const " if kernel.arguments[name].direction == "in" else ""
            opening.append(
                f"{const}{kernel.element(name)}* {self.pointers[name]} = {name} + {names.row} * {names.columns};"
            )
        guard = " && ".join(filter(None, [f"{names.columns} % {names.kPack} == 0", self.packs.aligned()]))
        step = self._step()
        body = [
            *opening,
            "// Packs need rows and addresses of whole packs.",
            f"const bool {names.packed} = {guard};",
            *self.expressions.outer,
            "",
            f"{self.ctype} {names.carry} = 0;  // the sum of all steps before",
            *block_of(
                f"for (int {names.first} = 0; {names.first} < {names.columns}; {names.first} += {names.kThreads} * {names.kPack})",
                step,
            ),
        ]
        return Written(
            f"scan-block-{self.threads}",
            f"Written from the reference: a block of {self.threads} threads per row, which reads it once, {width} neighbouring "
            "elements per thread, hands sums on by shuffles, and carries them from step to step."
            + kernel.promise(self.inputs),
            kernel.definition(kernel.head(), body),
            "\n".join(self.constants),
            (self.plan.row_count,),
            self.threads,
        )

    def _step(self) -> list[str]:
        """What each thread does with a pack of the row."""
        names, expressions = self.names, self.expressions
        values: list[str] = []
        (text,) = expressions.locals_for(self.plan.operands(self.scan), values)
        values += [f"{names.total} += {text};", f"{names.sums}[{names.j}] = {names.total};"]
        expressions.known = {key: name for key, name in expressions.known.items() if not expressions.varies(key)}
        expressions.known[self.scan] = names.running
        pairs = list(zip(self.plan.outputs, self.outputs, strict=True))
        results = [
            f"const {self.ctype} {names.running} = {names.before} + {names.sums}[{names.j}];",
            *self.stores(pairs, lambda name: f"{self.results[name]}.at[{names.j}]"),
        ]
        each = f"for (int {names.j} = 0; {names.j} < {names.kPack}; ++{names.j})"
        return [
            f"const int {names.c} = {names.first} + threadIdx.x * {names.kPack};",
            *(f"{self.packs.type_of(name)} {self.packs.locals[name]} = {{}};" for name in self.read),
            *self._whole_or_single(self._load),
            f"{self.ctype} {names.total} = 0, {names.sums}[{names.kPack}];",
            "#pragma unroll",
            *block_of(each, values),
            "",
            *self._handed_on(),
            "",
            *(f"{self.packs.type_of(name)} {self.results[name]};" for name in self.outputs),
            "#pragma unroll",
            *block_of(each, results),
            *self._whole_or_single(self._store),
        ]

    def _handed_on(self) -> list[str]:
        """The sum of everything before a thread's own elements, from its warp, the warps before and the steps before."""
        names, ctype = self.names, self.ctype
        return [
            f"{ctype} {names.before} = {names.total};",
            "#pragma unroll",
            *block_of(
                f"for (int {names.offset} = 1; {names.offset} < {WARP}; {names.offset} *= 2)",
                [
                    f"const {ctype} {names.other} = __shfl_up_sync(0xffffffffu, {names.before}, {names.offset});",
                    f"if ({names.lane} >= {names.offset}) {names.before} += {names.other};",
                ],
            ),
            f"if ({names.lane} == {WARP - 1}) {names.warp_sums}[{names.warp}] = {names.before};",
            f"{names.before} = __shfl_up_sync(0xffffffffu, {names.before}, 1);",
            f"if ({names.lane} == 0) {names.before} = 0;",
            f"{names.before} += {names.carry};",
            "__syncthreads();",
            *block_of(
                f"for (int {names.j} = 0; {names.j} < {names.kThreads} / {WARP}; ++{names.j})",
                [
                    f"if ({names.j} < {names.warp}) {names.before} += {names.warp_sums}[{names.j}];",
                    f"{names.carry} += {names.warp_sums}[{names.j}];",
                ],
            ),
            f"__syncthreads();  // everybody has read {names.warp_sums} before the next step",
        ]

    def _whole_or_single(self, statements: Callable[[], tuple[list[str], list[str]]]) -> list[str]:
        """The same for whole packs, and for elements one by one."""
        names = self.names
        whole, single = statements()
        if not whole:
            return []
        loop = f"for (int {names.j} = 0; {names.j} < {names.kPack} && {names.c} + {names.j} < {names.columns}; ++{names.j})"
        return [
            f"if ({names.packed} && {names.c} < {names.columns}) {{",
            *(f"  {line}" for line in whole),
            "} else {",
            *(f"  {line}" for line in block_of(loop, single)),
            "}",
        ]

    def _load(self) -> tuple[list[str], list[str]]:
        whole, single = [], []
        for name in self.read:
            held, at = self.packs.locals[name], self.pointers.get(name, name)
            whole.append(f"{held} = *reinterpret_cast<const {self.packs.type_of(name)}*>({at} + {self.names.c});")
            single.append(f"{held}.at[{self.names.j}] = {at}[{self.names.c} + {self.names.j}];")
        return whole, single

    def _store(self) -> tuple[list[str], list[str]]:
        whole, single = [], []
        for name in self.outputs:
            held, at = self.results[name], self.pointers[name]
            whole.append(f"*reinterpret_cast<{self.packs.type_of(name)}*>({at} + {self.names.c}) = {held};")
            single.append(f"{at}[{self.names.c} + {self.names.j}] = {held}.at[{self.names.j}];")
        return whole, single
