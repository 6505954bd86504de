"""Several independent results in one launch: separate blocks compute each by its own schedule.

Traffic and arithmetic: those of the results' own schedules.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from kernelmate.records import Argument, Contract, Kernel
from kernelmate.synthesis.graph import Graph, pruned
from kernelmate.synthesis.kernel_text import KernelText, WrittenKernel, block_of
from kernelmate.synthesis.names import Names, words_of
from kernelmate.synthesis.plan import Refused
from kernelmate.synthesis.size_text import blocks_text

THREADS = 256
"""Threads per block for every result's schedule."""

Writer = Callable[[Graph, KernelText], Iterator[WrittenKernel]]


def written(graph: Graph, kernel: KernelText, writer: Writer) -> Iterator[WrittenKernel]:
    """Yields the generated kernel.

    Args:
        graph: with several results.
        kernel: the baseline.
        writer: writes the kernels of one result.

    Raises:
        Refused: a result needs what another one's blocks write, or has no schedule in blocks of `THREADS`.
    """
    names = [one.name for one in kernel.outputs()]
    graphs = [pruned(graph.nodes, [one]) for one in graph.outputs]
    for own, part in zip(names, graphs, strict=True):
        read = {str(node.data[0]) for node in part.nodes if node.op == "input"}
        if read & ({*names} - {own}):
            raise Refused("its results need each other, and cannot be computed by different blocks")
    found: list[tuple[str, WrittenKernel, str | None]] = []
    taken: set[str] = set()
    for name, part in zip(names, graphs, strict=True):
        text = _chosen(writer(part, _KernelPart(kernel.kernel, kernel.contract, name, taken)))
        taken |= words_of(text.helpers)
        found.append((name, text, _blocks(text.grid[0], kernel)))
    found.sort(key=lambda one: one[2] is None)
    if any(count is None for _, _, count in found[:-1]):
        raise Refused("the kernel does not get the sizes of several results")
    yield _joined(kernel, found)


class _KernelPart(KernelText):
    """Text of a kernel that computes one of the results."""

    def __init__(self, kernel: Kernel, contract: Contract, name: str, taken: set[str]) -> None:
        super().__init__(kernel, contract)
        self._only, self._taken = name, taken
        self.names = Names({*self.names.outer, *taken}, taken, {*contract.sizes[0], *self.parameters})

    def outputs(self) -> list[Argument]:
        """Returns the outputs of this part."""
        return [one for one in super().outputs() if one.name == self._only]

    def again(self, others: Mapping[str, str] | None = None) -> KernelText:
        """Returns a new text of the same part.

        Raises:
            Refused: parts of arrays are to be read under other names.
        """
        if others:
            raise Refused("a result of several takes parts of arrays")
        return _KernelPart(self.kernel, self.contract, self._only, self._taken)


def _chosen(texts: Iterator[WrittenKernel]) -> WrittenKernel:
    """Returns the first text that can be part of a joint launch."""
    for one in texts:
        if one.block == THREADS and len(one.grid) == 1:
            return one
    raise Refused("a result has no schedule in blocks of the others")


def _blocks(grid: str, kernel: KernelText) -> str | None:
    """Returns the number of blocks in C++; None if the kernel has no parameter for a size."""
    try:
        return blocks_text(re.sub(r"\bblock\b", str(THREADS), grid), kernel.size)
    except Refused:
        return None


def _joined(kernel: KernelText, parts: Sequence[tuple[str, WrittenKernel, str | None]]) -> WrittenKernel:
    """Joins kernels: each uses the blocks after those of the preceding ones."""
    bare, block, blocks = (
        kernel.kernel.name.rpartition("::")[2],
        kernel.names.fresh("block"),
        kernel.names.fresh("blocks"),
    )
    passed = list(kernel.parameters)
    helpers: list[str] = []
    lines: list[str] = []
    before = ""
    for name, text, count in parts:
        function = kernel.names.outermost(f"{bare}_{name}")
        strides = "gridDim.x" in text.definition  # its blocks take several parts each
        own = [*kernel.declared(passed), f"int {block}", *[f"int {blocks}"] * strides]
        head = kernel.wrapped(f"static __device__ __forceinline__ void {function}(", own)
        body = _body(text.definition, kernel.indent)
        body = [line.replace("blockIdx.x", block).replace("gridDim.x", blocks) for line in body]
        helpers += [text.helpers] if text.helpers else []
        helpers.append(f"// The blocks that compute {name}.\n{kernel.definition(head, body)}")
        number = f"blockIdx.x - {before}" if before else "blockIdx.x"
        if name == parts[-1][0]:
            rest = f"gridDim.x - {before}" if before else "gridDim.x"
            lines.append(f"{function}({', '.join([*passed, number, *[rest] * strides])});")
            continue
        end = kernel.names.fresh(f"{name}_end")
        mine = f"{end} - {before}" if before else end
        call = f"{function}({', '.join([*passed, number, *[mine] * strides])});"
        lines.append(f"const int {end} = {f'{before} + ' if before else ''}{count};")
        lines += block_of(f"if (blockIdx.x < {end})", [call, "return;"])
        before = end
    why = " ".join(text.why for _, text, _ in parts)
    definition = kernel.definition(kernel.head(), lines)
    grid = " + ".join(text.grid[0] for _, text, _ in parts)
    return WrittenKernel("apart", why, definition, "\n\n".join(helpers), (grid,), THREADS)


def _body(definition: str, indent: str) -> list[str]:
    """Returns the lines of a function's body, indented by two blanks per level."""
    inside = definition[definition.index("{") + 1 : definition.rindex("}")].strip("\n")
    plain = re.sub(rf"^(?:{indent})+", lambda found: "  " * (len(found[0]) // len(indent)), inside, flags=re.MULTILINE)
    return [line.removeprefix("  ") for line in plain.splitlines()]
