"""Basic blocks ready to run, and what is kept of running them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from kernelmate.backends.emulator.barriers import BoundBarrier
from kernelmate.backends.emulator.counters import BranchCounter
from kernelmate.backends.emulator.decode import BasicBlock
from kernelmate.backends.emulator.operations import Branch, BranchTable, Exit, Trap
from kernelmate.backends.emulator.program import Position
from kernelmate.backends.emulator.registers import Bound, LaneOperand, Value
from kernelmate.backends.emulator.types import Array
from kernelmate.backends.emulator.warp import Gathering


class Overrun(Exception):
    """The launch has taken more instructions than its total limit."""


class WorthCompiling(Exception):
    """NumPy has been at it for so long that native code would have paid: the launch is to begin anew with it."""


@dataclass(slots=True)
class BoundBlock:
    """A basic block ready to run.

    Attributes:
        operations: all but the last where that directs control; None until `ready` has bound them.
        steps: instructions in it, for limits and counts.
        bind: makes the operations.
        end: what ends it, or None where it falls through; `index` is the table index of a `brx.idx`.
        guard: predicate of `end`.
        targets: block numbers that `end` may lead to.
        gathering: lanes to wait for before its first operation.
    """

    block: BasicBlock
    operations: list[Bound] | None
    steps: int
    bind: Callable[[], list[Bound]]
    end: Branch | BranchTable | Exit | Trap | BoundBarrier | None = None
    guard: LaneOperand | None = None
    targets: tuple[int, ...] = ()
    index: Value | None = None
    position: Position | None = None
    gathering: Gathering | None = None

    def ready(self) -> list[Bound]:
        """The operations."""
        if self.operations is None:
            self.operations = self.bind()
        return self.operations


@dataclass(slots=True)
class InstructionLimits:
    """Instructions one thread may take, and who says so, and all threads together; CPU seconds that NumPy has.

    `issued` is how many instructions may follow each other, however many threads take them.
    """

    steps: int
    steps_by: str
    total: int
    patience: float = math.inf
    issued: float = math.inf


@dataclass(slots=True)
class Tally:
    """Counts of executed instructions.

    Attributes:
        entered: entries per block, in threads.
        instructions: thread-instructions. issued: instructions one after the other, however many lanes took them.
        longest: the most that one thread has taken. seconds: CPU time of the batches that NumPy has made.
    """

    entered: Array
    instructions: int = 0
    issued: int = 0
    longest: int = 0
    seconds: float = 0.0
    branches: BranchCounter | None = field(default=None)
