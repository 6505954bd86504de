"""The emulator with other processes' help: launches that are foreseen are made on the machine's other cores.

Which process makes a launch changes nothing of what it does: each starts from fresh memory. Code with variables that outlive
a launch is kept in one place.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass
from itertools import chain, islice

from kernelmate.backends.base import ArrayArgument, EmulationTooLarge, Run, RunResult
from kernelmate.backends.cuda.variables import used_names_of
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.emulator.backend import EmulatedModule
from kernelmate.backends.emulators import Emulators, Lost, TooLarge, within
from kernelmate.records import BackendName, Compiled, Target

HANDED_OVER_BYTES = 32 << 20
"""Bytes of arrays up to which a launch is made elsewhere: two that large at once take the memory of two."""
WAITING_BYTES = 64 << 20
WAITING_LAUNCHES = 64
"""Launches that are handed over ahead of the one that is asked for: so many, of so many bytes together."""


class HelpedEmulator:
    """The emulator as a backend, with processes beside it.

    Args:
        emulators: those processes.
    """

    name: BackendName = "emulator"
    poisoned = False

    def __init__(self, emulators: Emulators) -> None:
        self._backend, self._emulators = EmulatorBackend(), emulators

    def load(self, compiled: Compiled, target: Target) -> EmulatedModule | HelpedModule:
        """Decode a compiled kernel.

        Raises:
            UnsupportedInstruction: it holds what the emulator does not know; the finding names it and its line.
        """
        module = self._backend.load(compiled, target)
        if used_names_of(compiled.ptx):
            return module  # its launches hang on one another
        return HelpedModule(module, self._emulators)


@dataclass(slots=True)
class _Begun:
    """A launch that is made elsewhere, or was made here meanwhile; `made` is what it gave, where that is known."""

    run: Run
    answer: Future[RunResult | TooLarge]
    made: RunResult | TooLarge | None = None


class HelpedModule:
    """One kernel, whose foreseen launches are shared among processes.

    Those ask for the next one whenever they are done with one. Where the launch that is wanted is still being made elsewhere,
    the next that nobody has begun is made here in the meantime.
    """

    def __init__(self, module: EmulatedModule, emulators: Emulators) -> None:
        self._module, self._emulators = module, emulators
        self._coming: Iterator[Run] = iter(())
        self._begun: dict[Hashable, _Begun] = {}
        self._waiting_bytes = 0

    def foresee(self, runs: Iterable[Run]) -> None:
        """As `Foresees.foresee`."""
        for begun in self._begun.values():
            begun.answer.cancel()
        self._begun.clear()
        self._waiting_bytes = 0
        coming = iter(runs)
        first = list(islice(coming, 2))
        # One that is all there is would only be waited for.
        self._coming = chain(first, coming) if len(first) > 1 else iter(())
        self._hand_over()

    def run(self, run: Run) -> RunResult:
        """Make one launch, or wait for it.

        Raises:
            EmulationTooLarge: as `EmulatedModule.run`.
        """
        begun = self._begun.pop((run.key, run.count), None)
        if begun is None:
            return self._module.run(run)
        self._waiting_bytes -= _bytes(run)
        self._hand_over()
        seen = self._seen(begun)
        if seen is None or not within(begun.run, seen, run):
            return self._module.run(run)
        if isinstance(seen, TooLarge):
            raise seen.error()
        return seen

    def _seen(self, begun: _Begun) -> RunResult | TooLarge | None:
        """What a launch gave that was foreseen; None where it is to be made here."""
        if begun.made is not None or begun.answer.cancel():
            return begun.made
        while not begun.answer.done() and self._make_next():
            pass
        try:
            return begun.answer.result()
        except (Lost, CancelledError):
            return None

    def _make_next(self) -> bool:
        """Make the first launch here that nobody has begun; False where there is none."""
        following = next((one for one in self._begun.values() if one.made is None and one.answer.cancel()), None)
        if following is None:
            return False
        try:
            following.made = self._module.run(following.run)
        except EmulationTooLarge as error:
            following.made = TooLarge(str(error), error.limit, error.advice, error.longest_thread)
        return True

    def _hand_over(self) -> None:
        """Hand launches over until enough of them wait."""
        while len(self._begun) < WAITING_LAUNCHES and self._waiting_bytes < WAITING_BYTES:
            run = next(self._coming, None)
            if run is None:
                return
            size = _bytes(run)
            if run.key is None or size > HANDED_OVER_BYTES:
                continue
            answer = self._emulators.submit(self._module.compiled, self._module.target, run, arrays=True)
            self._begun[run.key, run.count] = _Begun(run, answer)
            self._waiting_bytes += size


def _bytes(run: Run) -> int:
    return sum(item.data.nbytes for item in run.arguments if isinstance(item, ArrayArgument))
