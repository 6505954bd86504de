"""Reductions of whole arrays: one block, many blocks whose last one combines the others' results, or atomic additions.

Traffic: each array is read once for each pass. Arithmetic: that of the graph for each element, and one combination per warp and block.
Results of blocks wait in scratch arrays, where the contract has some, for the block that ends last. The order of atomic additions
differs from run to run: they are used only where the baseline has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

from kernelmate.records import Argument, Contract, Kernel
from kernelmate.source import evaluate
from kernelmate.synthesis.carried import CarriedPositions
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, fresh_names, those_written
from kernelmate.synthesis.neutral import without_neutral
from kernelmate.synthesis.plan import Key, Plan, Refused, plan_of, walk
from kernelmate.synthesis.reductions import Reductions, Team, is_extreme
from kernelmate.synthesis.schedules.passes import FEWEST_AHEAD, Passes, ReductionLocals

MOST_ALONE = 65536
"""Number of elements up to which one block is not much slower than many."""

PER_THREAD = 4
"""Elements per thread with many blocks, at most `MOST_BLOCKS`."""

MOST_BLOCKS = 1024

MANY_THREADS = 256
"""Threads of each of many blocks."""

How = Literal["alone", "atomic", "last"]
"""One block, many blocks that add atomically, or many blocks whose last one combines the results of all."""

DTYPES = {
    "float": "float32", "double": "float64", "int": "int32", "long long": "int64", "unsigned int": "uint32",
    "unsigned long long": "uint64",
}  # fmt: skip
"""Dtype of a scratch array for each C++ type of a result."""

COUNTERS = ("uint32", "int32")
"""Dtypes of the scratch array that counts the blocks that have ended."""


def in_scratch(graph: Graph, text: KernelText) -> WrittenKernel:
    """Returns the kernel whose blocks leave their results in the contract's scratch arrays.

    Raises:
        Refused: it reduces no whole array, or the scratch arrays do not suffice.
    """
    return _text(_total_of(graph), text, MANY_THREADS, "last")


def scratch_for(graph: Graph, kernel: Kernel, contract: Contract) -> tuple[Argument, ...]:
    """Returns the scratch arrays with which many blocks reduce a whole array; empty if one block suffices or is required."""
    try:
        plan = _total_of(graph)
        if int(evaluate(plan.columns, contract.sizes[0])) <= MOST_ALONE:
            return ()
        writer = _Total(plan, KernelText(kernel, contract), MANY_THREADS, "last")
        writer.written()
    except Refused:
        return ()
    return writer.scratch


def _total_of(graph: Graph) -> Plan:
    plan = plan_of(without_neutral(graph))
    if plan.kind != "rows" or plan.split:
        raise Refused("its contract has scratch arrays, and it does not reduce whole arrays")
    return plan


def written(plan: Plan, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the schedule does not apply.
    """
    size = kernel.contract.sizes[0]
    alone = all(int(evaluate(side, size)) == 1 for side in kernel.contract.grid if "block" not in side)
    makers = [partial(_text, plan, kernel, MANY_THREADS, "atomic")] if "atomicAdd" in kernel.kernel.source else []
    if (alone and "block" not in "".join(kernel.contract.grid)) or int(evaluate(plan.columns, size)) <= MOST_ALONE:
        makers.append(partial(_text, plan, kernel, 1024, "alone"))
    if not makers:
        raise Refused(
            "it reduces a whole array to one value, which needs several blocks and so atomic additions or a second launch"
        )
    yield from those_written(makers)


def _text(plan: Plan, kernel: KernelText, threads: int, how: How) -> WrittenKernel:
    return _Total(plan, kernel.again(), threads, how).written()


class _Total(Passes):
    """Writer of the kernel's text, for one block or for many.

    Attributes:
        scratch: the scratch arrays that it uses: one for each reduction, and the counter of blocks.
    """

    def __init__(self, plan: Plan, kernel: KernelText, threads: int, how: How) -> None:
        self.plan, self.kernel, self.how = plan, kernel, how
        self.many = how != "alone"
        self.scratch: tuple[Argument, ...] = ()
        self._accumulators: list[ReductionLocals] = []
        self.team = Team("block", threads, threads)
        self.outputs = [one.name for one in kernel.outputs()]
        self.inputs = self.accesses(self.outputs, "once", late=self.many)
        if any(plan.node(key).op == "gather" for key in walk(plan)):
            raise Refused("it gathers elements of a whole array")
        if how == "atomic":
            self._refuse_atomic()
        elif how == "last":
            self._refuse_last()
        self.names = fresh_names(kernel, "i", "count", "first", "step", "is_last", "block")
        self.names.kThreads, self.constants = kernel.threads(threads)
        self.carried = CarriedPositions(plan, kernel)
        self.expressions = Expressions(plan, kernel, self._leaf, frozenset({"flat", "part"}))
        self.reductions = Reductions(plan.graph, kernel, self.team, self.names.kThreads)

    def _refuse_last(self) -> None:
        """Checks that all results follow from reductions that blocks make independently.

        Raises:
            Refused: they do not.
        """
        self._refuse_dependent({*self.outputs} - {name for _, name in self._elements()})
        levels = self.levels()
        if len(levels) != 1:
            raise Refused("blocks would have to wait for each other between its passes")
        if any(is_extreme(self.plan.node(key).data[0]) for key in levels[0]):
            raise Refused("blocks would leave positions of extremes")

    def _refuse_atomic(self) -> None:
        """Checks that many blocks can compute the results: each block may only add its own sum to an output.

        Raises:
            Refused: they cannot.
        """
        if self.kernel.contract.deterministic:
            raise Refused("the contract asks for the same result in each run, and many blocks would add in any order")
        single = [pair for pair in zip(self.plan.outputs, self.outputs, strict=True) if not self.is_whole(pair[0])]
        self._refuse_dependent({name for _, name in single})
        for key, name in single:
            added, dtype = self._added(key, name), self.kernel.arguments[name].dtype
            whole = added is not None and dtype == self.plan.node(added).dtype == "int32"
            if added is None or not (whole or dtype in ("float32", "float64")):
                raise Refused(f"blocks cannot each add their part to {name}")

    def _refuse_dependent(self, totals: set[str]) -> None:
        """Checks that elementwise results do not depend on the totals, which are known only after all blocks have ended.

        Raises:
            Refused: they do.
        """
        for key, _ in self._elements():
            reached = [self.plan.node(one) for one in walk(replace(self.plan, outputs=(key,)))]
            if len(self.levels()) > 1 or any(one.op == "reduce" or (one.op == "input" and one.data[0] in totals) for one in reached):  # fmt: skip
                raise Refused("its results of all elements need the sum of all blocks")

    def _elements(self) -> list[tuple[Key, str]]:
        """Returns the results that have all elements, with their arrays."""
        return [pair for pair in zip(self.plan.outputs, self.outputs, strict=True) if self.is_whole(pair[0])]

    def _take(self, found: Sequence[ReductionLocals], online: Sequence[ReductionLocals], body: list[str]) -> None:
        """Adds statements to `body` that combine one more value; with many blocks, also those that store its other results."""
        beside = self._elements() if self.many and found else []
        if beside:  # what both need is computed once
            self.expressions.locals_for([*(self.plan.operands(one.key)[0] for one in found), *(key for key, _ in beside)], body)  # fmt: skip
        super()._take(found, online, body)
        if beside:
            body += self.stores(beside, lambda name: f"{name}[{self.names.i}]")

    def _added(self, key: Key, name: str) -> Key | None:
        """Returns the value that an output adds to its previous contents, if it is a sum or a multiple of one, as a mean; else None.

        An output that is zero before each launch, and to which the old kernel adds, may hold only the sum.
        """
        node = self.plan.node(key)
        if self._is_cleared(name) and self._is_multiple(key):
            return key
        if node.op in ("view", "cast"):
            return self._added(self.plan.operands(key)[0], name)
        if node.op != "map" or node.data[0] != "add":
            return None
        first, second = (self._behind(one) for one in self.plan.operands(key))
        for old, new in ((first, second), (second, first)):
            was = self.plan.node(old)
            if was.op == "input" and was.data[0] == name and self._is_multiple(new):
                return new
        return None

    def _is_cleared(self, name: str) -> bool:
        argument = self.kernel.arguments[name]
        return argument.direction == "inout" and argument.distribution == "zeros" and self.kernel.adds_atomically

    def _is_multiple(self, key: Key) -> bool:
        """Returns True for a sum, or for its product with or quotient by a number that no array has."""
        node = self.plan.node(key)
        if node.op in ("view", "cast", "reshape"):
            return not self._rounds(key) and self._is_multiple(self.plan.operands(key)[0])
        if node.op == "reduce":
            return node.data[0] == "sum"
        if node.op != "map" or node.data[0] not in ("multiply", "divide"):
            return False
        first, second = self.plan.operands(key)
        numbers = [self.plan.node(one).op in ("constant", "size", "scalar") for one in (first, second)]
        return (numbers[1] and self._is_multiple(first)) or (
            node.data[0] == "multiply" and numbers[0] and self._is_multiple(second)
        )

    def _behind(self, key: Key) -> Key:
        node = self.plan.node(key)
        passed = node.op in ("view", "cast", "reshape") and not self._rounds(key)
        return self._behind(self.plan.operands(key)[0]) if passed else key

    def _rounds(self, key: Key) -> bool:
        """Returns True for a cast to whole numbers, whose sum over blocks is not that of the whole."""
        node = self.plan.node(key)
        source = self.plan.graph.nodes[node.args[0]].dtype
        return node.op == "cast" and source.startswith("float") and not node.dtype.startswith("float")

    def _leaf(self, key: Key) -> str:
        node = self.plan.node(key)
        access = "once" if node.op == "scalar" else self.plan.access(key)
        index = {"once": "0", "flat": self.names.i}.get(access) or self.carried.text(key, self.expressions.at)
        if node.op == "iota":
            return f"static_cast<long long>({index})" if access == "part" else index
        name = str(node.data[0])
        return self.kernel.loaded(name, name if node.op == "scalar" else f"{name}[{index}]")

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, threads = self.kernel, self.names, self.team.block
        count = kernel.count(self.plan.domain)
        body = [] if count.isidentifier() else [f"const long long {names.count} = {count};"]
        names.count = count if count.isidentifier() else names.count
        if self.many:  # of at most `MOST_BLOCKS` blocks
            body += [
                f"const int {names.first} = blockIdx.x * {names.kThreads} + threadIdx.x;",
                f"const int {names.step} = gridDim.x * {names.kThreads};",
            ]
        else:
            body.append("// A single block: partial sums of several would need memory that the launch does not have.")
        for keys in self.levels():
            body += [*self.reduction(keys), ""]
        body += self._combination() if self.how == "last" else []
        body += self._results()
        stored = ", and stores the results of its elements on the way" * bool(self._elements())
        schedule, how, comment = {
            "alone": ("total", f"one block of {threads} threads, in the same order in each run", ""),
            "atomic": (
                "total-atomic",
                f"a grid-stride sum in each block, which adds its result by one atomic addition{stored}",
                "more blocks would only add more atomic additions",
            ),
            "last": (
                "total-last",
                f"a grid-stride loop in each block, whose results the block that ends last combines, in the same order in each run{stored}",
                "as many blocks as a GPU holds at once",
            ),
        }[self.how]
        return WrittenKernel(
            schedule,
            f"Written from the reference: {how}; shuffles combine partial results within a block."
            + kernel.promise(self.inputs),
            kernel.definition(kernel.head(), body),
            "\n".join([*self.constants, "", *self.reductions.texts()]).strip(),
            (self._grid(),),
            threads,
            grid_comment=comment,
        )

    def _grid(self) -> str:
        if not self.many:
            return "1"
        room = [str((one.shape or ("1",))[0]) for one in self.scratch[:-1]]
        most = dict.fromkeys([*room, *([] if room else [str(MOST_BLOCKS)])])
        return f"min({', '.join([f'cdiv({self.plan.columns}, block * {PER_THREAD})', *most])})"

    def _accumulator(self, key: Key) -> ReductionLocals:
        found = super()._accumulator(key)
        self._accumulators.append(found)
        return found

    def _combination(self) -> list[str]:
        """Returns statements after which only the last block continues, with the results of all blocks.

        Raises:
            Refused: the contract's scratch arrays do not suffice.
        """
        names = self.names
        *places, counter = self.scratch = self._scratch()
        kept = list(zip(self._accumulators, (one.name for one in places), strict=True))
        lines = [
            "// The block that ends last combines the results of all blocks, in the same order in each run.",
            f"__shared__ bool {names.is_last};",
            *block_of(
                "if (threadIdx.x == 0)",
                [
                    *(f"{place}[blockIdx.x] = {one.name};" for one, place in kept),
                    "__threadfence();  // before it counts as ended",
                    f"{names.is_last} = atomicAdd({counter.name}, 1{'u' * (counter.dtype == 'uint32')}) == gridDim.x - 1;",
                ],
            ),
            "__syncthreads();",
            f"if (!{names.is_last}) return;",
            "__threadfence();",
            *(one.starts[0].removeprefix(f"{one.ctype} ") for one, _ in kept),
            *block_of(
                f"for (int {names.block} = threadIdx.x; {names.block} < gridDim.x; {names.block} += {names.kThreads})",
                [
                    self.reductions.combined(one.kind, one.name, f"{place}[{names.block}]", one.ctype)
                    for one, place in kept
                ],
            ),
            *(one.final for one, _ in kept),
        ]
        return [*lines, ""]

    def _scratch(self) -> tuple[Argument, ...]:
        """Returns the scratch array of each reduction, and the counter's: the contract's, or new ones if it has none."""
        dtypes = [DTYPES.get(one.ctype) or self._no_room(one.ctype).dtype for one in self._accumulators]
        given = [one for one in self.kernel.contract.args if one.direction == "scratch"]
        if not given:
            words = [f"partial_{one.name}" for one in self._accumulators]
            return (
                *(
                    Argument(self.kernel.names.fresh(word), "scratch", dtype, (str(MOST_BLOCKS),))
                    for word, dtype in zip(words, dtypes, strict=True)
                ),
                Argument(self.kernel.names.fresh("blocks_ended"), "scratch", "int32", ("1",), "zeros"),
            )
        counter = next((one for one in given if one.dtype in COUNTERS and one.distribution == "zeros"), None)
        places: list[Argument] = []
        for dtype in dtypes:
            fitting = (one for one in given if one.dtype == dtype and one not in (counter, *places) and len(one.shape or ()) == 1)  # fmt: skip
            places.append(next(fitting, None) or self._no_room(dtype))
        return (*places, counter or self._no_room("int32, filled with zeros"))

    def _no_room(self, dtype: str) -> Argument:
        raise Refused(f"its contract has too few scratch arrays of {dtype} for the results of blocks")

    def position(self) -> tuple[str, str]:
        """Returns the flat index of the current element, and its C++ type."""
        return self.names.i, "long long"

    def loop(
        self, roots: Sequence[Key], body: list[str], stores: Sequence[str], before: Sequence[str] = ()
    ) -> list[str]:
        """Returns a pass over all elements, with several per thread in flight.

        The position is signed: the compiler hoists loads above tests only if it can compute the trip count, and
        `size_t` may wrap.
        """
        names = self.names
        outer, self.expressions.outer = self.expressions.outer, []
        first, step = (names.first, names.step) if self.many else ("threadIdx.x", names.kThreads)
        head = f"for (long long {names.i} = {first}; {names.i} < {names.count}; {names.i} += {step})"
        known = self.expressions.known
        self.expressions.known = {
            key: name for key, name in known.items() if key[0] < 0 or not self.expressions.varies(key)
        }
        unrolled = FEWEST_AHEAD if self.many else self.most_ahead()
        positions = self.carried.opening(first, step)
        return [
            *outer,
            *positions,
            *before,
            f"#pragma unroll {unrolled}",
            *block_of(head, [*body, *self.carried.advance()]),
        ]

    def _results(self) -> list[str]:
        pairs = list(zip(self.plan.outputs, self.outputs, strict=True))
        lines: list[str] = []
        if self.how == "atomic":
            sums = {name: self._added(key, name) for key, name in pairs if not self.is_whole(key)}
            for name, key in sums.items():
                if key is not None:
                    (text,) = self.expressions.locals_for([key], lines)
                    lines.append(f"atomicAdd({name}, {text});")
            return block_of("if (threadIdx.x == 0)", lines)
        single = [(key, name) for key, name in pairs if not self.is_whole(key)]
        if single:
            known = dict(self.expressions.known)
            lines += block_of("if (threadIdx.x == 0)", self.stores(single, lambda name: self.kernel.at(name, "0")))
            self.expressions.known = known
        whole = self._elements()
        if whole and not self.many:
            body = self.stores(whole, lambda name: f"{name}[{self.names.i}]")
            lines += self.loop([key for key, _ in whole], body, [])
        return lines
