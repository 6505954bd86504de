"""Processes that only emulate, so that a verdict's launches run in parallel.

They are forked before CUDA is opened, which does not support forking, and before any thread is started. They cannot
access the GPU, share the modules that the worker had loaded, and end with it. With a GPU they check launches before the
GPU makes them (`cuda/emulated_checks.py`); without one they make the launches (`parallel_emulator.py`).
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import numpy as np

from kernelmate.backends.base import ArrayArgument, EmulationTooLarge, Run, RunResult
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.emulator.backend import EmulatedModule
from kernelmate.backends.processes import die_with_parent, keep_freed_memory
from kernelmate.compiler import find_target
from kernelmate.records import Compiled, LaunchShape, Target

MOST = 7
"""Maximum number of processes: a verdict emulates some thirty launches, of which one often takes as long as ten others."""
MOST_HELPERS = 3
"""Maximum number of processes beside one that also emulates.

Expected outputs and comparisons, which only it computes, are a third of the work.
"""

_WARM_UP = """
.version 6.3
.target sm_75
.address_size 64
.visible .entry warm_up(.param .u64 y)
{
    .reg .b32 %r<2>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [y];
    cvta.to.global.u64 %rd2, %rd1;
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd2, %rd3;
    st.global.u32 [%rd4], %r1;
    ret;
}
"""


class EmulatorLost(Exception):
    """The process that ran a launch has ended."""


@dataclass(frozen=True, slots=True)
class TooLarge:
    """Reply for a launch beyond the emulator's limits: the contents of `EmulationTooLarge`."""

    message: str
    limit: int
    advice: str
    longest_thread: int | None

    def error(self) -> EmulationTooLarge:
        """Returns the exception."""
        return EmulationTooLarge(self.message, self.limit, self.advice, self.longest_thread)


@dataclass(frozen=True, slots=True)
class _EmulationJob:
    compiled: Compiled
    target: Target
    run: Run
    arrays: bool
    answer: Future[RunResult | TooLarge]


def answers_request(made: Run, seen: RunResult | TooLarge, wanted: Run) -> bool:
    """Returns True if a finished launch answers the requested one.

    A tighter step limit changes nothing for threads that stay below it.
    """
    if made.step_limit == wanted.step_limit:
        return True
    return isinstance(seen, RunResult) and seen.longest_thread is not None and seen.longest_thread < wanted.step_limit


def process_count() -> int:
    """Returns the number of processes for this machine: half of its cores less one, at most `MOST`; 0 outside Linux."""
    if not sys.platform.startswith("linux"):
        return 0
    return max(0, min(MOST, len(os.sched_getaffinity(0)) // 2 - 1))


def helper_count() -> int:
    """Returns the number of processes that help one that emulates: the other cores, up to a limit."""
    if not sys.platform.startswith("linux"):
        return 0
    return min(MOST_HELPERS, len(os.sched_getaffinity(0)) - 1)


def warm_up() -> None:
    """Loads the libraries of emulation, above all LLVM (a quarter of a second), once before forking."""
    code = Compiled("warm_up", None, "warm_up", "sm_90", "", True, (), ptx=_WARM_UP)
    run = Run(LaunchShape((1, 1, 1), (32, 1, 1)), (ArrayArgument("y", np.zeros(32, np.int32)),), count=True)
    for mode in ("never", "always"):
        EmulatorBackend(mode).load(code, find_target("sm_90")).run(run)


class EmulatorPool:
    """Forks a number of emulating processes.

    Args:
        count: their number.
        begin: called first in each, for example to close descriptors.
        hasty: as in `EmulatorBackend`.
        resolve: replaces references to large arrays by the arrays.
    """

    def __init__(
        self,
        count: int,
        begin: Callable[[], None] = lambda: None,
        *,
        hasty: bool = False,
        resolve: Callable[[Run], Run] = lambda run: run,
    ) -> None:
        self._jobs: queue.SimpleQueue[_EmulationJob | None] = queue.SimpleQueue()
        self._pids: list[int] = []
        ends = [_forked(begin, self._pids, hasty, resolve) for _ in range(count)]
        self._alive = len(ends)
        self._counting = threading.Lock()
        self._threads = [threading.Thread(target=self._feed, args=(end,), daemon=True) for end in ends]
        for thread in self._threads:
            thread.start()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids."""
        return tuple(self._pids)

    def submit(
        self, compiled: Compiled, target: Target, run: Run, *, arrays: bool = False
    ) -> Future[RunResult | TooLarge]:
        """Queues a launch. The future raises `EmulatorLost` if no process is left, or the process that ran it ended.

        Args:
            compiled: the kernel's code.
            target: its target.
            run: the launch.
            arrays: return arrays; False returns only those of a launch with an error, since the caller has the GPU's.
        """
        answer: Future[RunResult | TooLarge] = Future()
        with self._counting:
            if self._alive:
                self._jobs.put(_EmulationJob(compiled, target, run, arrays, answer))
            else:
                answer.set_exception(EmulatorLost())
        return answer

    def close(self) -> None:
        """Ends the processes, and waits for them."""
        for pid in self._pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        for pid in self._pids:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)
        self._pids.clear()

    def _feed(self, end: Connection) -> None:
        """Sends jobs to one process until it has ended."""
        known: str | None = None
        while (job := self._jobs.get()) is not None:
            if not job.answer.set_running_or_notify_cancel():
                continue
            name = f"{job.compiled.binary} {job.compiled.lowered_name} {job.target.name}"
            module = None if name == known else (job.compiled, job.target)
            try:
                end.send((module, job.run, job.arrays))
                known = name
                job.answer.set_result(end.recv())
            except (EOFError, OSError):
                job.answer.set_exception(EmulatorLost())
                break
        self._over()

    def _over(self) -> None:
        """Counts a process as ended; after the last one, all jobs that wait in the pool fail."""
        with self._counting:
            self._alive -= 1
            while not self._alive and not self._jobs.empty():
                left = self._jobs.get()
                if left is not None and left.answer.set_running_or_notify_cancel():
                    left.answer.set_exception(EmulatorLost())


def _forked(begin: Callable[[], None], pids: list[int], hasty: bool, resolve: Callable[[Run], Run]) -> Connection:
    """Forks one more process; returns this side's end of its pipe."""
    ours, theirs = Pipe()
    with warnings.catch_warnings():
        # Libraries of linear algebra have threads of their own, which they see to at a fork.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid:
        theirs.close()
        pids.append(pid)
        return ours
    try:
        ours.close()
        die_with_parent()
        keep_freed_memory(kept=False)  # several processes would each keep the memory of their launches
        begin()
        _serve(theirs, hasty, resolve)
    finally:
        os._exit(0)


def _serve(end: Connection, hasty: bool, resolve: Callable[[Run], Run]) -> None:
    """Emulates requests until the end."""
    backend, module = EmulatorBackend(hasty=hasty), None
    while True:
        try:
            loaded, run, arrays = end.recv()
        except EOFError:
            return
        module = backend.load(*loaded) if loaded is not None else module
        assert module is not None
        end.send(_emulated(module, resolve(run), arrays))


def _emulated(module: EmulatedModule, run: Run, arrays: bool) -> RunResult | TooLarge:
    try:
        seen = module.run(run)
    except EmulationTooLarge as error:
        return TooLarge(str(error), error.limit, error.advice, error.longest_thread)
    wanted = arrays or any(finding.severity == "error" for finding in seen.findings)
    return seen if wanted else replace(seen, arrays={})
