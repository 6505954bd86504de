"""Counts the instructions of a launch's threads, shares turns fairly, and stops threads that exceed their limit or never end."""

from __future__ import annotations

import time

import numpy as np

from kernelmate.backends.emulator.bound import BoundBlock, InstructionCounts, InstructionLimits, Overrun, WorthCompiling
from kernelmate.backends.emulator.decode import DecodedKernel
from kernelmate.backends.emulator.findings import LaunchStopped, plural
from kernelmate.backends.emulator.liveness import deciding_registers
from kernelmate.backends.emulator.machine import Machine
from kernelmate.backends.emulator.mbarriers import reason_to_wait
from kernelmate.backends.emulator.operations import ReadClock
from kernelmate.backends.emulator.types import Array
from kernelmate.records import FindingCode

TURN = 1 << 14
"""Backward branches that a group may take before other groups run."""
SPIN_WEIGHT = 2048
"""Number of them that one backward branch counts for, in a loop that waits for memory."""


class ForwardProgress:
    """Detects threads that loop for ever, by their backward branches.

    A group with the same lanes, registers and position as at an earlier check, without a store, atomic, barrier or exit
    in between, will never leave its loop.
    """

    def __init__(self, machine: Machine, decoded: DecodedKernel) -> None:
        self._machine = machine
        self._decoded = decoded
        self._turns = 0
        self._seen: dict[int, tuple[int, list[Array]]] = {}
        self._stuck: dict[int, int] = {}
        self._written: dict[tuple[int, int], tuple[str, ...] | None] = {}

    def reset(self) -> None:
        """Starts a batch."""
        self._turns = 0
        self._seen.clear()
        self._stuck.clear()

    def turn_over(self, spins: bool) -> bool:
        """Counts a backward branch; returns True once a group's turn is over."""
        self._turns += SPIN_WEIGHT if spins else 1
        if self._turns < TURN:
            return False
        self._turns = 0
        return True

    def look(self, key: int, first_block: int, last_block: int, lanes: Array) -> bool:
        """True if the group of this key is stuck until something changes."""
        names = self._loop_registers(first_block, last_block)
        if names is None:
            return False
        registers = self._machine.registers
        state = [lanes, *(registers.storage(name).take(lanes) for name in names if name not in registers.constants)]
        before = self._seen.get(key)
        self._seen[key] = (self._machine.changes, state)
        if before is None or before[0] != self._machine.changes:
            return False
        same = len(before[1][0]) == len(lanes) and all(
            np.array_equal(old.view(np.uint8), new.view(np.uint8)) for old, new in zip(before[1], state, strict=True)
        )
        if same:
            self._stuck[key] = self._machine.changes
        return same

    def stuck(self, key: int) -> bool:
        """Returns True if the group was found stuck, with no change since."""
        return self._stuck.get(key) == self._machine.changes

    def _loop_registers(self, first_block: int, last_block: int) -> tuple[str, ...] | None:
        """Returns the registers whose values decide if a loop ends; None if it depends on a clock.

        A loop that reads a clock only to wait between its attempts, as those of libcu++, is taken as a whole, with all
        branches back to its beginning.
        """
        span = (first_block, last_block)
        if span not in self._written:
            blocks, steps = self._decoded.blocks, self._decoded.steps
            start = blocks[first_block].start
            loop = range(start, blocks[last_block].end)
            if any(isinstance(steps[number].operation, ReadClock) for number in loop):
                self._written[span] = deciding_registers(steps, start, blocks[last_block].end)
            else:
                self._written[span] = tuple(dict.fromkeys(name for number in loop for name in steps[number].writes))
        return self._written[span]


_COUNTS_BETWEEN_LOOKS = 64


class Meter:
    """Instructions of each thread of a batch, and of all threads together.

    A group that continues with the same lanes is counted as a whole; its threads' counts are updated when another group
    runs.

    Args:
        steps: table shared with native code; None for a new table.

    Attributes:
        steps: per lane, instructions since the batch began; without those of the current group until `settle`.
        issued: instructions issued since then, an upper bound for every thread.
        hung: True if the launch was stopped because it would not end.
    """

    def __init__(
        self, machine: Machine, limits: InstructionLimits, tally: InstructionCounts, steps: Array | None = None
    ) -> None:
        self._machine = machine
        self._limits = limits
        self._tally = tally
        self.steps: Array = np.zeros(machine.lanes.count, np.int64) if steps is None else steps
        self.issued = 0
        self.hung = False
        self._lanes = self.steps[:0]
        self._since = 0
        self._until_look = _COUNTS_BETWEEN_LOOKS
        self._patient_until = time.thread_time() + limits.patience

    def be_patient(self, seconds: float) -> None:
        """Sets the CPU time, from now on, after which compiling to native code is worth its cost."""
        self._patient_until = time.thread_time() + seconds

    def begin(self) -> None:
        """Starts a batch."""
        self.steps.fill(0)
        self.issued = 0
        self._lanes, self._since = self.steps[:0], 0

    def end(self) -> None:
        """Ends the batch, and records its longest thread."""
        if self.issued > self._tally.longest:
            self.settle()
            self._tally.longest = max(self._tally.longest, int(self.steps.max()))

    def settle(self) -> None:
        """Brings `steps` up to date."""
        if self._since:
            self.steps[self._lanes] += self._since
            self._since = 0

    def count(self, block: BoundBlock, number: int, lanes: Array) -> None:
        """Some lanes enter a block; the array must not change afterwards.

        Raises:
            Overrun: together the threads have reached their limit.
            WorthCompiling: native code would have paid by now.
            LaunchStopped: a thread has reached its limit; it has been reported.
        """
        steps, tally = block.steps, self._tally
        if lanes is not self._lanes:
            self.settle()
            self._lanes = lanes
        self._since += steps
        tally.entered[number] += len(lanes)
        tally.instructions += steps * len(lanes)
        tally.issued += steps
        self.issued += steps
        self._machine.ticks += steps
        if tally.instructions > self._limits.total or tally.issued > self._limits.issued:
            raise Overrun
        self._until_look -= 1
        if self._until_look <= 0:
            self._until_look = _COUNTS_BETWEEN_LOOKS
            if time.thread_time() > self._patient_until:
                raise WorthCompiling
            self.look(block, lanes)

    def add_native(self, instructions: int, issued: int) -> None:
        """Adds the counts of native code, which updates `steps` itself.

        Raises:
            Overrun: together the threads have reached their limit.
        """
        self._tally.instructions += instructions
        self._tally.issued += issued
        self.issued += issued
        if self._tally.instructions > self._limits.total:
            raise Overrun

    def look(self, block: BoundBlock, lanes: Array) -> None:
        """Reports lanes that have reached the instruction limit, at a basic block.

        Raises:
            LaunchStopped: a lane has reached it; it has been reported.
        """
        if self.issued <= self._limits.steps:
            return
        self.settle()
        over = lanes[self.steps[lanes] > self._limits.steps]
        if len(over):
            limit = plural(self._limits.steps, "instruction")
            self.report_hang(block, over, f"took over {limit}, the limit for one thread ({self._limits.steps_by})")

    def report_hang(self, block: BoundBlock, lanes: Array, text: str) -> None:
        """Reports that these lanes, at a block, will not end.

        Raises:
            LaunchStopped: always.
        """
        missing = reason_to_wait(self._machine, lanes)
        self._machine.findings.report(FindingCode.HANG, block.position, lanes, lambda: text + missing)
        self.hung = True
        raise LaunchStopped
