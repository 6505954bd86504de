"""The session's side of the worker: starts it, sends tasks, monitors it, and kills it."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelmate.environment import allowed, without_secrets
from kernelmate.errors import ReferenceFailed, WorkerUnavailable
from kernelmate.records import BackendName, FindingCode, Judgement, JudgeTask
from kernelmate.worker import protocol
from kernelmate.worker.base import (
    REFERENCE_STAGE,
    DeathKind,
    JudgeWorker,
    OnProgress,
    TaskClock,
    TaskDeath,
    WorkerMachine,
    WorkerState,
)
from kernelmate.worker.process import OutputFlooded, Process, ProcessEnded, ProcessPool, Started, exit_description
from kernelmate.worker.remote import Remote

__all__ = [
    "COMMAND",
    "REFERENCE_STAGE",
    "JudgeWorker",
    "OnProgress",
    "TaskDeath",
    "Worker",
    "WorkerSetup",
    "WorkerState",
]

COMMAND = (sys.executable, "-P", "-m", "kernelmate.worker.child")
"""Command that starts a local worker.

`-P` keeps the current folder, which may contain a user's `random.py`, off the import path.
"""

START_TIMEOUT_S = 60.0
"""Longest wait for a worker to load what it needs; a cold disk and a busy machine take some seconds."""

_EXIT_GRACE_S = 2.0
"""Seconds to wait for a child that closed its stream to exit by itself, so that its own exit status can be reported."""


@dataclass(frozen=True, slots=True)
class WorkerSetup:
    """Resources that a worker opens before its first task.

    Attributes:
        backend: the one that tasks will name.
        device: the GPU's number, as CUDA counts them.
        device_memory_mb: MiB of the GPU's memory that launches may take; None for most of what is free.
        spare: keep a second process ready, which takes over at once after a task has ended the first. It is worth its
            memory if starting is slow, as on a GPU.
    """

    backend: BackendName = "emulator"
    device: int = 0
    device_memory_mb: int | None = None
    spare: bool = False


class Worker:
    """A worker in a child process, local or started by a launcher such as ssh, replaced whenever a task has ended it.

    The process leads a session of its own, so that Ctrl-C reaches only this one, which then kills it with everything
    that it started. One task at a time: a second thread waits for its turn.

    Args:
        command: command that starts the child, which must speak the protocol over its standard streams (`ssh HOST
            COMMAND`).
        memory_limit_mb: MiB that judging may take beyond the idle process; None for no limit.
        output_limit_bytes: most that one task may print before it counts as a flood.
        start_timeout_s: longest wait for a started process to be ready, in seconds.
        environment: variables to choose from instead of this process's; a child here gets those on the allow-list, a
            launcher of remote children all but those whose names look like secrets.
        opening: what the process opens ahead of its first task.
        remote: where the process runs, if not here; its command takes the place of `command`.
    """

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        *,
        memory_limit_mb: int | None = 8192,
        output_limit_bytes: int = 16 * 1024 * 1024,
        start_timeout_s: float = START_TIMEOUT_S,
        environment: Mapping[str, str] | None = None,
        opening: WorkerSetup | None = None,
        remote: Remote | None = None,
    ) -> None:
        self._command = tuple(command) if remote is None else remote.command
        self._opening = opening or WorkerSetup()
        self._remote = remote
        self._memory_limit_mb = memory_limit_mb
        self._output_limit = output_limit_bytes
        self._start_timeout_s = start_timeout_s
        self._environment = environment
        self._state = WorkerState.IDLE
        self._closed = False
        self._process: Started | None = None
        self._machine = WorkerMachine()
        self._supply = ProcessPool(self._spawn, self._greet, spare=self._opening.spare)
        self._number = 0
        self._spent = False
        self._turn = threading.Lock()
        _open_workers.add(self)

    @property
    def state(self) -> WorkerState:
        """State of the worker."""
        return WorkerState.CLOSED if self._closed else self._state

    @property
    def pid(self) -> int | None:
        """The child's process id, None while there is no child."""
        process = self._process
        return process.result().pid if process is not None and process.done() and not process.exception() else None

    def __enter__(self) -> Worker:
        """Starts the worker ahead of the first task."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the worker; an exception is passed on."""
        self.close()

    def start(self) -> None:
        """Starts the process without waiting for it. Does nothing if there is one.

        Raises:
            WorkerUnavailable: the worker is closed.
        """
        if self._closed:
            raise WorkerUnavailable("The worker is closed.", hint="Open a new session.")
        if self._process is None:
            self._process = self._supply.take()
            self._state = WorkerState.STARTED

    def machine(self) -> WorkerMachine:
        """Returns device and software of the worker; starts one and waits for it if there is none.

        Raises:
            WorkerUnavailable: none can be started.
        """
        with self._turn:
            self._ready()
            return self._machine

    def judge(
        self, task: JudgeTask, on_progress: OnProgress | None = None, timeout_s: float = 120.0
    ) -> Judgement | TaskDeath:
        """Judges one task.

        Args:
            task: what to judge.
            on_progress: called with each stage, in this thread; its exceptions end the task and propagate.
            timeout_s: seconds for the whole task, not counting the start of a process.

        Returns:
            The judgement, or how the task ended the process. A fresh one is then already starting.

        Raises:
            ReferenceFailed: the user's reference raised, or did not return within `task.reference_timeout_s`.
            KernelmateError: any other that the judge raises about the user's input, of its own class.
            WorkerUnavailable: no process can be started here, or the task is too large to be sent.
        """
        answer = self._served(task, on_progress, timeout_s, protocol.JudgeRequest)
        assert not isinstance(answer, str)
        return answer

    def trace(self, task: JudgeTask, timeout_s: float = 20.0) -> str | TaskDeath:
        """Returns the graph of the reference of the task's candidate, as text.

        Raises:
            ReferenceFailed: it cannot be traced; the message names the line and the operation.
            WorkerUnavailable: as `judge`.
        """
        answer = self._served(task, None, timeout_s, protocol.TraceRequest)
        assert not isinstance(answer, Judgement)
        return answer

    def _served(
        self,
        task: JudgeTask,
        on_progress: OnProgress | None,
        timeout_s: float,
        kind: type[protocol.JudgeRequest | protocol.TraceRequest],
    ) -> Judgement | str | TaskDeath:
        """Handle one request about a task in its turn, and return the reply.

        Raises:
            KernelmateError: as `judge`.
        """
        with self._turn:
            try:
                process = self._ready()
                answer = self._ask(process, task, on_progress, timeout_s, kind)
            except BaseException:
                # Also for Ctrl-C: no exception may leave a process busy.
                self._retire()
                raise
            if isinstance(answer, TaskDeath) or self._spent:
                # Replaced before the next request: a dying child would take the next task down with it.
                self._retire()
                self.start()
            else:
                self._state = WorkerState.READY
            self._supply.prepare()
        if isinstance(answer, protocol.TaskRefused):
            raise protocol.error_of(answer)
        if isinstance(answer, TaskDeath) and answer.kind == FindingCode.HANG and answer.stage == REFERENCE_STAGE:
            hint = "Make it faster or the sizes smaller, or raise reference_timeout_s or timeout_s in the settings."
            raise ReferenceFailed(answer.detail, hint=hint)
        return answer

    def ahead(self, task: JudgeTask) -> None:
        """Lets an idle process prefetch work for a task like this, without waiting.

        It never changes the result of the next task, only its duration.
        """
        with self._turn:
            if self._state is not WorkerState.READY or self._process is None or self._closed:
                return
            with contextlib.suppress(protocol.FrameError):
                self._process.result().send(protocol.PrefetchRequest(task, launches=task.glance))

    def announce(self, task: JudgeTask) -> None:
        """Lets the process start the launches of a task that will probably follow, without waiting; from any thread.

        It never changes the result of that task, only its duration. Does nothing without a process.
        """
        process = self._process
        if self._closed or process is None or not process.done() or process.exception():
            return
        with contextlib.suppress(protocol.FrameError):
            process.result().send(protocol.PrefetchRequest(task, launches=True))

    def renew(self) -> None:
        """Replaces the process by a fresh one, which starts in the background.

        Raises:
            WorkerUnavailable: the worker is closed.
        """
        with self._turn:
            self._retire()
            self.start()

    def close(self) -> None:
        """Kills the process and all that it started. May be called twice, and from another thread."""
        self._closed = True
        self._retire()
        self._supply.close()
        _open_workers.discard(self)

    def _spawn(self) -> Process:
        environment = os.environ if self._environment is None else self._environment
        given = allowed(environment) if self._remote is None else without_secrets(environment)
        return Process(self._command, given, self._output_limit)

    def _greet(self, started: Started) -> None:
        """Sends a new process its limits and its GPU at once, so that it loads in parallel."""
        if not started.exception():
            opening = self._opening
            started.result().send(
                protocol.Hello(
                    protocol.VERSION,
                    _bytes(self._memory_limit_mb),
                    opening.backend,
                    opening.device,
                    _bytes(opening.device_memory_mb),
                    self._remote is not None,
                )
            )

    def _ready(self) -> Process:
        """Returns a process ready for a task; one that died while idle is replaced.

        Raises:
            WorkerUnavailable: none can be started.
        """
        if self._state is WorkerState.READY and self._process is not None and self._process.result().stirred():
            self._retire()
        self.start()
        assert self._process is not None
        try:
            process = self._process.result()
        except OSError as error:
            self._retire()
            raise WorkerUnavailable(
                f"The worker cannot be started with {self._command[0]!r}: {error}.",
                hint="Check the Python installation with `kernelmate doctor`.",
            ) from error
        if self._state is WorkerState.STARTED:
            self._await_ready(process)
            self._state = WorkerState.READY
        return process

    def _await_ready(self, process: Process) -> None:
        event = process.receive(self._start_timeout_s)
        if isinstance(event, protocol.ReadyMessage) and event.version == protocol.VERSION:
            self._machine = WorkerMachine(event.gpu, event.capability, event.mps, event.problem)
            return
        hint = "See what it printed, and check the installation with `kernelmate doctor`."
        if isinstance(event, protocol.ReadyMessage):
            what = f"speaks {event.version}, this session {protocol.VERSION}"
            hint = "Install the same version of kernelmate on both sides."
        elif event is None:
            what = f"was not ready within {self._start_timeout_s:g} s"
        else:
            status = process.await_end(_EXIT_GRACE_S)
            process.kill()
            if self._remote is not None:
                garbage = event.garbage if isinstance(event, ProcessEnded) else None
                raise self._remote.unavailable(status, process.output(), began=False, garbage=garbage)
            what = exit_description(status)
        process.kill()
        printed = process.output()
        where = "" if self._remote is None else f" on {self._remote.host}"
        raise WorkerUnavailable(
            f"The worker{where} {what} before its first task.{' ' * bool(printed)}{printed}", hint=hint
        )

    def _ask(
        self,
        process: Process,
        task: JudgeTask,
        on_progress: OnProgress | None,
        timeout_s: float,
        kind: type[protocol.JudgeRequest | protocol.TraceRequest],
    ) -> Judgement | str | protocol.TaskRefused | TaskDeath:
        """Sends the task and waits for its reply; a process without a reply is dead afterwards."""
        self._state = WorkerState.BUSY
        self._number += 1
        self._spent = False
        process.begin_task()
        try:
            files = {} if self._remote is None else self._remote.gather(task)
            process.send(kind(self._number, task, files))
        except protocol.FrameError as error:
            raise WorkerUnavailable(str(error), hint="Judge a smaller kernel or fewer sizes.") from error
        clock = TaskClock(timeout_s, task.reference_timeout_s)
        while True:
            event = process.receive(clock.remaining())
            if getattr(event, "number", self._number) != self._number or isinstance(event, protocol.ReadyMessage):
                continue
            if not isinstance(event, protocol.ProgressMessage):
                return self._answer(process, event, clock)
            clock.enter(event.stage, event.done, event.total)
            if on_progress is not None:
                on_progress(event.stage, event.done, event.total)

    def _answer(
        self,
        process: Process,
        event: protocol.TaskResult
        | protocol.TraceResult
        | protocol.TaskRefused
        | protocol.OutOfMemory
        | protocol.ChildFailed
        | ProcessEnded
        | OutputFlooded
        | None,
        clock: TaskClock,
    ) -> Judgement | str | protocol.TaskRefused | TaskDeath:
        if isinstance(event, protocol.TaskResult):
            self._spent = event.last
            return event.judgement
        if isinstance(event, protocol.TraceResult):
            return event.graph
        if isinstance(event, protocol.TaskRefused):
            self._spent = event.last
            return event
        kind: DeathKind = FindingCode.WORKER_CRASH
        if event is None:
            kind, sentence = FindingCode.HANG, clock.overdue()
        elif isinstance(event, OutputFlooded):
            kind, sentence = FindingCode.OUTPUT_FLOOD, f"More than {self._output_limit} bytes were printed."
        elif isinstance(event, protocol.OutOfMemory):
            limit = f"the limit of {self._memory_limit_mb} MB" if self._memory_limit_mb else "what this machine has"
            kind, sentence = FindingCode.OUT_OF_MEMORY, f"More memory was asked for than {limit}: {event.detail}"
        elif isinstance(event, protocol.ChildFailed):
            sentence = f"The judge itself failed: {event.detail}"
            process.kill()
        else:
            status = process.await_end(_EXIT_GRACE_S)
            process.kill()
            if self._remote is not None and self._remote.lost(status):
                raise self._remote.unavailable(status, process.output(), began=True)
            sentence = f"The worker process {exit_description(status)}."
            if event.garbage:
                sentence += f" It wrote something that is not the protocol: {event.garbage}"
        process.stop()
        return TaskDeath(kind, clock.stage, sentence, process.output(), isinstance(event, protocol.ChildFailed))

    def _retire(self) -> None:
        """Kills the process without waiting for its end."""
        process, self._process = self._process, None
        self._state = WorkerState.IDLE
        if process is not None:
            self._supply.kill_in_background(process)


def _bytes(mebibytes: int | None) -> int | None:
    return None if mebibytes is None else mebibytes * 1024 * 1024


_open_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for worker in tuple(_open_workers):
        worker.close()
