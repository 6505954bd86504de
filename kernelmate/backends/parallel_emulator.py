"""Emulator backend with helper processes: announced launches run on the machine's other cores.

The process that makes a launch does not affect its results, since each launch starts with fresh memory. Code with
persistent variables stays in one process.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator
from concurrent.futures import CancelledError, Future
from dataclasses import dataclass, replace
from itertools import chain, islice

from kernelmate.backends.base import ArrayArgument, EmulationTooLarge, Run, RunResult, ScalarArgument, array_bytes
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.emulator.backend import EmulatedModule
from kernelmate.backends.emulator_pool import EmulatorLost, EmulatorPool, TooLarge, answers_request
from kernelmate.compiler.ptx_text import used_names_of
from kernelmate.records import BackendName, Compiled, Target

HANDED_OVER_BYTES = 32 << 20
"""Bytes of arrays up to which a launch may run in another process, since two large ones at once need twice the memory."""
WAITING_BYTES = 64 << 20
WAITING_LAUNCHES = 64
"""Limits of launches handed over ahead of the requested one: their number, and their total bytes."""
MOST_EARLY = 4
"""Maximum number of speculative launches; the oldest ones are dropped."""


class ParallelEmulator:
    """The emulator as a backend with helper processes.

    Args:
        emulators: the helper processes.
    """

    name: BackendName = "emulator"
    poisoned = False

    def __init__(self, emulators: EmulatorPool) -> None:
        self._backend, self._emulators = EmulatorBackend(), emulators
        self._early: dict[str, _Begun] = {}

    def load(self, compiled: Compiled, target: Target) -> EmulatedModule | ParallelModule:
        """Decodes a compiled kernel.

        Raises:
            UnsupportedInstruction: it contains an instruction that the emulator does not support; the finding names it
            and its line.
        """
        module = self._backend.load(compiled, target)
        if used_names_of(compiled.ptx):
            return module  # its launches depend on each other
        return ParallelModule(module, self._emulators, self._early)

    def begin(self, compiled: Compiled, target: Target, run: Run) -> None:
        """Implements `Begins.begin`."""
        module, name = self.load(compiled, target), _name(compiled, target)
        if not isinstance(module, ParallelModule) or name in self._early or array_bytes(run) > HANDED_OVER_BYTES:
            return
        while len(self._early) >= MOST_EARLY:
            self._early.pop(next(iter(self._early))).answer.cancel()
        answer = self._emulators.submit(compiled, target, run, arrays=True)
        self._early[name] = _Begun(module.emulated, run, answer)


@dataclass(slots=True)
class _Begun:
    """A launch started in another process, or made here meanwhile; `made` is its result if known."""

    module: EmulatedModule
    run: Run
    answer: Future[RunResult | TooLarge]
    made: RunResult | TooLarge | None = None


class ParallelModule:
    """One kernel, whose announced launches are distributed to processes.

    A process takes the next launch whenever it is free. While a requested launch still runs in another process, this
    process makes the next unstarted one.

    Args:
        emulated: the kernel in this process.
        emulators: the other processes.
        early: speculative launches of this and other kernels, by code.
    """

    def __init__(self, emulated: EmulatedModule, emulators: EmulatorPool, early: dict[str, _Begun]) -> None:
        self.emulated, self._emulators, self._early = emulated, emulators, early
        self._coming: Iterator[Run] = iter(())
        self._begun: dict[Hashable, _Begun] = {}
        self._waiting_bytes = 0

    def foresee(self, runs: Iterable[Run]) -> None:
        """Implements `Foresees.foresee`."""
        for begun in self._begun.values():
            begun.answer.cancel()
        self._begun.clear()
        self._waiting_bytes = 0
        coming = iter(runs)
        first = list(islice(coming, 2))
        # A single launch is not handed over, since it would only be waited for.
        self._coming = chain(first, coming) if len(first) > 1 else iter(())
        self._hand_over()

    def run(self, run: Run) -> RunResult:
        """Makes one launch, or waits for it.

        Raises:
            EmulationTooLarge: as `EmulatedModule.run`.
        """
        begun = self._begun.pop((run.key, run.count), None)
        if begun is not None:
            self._waiting_bytes -= array_bytes(run)
            self._hand_over()
        else:
            begun = self._begun_early(run)
        seen = None if begun is None else self._seen(begun)
        if begun is None or seen is None or not answers_request(begun.run, seen, run):
            return self.emulated.run(run)
        if isinstance(seen, TooLarge):
            raise seen.error()
        return seen

    def _begun_early(self, run: Run) -> _Begun | None:
        name = _name(self.emulated.compiled, self.emulated.target)
        early = self._early.get(name)
        return self._early.pop(name) if early is not None and _same(early.run, run) else None

    def _seen(self, begun: _Begun) -> RunResult | TooLarge | None:
        """Returns the result of an announced launch; None if it must be made here."""
        if begun.made is not None or begun.answer.cancel():
            return begun.made
        while not begun.answer.done() and self._make_next():
            pass
        try:
            return begun.answer.result()
        except (EmulatorLost, CancelledError):
            return None

    def _make_next(self) -> bool:
        """Runs the first launch that has not been started, in this process; returns False if there is none."""
        others = chain(self._begun.values(), self._early.values())
        following = next((one for one in others if one.made is None and one.answer.cancel()), None)
        if following is None:
            return False
        try:
            following.made = following.module.run(following.run)
        except EmulationTooLarge as error:
            following.made = TooLarge(str(error), error.limit, error.advice, error.longest_thread)
        return True

    def _hand_over(self) -> None:
        """Hands launches over until enough of them are waiting."""
        while len(self._begun) < WAITING_LAUNCHES and self._waiting_bytes < WAITING_BYTES:
            run = next(self._coming, None)
            if run is None:
                return
            size = array_bytes(run)
            if run.key is None or size > HANDED_OVER_BYTES:
                continue
            answer = self._emulators.submit(self.emulated.compiled, self.emulated.target, run, arrays=True)
            self._begun[run.key, run.count] = _Begun(self.emulated, run, answer)
            self._waiting_bytes += size


def _name(compiled: Compiled, target: Target) -> str:
    return f"{compiled.binary} {compiled.lowered_name} {target.name}"


def _same(one: Run, other: Run) -> bool:
    """True if two launches of equal code are equal, apart from the limit on a thread's steps."""
    alike = replace(one, arguments=(), step_limit=0, limited_by="") == replace(
        other, arguments=(), step_limit=0, limited_by=""
    )
    return alike and len(one.arguments) == len(other.arguments) and all(map(_equal, one.arguments, other.arguments))


def _equal(one: ArrayArgument | ScalarArgument, other: ArrayArgument | ScalarArgument) -> bool:
    if isinstance(one, ScalarArgument) and isinstance(other, ScalarArgument):
        return (one.name, one.value.dtype, one.value.tobytes(), one.addresses) == (
            other.name,
            other.value.dtype,
            other.value.tobytes(),
            other.addresses,
        )
    if not (isinstance(one, ArrayArgument) and isinstance(other, ArrayArgument)):
        return False
    if replace(one, data=other.data, device=other.device) != other:
        return False
    mine, theirs = one.data, other.data
    if (mine.dtype, mine.shape) != (theirs.dtype, theirs.shape):
        return False
    return mine is theirs or mine.tobytes() == theirs.tobytes()
