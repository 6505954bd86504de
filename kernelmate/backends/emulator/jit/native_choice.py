"""Decides whether native code pays off for a launch. Imports LLVM only then."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kernelmate.backends.emulator.bound import InstructionCounts
from kernelmate.backends.emulator.decode import DecodedKernel
from kernelmate.backends.emulator.jit.access_stamps import StampWatch, fits, granule_shift, may_watch
from kernelmate.backends.emulator.jit.layout import Checks
from kernelmate.backends.emulator.machine import Machine
from kernelmate.backends.emulator.shadow import Slice, is_linear

if TYPE_CHECKING:
    from kernelmate.backends.emulator.jit.program import NativeProgram
    from kernelmate.backends.emulator.jit.refine import PartitionedKernel

Mode = Literal["auto", "always", "never"]
MODES: tuple[Mode, ...] = ("auto", "always", "never")
LOADING_S = 0.008
"""CPU seconds for loading a program from disk."""
COMPILING_S = 0.03
COMPILING_A_STEP_S = 0.0005
"""CPU seconds of a quick compilation: a constant, and a cost per instruction."""
OPTIMIZING_A_STEP_S, OPTIMIZING_A_PAIR_S = 0.0001, 8e-7
"""Additional CPU seconds of an optimising compilation: per instruction, and per square of their number.

Measured with checks: 2.0 s for 1604 instructions, 6.8 s for 2850; a quick compilation of the latter takes 0.3 s.
"""
UNOPTIMIZED_S = 1e-9
"""Additional CPU seconds per thread-instruction in quickly compiled code, which is about half as fast."""
NUMPY_S = 4e-9
NUMPY_A_CALL_S = 4e-6
"""Default CPU seconds of an instruction in NumPy: per thread, and per call."""
EXACT_CHECKS_COST = 3
"""Duration of a launch under exact checks, relative to one without checks (approximate)."""
LEAST_PACE = 0.1
"""Smallest fraction of NumPy's expected time that a launch's measurement may suggest."""
MOST_SUSPICIONS = 3
_log = logging.getLogger(__name__)


class NativeCodeDecision:
    """Decides on native code for the launches of one kernel.

    Args:
        text: PTX and name, the key of the cache.
        hasty: finish each launch as soon as possible, even if later launches would profit from compiled code.
        single: registers with one definition.
        addresses: the integer arithmetic that computes its addresses.

    Attributes:
        suspicions: number of consecutive checked launches that had to run again under exact checks.
    """

    def __init__(
        self, decoded: DecodedKernel, single: frozenset[str], addresses: Slice, text: str, *, hasty: bool = False
    ) -> None:
        self._addresses = addresses
        self._decoded = decoded
        self._single = single
        self._text = text
        self._refined: PartitionedKernel | None = None
        self._specials: frozenset[str] = frozenset()
        self._broken = False
        self._cost = COMPILING_S + COMPILING_A_STEP_S * len(decoded.steps)
        self._per_thread = self._per_batch = float(len(decoded.steps))
        self._pace = NumpySpeed(NUMPY_S, NUMPY_A_CALL_S)
        self._spent, self._made = 0.0, 0
        self._native_s = 0.0
        steps = len(decoded.steps)
        self._optimizing = OPTIMIZING_A_STEP_S * steps + OPTIMIZING_A_PAIR_S * steps**2
        self._hasty = hasty
        self.suspicions = 0
        self._watchable: bool | None = None

    def learn(self, tally: InstructionCounts, threads: int, batches: int, *, exact: bool) -> None:
        """Learns from a launch's counts; `exact` is NumPy's part under exact checks."""
        self._per_thread, self._per_batch = tally.instructions / threads, tally.issued / batches
        if tally.seconds:
            seconds = tally.seconds / (EXACT_CHECKS_COST if exact else 1)
            self._pace = NumpySpeed.of(tally.instructions, tally.issued, seconds)

    def work(self, threads: int, batches: int) -> float:
        """Returns the CPU seconds that NumPy would need without checks, from earlier launches."""
        return self._pace.seconds(self._per_thread * threads, self._per_batch * batches)

    def spend(self, tally: InstructionCounts) -> None:
        """Records a whole launch by NumPy."""
        self._spent += tally.seconds
        self._made += 1

    def spend_native(self, seconds: float) -> None:
        """Records CPU seconds of native code."""
        self._native_s += seconds

    def is_soon_done(self, threads: int) -> bool:
        """Returns True if quickly compiled code, which is half as fast, suffices.

        As in `to_come`, the native time so far is the estimate for future launches, half of which would be saved. Of this
        launch each thread counts with as many instructions as the kernel has: loops of an earlier launch say little,
        since they differ by factors of thousands between sizes.
        """
        per_thread = min(self._per_thread, len(self._decoded.steps))
        saved = UNOPTIMIZED_S * per_thread * threads + self._native_s / 2
        return saved < self._optimizing

    def to_come(self, work: float) -> float:
        """Returns the CPU seconds that NumPy would need for this launch and for expected ones.

        As many launches are expected as were made without native code, none larger than this one, because a version's
        large sizes come first.
        """
        return work if self._hasty else work + min(self._spent, self._made * work)

    def patience(self, mode: Mode, machine: Machine, *, checks: bool) -> float:
        """Returns the CPU seconds of one launch after which native code would have been quicker, compilation included."""
        possible = mode == "auto" and not self._broken
        if possible and checks:
            possible = not self._suspicious and self._may_watch() and fits(machine, self._checks().global_shift)
        return self._cost if possible else math.inf

    def choose(
        self, mode: Mode, machine: Machine, work: float, threads: int, *, counts: bool, checks: bool
    ) -> NativeProgram | None:
        """Returns the program to run `threads`, or None to use NumPy, which would take `work` more CPU seconds."""
        if checks and (self._suspicious or not self._may_watch()):
            return None
        if mode == "never" or self._broken or (mode == "auto" and work < LOADING_S):
            return None
        try:
            return self._choose(mode, machine, work, counts, checks, quick=self.is_soon_done(threads))
        except Exception as error:  # noqa: BLE001 - LLVM fails in its own ways, and the NumPy operations do all it does
            _log.warning("the emulator goes on without native code: %s: %s", type(error).__name__, error)
            self._broken = True
            return None

    def watch(self, machine: Machine) -> StampWatch | None:
        """Returns shadow memory for a checked launch; None if it would be too large."""
        checks = self._checks()
        if not fits(machine, checks.global_shift):
            return None
        watch = StampWatch(machine, checks.shared_shift, checks.global_shift)
        watch.attach()
        return watch

    @property
    def _suspicious(self) -> bool:
        """Returns True if exact checks are used at once because checked launches were repeatedly suspicious."""
        return self.suspicions >= MOST_SUSPICIONS

    def _may_watch(self) -> bool:
        if self._watchable is None:
            self._watchable = may_watch(self._decoded)
        return self._watchable

    def _checks(self) -> Checks:
        decoded = self._decoded
        linear = {number for numbers in self._addresses.definitions.values() for number in numbers}
        return Checks(
            granule_shift(decoded, frozenset({"shared", "generic"})),
            granule_shift(decoded, frozenset({"global", "generic", "const"})),
            frozenset(number for number in linear if is_linear(decoded.steps[number])),
        )

    def _choose(
        self, mode: Mode, machine: Machine, work: float, counts: bool, checks: bool, *, quick: bool
    ) -> NativeProgram | None:
        from kernelmate.backends.emulator.jit import program
        from kernelmate.backends.emulator.jit.build import Shape
        from kernelmate.backends.emulator.jit.refine import refine

        if self._refined is None:
            self._specials = program.specials_in(self._decoded)
            self._refined = refine(self._decoded, self._single)
        registers = machine.registers
        fixed = frozenset(name for name in self._specials if isinstance(registers.special(name), int))
        shape = Shape(frozenset(registers.constants), fixed, counts, self._checks() if checks else None)
        if mode == "auto" and self.to_come(work) < self._cost and not program.is_at_hand(shape, self._text):
            return None
        return program.program_for(self._refined, shape, self._text, quick=quick)


@dataclass(frozen=True, slots=True)
class NumpySpeed:
    """CPU seconds of an instruction in NumPy: per thread, and per call."""

    thread: float
    call: float

    @staticmethod
    def of(instructions: float, issued: float, seconds: float) -> NumpySpeed:
        """Returns the pace that explains a measured time.

        One time cannot determine two numbers, so the result is the smallest change of the defaults that explains it: a
        small launch, dominated by calls, says little about the cost per thread.
        """
        threads, calls = NUMPY_S * instructions, NUMPY_A_CALL_S * issued
        more = (seconds - threads - calls) / (threads**2 + calls**2)
        return NumpySpeed(
            NUMPY_S * max(1 + more * threads, LEAST_PACE), NUMPY_A_CALL_S * max(1 + more * calls, LEAST_PACE)
        )

    def seconds(self, instructions: float, issued: float) -> float:
        """Returns the time of thread-instructions and issued instructions."""
        return self.thread * instructions + self.call * issued
