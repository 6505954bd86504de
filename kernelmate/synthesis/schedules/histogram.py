"""Counts and sums by index: each block counts in shared memory if there are few counts, and adds them once.

Traffic: samples are read once, 16 bytes at a time, and each block adds each count once. Arithmetic: one atomic addition
per sample. Counts are integers, so that their order does not matter; sums of floats are written only if the baseline
adds atomically.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from kernelmate.records import Argument
from kernelmate.source import evaluate
from kernelmate.synthesis.elements import Elements, Numbers
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import (
    ITEM_BYTES,
    MULTIPROCESSORS,
    KernelText,
    WrittenKernel,
    block_of,
    fresh_names,
    those_written,
)
from kernelmate.synthesis.packs import ALIGNED, Packs
from kernelmate.synthesis.plan import Key, Refused, walk, without_reshapes
from kernelmate.synthesis.reductions import WARP
from kernelmate.synthesis.schedules.total import MOST_ALONE

BLOCK = 256
RESIDENT = 4
"""Maximum number of blocks per multiprocessor."""

PER_THREAD = 4
"""Packs per thread before more threads are used."""

SHARED = 32768
"""Bytes of shared memory for counts: two such blocks fit on each multiprocessor since sm_75."""

COPIES = 16384
"""Maximum bytes of all copies of a block's counts; each warp has its own copy if they fit."""


ATOMIC = ("int32", "uint32", "int64", "uint64", "float32", "float64")
"""Dtypes to which additions are atomic on every supported architecture."""


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields generated kernels, the most promising first.

    Raises:
        Refused: the schedule does not apply.
    """
    size = kernel.contract.sizes[0]
    plan = bins_of(graph)
    alone = all(int(evaluate(side, {**size, "block": 1})) == 1 for side in kernel.contract.grid)
    makers = [partial(_text, plan, kernel, True)]
    if alone or int(evaluate(plan.domain[1], size)) <= MOST_ALONE:
        makers.append(partial(_text, plan, kernel, False))
    yield from those_written(makers)


def _text(plan: Elements, kernel: KernelText, many: bool) -> WrittenKernel:
    return HistogramText(plan, kernel.again(), many).written()


def bins_of(graph: Graph) -> Elements:
    """Returns bins and samples as two axes.

    Raises:
        Refused: there is more than one sum by index, or another result.
    """
    graph = without_reshapes(graph)
    scatters = [node for node in graph.nodes if node.op == "scatter"]
    if len(scatters) != 1 or len(graph.outputs) != 1 or len(graph.nodes[graph.outputs[0]].shape) != 1:
        raise Refused("it counts or sums by index, and has other results besides")
    samples = graph.nodes[scatters[0].args[0]].shape[0]
    outputs = ((graph.outputs[0], (0,)),)
    return Elements(graph, (scatters[0].shape[0], samples), 0, outputs, "map", (), frozenset({1}), 1)


def is_added(plan: Elements, scatter: Key, output: Argument) -> bool:
    """Returns True if sums by index are added to earlier contents of an output, or if the contract's contents are zeros."""

    def behind(key: Key) -> Key:
        return behind(plan.operands(key)[0]) if plan.node(key).op in ("view", "cast") else key

    key = behind(plan.outputs[0])
    node = plan.node(key)
    if key == scatter:
        return not node.data and output.direction == "inout" and output.distribution == "zeros"
    kind = str((plan.node(scatter).data or ("sum",))[0])
    if node.op != "map" or node.data[0] != {"sum": "add", "max": "maximum", "min": "minimum"}[kind]:
        return False
    pair = [behind(one) for one in plan.operands(key)]
    was = [plan.node(one) for one in pair if one != scatter]
    return scatter in pair and [(one.op, one.data[:1]) for one in was] == [("input", (output.name,))]


class HistogramText:
    """The text for one block, or for many."""

    verb = "add"

    def __init__(self, plan: Elements, kernel: KernelText, many: bool) -> None:
        self.plan, self.kernel, self.many = plan, kernel, many
        self.scatter = next(key for key in walk(plan) if plan.node(key).op == "scatter")
        self.output = kernel.outputs()[0].name
        self.names = fresh_names(
            kernel, "kCopies", "kPack", "bin", "copy", "count", "i", "j",
            "first", "stride", "aligned", "sum", sample="index", part="block_counts", own="warp_counts", done="packs", add=self.verb,
        )  # fmt: skip
        self.names.kThreads, self.constants = kernel.threads(self.threads)
        bins = plan.domain[0]
        self.dtype = kernel.arguments[self.output].dtype
        self.bytes = ITEM_BYTES[self.dtype]
        self.bins = int(bins) if bins.isdigit() and int(bins) * self.bytes <= SHARED else None
        self._refuse()
        flat = []
        for key in self._samples():
            if plan.node(key).op == "input" and key[1] == (1,):
                flat.append(str(plan.node(key).data[0]))
        if self.output in flat:
            raise Refused(f"{self.output} is read where another thread may have written it")
        self.packs = Packs(kernel, [one.name for one in kernel.contract.args if one.name in flat], kernel.names)
        self.elements = {one: kernel.names.element(one) for one in self.packs.arrays}
        self.numbers = Numbers(plan, kernel, {0: self.names.bin, 1: self.names.sample})
        self.counts_samples = False
        self.expressions = Expressions(plan, kernel, self._leaf, frozenset({"inner"}))
        self.atomic = {"int64": "unsigned long long", "uint64": "unsigned long long"}.get(
            self.dtype, kernel.element(self.output)
        )

    def _samples(self) -> list[Key]:
        """Returns the values computed for each sample."""
        seen: list[Key] = []
        stack = list(self.plan.operands(self.scatter))
        while stack:
            key = stack.pop()
            if key not in seen:
                seen.append(key)
                stack += self.plan.operands(key)
        return seen

    def _refuse(self) -> None:
        """Checks that atomic additions can compute the results.

        Raises:
            Refused: they cannot.
        """
        floating = self.dtype.startswith("float")
        if self.dtype not in ATOMIC:
            raise Refused(f"atomic additions to {self.dtype} are not written")
        if floating != self.plan.node(self.scatter).dtype.startswith("float"):
            raise Refused(f"it rounds counts or sums by index to {self.dtype}")
        if floating and (self.kernel.contract.deterministic or not self.kernel.adds_atomically):
            raise Refused("it sums floats by index, and the baseline does so in the same order in each run")
        if self.many and not is_added(self.plan, self.scatter, self.kernel.arguments[self.output]):
            raise Refused(f"{self.output} does not begin with zeros to which several blocks could add")
        if not self.many and self.bins is None:
            raise Refused("it has more counts than a block's shared memory")

    def _leaf(self, key: Key) -> str:
        node = self.plan.node(key)
        if node.op == "iota":
            raise Refused("it uses the positions of samples or bins")
        name = str(node.data[0])
        if node.op == "scalar":
            return self.kernel.loaded(name, name)
        if key[1] == (1,):
            return self.kernel.loaded(name, self.elements[name])
        self.counts_samples |= 1 in key[1]
        return self.kernel.loaded(name, f"{name}[{self.numbers.address(key, self.expressions)}]")

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names, width = self.kernel, self.names, self.packs.width
        count = kernel.count(self.plan.domain[1:])
        function = self._function()
        names.count = count if count.isidentifier() else names.count
        sizes = [] if count == names.count else [f"const size_t {names.count} = {count};"]
        body = [*self._shared(), *sizes, *self.expressions.outer, *function, *self._loops(), *self._final()]
        where = "counts in shared memory that each block adds to the result once" if self.bins else "atomic additions"
        samples = int(evaluate(self.plan.domain[1], kernel.contract.sizes[0]))
        per_thread = PER_THREAD if samples >= MULTIPROCESSORS * self.threads * width * PER_THREAD else 1
        each = " * ".join(str(one) for one in (width, per_thread) if one > 1)
        each = f" * {each}" * bool(each)
        blocks = f"min(cdiv({self.plan.domain[1]}, block{each}), {MULTIPROCESSORS} * {RESIDENT})"
        loads = f"{per_thread} load{'s' * (per_thread > 1)}{f' of {width} {self._noun()}' * (width > 1)} per thread"
        read = [*self.packs.arrays]
        return WrittenKernel(
            ("histogram" if self.bins else "scatter") + ("" if self.many else "-block"),
            f"Written from the reference: each thread{'' if self.many else ' of one block'} reads {width} {self._noun()} at a time, with "
            f"{where if self.many else 'counts in shared memory'}." + kernel.promise(read),
            kernel.definition(kernel.head(), body),
            "\n".join(self.constants),
            (blocks if self.many else "1",),
            self.threads,
            grid_comment=f"{loads}; {RESIDENT} blocks per multiprocessor of an H100" if self.many else "",
        )

    @property
    def threads(self) -> int:
        """Threads per block."""
        return BLOCK if self.many else 1024

    def _copies(self) -> int:
        copies = self.threads // WARP
        while copies > 1 and copies * (self.bins or 1) * self.bytes > COPIES:
            copies //= 2
        return copies

    def _shared(self) -> list[str]:
        """Emits the block's counts in shared memory, set to zero."""
        if self.bins is None:
            return []
        names, copies = self.names, self._copies()
        names.kBins, lines = self.kernel.local_constant("kBins", self.bins, "bin", "")
        i, zeros = names.i, f"{names.part}[{names.i}] = 0;"
        own = f"threadIdx.x / {WARP}"
        if copies == 1:
            names.own, side = names.part, f"[{names.kBins}]"
        elif copies == self.threads // WARP:
            side = f"[{names.kCopies}][{names.kBins}]"
            lines.append(
                f"constexpr int {names.kCopies} = {names.kThreads} / {WARP};  // one per warp, so that warps rarely wait for each other"
            )
        else:
            side, own = f"[{names.kCopies}][{names.kBins}]", f"{own} % {names.kCopies}"
            lines.append(f"constexpr int {names.kCopies} = {copies};  // each shared by a few warps: no more fit")
        if copies > 1:
            zeros = f"for (int {names.copy} = 0; {names.copy} < {names.kCopies}; ++{names.copy}) {names.part}[{names.copy}][{i}] = 0;"
        return [
            *lines,
            f"__shared__ {self.atomic} {names.part}{side};",
            *block_of(f"for (int {i} = threadIdx.x; {i} < {names.kBins}; {i} += {names.kThreads})", [zeros]),
            "__syncthreads();",
            *([f"{self.atomic}* {names.own} = {names.part}[{own}];"] if copies > 1 else []),
        ]

    def _function(self) -> list[str]:
        """Returns the lambda that adds one sample."""
        names, kernel = self.names, self.kernel
        if self.bins is not None:
            self._shared()  # names what the counts are added to
        bins, *weights = self.plan.operands(self.scatter)
        lines: list[str] = []
        while self.plan.node(bins).op == "cast" and self.plan.graph.nodes[self.plan.node(bins).args[0]].dtype[:3] in ("int", "uin"):  # fmt: skip
            bins = self.plan.operands(bins)[0]
        self.numbers.taken([bins, *weights], self.expressions, lines)
        place, *values = self.expressions.locals_for([bins, *weights], lines)
        value = "1" if not values else values[0]
        if value.isdigit():
            value += {"unsigned int": "u", "unsigned long long": "ull"}.get(self.atomic, "")
        elif values and self.expressions.type_of(weights[0]) != self.atomic:
            value = f"static_cast<{self.atomic}>({value})"
        target = f"{names.own}[{place}]" if self.bins is not None else f"{self.output}[{place}]"
        lines.append(self.added(target, value))
        several = [f"{kernel.element(one)} {self.elements[one]}" for one in self.packs.arrays]
        declared = ", ".join([*several, *([f"size_t {names.sample}"] if self.counts_samples else [])])
        return [*block_of(f"const auto {names.add} = [=]({declared})", lines)[:-1], "};"]

    def added(self, target: str, value: str) -> str:
        """Returns the statement that adds a value to an element of the counts or of the result."""
        pointer = f"&{target}"
        if self.bins is None and self.atomic != self.kernel.element(self.output):
            pointer = f"reinterpret_cast<{self.atomic}*>({pointer})"
        return f"atomicAdd({pointer}, {value});"

    def _noun(self) -> str:
        """Returns the user's word for the samples: the array's name if it is a plural."""
        first = self.packs.arrays[0] if self.packs.arrays else ""
        return first if re.fullmatch(r"[a-z]+[^su]s", first) else "samples"

    def _loops(self) -> list[str]:
        """Returns the loops over samples: whole packs where aligned, then the rest."""
        names, packs = self.names, self.packs
        i, j = names.i, names.j
        first, stride = "threadIdx.x", str(names.kThreads)
        if self.many:
            first = f"static_cast<size_t>(blockIdx.x) * {stride} + {first}"
            stride = f"static_cast<size_t>(gridDim.x) * {stride}"
        lines = [f"const size_t {names.first} = {first};", f"const size_t {names.stride} = {stride};"]
        start = names.first
        if packs.width > 1:
            place = [f"{i} * {names.kPack} + {j}"] * self.counts_samples
            call = f"{names.add}({', '.join([*(f'{packs.locals[one]}.at[{j}]' for one in packs.arrays), *place])});"
            body = [packs.load(one, f"{one} + {i} * {names.kPack}") for one in packs.arrays]
            body += [
                "#pragma unroll",
                *block_of(f"for (int {j} = 0; {j} < {names.kPack}; ++{j})", [call]),
            ]
            lines = [
                f"constexpr int {names.kPack} = {packs.width};  // {self._noun()} in one load",
                *packs.structs(names.kPack),
                *lines,
                ALIGNED,
                f"const size_t {names.done} = {packs.aligned() or 'true'} ? {names.count} / {names.kPack} : 0;",
                *block_of(
                    f"for (size_t {i} = {names.first}; {i} < {names.done}; {i} += {names.stride})",
                    body,
                ),
            ]
            start = f"{names.done} * {names.kPack} + {names.first}"
        call = f"{names.add}({', '.join([*(f'{one}[{i}]' for one in packs.arrays), *[i] * self.counts_samples])});"
        return [
            *lines,
            *block_of(f"for (size_t {i} = {start}; {i} < {names.count}; {i} += {names.stride})", [call]),
        ]

    def _final(self) -> list[str]:
        """Returns statements that add or store each block's counts."""
        if self.bins is None:
            return []
        names, kernel, copies = self.names, self.kernel, self._copies()
        bin_ = names.bin
        lines = [f"{self.atomic} {names.sum} = {names.part}{'[0]' * (copies > 1)}[{bin_}];"]
        if copies > 1:
            lines += [
                f"for (int {names.copy} = 1; {names.copy} < {names.kCopies}; ++{names.copy}) {names.sum} += {names.part}[{names.copy}][{bin_}];"
            ]
        if self.many:
            pointer = f"&{self.output}[{bin_}]"
            if self.atomic != kernel.element(self.output):
                pointer = f"reinterpret_cast<{self.atomic}*>({pointer})"
            lines.append(f"if ({names.sum} != 0) atomicAdd({pointer}, {names.sum});")
        else:
            key = self.plan.outputs[0]
            self.expressions.known[self.scatter] = names.sum
            self.numbers.taken([key], self.expressions, lines)
            (text,) = self.expressions.locals_for([key], lines)
            value = kernel.stored(self.output, text, self.plan.node(key).dtype)
            lines.append(f"{self.output}[{bin_}] = {value};")
        head = f"for (int {bin_} = threadIdx.x; {bin_} < {names.kBins}; {bin_} += {names.kThreads})"
        return ["__syncthreads();", *block_of(head, lines)]
