"""Control-flow graph of a kernel's SASS, and the operations that its branches depend on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from kernelmate.backends.emulator.sass.code import SassOp

_ENDS = frozenset({"BRA", "EXIT", "RET", "BRX", "JMP", "JMX", "CALL", "KILL", "BPT"})


class Unknown(Exception):
    """Behaviour that cannot be determined; the message names the instruction and the reason."""


@dataclass(frozen=True, slots=True)
class SassBlock:
    """A basic block: operations `start` to `end` (exclusive).

    Attributes:
        taken: target block of its final branch; None if there is none.
        following: fall-through block.
        condition: predicates of that branch or exit, as written, all of which must hold; empty if unconditional.
        exits: True if it ends threads.
        calls: first block of a function that it calls.
    """

    index: int
    start: int
    end: int
    taken: int | None
    following: int | None
    condition: tuple[str, ...]
    exits: bool = False
    calls: int | None = None

    @property
    def targets(self) -> tuple[int, ...]:
        """Returns the successor blocks."""
        return tuple(block for block in (self.taken, self.following) if block is not None)

    @property
    def decides(self) -> bool:
        """Returns True if predicates decide the successor."""
        return bool(self.condition)


@dataclass
class ControlFlowGraph:
    """The blocks of a kernel and of the functions that it calls, by address."""

    ops: Sequence[SassOp]
    blocks: Sequence[SassBlock]
    _inside: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._inside = {number: block.index for block in self.blocks for number in range(block.start, block.end)}

    @cached_property
    def main(self) -> frozenset[int]:
        """Blocks of the kernel itself."""
        return frozenset(self.reached([0]))

    def reached(self, starts: Iterable[int], without: int | None = None) -> set[int]:
        """Returns blocks reachable from some blocks, those included, without passing one."""
        found: set[int] = set()
        waiting = [start for start in starts if start != without]
        while waiting:
            block = waiting.pop()
            if block not in found:
                found.add(block)
                waiting += [target for target in self.blocks[block].targets if target != without]
        return found

    @cached_property
    def _writers(self) -> Mapping[str, int]:
        """Maps each register to the operations that write it, as bits."""
        writers: dict[str, int] = {}
        for number, op in enumerate(self.ops):
            for register in op.results:
                writers[register] = writers.get(register, 0) | 1 << number
        return writers

    @cached_property
    def _arriving(self) -> Sequence[int]:
        """Computes reaching definitions: for each block, as bits, the operations whose results may still hold at its start."""
        own, gone = [], []
        for block in self.blocks:
            made = lost = 0
            for number in range(block.start, block.end):
                op = self.ops[number]
                for register in op.results:
                    if not op.partial and op.name != "CALL":
                        lost |= self._writers[register]
                        made &= ~self._writers[register]
                    made |= 1 << number
            own.append(made)
            gone.append(lost)
        arriving = [0] * len(self.blocks)
        waiting = list(range(len(self.blocks)))
        while waiting:
            index = waiting.pop(0)
            leaving = own[index] | arriving[index] & ~gone[index]
            for target in self.blocks[index].targets:
                if leaving & ~arriving[target]:
                    arriving[target] |= leaving
                    waiting.append(target)
        return arriving

    def sources(self, number: int, register: str) -> set[int]:
        """Returns the operations that may have written a register's value before operation `number`."""
        found: set[int] = set()
        block = self._inside[number]
        for earlier in range(number - 1, self.blocks[block].start - 1, -1):
            op = self.ops[earlier]
            if register in op.results:
                found.add(earlier)
                if not op.partial and op.name != "CALL":
                    return found
        bits = self._arriving[block] & self._writers.get(register, 0)
        while bits:
            low = bits & -bits
            found.add(low.bit_length() - 1)
            bits ^= low
        return found

    def behind(self, block: SassBlock) -> set[int]:
        """Returns the indices of all operations that a block's condition depends on."""
        last = block.end - 1
        names = {predicate.lstrip("!") for predicate in block.condition}
        waiting = [source for name in names for source in self.sources(last, name)]
        found: set[int] = set()
        while waiting:
            number = waiting.pop()
            if number in found:
                continue
            found.add(number)
            op = self.ops[number]
            for register in (*op.reads, *(op.results if op.partial else ())):
                waiting += self.sources(number, register)
        return found

    def joins(self, block: int) -> int | None:
        """Returns the first block common to all paths from a block; None if some end before or loop for ever."""
        after = self._after
        common = set.intersection(*(after[target] for target in self.blocks[block].targets)) - {block}
        return next((one for one in sorted(common) if after[one] >= common), None)

    @cached_property
    def _after(self) -> Sequence[set[int]]:
        """Computes post-dominators: for each block those that every path to an exit passes, itself included."""
        everything = set(range(len(self.blocks)))
        after = [{block.index} if not block.targets or block.exits else set(everything) for block in self.blocks]
        changed = True
        while changed:
            changed = False
            for block in reversed(self.blocks):
                if block.exits or not block.targets:
                    continue
                now = {block.index} | set.intersection(*(after[target] for target in block.targets))
                if now != after[block.index]:
                    after[block.index], changed = now, True
        return after


def graph_of(ops: Sequence[SassOp]) -> ControlFlowGraph:
    """Builds the control-flow graph, the kernel's own code first.

    Raises:
        Unknown: the target of a jump cannot be determined.
    """
    starts = _starts(ops)
    at = {start: index for index, start in enumerate(starts)}
    labels = {label: at[number] for number, op in enumerate(ops) for label in op.labels}
    functions: dict[str, int] = {}
    for number, op in enumerate(ops):
        functions.setdefault(op.function, at.get(number, 0))
    bounds = [*starts, len(ops)]
    blocks = [
        _block(index, bounds[index], bounds[index + 1], ops, {**functions, **labels}, len(starts))
        for index in range(len(starts))
    ]
    return ControlFlowGraph(_with_calls(ops, blocks), blocks)


def _starts(ops: Sequence[SassOp]) -> list[int]:
    starts = {0}
    for number, op in enumerate(ops):
        if op.labels or (number and op.function != ops[number - 1].function):
            starts.add(number)
        if op.name in _ENDS:
            starts.add(number + 1)
    return sorted(start for start in starts if start < len(ops))


def _block(index: int, start: int, end: int, ops: Sequence[SassOp], labels: Mapping[str, int], count: int) -> SassBlock:
    last = ops[end - 1]
    following = index + 1 if index + 1 < count else None
    guard = (last.guard,) if last.partial and last.guard is not None else ()
    if last.name == "BRA":
        *conditions, target = last.inputs
        if target not in labels:
            raise Unknown(f"{last.opcode} at {last.address:#x} leads to no label")
        condition = (*guard, *(one for one in conditions if one not in {"PT", "UPT"}))
        return SassBlock(index, start, end, labels[target], following if condition else None, condition)
    if last.name == "EXIT":
        return SassBlock(index, start, end, None, following if guard else None, guard, exits=True)
    if last.name == "CALL":
        called = labels.get(last.inputs[-1])
        if called is None or guard:
            raise Unknown(f"{last.opcode} at {last.address:#x} calls an unknown target")
        return SassBlock(index, start, end, None, following, (), calls=called)
    if last.name in {"BRX", "JMP", "JMX"}:
        raise Unknown(f"{last.opcode} at {last.address:#x} jumps through a table")
    if last.name in {"RET", "KILL", "BPT"}:
        return SassBlock(index, start, end, None, following if guard else None, guard, exits=True)
    return SassBlock(index, start, end, None, following, ())


def _with_calls(ops: Sequence[SassOp], blocks: Sequence[SassBlock]) -> list[SassOp]:
    """Returns the operations with everything a called function writes attributed to its call."""
    made = list(ops)
    whole = ControlFlowGraph(ops, blocks)
    for block in blocks:
        if block.calls is not None:
            reached = whole.reached([block.calls])
            results = {
                register
                for index in reached
                for number in range(blocks[index].start, blocks[index].end)
                for register in ops[number].results
            }
            made[block.end - 1] = replace(ops[block.end - 1], results=tuple(sorted(results)))
    return made
