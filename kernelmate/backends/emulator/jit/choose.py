"""Decides if native code pays for a launch. Nothing here loads LLVM before it does."""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from kernelmate.backends.emulator.bound import Tally
from kernelmate.backends.emulator.decode import Decoded
from kernelmate.backends.emulator.jit.access_stamps import StampWatch, fits, granule_shift, may_watch
from kernelmate.backends.emulator.jit.layout import Checks
from kernelmate.backends.emulator.machine import Machine
from kernelmate.backends.emulator.shadow import Slice, is_linear

if TYPE_CHECKING:
    from kernelmate.backends.emulator.jit.program import NativeProgram
    from kernelmate.backends.emulator.jit.refine import Refined

Mode = Literal["auto", "always", "never"]
MODES: tuple[Mode, ...] = ("auto", "always", "never")
LOADING_S = 0.008
"""CPU seconds that loading a program takes which is on disk."""
COMPILING_S = 0.03
COMPILING_A_STEP_S = 0.0005
"""CPU seconds that compiling one quickly takes: so many, and so many more for each of its instructions."""
OPTIMIZING_A_STEP_S = 0.0006
"""CPU seconds for each of its instructions by which compiling it for speed takes longer."""
UNOPTIMIZED_S = 1e-9
"""CPU seconds by which a thread-instruction takes longer in code that was compiled quickly: about twice as long."""
NUMPY_S = 4e-9
NUMPY_A_CALL_S = 4e-6
"""CPU seconds that NumPy takes for an instruction, where nothing else is known: for each thread, and for being called."""
EXACT_CHECKS_COST = 3
"""Duration of a launch under exact checks, relative to one without checks (approximate)."""
LEAST_PACE = 0.1
"""Part of what NumPy is taken to need that a launch may show it to need."""
MOST_SUSPICIONS = 3
_log = logging.getLogger(__name__)


class Chooser:
    """Native code for the launches of one kernel.

    Args:
        text: what the kernel is, for the cache: its PTX and its name.
        hasty: a launch is to be done as soon as can be, whatever others may gain by what is compiled for it.
        single: registers with one definition. addresses: the integer arithmetic behind its addresses.

    Attributes:
        suspicions: how many launches under checks, one after the other, had to be run again under the exact ones.
    """

    def __init__(
        self, decoded: Decoded, single: frozenset[str], addresses: Slice, text: str, *, hasty: bool = False
    ) -> None:
        self._addresses = addresses
        self._decoded = decoded
        self._single = single
        self._text = text
        self._refined: Refined | None = None
        self._specials: frozenset[str] = frozenset()
        self._broken = False
        self._cost = COMPILING_S + COMPILING_A_STEP_S * len(decoded.steps)
        self._per_thread = self._per_batch = float(len(decoded.steps))
        self._pace = Pace(NUMPY_S, NUMPY_A_CALL_S)
        self._spent, self._made = 0.0, 0
        self._native_s = 0.0
        self._optimizing = OPTIMIZING_A_STEP_S * len(decoded.steps)
        self._hasty = hasty
        self.suspicions = 0
        self._watchable: bool | None = None

    def learn(self, tally: Tally, threads: int, batches: int, *, exact: bool) -> None:
        """So many threads in so many batches took this; `exact`: NumPy's part of it under exact checks."""
        self._per_thread, self._per_batch = tally.instructions / threads, tally.issued / batches
        if tally.seconds:
            seconds = tally.seconds / (EXACT_CHECKS_COST if exact else 1)
            self._pace = Pace.of(tally.instructions, tally.issued, seconds)

    def work(self, threads: int, batches: int) -> float:
        """CPU seconds that so many threads would take NumPy without checks, as far as launches have told."""
        return self._pace.seconds(self._per_thread * threads, self._per_batch * batches)

    def spend(self, tally: Tally) -> None:
        """NumPy has made a whole launch."""
        self._spent += tally.seconds
        self._made += 1

    def spend_native(self, seconds: float) -> None:
        """Native code has taken so many CPU seconds."""
        self._native_s += seconds

    def is_soon_done(self, threads: int) -> bool:
        """True if code that is compiled quickly does, and is then half as fast.

        As for `to_come`, what native code has taken so far stands for what is to come: half of it would be saved.
        """
        saved = UNOPTIMIZED_S * self._per_thread * threads + self._native_s / 2
        return saved < self._optimizing

    def to_come(self, work: float) -> float:
        """CPU seconds that NumPy would take for a launch of so much work, and for others that are to be expected.

        What was done without native code says what may come: as many launches again, but each no larger than this one, since
        a version is tried at its large sizes first, and no more in all.
        """
        return work if self._hasty else work + min(self._spent, self._made * work)

    def patience(self, mode: Mode, machine: Machine, *, checks: bool) -> float:
        """CPU seconds of one launch after which native code would have been quicker, compiling included."""
        possible = mode == "auto" and not self._broken
        if possible and checks:
            possible = not self._suspicious and self._may_watch() and fits(machine, self._checks().global_shift)
        return self._cost if possible else math.inf

    def choose(
        self, mode: Mode, machine: Machine, work: float, threads: int, *, counts: bool, checks: bool
    ) -> NativeProgram | None:
        """The program to run `threads`, or None where NumPy is to do it, which would take `work` CPU seconds more."""
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
        """Shadows for a launch under checks; None where they would be too large."""
        checks = self._checks()
        if not fits(machine, checks.global_shift):
            return None
        watch = StampWatch(machine, checks.shared_shift, checks.global_shift)
        watch.attach()
        return watch

    @property
    def _suspicious(self) -> bool:
        """True if the exact checks are made at once: what was suspicious again and again is not tried any more."""
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
class Pace:
    """CPU seconds that NumPy takes for an instruction: for each thread, and for being called."""

    thread: float
    call: float

    @staticmethod
    def of(instructions: float, issued: float, seconds: float) -> Pace:
        """The pace at which thread-instructions, of which so many came one after the other, took so long.

        One time says nothing of two figures, so it is the smallest change of what is usual that explains it: a small launch,
        in which calls are nearly all, says little of what many threads take.
        """
        threads, calls = NUMPY_S * instructions, NUMPY_A_CALL_S * issued
        more = (seconds - threads - calls) / (threads**2 + calls**2)
        return Pace(NUMPY_S * max(1 + more * threads, LEAST_PACE), NUMPY_A_CALL_S * max(1 + more * calls, LEAST_PACE))

    def seconds(self, instructions: float, issued: float) -> float:
        """What thread-instructions take of which so many come one after the other."""
        return self.thread * instructions + self.call * issued
