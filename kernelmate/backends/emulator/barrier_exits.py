"""Exits of threads that bypass a barrier at which other threads of their block wait, found by post-dominance.

A barrier of all threads, of a block or of a cluster, waits for those that have not ended. A thread that returns early has ended, which is legal. A thread that skips the barrier and continues to code that every thread reaches after it has taken another branch than the threads
that wait: the result is undefined (CUDA C++ Programming Guide, Synchronization Functions), though hardware often lets it pass
once that thread ends.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from kernelmate.backends.emulator.decode import BasicBlock, DecodedKernel, DecodedStep
from kernelmate.backends.emulator.operations import Barrier, Branch, BranchTable, ClusterBarrier, Exit, Trap


def with_detours(decoded: DecodedKernel) -> DecodedKernel:
    """Returns the kernel with `detours` filled in.

    An exit shared by several branches is copied if only some are detours.
    """
    barriers = [block for block in decoded.blocks if _aligned_barrier(decoded, block)]
    if not barriers:
        return decoded
    graph = _Graph(decoded)
    behind = {block.end - 1: found for block in barriers if (found := graph.behind(block.index))}
    if not behind:
        return decoded
    return _with_exits(decoded, graph, behind)


def _aligned_barrier(decoded: DecodedKernel, block: BasicBlock) -> bool:
    operation = decoded.steps[block.end - 1].operation
    if isinstance(operation, ClusterBarrier):
        return not operation.waits
    return isinstance(operation, Barrier) and operation.aligned and operation.mode != "arrive"


class _Graph:
    """Control-flow graph of a kernel; sets of blocks are bit masks."""

    def __init__(self, decoded: DecodedKernel) -> None:
        self.after = [_following(decoded, block) for block in decoded.blocks]
        self.before: list[list[int]] = [[] for _ in self.after]
        for number, following in enumerate(self.after):
            for one in following:
                self.before[one].append(number)
        self.ends = {block.index for block in decoded.blocks if isinstance(_last(decoded, block).operation, Exit)}
        self.bare = {
            number for number in self.ends
            if decoded.blocks[number].end - decoded.blocks[number].start == 1
            and _last(decoded, decoded.blocks[number]).guard is None
        }  # fmt: skip
        self._post = self._post_dominators()

    def behind(self, barrier: int) -> set[int]:
        """Returns blocks that a thread reaches only through code that all threads reach after a barrier, with no path back to it."""
        back = _reached(self.before, [barrier])
        joined = {
            number for number in _reached(self.after, self.after[barrier])
            if self._post[barrier] >> number & 1 and number not in back and number not in self.bare
        }  # fmt: skip
        if barrier not in _reached(self.after, self.after[barrier]):
            joined &= _reached(self.after, [0], without={barrier})
        if not joined:
            return set()
        return set(range(len(self.after))) - _reached(self.after, [0], without=joined)

    def _post_dominators(self) -> list[int]:
        """Returns each block's post-dominators, including itself."""
        everything = (1 << len(self.after)) - 1
        found = [everything] * len(self.after)
        changed = True
        while changed:
            changed = False
            for number in reversed(range(len(self.after))):
                common = 0 if number in self.ends else everything
                for one in self.after[number]:
                    common &= found[one]
                common |= 1 << number
                if common != found[number]:
                    found[number], changed = common, True
        return found


def _last(decoded: DecodedKernel, block: BasicBlock) -> DecodedStep:
    return decoded.steps[block.end - 1]


def _following(decoded: DecodedKernel, block: BasicBlock) -> list[int]:
    step = _last(decoded, block)
    operation = step.operation
    through = [block.index + 1] if block.index + 1 < len(decoded.blocks) else []
    if isinstance(operation, Branch):
        return [decoded.block_at[operation.target], *(through if step.guard is not None else [])]
    if isinstance(operation, BranchTable):
        return [*(decoded.block_at[one] for one in operation.targets), *(through if step.guard is not None else [])]
    if isinstance(operation, Exit | Trap) and step.guard is None:
        return []
    return through


def _reached(edges: Sequence[Iterable[int]], starts: Iterable[int], without: Iterable[int] = ()) -> set[int]:
    """Returns blocks reachable from some blocks, those included, without entering excluded ones."""
    found, seen = list(starts), set(without)
    reached = set()
    while found:
        one = found.pop()
        if one not in seen:
            seen.add(one)
            reached.add(one)
            found += edges[one]
    return reached


@dataclass(frozen=True, slots=True)
class _Ends:
    """The steps, followed by copies of those that end a thread.

    Attributes:
        around: for each step that ends a thread, the barriers, by step, that such a thread has bypassed.
        labels: label of the original block, by copied step.
    """

    steps: list[DecodedStep]
    around: dict[int, frozenset[int]]
    labels: dict[int, str]


def _with_exits(decoded: DecodedKernel, graph: _Graph, behind: Mapping[int, set[int]]) -> DecodedKernel:
    def around(number: int) -> frozenset[int]:
        return frozenset(barrier for barrier, blocks in behind.items() if number in blocks)

    ends = _Ends(list(decoded.steps), {}, {})
    for number in sorted(graph.ends):
        block = decoded.blocks[number]
        if number in graph.bare:
            _split(decoded, ends, block, {one: around(one) for one in graph.before[number]})
        else:
            ends.around[block.end - 1] = around(number)
    detours: dict[int, set[int]] = defaultdict(set)
    for step, barriers in ends.around.items():
        for barrier in barriers:
            detours[barrier].add(step)
    blocks = list(decoded.blocks)
    for step, label in ends.labels.items():
        blocks.append(BasicBlock(len(blocks), step, step + 1, label, gathers=False, spins=False))
    return replace(
        decoded,
        steps=tuple(ends.steps),
        blocks=tuple(blocks),
        block_at={block.start: block.index for block in blocks},
        detours={barrier: frozenset(steps) for barrier, steps in detours.items()},
    )


def _split(decoded: DecodedKernel, ends: _Ends, block: BasicBlock, from_blocks: Mapping[int, frozenset[int]]) -> None:
    """Copies a block that only ends the thread, once per set of barriers that the branches to it bypass, and sends each branch to its copy."""
    kept = [
        barriers for number, barriers in from_blocks.items()
        if not _branches_to(decoded, number, block) or number + 1 == block.index
    ]  # fmt: skip
    own = frozenset.intersection(*kept) if kept else next(iter(from_blocks.values()), frozenset())
    ends.around[block.end - 1] = own
    copies: dict[frozenset[int], int] = {own: block.start}
    for number, barriers in from_blocks.items():
        if not _branches_to(decoded, number, block):
            continue
        if barriers not in copies:
            copies[barriers] = len(ends.steps)
            ends.around[len(ends.steps)], ends.labels[len(ends.steps)] = barriers, block.label
            ends.steps.append(ends.steps[block.start])
        at = decoded.blocks[number].end - 1
        ends.steps[at] = replace(ends.steps[at], operation=Branch(copies[barriers]))


def _branches_to(decoded: DecodedKernel, number: int, block: BasicBlock) -> bool:
    operation = _last(decoded, decoded.blocks[number]).operation
    return isinstance(operation, Branch) and operation.target == block.start
