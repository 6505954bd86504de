"""Emulation of a module's launches before the GPU makes them: selection of the launches, and their findings."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace

from kernelmate.backends.base import ArrayArgument, EmulationTooLarge, Module, Run, RunResult, small
from kernelmate.backends.emulator_pool import EmulatorLost, EmulatorPool, TooLarge, within
from kernelmate.compiler.ptx_text import used_names_of
from kernelmate.records import Compiled, Target

CHECKED_INSTRUCTIONS = 100_000_000
"""Instruction limit of small launches that run in the emulator first."""

CHECKED_LAUNCHES = 2
"""Launches of one shape and size that the emulator checks.

Races and bad addresses depend on these and on scheduling, seldom on values, so later launches run on the GPU alone.
Launches with misaligned pointers or risky inputs are always checked.
"""

COUNTED_INSTRUCTIONS = 1_000_000_000
"""Instructions up to which a launch is emulated for its counters."""


COUNTED_LARGE_INSTRUCTIONS = 300_000_000
"""Instruction limit of large launches, which are emulated in the background for their counters."""

COUNTED_WITHIN_S = 0.3
"""Seconds that a verdict waits for such counters at the end."""

LONG_CODE = 1000
"""Statements in PTX from which native code is compiled ahead.

By NumPy each launch of such a kernel takes about as long as compiling it does, so that no launch alone is worth it.
"""

LEAST_PROCESSES = 3
"""Processes from which one compiles ahead."""

REMEMBERED = 1024
"""Launches of which it is remembered whether native code was worth it."""


class NativeCodeWorth:
    """Earlier launches that were worth compiling to native code: a changed version seldom takes much longer."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, bool] = OrderedDict()

    def known(self, name: str, run: Run) -> bool | None:
        """True if native code was worth it for a launch; None if unknown."""
        return self._known.get(_kind(name, run))

    def learn(self, name: str, run: Run, native: bool | None) -> None:
        """Records whether native code paid off."""
        if native is None:
            return
        kind = _kind(name, run)
        self._known[kind] = native
        self._known.move_to_end(kind)
        while len(self._known) > REMEMBERED:
            self._known.popitem(last=False)


def _kind(name: str, run: Run) -> Hashable:
    return name, run.count, run.check, _alike(run)


class EmulatedChecks:
    """The emulator beside one module on the GPU.

    Args:
        emulated: the module in this process's emulator.
        compiled: its compiled code.
        target: its target.
        emulators: other processes that emulate as well, so that launches that are foreseen are ready when they are
            made; None if there are none.
        worth: of launches in those, for all modules of a backend; None for this one alone.
    """

    def __init__(
        self,
        emulated: Module,
        compiled: Compiled,
        target: Target,
        emulators: EmulatorPool | None,
        worth: NativeCodeWorth | None = None,
    ) -> None:
        self._emulated, self._compiled, self._target, self._worth = (
            emulated,
            compiled,
            target,
            worth or NativeCodeWorth(),
        )
        # Launches of code with module variables depend on each other, so they must run in one place, in order.
        self._emulators = None if used_names_of(compiled.ptx) else emulators
        self._made: Counter[Hashable] = Counter()
        self._foreseen: dict[Hashable, tuple[Run, Future[RunResult | TooLarge]]] = {}
        self._ahead: Future[RunResult | TooLarge] | None = None

    def foresee(self, runs: Iterable[Run]) -> None:
        """Starts emulating launches that will be requested in this order; earlier ones are dropped."""
        for _, begun in self._foreseen.values():
            begun.cancel()
        self._foreseen.clear()
        if self._emulators is None:
            return
        made = self._made.copy()
        coming = [wanted for run in runs if run.key is not None and (wanted := _wanted(run, made)) is not None]
        self._compile_ahead(self._emulators, coming)
        for wanted in coming:
            wanted = replace(wanted, native=self._worth.known(self._compiled.lowered_name, wanted))
            self._foreseen[wanted.key, wanted.count] = (
                wanted,
                self._emulators.submit(self._compiled, self._target, wanted),
            )

    def _compile_ahead(self, emulators: EmulatorPool, coming: Sequence[Run]) -> None:
        """Lets one process compile long code that several launches need, while the others begin without it."""
        checked = [run for run in coming if run.check and not run.count]
        if self._ahead or len(checked) < 2 or len(emulators.pids) < LEAST_PROCESSES:
            return
        if self._compiled.ptx.count(";\n") >= LONG_CODE:
            self._ahead = emulators.submit(self._compiled, self._target, replace(checked[0], native=True, key=None))

    def seen(self, run: Run) -> RunResult | None:
        """Returns the emulator's result of a launch; None if the launch needs no check or is too large."""
        wanted = _wanted(run, self._made)
        if wanted is None:
            return None
        begun = self._foreseen.pop((run.key, run.count), None)
        if begun is not None:
            try:
                seen = begun[1].result()
            except (EmulatorLost, CancelledError):
                pass  # pass: made here instead, so that no check is lost with a process
            else:
                if within(begun[0], seen, wanted):
                    if isinstance(seen, TooLarge):
                        return None
                    self._worth.learn(self._compiled.lowered_name, wanted, seen.native)
                    return seen
        try:
            return self._emulated.run(wanted)
        except EmulationTooLarge:
            return None

    def counting(self, run: Run) -> Callable[[], RunResult | None] | None:
        """Starts counting a large launch in the background.

        Returns a function that waits briefly for the result, or None.
        """
        if self._emulators is None:
            return None
        wanted = replace(run, check=False, total_limit=min(run.total_limit, COUNTED_LARGE_INSTRUCTIONS), key=None)
        begun = self._emulators.submit(self._compiled, self._target, wanted)

        def counted() -> RunResult | None:
            try:
                seen = begun.result(timeout=COUNTED_WITHIN_S)
            except (EmulatorLost, CancelledError, TimeoutError):
                begun.cancel()
                return None
            return None if isinstance(seen, TooLarge) else seen

        return counted


def _bytes(run: Run) -> int:
    return sum(item.data.nbytes for item in run.arguments if isinstance(item, ArrayArgument))


def _wanted(run: Run, made: Counter[Hashable]) -> Run | None:
    """Returns the launch as the emulator is to make it, None for no emulation; counts it among its kind."""
    checked = run.check and small(run.shape, _bytes(run))
    if not run.count and not checked:
        return None
    if not run.wary and not any(isinstance(item, ArrayArgument) and item.misalign for item in run.arguments):
        same = _alike(run)
        made[same] += 1
        if not run.count and made[same] > CHECKED_LAUNCHES:
            return None
    limit = CHECKED_INSTRUCTIONS if checked else COUNTED_INSTRUCTIONS
    return replace(run, check=checked, total_limit=min(run.total_limit, limit))


def _alike(run: Run) -> Hashable:
    """Key of launches that differ in the contents of their arrays alone."""
    sizes = (
        (item.name, item.data.shape if isinstance(item, ArrayArgument) else item.value.tobytes())
        for item in run.arguments
    )
    return run.shape, tuple(sizes)
