"""Bound basic blocks, and records of their execution."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from kernelmate.backends.emulator.barriers import BoundBarrier
from kernelmate.backends.emulator.clusters import BoundClusterBarrier
from kernelmate.backends.emulator.counters import BranchCounter
from kernelmate.backends.emulator.decode import BasicBlock
from kernelmate.backends.emulator.operations import Branch, BranchTable, Exit, Trap
from kernelmate.backends.emulator.program import Position
from kernelmate.backends.emulator.registers import Bound, LaneOperand, Value
from kernelmate.backends.emulator.types import Array
from kernelmate.backends.emulator.warp import Gathering


class Overrun(Exception):
    """The launch exceeded its total instruction limit."""


class WorthCompiling(Exception):
    """NumPy has run so long that native code would have paid off: the launch restarts with native code."""


@dataclass(slots=True)
class BoundBlock:
    """A basic block ready to run.

    Attributes:
        steps: number of instructions, for limits and counts.
        bind: creates the operations.
        operations: its operations without a final branch; None until `ready` has bound them.
        end: its final branch, or None if it falls through; `index` is the table index of a `brx.idx`.
        guard: predicate of `end`.
        targets: block numbers that `end` may lead to.
        gathering: lanes to wait for before its first operation.
    """

    block: BasicBlock
    steps: int
    bind: Callable[[], list[Bound]]
    operations: list[Bound] | None = None
    end: Branch | BranchTable | Exit | Trap | BoundBarrier | BoundClusterBarrier | None = None
    guard: LaneOperand | None = None
    targets: tuple[int, ...] = ()
    index: Value | None = None
    position: Position | None = None
    gathering: Gathering | None = None

    def ready(self) -> list[Bound]:
        """Returns the operations, and binds them on first use."""
        if self.operations is None:
            self.operations = self.bind()
        return self.operations


@dataclass(slots=True)
class InstructionLimits:
    """Limits of instructions per thread (with their source) and in total; CPU seconds for NumPy.

    `issued` limits consecutive instructions, whatever the number of threads.
    """

    steps: int
    steps_by: str
    total: int
    patience: float = math.inf
    issued: float = math.inf


@dataclass(slots=True)
class InstructionCounts:
    """Counts of executed instructions.

    Attributes:
        entered: for each basic block, the number of threads that entered it.
        instructions: thread-instructions.
        issued: instructions issued one after another, each counted once for all lanes that execute it.
        longest: the largest number of instructions that one thread executed.
        seconds: CPU time of batches executed by NumPy.
    """

    entered: Array
    instructions: int = 0
    issued: int = 0
    longest: int = 0
    seconds: float = 0.0
    branches: BranchCounter | None = field(default=None)
