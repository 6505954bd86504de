"""Whether a launch is worth native code. Nothing here loads LLVM before it is."""

from __future__ import annotations

import logging
import math
from typing import TYPE_CHECKING, Literal

from kernelmate.backends.emulator.bound import STEP_COST, Tally
from kernelmate.backends.emulator.decode import Decoded
from kernelmate.backends.emulator.jit.layout import Checks
from kernelmate.backends.emulator.jit.suspicion import Watch, fits, granule_shift, may_watch
from kernelmate.backends.emulator.machine import Machine
from kernelmate.backends.emulator.shadow import Slice, is_linear

if TYPE_CHECKING:
    from kernelmate.backends.emulator.jit.program import Program
    from kernelmate.backends.emulator.jit.refine import Refined

Mode = Literal["auto", "always", "never"]
MODES: tuple[Mode, ...] = ("auto", "always", "never")
LOADING_PAYS = 2_000_000
"""Thread-instructions from which NumPy takes longer than loading a program that is on disk."""
COMPILING_PAYS = 20_000_000
COMPILING_A_STEP_PAYS = 750_000
"""The same for compiling one: at about 4 ns per thread-instruction of NumPy, 80 ms and 3 ms per instruction of it."""
_log = logging.getLogger(__name__)


class Chooser:
    """Native code for the launches of one kernel.

    Args:
        text: what the kernel is, for the cache: its PTX and its name.
        single: registers with one definition. addresses: the integer arithmetic behind its addresses.

    Attributes:
        suspicious: a launch under checks had to be run again under the exact ones.
    """

    def __init__(self, decoded: Decoded, single: frozenset[str], addresses: Slice, text: str) -> None:
        self._addresses = addresses
        self._decoded = decoded
        self._single = single
        self._text = text
        self._refined: Refined | None = None
        self._specials: frozenset[str] = frozenset()
        self._broken = False
        self._cost = COMPILING_PAYS + COMPILING_A_STEP_PAYS * len(decoded.steps)
        self._per_thread = self._per_batch = float(len(decoded.steps))
        self._spent = 0
        self.suspicious = False
        self._watchable: bool | None = None

    def learn(self, tally: Tally, threads: int, batches: int) -> None:
        """So many threads in so many batches took this."""
        self._per_thread, self._per_batch = tally.instructions / threads, tally.issued / batches

    def work(self, threads: int, batches: int) -> float:
        """What so many threads would take NumPy, in thread-instructions of many lanes, as far as launches have told."""
        return self._per_thread * threads + STEP_COST * self._per_batch * batches

    def spend(self, tally: Tally) -> None:
        """NumPy has made a whole launch."""
        self._spent += tally.effort

    def patience(self, mode: Mode, machine: Machine, *, checks: bool) -> float:
        """What NumPy may do of one launch before native code would have been quicker, compiling included."""
        possible = mode == "auto" and not self._broken
        if possible and checks:
            possible = not self.suspicious and self._may_watch() and fits(machine, self._checks().global_shift)
        return self._cost if possible else math.inf

    def choose(self, mode: Mode, machine: Machine, work: float, *, counts: bool, checks: bool) -> Program | None:
        """The program to run, or None where NumPy is to do it; `work` is what NumPy would still have to do."""
        if checks and (self.suspicious or not self._may_watch()):
            return None
        if mode == "never" or self._broken or (mode == "auto" and work < LOADING_PAYS):
            return None
        try:
            return self._choose(mode, machine, work, counts, checks)
        except Exception as error:  # noqa: BLE001 - LLVM fails in its own ways, and the NumPy operations do all it does
            _log.warning("the emulator goes on without native code: %s: %s", type(error).__name__, error)
            self._broken = True
            return None

    def watch(self, machine: Machine) -> Watch | None:
        """Shadows for a launch under checks; None where they would be too large."""
        checks = self._checks()
        if not fits(machine, checks.global_shift):
            return None
        watch = Watch(machine, checks.shared_shift, checks.global_shift)
        watch.attach()
        return watch

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

    def _choose(self, mode: Mode, machine: Machine, work: float, counts: bool, checks: bool) -> Program | None:
        from kernelmate.backends.emulator.jit import program
        from kernelmate.backends.emulator.jit.build import Shape
        from kernelmate.backends.emulator.jit.refine import refine

        if self._refined is None:
            self._specials = program.specials_in(self._decoded)
            self._refined = refine(self._decoded, self._single)
        registers = machine.registers
        fixed = frozenset(name for name in self._specials if isinstance(registers.special(name), int))
        shape = Shape(frozenset(registers.constants), fixed, counts, self._checks() if checks else None)
        # What was done without it already counts too: a kernel that is launched often is compiled some day.
        if mode == "auto" and work + self._spent < self._cost and not program.is_at_hand(shape, self._text):
            return None
        return program.program_for(self._refined, shape, self._text)
