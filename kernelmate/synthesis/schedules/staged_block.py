"""Graphs of several stages that one block computes: reductions along different axes, chains of products, scans, reshapes between them.

Blocks share the results along axes along which nothing is reduced. A block keeps each intermediate array in shared memory, and a barrier
separates the stages. Traffic: arrays with the blocks' axes once for each stage that reads them, mostly from the L1 cache after the first
one; other arrays once for each block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernelmate.source import evaluate
from kernelmate.synthesis.block_stages import BlockPlan, BlockStage, block_plans
from kernelmate.synthesis.graph import Graph
from kernelmate.synthesis.kernel_text import (
    ITEM_BYTES,
    MULTIPROCESSORS,
    STATIC_BYTES,
    KernelText,
    WrittenKernel,
)
from kernelmate.synthesis.plan import Key, Refused, walk
from kernelmate.synthesis.reductions import WARP
from kernelmate.synthesis.schedules.stage_text import BlockValues, StageSteps, StageText
from kernelmate.synthesis.size_text import MissingSize

MOST_AGAIN = 1 << 22
"""Maximum number of terms that all blocks together compute again: a few microseconds of a GPU."""

MOST_IN_TURN = 1 << 21
"""Maximum number of terms that one multiprocessor computes while others are idle."""

TRIED, LARGEST = 257, 227 * 1024
"""A size that kernels have to run at, although the contract lists smaller ones, and the bytes of shared memory that compute capability
9.0 gives a block at most (CUDA C++ Programming Guide, Technical Specifications)."""


def written(graph: Graph, kernel: KernelText) -> Iterator[WrittenKernel]:
    """Yields the kernel of the plan that takes the fewest terms in turn.

    Raises:
        Refused: no plan applies, its arrays exceed the shared memory of a block, or one block would do most of the work.
    """
    size = kernel.contract.sizes[0]
    reasons: list[Refused] = []
    for joins in (False, True):
        costs = [(*one.cost(size, MULTIPROCESSORS), one) for one in block_plans(graph, joins=joins)]
        few = [(turn * (1 + 3 * _is_strided(one)), again, one) for turn, again, one in costs if again <= MOST_AGAIN and turn <= MOST_IN_TURN]  # fmt: skip
        if not few:
            raise Refused("its stages depend on whole arrays, which are too large for one block; divide the reference into several kernels")  # fmt: skip
        for _, _, plan in sorted(few, key=lambda one: one[:2]):
            try:
                yield _BlockText(plan, kernel.again()).written()
                return
            except MissingSize:
                raise
            except Refused as reason:
                reasons.append(reason)
    raise reasons[0]


def _is_strided(plan: BlockPlan) -> bool:
    """Returns True if neighbouring elements of a result belong to different blocks."""
    return any(len(one.sides) - 1 in one.block for one in plan.stages if one.output is not None)


class _BlockText(BlockValues):
    """Writer of the kernel's text.

    Attributes:
        starts: by stage, the shared array whose memory the stage's value takes.
        read_places, written_places: names of the arrays read and written since the last barrier.
    """

    def __init__(self, plan: BlockPlan, kernel: KernelText) -> None:
        super().__init__(plan, kernel)
        self.starts: dict[int, str] = {}
        self.read_places, self.written_places = set[str](), set[str]()
        self._check_overwritten()

    def _check_overwritten(self) -> None:
        """Checks that results replace no values that are read later, or by other blocks.

        Raises:
            Refused: they do.
        """
        last = max(one.level for one in self.plan.stages)
        results = {self.outputs[one.output]: one for one in self.plan.stages if one.output is not None}
        for stage in self.plan.stages:
            plan, index = self._steps(stage)
            for key in walk(plan):
                result = results.get(str(plan.node(key).data[0])) if plan.node(key).op == "input" else None
                if result is None:
                    continue
                late = stage.level == last and (stage is not result or key[1] != index)
                if late or not self._is_of_block(stage, key, result):
                    name = plan.node(key).data[0]
                    raise Refused(f"{name} is read where another thread may have written it")

    def _is_of_block(self, stage: BlockStage, key: Key, result: BlockStage) -> bool:
        """Returns True if a stage reads only those elements of a result's array that its own block writes."""
        pairs = [*zip(stage.block, result.block, strict=True)]
        if stage.graph.nodes[key[0]].shape != result.sides:
            return not pairs
        return all(None not in (mine, its) and key[1][int(its or 0)] == f"a{mine}" for mine, its in pairs)

    def _steps(self, stage: BlockStage) -> tuple[StageSteps, tuple[str | None, ...]]:
        """Returns a stage's plan with placeholders as positions, and the index of its value."""
        names = {number: f"k{number}" for number, node in enumerate(stage.graph.nodes) if node.op in ("reduce", "scan")}
        index = tuple(None if side == "1" else f"a{axis}" for axis, side in enumerate(stage.sides))
        plan = StageSteps(stage.graph, (), 0, ((stage.graph.outputs[0], index),), "free", names=names)
        return plan, index

    def written(self) -> WrittenKernel:
        """Returns the generated kernel."""
        kernel, names = self.kernel, self.names
        declared, shared = self._shared()
        body: list[str] = []
        for stage in self.plan.stages:
            lines = StageText(self, stage).lines()
            body += ["", "__syncthreads();"] if self._needs_barrier(stage) else []
            body += lines
            self._accessed(stage)
        used = "\n".join(body)
        ranks = [(names.lane, f"const int {names.lane} = threadIdx.x % {WARP};"), (names.warp, f"const int {names.warp} = threadIdx.x / {WARP};")]  # fmt: skip
        lines = [
            *declared,
            *self._positions(),
            *(text for name, text in ranks if re.search(rf"\b{name}\b", used)),
            *body,
        ]
        read = dict.fromkeys(
            str(node.data[0]) for one in self.plan.stages for node in one.graph.nodes if node.op == "input"
        )
        blocks = "a block for each of the results that share nothing" if self.plan.blocks else "one block"
        why = f"{blocks} computes them in stages, and keeps what lies between in shared memory."
        return WrittenKernel(
            "staged-block" if self.plan.blocks else "staged-single-block",
            f"Written from the reference: {why}{kernel.promise(one for one in read if one[0] != '@')}",
            kernel.definition(kernel.head(), lines),
            "\n".join([*self.constants, "", *self._helpers()]).strip(),
            (" * ".join(self.plan.blocks) or "1",),
            self.threads,
            shared=shared or 0,
        )

    def _needs_barrier(self, stage: BlockStage) -> bool:
        """Returns True if a stage reads arrays that threads may still write, or writes arrays that they may still read."""
        reads, writes = self._accesses(stage)
        return bool(reads & self.written_places or writes & (self.read_places | self.written_places))

    def _accessed(self, stage: BlockStage) -> None:
        """Records a stage's accesses; those before the barriers of a reduction over the block are ordered."""
        if self._needs_barrier(stage):
            self.read_places, self.written_places = set(), set()
        reads, writes = self._accesses(stage)
        self.read_places |= reads
        self.written_places |= writes
        if not stage.own and stage.reductions:
            self.read_places, self.written_places = set(), set(writes)

    def _accesses(self, stage: BlockStage) -> tuple[set[str], set[str]]:
        """Returns the names of the shared arrays and results that a stage reads, and of those that it writes."""
        names = {str(node.data[0]) for node in stage.graph.nodes if node.op == "input"}
        reads = {self.starts[int(one[1:])] for one in names if one[0] == "@" and int(one[1:]) in self.starts}
        reads |= names & {*self.outputs}
        if stage.output is not None:
            return reads - {self.outputs[stage.output]}, {self.outputs[stage.output]}
        return reads, {self.starts[stage.target]} if stage.target in self.starts else set()

    def _helpers(self) -> list[str]:
        """Returns the definitions of device functions: those of warps, which those of the block call, first."""
        of_block = self.of_block.texts()
        return [*self.of_warp.texts(), *of_block]

    def _positions(self) -> list[str]:
        """Returns the declarations of the block's positions."""
        lines, left = list[str](), "blockIdx.x"
        for number, (name, side) in enumerate(reversed([*zip(self.at, self.plan.blocks, strict=True)])):
            text = self.kernel.size(side)
            text = text if re.fullmatch(r"\w+", text) else f"({text})"
            more = number + 1 < len(self.at)
            lines.append(f"const int {name} = {f'{left} % {text}' if more else left};")
            left = f"{left} / {text}"
        return lines

    def _shared(self) -> tuple[list[str], str]:
        """Returns the declarations of the arrays in shared memory, and their bytes as an expression of the contract.

        An array reuses the memory of one of the same length that no later stage reads.
        """
        real, stages = self.kernel.real, self.plan.stages
        width = ITEM_BYTES["float64" if real == "double" else "float32"]
        until = {one: max((stage.level for stage in stages if any(node.data[:1] == (f"@{one}",) for node in stage.graph.nodes)), default=0) for one in self.arrays}  # fmt: skip
        places: list[tuple[str, str, int]] = []  # the first array's name, type and elements, the last level that reads
        lines: list[str] = []
        before = str(self.names.shared)
        for stage in (one for one in stages if one.target in self.arrays and one.output is None):
            name, ctype = self.arrays[stage.target], self.type_of(stage)
            sides = " * ".join(stage.sides[axis] for axis in stage.own)
            sides = sides if re.search("[a-z]", sides, re.IGNORECASE) else str(evaluate(sides, {}))
            held = f"{ctype} {sides}"
            free = next((one for one in places if one[1] == held and one[2] < stage.level), None)
            self.starts[stage.target] = name if free is None else free[0]
            if free is not None:
                places[places.index(free)] = (free[0], held, until[stage.target])
                start, note = free[0], "  // whose values are not read any more"
            else:
                places.append((name, held, until[stage.target]))
                start, note = before, ""
                elements = self.kernel.size(sides)
                before = f"{name} + {elements}" if ctype == real else f"{start} + {elements}"
            cast = start if ctype == real or free is not None else f"reinterpret_cast<{ctype}*>({start})"
            lines.append(f"{ctype}* const {name} = {cast};{note}")
        if not places:
            return [], ""
        total = " + ".join(one[1].removeprefix(f"{real} ").removeprefix("int ") for one in places)
        shared = f"{width} * ({total})" if len(places) > 1 or "*" in total else f"{width} * {total}"
        if max(evaluate(shared, size) for size in self.kernel.contract.sizes) > STATIC_BYTES:
            raise Refused("its intermediate values need more than 48 KiB of shared memory")
        tried = {name: max(value, TRIED) for name, value in self.kernel.contract.sizes[0].items()}
        if evaluate(shared, tried) > LARGEST:
            raise Refused(f"its intermediate values, {total} elements, fit a block's shared memory only at small sizes")
        return [f"extern __shared__ {real} {self.names.shared}[];", *lines], shared
