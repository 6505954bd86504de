"""Emulation of a module's launches before the GPU makes them: selection of the launches, and their findings."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import CancelledError, Future
from dataclasses import replace
from typing import Any, TypeAlias

from kernelmate.backends.base import (
    ArrayArgument,
    EmulationTooLarge,
    Module,
    Run,
    RunResult,
    array_bytes,
    is_small_launch,
)
from kernelmate.backends.emulator_pool import EmulatorLost, EmulatorPool, TooLarge, answers_request
from kernelmate.compiler.ptx_text import used_names_of
from kernelmate.records import Compiled, Target

CHECKED_INSTRUCTIONS = 100_000_000
"""Instruction limit of small launches that run in the emulator first."""

CHECKED_LAUNCHES = 2
"""Launches of one shape and size that the emulator checks.

Races and bad addresses depend on these and on scheduling, seldom on values, so later launches run only on the GPU.
Launches with misaligned pointers or risky inputs are always checked.
"""

COUNTED_INSTRUCTIONS = 1_000_000_000
"""Maximum instructions for which a launch is emulated for its counters."""


COUNTED_LARGE_INSTRUCTIONS = 300_000_000
"""Instruction limit of large launches, which are emulated in the background for their counters."""

COUNTED_WITHIN_S = 0.3
"""Seconds that a verdict waits for such counters at the end."""

LONG_CODE = 1000
"""Statements in PTX from which native code is compiled ahead.

By NumPy each launch of such a kernel takes about as long as compiling it does, so that no single launch is worth it.
"""

LEAST_PROCESSES = 3
"""Minimum number of processes for compiling long code ahead in one of them, and for counting a launch apart from its checks."""

REMEMBERED = 1024
"""Number of launches for which it is remembered whether native code was worth it, and of binaries whose launches were too large."""


_Answer: TypeAlias = "Future[RunResult | TooLarge]"
_Begun: TypeAlias = tuple[Run, _Answer]


class EarlierLaunches:
    """Facts about launches of a session: a changed version seldom takes much longer than the one before it."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, bool] = OrderedDict()
        self._too_large: OrderedDict[Hashable, None] = OrderedDict()

    def known(self, name: str, run: Run) -> bool | None:
        """True if native code was worth it for a launch; None if unknown."""
        return self._known.get(_kind(name, run))

    def learn(self, name: str, run: Run, native: bool | None) -> None:
        """Records whether native code paid off."""
        if native is not None:
            _remember(self._known, _kind(name, run), native)

    def is_too_large(self, compiled: Compiled, run: Run) -> bool:
        """True if this launch of this binary was beyond the limit before."""
        return (compiled.binary, _alike(run)) in self._too_large

    def learn_size(self, compiled: Compiled, run: Run, seen: RunResult | TooLarge) -> None:
        """Remembers a launch that exceeded the limit, which is when `seen` is a `TooLarge`."""
        if isinstance(seen, TooLarge):
            _remember(self._too_large, (compiled.binary, _alike(run)), None)


def _remember(known: OrderedDict[Hashable, Any], key: Hashable, value: object) -> None:
    known[key] = value
    known.move_to_end(key)
    while len(known) > REMEMBERED:
        known.popitem(last=False)


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
        earlier: launches in those, for all modules of a backend; None for this module only.
    """

    def __init__(
        self,
        emulated: Module,
        compiled: Compiled,
        target: Target,
        emulators: EmulatorPool | None,
        earlier: EarlierLaunches | None = None,
    ) -> None:
        self._emulated, self._compiled, self._target = emulated, compiled, target
        self._earlier = earlier or EarlierLaunches()
        # Launches of code with module variables depend on each other, so they must run in one place, in order.
        self._emulators = None if used_names_of(compiled.ptx) else emulators
        self._made: Counter[Hashable] = Counter()
        self._foreseen: dict[Hashable, _Begun] = {}
        self._counts: dict[Hashable, _Answer] = {}
        self._ahead: _Answer | None = None

    @property
    def compiled(self) -> Compiled:
        """The module's code."""
        return self._compiled

    def run(self, run: Run) -> RunResult:
        """Implements `Module.run`, in this process's emulator."""
        return self._emulated.run(run)

    def foresee(self, runs: Iterable[Run]) -> None:
        """Starts emulating launches that will be requested in this order; earlier ones that are not among them are dropped."""
        begun, counting = self._foreseen, self._counts
        self._foreseen, self._counts = {}, {}
        if self._emulators is not None:
            self._foresee(self._emulators, runs, begun, counting)
        for old in (*(old for _, old in begun.values()), *counting.values()):
            old.cancel()

    def _foresee(
        self,
        emulators: EmulatorPool,
        runs: Iterable[Run],
        begun: dict[Hashable, _Begun],
        counting: dict[Hashable, _Answer],
    ) -> None:
        """Starts launches, or takes them from those that were begun."""
        made = self._made.copy()
        coming = [wanted for run in runs if run.key is not None and (wanted := _wanted(run, made)) is not None]
        apart = {run.key for run in coming if run.check and run.count} if self._is_long(emulators) else set()
        self._compile_ahead(emulators, coming)
        for wanted in coming:
            first = replace(wanted, count=False) if wanted.count and wanted.key in apart else wanted
            first = replace(first, native=self._earlier.known(self._compiled.lowered_name, first))
            known = begun.pop((wanted.key, wanted.count), None)
            if known is None or known[0].shape != first.shape:
                known = first, self._submitted(emulators, first)
            self._foreseen[wanted.key, wanted.count] = known
        for counted in (run for run in coming if run.count and run.key in apart):
            running = counting.pop(counted.key) if counted.key in counting else None
            alone = replace(counted, check=False, key=None)
            self._counts[counted.key] = running or self._submitted(emulators, alone)

    def _submitted(self, emulators: EmulatorPool, run: Run) -> _Answer:
        return emulators.submit(self._compiled, self._target, run)

    def _is_long(self, emulators: EmulatorPool) -> bool:
        """Returns True if checks and counters of a launch run separately: code that does both would be compiled only for it."""
        return len(emulators.pids) >= LEAST_PROCESSES and self._compiled.ptx.count(";\n") >= LONG_CODE

    def _compile_ahead(self, emulators: EmulatorPool, coming: Sequence[Run]) -> None:
        """Lets one process compile long code that several launches need, while the others begin without it."""
        checked = [run for run in coming if run.check]
        if not self._ahead and len(checked) > 1 and self._is_long(emulators):
            self._ahead = self._submitted(emulators, replace(checked[0], count=False, native=True, key=None))

    def seen(self, run: Run) -> RunResult | None:
        """Returns the emulator's result of a launch; None if the launch needs no check or is too large."""
        wanted = _wanted(run, self._made)
        if wanted is None:
            return None
        begun = self._foreseen.pop((run.key, run.count), None)
        counts = self._counts.pop(run.key, None) if run.count else None
        if begun is not None:
            try:
                seen = begun[1].result()
            except (EmulatorLost, CancelledError):
                pass  # pass: made here instead, so that no check is lost with a process
            else:
                if answers_request(begun[0], seen, wanted):
                    if isinstance(seen, TooLarge):
                        return None
                    self._earlier.learn(self._compiled.lowered_name, begun[0], seen.native)
                    return seen if counts is None else replace(seen, counting=self._counted_beside(wanted, counts))
        try:
            return self._emulated.run(wanted)
        except EmulationTooLarge:
            return None

    def _counted_beside(self, wanted: Run, counts: _Answer) -> Callable[[], RunResult | None]:
        """Returns a function that waits for the counters of a small launch, which was checked by itself."""

        def counted() -> RunResult | None:
            try:
                seen = counts.result()
            except (EmulatorLost, CancelledError):
                try:
                    return self._emulated.run(replace(wanted, check=False))
                except EmulationTooLarge:
                    return None
            return None if isinstance(seen, TooLarge) else seen

        return counted

    def counting(self, run: Run) -> Callable[[], RunResult | None] | None:
        """Starts counting a large launch in the background, unless it was too large before.

        Returns a function that waits briefly for the result, or None.
        """
        if self._emulators is None or self._earlier.is_too_large(self._compiled, run):
            return None
        wanted = replace(run, check=False, total_limit=min(run.total_limit, COUNTED_LARGE_INSTRUCTIONS), key=None)
        begun = self._submitted(self._emulators, wanted)
        begun.add_done_callback(
            lambda done: (
                None
                if done.cancelled() or done.exception()
                else self._earlier.learn_size(self._compiled, run, done.result())
            )
        )

        def counted() -> RunResult | None:
            try:
                seen = begun.result(timeout=COUNTED_WITHIN_S)
            except (EmulatorLost, CancelledError, TimeoutError):
                begun.cancel()
                return None
            return None if isinstance(seen, TooLarge) else seen

        return counted


def _wanted(run: Run, made: Counter[Hashable]) -> Run | None:
    """Returns the launch to emulate, or None if it is not emulated; counts the launch."""
    checked = run.check and is_small_launch(run.shape, array_bytes(run))
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
    """Key of launches that differ only in the contents of their arrays."""
    sizes = (
        (item.name, item.data.shape if isinstance(item, ArrayArgument) else item.value.tobytes())
        for item in run.arguments
    )
    return run.shape, tuple(sizes)
