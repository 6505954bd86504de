"""Sums over two axes up to each element, as integral images: a block for each plane.

Traffic: each element is read once, and the result is written, read and written again, the second time from the caches.
Arithmetic: an addition for each element down the columns, and five along the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kernelmate.source import evaluate
from kernelmate.synthesis.axes import address, leaf_text
from kernelmate.synthesis.elements import Elements
from kernelmate.synthesis.expressions import Expressions
from kernelmate.synthesis.graph import Graph, Node
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of, c_type, fresh_names
from kernelmate.synthesis.plan import Key, Refused, walk
from kernelmate.synthesis.reductions import MOST_THREADS, WARP

AHEAD = 4
"""Number of a column's elements whose loads overlap."""


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields the generated kernel.

    Raises:
        Refused: the result is not a sum from the beginning of the last two axes of an array.
    """
    nodes = graph.nodes
    (output, *others) = graph.outputs
    first = _scanned(nodes, output)
    second = None if first is None else _scanned(nodes, nodes[first].args[0])
    if others or first is None or second is None or {nodes[one].data for one in (first, second)} != _both(nodes[first]):
        raise Refused("its results are other than sums over two axes up to each element")
    yield _PlaneText(graph, kernel.again(), nodes[first], nodes[second].args[0]).written()


def _both(scan: Node) -> set[tuple[object, ...]]:
    """Returns the data of scans along the last two axes."""
    rank = len(scan.shape)
    return {("sum", rank - 2, False), ("sum", rank - 1, False)}


def _scanned(nodes: Sequence[Node], index: int) -> int | None:
    """Returns the scan that casts convert; None if there is another operation."""
    while nodes[index].op == "cast":
        index = nodes[index].args[0]
    return index if nodes[index].op == "scan" else None


class _PlaneText:
    """Writer of the kernel's text."""

    def __init__(self, graph: Graph, kernel: KernelText, scan: Node, value: int) -> None:
        self.kernel, self.scan = kernel, scan
        rank = len(scan.shape)
        self.key: Key = (value, tuple(None if side == "1" else axis for axis, side in enumerate(scan.shape)))
        self.plan = Elements(graph, scan.shape, 0, (self.key,), "map", (), frozenset({rank - 1}))
        self.output = kernel.outputs()[0].name
        self.ctype = c_type(scan.dtype, kernel.real)
        self.read = [str(self.plan.node(key).data[0]) for key in walk(self.plan) if self.plan.node(key).op == "input"]
        if kernel.element(self.output) != self.ctype:
            raise Refused("its sums have another type than the result, which holds the intermediate values")
        if self.output in self.read:
            raise Refused("it reads an array that it writes")
        if any(scan.shape[axis] == "1" for axis in (rank - 2, rank - 1)):
            raise Refused("it sums over an axis of length 1")
        self.names = fresh_names(kernel, "plane", "row", "column", "sum", "lane", "first", "before", "offset", "other")
        self.names.kThreads, self.constants = kernel.threads(self.threads)
        self.lengths = {axis: kernel.size(side) for axis, side in enumerate(scan.shape)}
        self.lengths = {
            axis: side if side.isidentifier() or side.isdigit() else f"({side})" for axis, side in self.lengths.items()
        }
        self.at: dict[int | str, str] = {rank - 2: self.names.row, rank - 1: self.names.column}
        if rank > 3:
            raise Refused("it has several axes of planes")
        self.at |= {0: self.names.plane} if rank == 3 else {}
        self.expressions = Expressions(self.plan, kernel, self._leaf, frozenset({"inner", "outer"}))
        self.zero = self.expressions.number(0.0) if self.ctype == kernel.real else "0"

    @property
    def threads(self) -> int:
        """Threads of a block: one for each column or a warp for each row, whichever is more, up to `MOST_THREADS`."""
        size = self.kernel.contract.sizes[0]
        rows, columns = (int(evaluate(side, size)) for side in self.scan.shape[-2:])
        return min(MOST_THREADS, -(-max(columns, rows * WARP) // WARP) * WARP)

    def _leaf(self, key: Key) -> str:
        index = key[1]
        return leaf_text(
            self.kernel, self.plan.node(key),
            lambda: "0" if index[0] is None else self.at[int(str(index[0]))],
            lambda: self._address(index),
        )  # fmt: skip

    def _address(self, index: Sequence[object]) -> str:
        """Returns the offset of an array's element."""
        return address(tuple(int(str(one)) for one in index if one is not None), self.lengths, self.at)

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, planes = self.kernel, self.scan.shape[:-2]
        lines = [f"const int {self.names.plane} = blockIdx.x;"] if planes and planes != ("1",) else []
        lines += [*self._columns(), "__syncthreads();", *self._rows()]
        why = "a block for each plane sums down its columns, one thread for each, and then along its rows, a warp for each."
        return WrittenKernel(
            "plane-scan",
            f"Written from the reference: {why}{kernel.promise(self.read)}",
            kernel.definition(kernel.head(), lines),
            "\n".join(self.constants),
            (" * ".join(planes) or "1",),
            self.threads,
        )

    def _columns(self) -> list[str]:
        """Returns the loop over the columns that a thread sums."""
        names, body = self.names, list[str]()
        (text,) = self.expressions.locals_for([self.key], body)
        place = f"{self.output}[{self._address(self.key[1])}]"
        rows, columns = (self.lengths[axis] for axis in (len(self.scan.shape) - 2, len(self.scan.shape) - 1))
        body += [f"{names.sum} += {text};", f"{place} = {names.sum};"]
        loop = block_of(f"for (int {names.row} = 0; {names.row} < {rows}; ++{names.row})", body)
        head = f"for (int {names.column} = threadIdx.x; {names.column} < {columns}; {names.column} += {names.kThreads})"
        return block_of(head, [f"{self.ctype} {names.sum} = {self.zero};", f"#pragma unroll {AHEAD}", *loop])

    def _rows(self) -> list[str]:
        """Returns the loop over the rows that a warp sums, 32 elements at a time."""
        names, ctype = self.names, self.ctype
        place = f"{self.output}[{self._address(self.key[1])}]"
        rows, columns = (self.lengths[axis] for axis in (len(self.scan.shape) - 2, len(self.scan.shape) - 1))
        exchange = [
            f"const {ctype} {names.other} = __shfl_up_sync(0xffffffffu, {names.sum}, {names.offset});",
            f"if ({names.lane} >= {names.offset}) {names.sum} += {names.other};",
        ]
        body = [
            f"const int {names.column} = {names.first} + {names.lane};",
            f"{ctype} {names.sum} = {names.column} < {columns} ? {place} : {self.zero};",
            *block_of(f"for (int {names.offset} = 1; {names.offset} < {WARP}; {names.offset} *= 2)", exchange),
            f"{names.sum} += {names.before};",
            f"if ({names.column} < {columns}) {place} = {names.sum};",
            f"{names.before} = __shfl_sync(0xffffffffu, {names.sum}, {WARP - 1});",
        ]
        loop = block_of(f"for (int {names.first} = 0; {names.first} < {columns}; {names.first} += {WARP})", body)
        head = f"for (int {names.row} = threadIdx.x / {WARP}; {names.row} < {rows}; {names.row} += {names.kThreads} / {WARP})"
        lane = f"const int {names.lane} = threadIdx.x % {WARP};"
        return [lane, *block_of(head, [f"{ctype} {names.before} = {self.zero};  // the sum of the row so far", *loop])]
