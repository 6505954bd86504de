"""Reductions of whole arrays: one block, or many blocks that add atomically where the baseline does.

Traffic: each array is read once for each pass. Arithmetic: that of the graph for each element, and one combination per warp and block.
Many blocks need atomic additions, whose order differs from run to run: they are used only where the baseline has them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, fresh_names, those_written
from kernelmate.synthesis.plan import Key, Plan, Refused, walk
from kernelmate.synthesis.reductions import Reductions, Team
from kernelmate.synthesis.schedules.passes import FEWEST_AHEAD, Passes

MOST_ALONE = 65536
"""Number of elements up to which one block is not much slower than many."""

PER_THREAD = 4
"""Elements per thread with many blocks, at most `MOST_BLOCKS`."""

MOST_BLOCKS = 1024


def written(plan: Plan, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the schedule does not apply.
    """
    size = kernel.contract.sizes[0]
    alone = all(int(evaluate(side, size)) == 1 for side in kernel.contract.grid if "block" not in side)
    makers = [partial(_text, plan, kernel, 256, True)] if "atomicAdd" in kernel.kernel.source else []
    if (alone and "block" not in "".join(kernel.contract.grid)) or int(evaluate(plan.columns, size)) <= MOST_ALONE:
        makers.append(partial(_text, plan, kernel, 1024, False))
    if not makers:
        raise Refused(
            "it reduces a whole array to one value, which needs several blocks and so atomic additions or a second launch"
        )
    yield from those_written(makers)


def _text(plan: Plan, kernel: KernelText, threads: int, many: bool) -> WrittenKernel:
    return _Total(plan, kernel.again(), threads, many).written()


class _Total(Passes):
    """Writer of the kernel's text, for one block or for many."""

    def __init__(self, plan: Plan, kernel: KernelText, threads: int, many: bool) -> None:
        self.plan, self.kernel, self.many = plan, kernel, many
        self.team = Team("block", threads, threads)
        self.outputs = [one.name for one in kernel.outputs()]
        self.inputs = self.accesses(self.outputs, "once")
        for key in walk(plan):
            if plan.node(key).op == "gather" or (plan.node(key).op == "iota" and len(plan.domain) > 1):
                raise Refused("it uses positions along an axis that is merged with others")
        if many:
            self._refuse_many()
        self.names = fresh_names(kernel, "i", "count", "first", "step")
        self.names.kThreads, self.constants = kernel.threads(threads)
        self.expressions = Expressions(plan, kernel, self._leaf, frozenset({"flat"}))
        self.reductions = Reductions(plan, kernel, self.team, self.names.kThreads)

    def _refuse_many(self) -> None:
        """Checks that many blocks can compute the results: each block may only add its own sum to an output.

        Raises:
            Refused: they cannot.
        """
        if self.kernel.contract.deterministic:
            raise Refused("the contract asks for the same result in each run, and many blocks would add in any order")
        for key, name in zip(self.plan.outputs, self.outputs, strict=True):
            added, dtype = self._added(key, name), self.kernel.arguments[name].dtype
            whole = added is not None and dtype == self.plan.node(added).dtype == "int32"
            if added is None or not (whole or dtype in ("float32", "float64")):
                raise Refused(f"blocks cannot each add their part to {name}")

    def _added(self, key: Key, name: str) -> Key | None:
        """Returns what an output adds to its earlier contents, a sum or a multiple of one; None for anything else.

        An output that is zero before each launch, and to which the old kernel adds, may be the sum alone.
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
            was, sums = self.plan.node(old), self.plan.node(new)
            if was.op == "input" and was.data[0] == name and sums.op == "reduce" and sums.data[0] == "sum":
                return new
        return None

    def _is_cleared(self, name: str) -> bool:
        argument = self.kernel.arguments[name]
        return argument.direction == "inout" and argument.distribution == "zeros" and self.kernel.adds_atomically

    def _is_multiple(self, key: Key) -> bool:
        """Returns True for a sum, or for its product with or quotient by a number that no array has."""
        node = self.plan.node(key)
        if node.op in ("view", "cast", "reshape"):
            return self._is_multiple(self.plan.operands(key)[0])
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
        return self._behind(self.plan.operands(key)[0]) if node.op in ("view", "cast", "reshape") else key

    def _leaf(self, key: Key) -> str:
        node = self.plan.node(key)
        access = "once" if node.op == "scalar" else self.plan.access(key)
        if node.op == "iota":
            return self.names.i if access == "flat" else "0"
        name = str(node.data[0])
        texts = {"once": f"{name}[0]", "flat": f"{name}[{self.names.i}]"}
        return self.kernel.loaded(name, name if node.op == "scalar" else texts[access])

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
        body += self._results()
        grid = f"min(cdiv({self.plan.columns}, block * {PER_THREAD}), {MOST_BLOCKS})" if self.many else "1"
        how = (
            "a grid-stride sum in each block, which adds its result by one atomic addition"
            if self.many
            else f"one block of {threads} threads, in the same order in each run"
        )
        return WrittenKernel(
            "total-atomic" if self.many else "total",
            f"Written from the reference: {how}; shuffles combine partial results within a block."
            + kernel.promise(self.inputs),
            kernel.definition(kernel.head(), body),
            "\n".join([*self.constants, "", *self.reductions.texts()]).strip(),
            (grid,),
            threads,
            grid_comment="more blocks would only add more atomic additions" if self.many else "",
        )

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
        return [*outer, *before, f"#pragma unroll {unrolled}", *block_of(head, body)]

    def _results(self) -> list[str]:
        pairs = list(zip(self.plan.outputs, self.outputs, strict=True))
        lines: list[str] = []
        if self.many:
            sums = {name: self._added(key, name) for key, name in pairs}
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
        whole = [(key, name) for key, name in pairs if self.is_whole(key)]
        if whole:
            body = self.stores(whole, lambda name: f"{name}[{self.names.i}]")
            lines += self.loop([key for key, _ in whole], body, [])
        return lines
