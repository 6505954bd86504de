"""Fairness between groups of lanes, and the detection of loops that can never end."""

from __future__ import annotations

import numpy as np

from kernelmate.backends.emulator.decode import Decoded
from kernelmate.backends.emulator.machine import Machine
from kernelmate.backends.emulator.operations import ReadClock
from kernelmate.backends.emulator.types import Array

TURN = 1 << 14
"""Backward branches that a group may take before other groups run."""
SPIN_WEIGHT = 2048
"""Number of them that one backward branch counts for, in a loop that waits for memory."""


class ForwardProgress:
    """Detects threads that loop for ever, by their backward branches.

    A group with the same lanes, registers and position as at an earlier check, without a store, atomic, barrier or exit
    in between, will never leave its loop.
    """

    def __init__(self, machine: Machine, decoded: Decoded) -> None:
        self._machine = machine
        self._decoded = decoded
        self._turns = 0
        self._seen: dict[int, tuple[int, list[Array]]] = {}
        self._stuck: dict[int, int] = {}
        self._written: dict[tuple[int, int], tuple[str, ...] | None] = {}

    def reset(self) -> None:
        """Start a batch."""
        self._turns = 0
        self._seen.clear()
        self._stuck.clear()

    def turn_over(self, spins: bool) -> bool:
        """Count a backward branch; True when it is time to look around."""
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
        """Returns the registers that a loop writes; None if it reads a clock."""
        span = (first_block, last_block)
        if span not in self._written:
            blocks = self._decoded.blocks
            steps = self._decoded.steps[blocks[first_block].start : blocks[last_block].end]
            clock = any(isinstance(step.operation, ReadClock) for step in steps)
            names = dict.fromkeys(name for step in steps for name in step.writes)
            self._written[span] = None if clock else tuple(names)
        return self._written[span]
