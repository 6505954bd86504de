"""Reductions along columns and what follows from them: a block for a few neighbouring columns, without atomics.

Traffic: each array is read once for each pass, in whole sectors of 32 bytes. Arithmetic: that of the graph for each element and pass,
and for each column one combination per warp. The order of a sum depends on the number of rows alone, so results are bit-stable.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

from kernelmate.source import evaluate
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.kernel_text import ITEM_BYTES, KernelText, Written, block_of, fresh_names, those_written
from kernelmate.synthesis.plan import FLAT, Key, Plan, Refused, walk
from kernelmate.synthesis.reductions import WARP, Reductions, Team
from kernelmate.synthesis.schedules.passes import Passes

SECTOR = 32
"""Bytes that global memory moves at least: CUDA C++ Best Practices Guide, Coalesced Access."""

ENOUGH_BLOCKS = 256
"""Blocks from which wider ones no longer leave multiprocessors idle: about two for each of a large GPU."""


def written(plan: Plan, kernel: KernelText) -> Iterator[Written]:
    """The kernel's texts, the likeliest first.

    Raises:
        Refused: there is none.
    """
    size = kernel.contract.sizes[0]
    columns, rows = int(evaluate(plan.columns, size)), int(evaluate(plan.row_count, size))
    item = min((ITEM_BYTES[one.dtype] for one in kernel.contract.args if one.shape is not None), default=4)
    narrowest = max(1, min(WARP, SECTOR // item))
    widths = [one for one in (WARP, WARP // 2) if one > narrowest and columns >= one * ENOUGH_BLOCKS]
    wide, *_ = [*widths, narrowest]
    teams = [(wide, 1024 if rows * wide >= 4096 else 256), (WARP, 1024 if rows >= 128 else 256)]
    yield from those_written(partial(_text, plan, kernel, *team) for team in dict.fromkeys(teams))


def _text(plan: Plan, kernel: KernelText, width: int, threads: int) -> Written:
    return _Columns(plan, KernelText(kernel.kernel, kernel.contract), width, threads).written()


class _ColumnReductions(Reductions):
    """Device functions that combine the values of the threads of each column."""

    def __init__(self, kernel: KernelText, threads: str, columns: str) -> None:
        super().__init__(kernel, Team("column", 0, 0), threads)
        self.columns = columns

    def texts(self) -> list[str]:
        """Definitions of those that were asked for, each followed by an empty line."""
        lines: list[str] = []
        value, offset, partial_, warp = (getattr(self._names, one) for one in ("value", "offset", "partial", "warp"))
        column = f"threadIdx.x % {self.columns}"
        for (kind, ctype), name in self._functions.items():
            exchanged = self.combined(kind, value, f"__shfl_xor_sync(0xffffffffu, {value}, {offset})")
            warps = f"{self.threads} / {WARP}"
            body = [
                f"__shared__ {ctype} {partial_}[{warps}][{self.columns}];",
                *block_of(f"for (int {offset} = {WARP // 2}; {offset} >= {self.columns}; {offset} /= 2)", [exchanged]),
                "__syncthreads();  // everybody has read what the last call left there",
                f"if (threadIdx.x % {WARP} < {self.columns}) {partial_}[threadIdx.x / {WARP}][{column}] = {value};",
                "__syncthreads();",
                f"{value} = {partial_}[0][{column}];",
                *block_of(
                    f"for (int {warp} = 1; {warp} < {warps}; ++{warp})",
                    [self.combined(kind, value, f"{partial_}[{warp}][{column}]")],
                ),
                f"return {value};",
            ]
            lines += [self._device(f"{ctype} {name}({ctype} {value})", body), ""]
        return lines


class _Columns(Passes):
    """The text for blocks of so many columns and threads."""

    def __init__(self, plan: Plan, kernel: KernelText, width: int, threads: int) -> None:
        self.plan, self.kernel, self.width, self.threads = plan, kernel, width, threads
        if any(key[1] == (FLAT,) for key in plan.outputs):
            raise Refused("its outputs have another shape than what is reduced")
        self.names = fresh_names(kernel, "wanted", "column", "row", "height", "first", "columns")
        bare = kernel.kernel.name.rpartition("::")[2]
        constant = "".join(part.capitalize() for part in bare.split("_"))
        self.names.kThreads = kernel.names.outermost(f"k{constant}Threads")
        self.names.kColumns = kernel.names.outermost(f"k{constant}Columns")
        self.outputs = [one.name for one in kernel.outputs()]
        self.inputs = self.accesses(self.outputs, "column")
        for key in walk(plan):
            if plan.node(key).op == "iota" and plan.access(key) == "flat":
                raise Refused("it uses positions along an axis that is merged with others")
        self.expressions = Expressions(plan, kernel, self._leaf, frozenset({"flat", "row"}))
        self.reductions = _ColumnReductions(kernel, self.names.kThreads, self.names.kColumns)

    def _leaf(self, key: Key) -> str:
        node, names = self.plan.node(key), self.names
        access = "once" if node.op == "scalar" else self.plan.access(key)
        if node.op == "iota":
            return str({"row": names.row, "column": names.column}.get(access, "0"))
        name = str(node.data[0])
        if node.op == "scalar":
            return self.kernel.loaded(name, name)
        at = {
            "once": "0",
            "row": names.row,
            "column": names.column,
            "flat": f"{names.row} * {names.columns} + {names.column}",
        }
        return self.kernel.loaded(name, f"{name}[{at[access]}]")

    def written(self) -> Written:
        """The text."""
        kernel, names = self.kernel, self.names
        body = self._opening()
        for keys in self.levels():
            body += ["", *self.reduction(keys)]
        body += ["", *self._results()]
        constants = [
            f"constexpr int {names.kColumns} = {self.width};  // neighbouring columns of a block, read in whole sectors",
            f"constexpr int {names.kThreads} = {self.threads};  // of each block that is launched",
        ]
        passes = len(self.levels()) + any(map(self.is_whole, self.plan.outputs))
        why = (
            f"Written from the reference: a block of {self.threads} threads for {self.width} neighbouring columns, which reads them "
            f"{'once' if passes == 1 else f'{passes} times'} and combines partial results in shared memory, without atomics."
            + kernel.promise(self.inputs, passes)
        )
        return Written(
            f"columns-{self.width}",
            why,
            kernel.definition(kernel.head(), body),
            "\n".join([*constants, "", *self.reductions.texts()]).rstrip(),
            (f"cdiv({self.plan.columns}, {self.width})",),
            self.threads,
        )

    def _opening(self) -> list[str]:
        names, lines = self.names, []
        length, count = self.kernel.size(self.plan.columns), self.kernel.count(self.plan.domain[: self.plan.split])
        if length.isidentifier():
            names.columns = length
        else:
            lines.append(f"const int {names.columns} = {length};")
        at = f"blockIdx.x * {names.kColumns} + threadIdx.x % {names.kColumns}"
        return [
            *lines,
            *([] if count == names.height else [f"const size_t {names.height} = {count};"]),
            f"const int {names.wanted} = {at};",
            "// Threads behind the last column help to combine; they read nothing of their own and store nothing.",
            f"const int {names.column} = min({names.wanted}, {names.columns} - 1);",
            f"const size_t {names.first} = {names.wanted} < {names.columns} ? threadIdx.x / {names.kColumns} : {names.height};",
        ]

    def loop(
        self, roots: Sequence[Key], body: list[str], stores: Sequence[str], before: Sequence[str] = ()
    ) -> list[str]:
        """A pass over the rows of a column, four rows in flight."""
        names = self.names
        outer, self.expressions.outer = self.expressions.outer, []
        step = f"{names.kThreads} / {names.kColumns}"
        head = f"for (size_t {names.row} = {names.first}; {names.row} < {names.height}; {names.row} += {step})"
        known = self.expressions.known
        self.expressions.known = {
            key: name for key, name in known.items() if key[0] < 0 or not self.expressions.varies(key)
        }
        return [*outer, *before, "#pragma unroll 4", *block_of(head, body)]

    def _results(self) -> list[str]:
        """The outputs: those of all elements in a last pass, those of one element per column by one thread."""
        names = self.names
        pairs = list(zip(self.plan.outputs, self.outputs, strict=True))
        lines: list[str] = []
        single = [(key, name) for key, name in pairs if not self.is_whole(key)]
        if single:
            known = dict(self.expressions.known)
            body = self.stores(single, lambda name: f"{name}[{names.column}]")
            lines += block_of(f"if (threadIdx.x < {names.kColumns} && {names.wanted} < {names.columns})", body)
            self.expressions.known = known
        whole = [(key, name) for key, name in pairs if self.is_whole(key)]
        if whole:
            body = self.stores(whole, lambda name: f"{name}[{names.row} * {names.columns} + {names.column}]")
            lines += self.loop([key for key, _ in whole], body, [])
        return lines
