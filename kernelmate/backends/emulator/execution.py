"""Runs the batches of one launch, by native code once that pays."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from kernelmate.backends.emulator.bind import Binder
from kernelmate.backends.emulator.bound import InstructionCounts, InstructionLimits
from kernelmate.backends.emulator.counters import BranchCounter, GlobalCounter, LocalCounter, SharedCounter
from kernelmate.backends.emulator.decode import DecodedKernel
from kernelmate.backends.emulator.jit.access_stamps import StampWatch, Suspicion
from kernelmate.backends.emulator.jit.layout import Count
from kernelmate.backends.emulator.jit.native_choice import EXACT_CHECKS_COST, Mode, NativeCodeDecision
from kernelmate.backends.emulator.machine import Machine
from kernelmate.backends.emulator.operations import Compute, Load, Store
from kernelmate.backends.emulator.schedule import Scheduler
from kernelmate.backends.emulator.shadow import Shadows
from kernelmate.backends.emulator.types import SIZES, Array

if TYPE_CHECKING:
    from kernelmate.backends.emulator.jit.native import Native
    from kernelmate.backends.emulator.jit.program import NativeProgram

Counted = tuple[GlobalCounter, SharedCounter, BranchCounter, LocalCounter]


Watched = tuple["NativeProgram", "StampWatch"]
"""A program with checks, and the shadow memory that they use."""


@dataclass(frozen=True, slots=True)
class NativeCodeChoice:
    """Decision about native code for a launch.

    Attributes:
        exact: True if all checks are made, which native code does not support.
        settled: True if NumPy is known to finish before native code would be ready.
    """

    chooser: NativeCodeDecision
    mode: Mode
    exact: bool = False
    settled: bool = False


class Execution:
    """One launch's scheduler, which may switch to native code between batches.

    Args:
        limits: instruction limits; its time limit for NumPy is reduced if native code would be faster.

    Attributes:
        tally: counts of the launch so far; after `finish`, `entered` refers to the kernel's own basic blocks.
    """

    def __init__(
        self, machine: Machine, decoded: DecodedKernel, shadows: Shadows | None, limits: InstructionLimits, choice: NativeCodeChoice,
        counted: Counted | None, watched: Watched | None = None,
    ) -> None:  # fmt: skip
        self._machine = machine
        self._decoded = decoded
        self._shadows = shadows
        self._limits = limits
        self._choice = choice
        self._counted = counted
        self._native: Native | None = None
        self._entered = np.zeros(len(decoded.blocks), np.int64)
        self._origin: tuple[int | None, ...] = tuple(range(len(decoded.blocks)))
        self.tally = InstructionCounts(self._entered, branches=counted[2] if counted else None)
        self._scheduler: Scheduler | None = None
        self._threads = self._batches = 0
        if watched is not None:
            self._begin_native(*watched)

    def run(self, lanes: Array, batches: int) -> None:
        """Runs one batch; `batches` is the number of remaining ones.

        Raises:
            Stop, Overrun, WorthCompiling, Suspicion: see `Scheduler.run`.
        """
        if self._native is None:
            self._choose(len(lanes) * batches, batches)
        assert self._scheduler is not None
        began = time.thread_time()
        self._scheduler.run(lanes)
        took = time.thread_time() - began
        if self._native is None:
            self.tally.seconds += took
        else:
            self._choice.chooser.spend_native(took)
        self._threads += len(lanes)
        self._batches += 1

    def _choose(self, threads: int, batches: int) -> None:
        """Chooses native code if the remaining work is worth it, judging by this and other launches."""
        choice, chooser = self._choice, self._choice.chooser
        if self._threads:
            chooser.learn(self.tally, self._threads, self._batches, exact=choice.exact)
        program = None
        if not choice.exact:
            counts, work = self._counted is not None, 0.0 if choice.settled else chooser.work(threads, batches)
            program = chooser.choose(choice.mode, self._machine, work, threads, counts=counts, checks=False)
        if program is None:
            if self._scheduler is None:
                blocks = Binder(self._decoded, self._machine, self._shadows).blocks()
                self._scheduler = Scheduler(self._machine, self._decoded, blocks, self._limits, self.tally)
            else:
                self._be_patient(chooser.work(threads, batches))
            return
        self._begin_native(program, None)

    def _be_patient(self, work: float) -> None:
        """Lets NumPy finish if the remaining work is short; `work` is its duration without checks, in seconds."""
        assert self._scheduler is not None
        left, patience = EXACT_CHECKS_COST * work if self._choice.exact else work, self._limits.patience
        if left < patience:
            self._scheduler.meter.be_patient(left + patience)

    def _begin_native(self, program: NativeProgram, watch: StampWatch | None) -> None:
        from kernelmate.backends.emulator.jit.native import Native

        refined = program.refined
        self._flush()
        self._origin = refined.origin
        self.tally.entered = np.zeros(len(refined.origin), np.int64)
        self._native = Native(program, self._machine, self.tally.entered, watch)
        blocks = Binder(refined.decoded, self._machine).blocks()
        self._scheduler = Scheduler(
            self._machine, refined.decoded, blocks, self._limits, self.tally, self._native
        )  # fmt: skip

    @property
    def native(self) -> bool:
        """True if native code executed a part of it."""
        return self._native is not None

    @property
    def longest(self) -> int | None:
        """Returns the instructions of the longest thread so far, in the present batch."""
        if self._scheduler is None:
            return None
        self._scheduler.meter.settle()
        return int(self._scheduler.meter.steps.max())

    @property
    def _hung(self) -> bool:
        """True if the launch was stopped because it would not end.

        This is a single finding, which further checks would not change.
        """
        return self._scheduler is not None and self._scheduler.meter.hung

    def _flush(self) -> None:
        """Adds the entries to the counts of the kernel's own blocks."""
        if self.tally.entered is self._entered:
            return
        for piece, block in enumerate(self._origin):
            if block is not None:
                self._entered[block] += self.tally.entered[piece]
        self.tally.entered = self._entered

    def finish(self) -> InstructionCounts:
        """Returns the launch's tally, with native code's counts added to the counters.

        Raises:
            Suspicion: see `jit.suspicion`.
        """
        self._flush()
        chooser = self._choice.chooser
        if self._threads:
            chooser.learn(self.tally, self._threads, self._batches, exact=self._choice.exact)
        watch = None if self._native is None else self._native.watch
        if watch is not None and (watch.suspect or len(self._machine.findings) > self._hung):
            raise Suspicion
        if watch is not None:
            chooser.suspicions = 0
        if self._native is None:
            chooser.spend(self.tally)
        elif self._counted is not None:
            self._count(self._native, *self._counted)
        return self.tally

    def _count(
        self, native: Native, memory: GlobalCounter, shared: SharedCounter, branches: BranchCounter, local: LocalCounter
    ) -> None:  # fmt: skip
        decoded = native.program.refined.decoded
        for piece in np.flatnonzero(native.diverged):
            branches.divergent[decoded.blocks[piece].end - 1] += int(native.diverged[piece])
        for number in np.flatnonzero(native.sites[:, Count.LANES]):
            operation = decoded.steps[number].operation
            if isinstance(operation, Compute):
                if self._machine.unusual is not None:
                    self._machine.unusual.add(int(number))
                continue
            assert isinstance(operation, Load | Store)
            requests, passes, lanes, lines = (int(figure) for figure in native.sites[number])
            action = "load" if isinstance(operation, Load) else "store"
            size = SIZES[operation.kind] * len(operation.results if isinstance(operation, Load) else operation.sources)
            counter = {"shared": shared, "local": local}.get(operation.space, memory)
            counter.at(int(number), action, size).add(requests, passes, lanes, lines)
