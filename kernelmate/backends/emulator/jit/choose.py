"""Whether a launch is worth native code. Nothing here loads LLVM before it is."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Literal

from kernelmate.backends.emulator.decode import Decoded
from kernelmate.backends.emulator.machine import Machine

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
        single: registers with one definition.

    Attributes:
        per_thread: instructions that a thread takes, as far as launches have told. spent: thread-instructions that
            NumPy has made.
    """

    def __init__(self, decoded: Decoded, single: frozenset[str], text: str) -> None:
        self._decoded = decoded
        self._single = single
        self._text = text
        self._refined: Refined | None = None
        self._specials: frozenset[str] = frozenset()
        self._broken = False
        self._cost = COMPILING_PAYS + COMPILING_A_STEP_PAYS * len(decoded.steps)
        self.per_thread = float(len(decoded.steps))
        self.spent = 0

    def choose(self, mode: Mode, machine: Machine, counts: bool, work: float) -> Program | None:
        """The program to run, or None where NumPy is to do it; `work` is in thread-instructions still to be made."""
        if mode == "never" or self._broken or (mode == "auto" and work < LOADING_PAYS):
            return None
        try:
            return self._choose(mode, machine, counts, work)
        except Exception as error:  # noqa: BLE001 - LLVM fails in its own ways, and the NumPy operations do all it does
            _log.warning("the emulator goes on without native code: %s: %s", type(error).__name__, error)
            self._broken = True
            return None

    def _choose(self, mode: Mode, machine: Machine, counts: bool, work: float) -> Program | None:
        from kernelmate.backends.emulator.jit import program
        from kernelmate.backends.emulator.jit.build import Shape
        from kernelmate.backends.emulator.jit.refine import refine

        if self._refined is None:
            self._specials = program.specials_in(self._decoded)
            self._refined = refine(self._decoded, self._single)
        registers = machine.registers
        fixed = frozenset(name for name in self._specials if isinstance(registers.special(name), int))
        shape = Shape(frozenset(registers.constants), fixed, counts)
        # What was done without it already counts too: a kernel that is launched often is compiled some day.
        if mode == "auto" and work + self.spent < self._cost and not program.is_at_hand(shape, self._text):
            return None
        return program.program_for(self._refined, shape, self._text)
