"""Clocks: registers that change while the kernel runs."""

from __future__ import annotations

import numpy as np

from kernelmate.backends.emulator.lanes import Group
from kernelmate.backends.emulator.machine import Machine
from kernelmate.backends.emulator.operations import ReadClock
from kernelmate.backends.emulator.registers import Bound
from kernelmate.backends.emulator.types import SIZES, UNSIGNED


def bind_clock(operation: ReadClock, machine: Machine) -> Bound:
    """Reads the number of issued instructions, which stands for cycles or nanoseconds."""
    operand, kind = operation.result
    target = machine.registers.target(operand, f"b{8 * SIZES[kind]}")
    first, each = machine.surroundings.clock if machine.surroundings is not None else (0, 1)
    shift = 32 if operation.register.endswith("_hi") else 0
    dtype = UNSIGNED[SIZES[kind]]

    def run(group: Group | None, active: Group) -> None:
        del group
        machine.ticks += each
        if target is not None:
            target[active] = dtype.type(((first + machine.ticks) >> shift) & int(np.iinfo(dtype).max))

    return run
