"""The session's side of the worker: start it, feed it, watch it, and kill it."""

from __future__ import annotations

import atexit
import concurrent.futures
import contextlib
import enum
import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from kernelmate.errors import ReferenceFailed, WorkerUnavailable
from kernelmate.records import Judgement, JudgeTask
from kernelmate.worker import protocol
from kernelmate.worker.process import Ended, Flooded, Process

DeathKind: TypeAlias = Literal["hang", "worker-crash", "out-of-memory", "output-flood"]
"""Finding codes for the ways in which a task can end its worker."""

OnProgress: TypeAlias = Callable[[str, int, int], None]
"""Told of a stage, and how many of how many of its steps are done."""

COMMAND = (sys.executable, "-P", "-m", "kernelmate.worker.child")
"""Starts a worker here. `-P` keeps the current folder, where a user's `random.py` may lie, off the import path."""

START_TIMEOUT_S = 60.0
"""Longest wait for a worker to load what it needs; a cold disk and a busy machine take some seconds."""

REFERENCE_STAGE = "reference"
"""The judge's name for the stage in which the user's Python runs."""

_EXIT_GRACE_S = 2.0
"""Wait for a child that closed its stream to end by itself, so that its own exit status can be told."""


class State(enum.Enum):
    """Where a worker stands."""

    IDLE = "no process yet; the next task starts one"
    STARTED = "a process was started and may still be loading"
    READY = "the process waits for a task"
    BUSY = "the process works on a task"
    CLOSED = "given back; no task is taken any more"


@dataclass(frozen=True, slots=True)
class Death:
    """A task that ended its worker instead of in an answer.

    Attributes:
        kind: the finding that this is.
        stage: the last stage that the judge told of, None when it told of none.
        detail: for people: the signal or the limit, in one sentence.
        output: the last lines that the process printed, or what it printed when it crashed; often empty.
        judge_failed: KernelMate's own judge raised what it should not have; the version may be as right as any.
    """

    kind: DeathKind
    stage: str | None
    detail: str
    output: str = ""
    judge_failed: bool = False


class JudgeWorker(Protocol):
    """What judges tasks, wherever it runs."""

    @property
    def state(self) -> State:
        """Where it stands."""
        ...

    def start(self) -> None:
        """Begin to start, without waiting, so that the first task finds it warm."""
        ...

    def judge(
        self, task: JudgeTask, on_progress: OnProgress | None = None, timeout_s: float = 120.0
    ) -> Judgement | Death:
        """Judge one task, or say how it ended the worker."""
        ...

    def renew(self) -> None:
        """Let the next task find a fresh process."""
        ...

    def close(self) -> None:
        """Give back everything; nothing runs afterwards."""
        ...


class Worker:
    """A worker in a child process, here or behind a launcher, replaced whenever a task has ended it.

    The process leads a session of its own, so that Ctrl-C reaches only this one, which then kills it with everything
    that it started. One task at a time: a second thread waits for its turn.

    Args:
        command: what starts the child; it must speak the protocol over its standard streams (`ssh HOST COMMAND`).
        memory_limit_mb: MiB that judging may take beyond the idle process; None for no limit.
        output_limit_bytes: most that one task may print before it counts as a flood.
        start_timeout_s: longest wait for a started process to be ready, in seconds.
        environment: variables of the child instead of this process's; names that look like secrets never pass.
    """

    def __init__(
        self,
        command: Sequence[str] = COMMAND,
        *,
        memory_limit_mb: int | None = 8192,
        output_limit_bytes: int = 16 * 1024 * 1024,
        start_timeout_s: float = START_TIMEOUT_S,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = tuple(command)
        self._memory_limit_mb = memory_limit_mb
        self._output_limit = output_limit_bytes
        self._start_timeout_s = start_timeout_s
        self._environment = environment
        self._state = State.IDLE
        self._closed = False
        self._process: concurrent.futures.Future[Process] | None = None
        self._number = 0
        self._spent = False
        self._turn = threading.Lock()
        _open_workers.add(self)

    @property
    def state(self) -> State:
        """Where the worker stands."""
        return State.CLOSED if self._closed else self._state

    @property
    def pid(self) -> int | None:
        """The child's process id, None while there is no child."""
        process = self._process
        return process.result().pid if process is not None and process.done() and not process.exception() else None

    def __enter__(self) -> Worker:
        """Start ahead of the first task."""
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Close, whatever happened."""
        self.close()

    def start(self) -> None:
        """Begin to start the process, without waiting for it. Does nothing when there is one.

        Raises:
            WorkerUnavailable: the worker is closed.
        """
        if self._closed:
            raise WorkerUnavailable("The worker is closed.", hint="Open a new session.")
        if self._process is None:
            environment = protocol.without_secrets(os.environ if self._environment is None else self._environment)
            # The system ties a child's life to the thread that started it, so one thread that lives as long as this
            # process starts them all.
            self._process = _spawner().submit(Process, self._command, environment, self._output_limit)
            self._process.add_done_callback(self._greet)
            self._state = State.STARTED

    def judge(
        self, task: JudgeTask, on_progress: OnProgress | None = None, timeout_s: float = 120.0
    ) -> Judgement | Death:
        """Judge one task.

        Args:
            task: what to judge.
            on_progress: told of each stage, in this thread; what it raises ends the task and comes out here.
            timeout_s: seconds for the whole task, not counting the start of a process.

        Returns:
            The judgement, or how the task ended the process. A fresh one is then already starting.

        Raises:
            ReferenceFailed: the user's reference raised, or did not return within `task.reference_timeout_s`.
            KernelmateError: any other that the judge raises about the user's input, of its own class.
            WorkerUnavailable: no process can be started here, or the task is too large to be sent.
        """
        with self._turn:
            try:
                process = self._ready()
                answer = self._ask(process, task, on_progress, timeout_s)
            except BaseException:
                # Ctrl-C above all: whatever comes out here must not leave a process busy.
                self._kill()
                raise
            if isinstance(answer, Death) or self._spent:
                # Replaced before anybody can ask again: a child on its way out would take the next task down with it.
                self._kill()
                self.start()
            else:
                self._state = State.READY
        if isinstance(answer, protocol.Refused):
            raise protocol.error_of(answer)
        if isinstance(answer, Death) and answer.kind == "hang" and answer.stage == REFERENCE_STAGE:
            hint = "Make it faster or the sizes smaller, or raise reference_timeout_s or timeout_s in the settings."
            raise ReferenceFailed(answer.detail, hint=hint)
        return answer

    def renew(self) -> None:
        """Replace the process by a fresh one, which begins to start.

        Raises:
            WorkerUnavailable: the worker is closed.
        """
        with self._turn:
            self._kill()
            self.start()

    def close(self) -> None:
        """Kill the process and all that it started. May be called twice, and from another thread."""
        self._closed = True
        self._kill()
        _open_workers.discard(self)

    def _greet(self, started: concurrent.futures.Future[Process]) -> None:
        """Tell a new process its limits at once, so that it loads while this one does other things."""
        if not started.exception():
            limit = None if self._memory_limit_mb is None else self._memory_limit_mb * 1024 * 1024
            started.result().send(protocol.Hello(protocol.VERSION, limit))

    def _ready(self) -> Process:
        """A process that waits for a task; one that went away while nothing was asked of it is replaced.

        Raises:
            WorkerUnavailable: none can be had.
        """
        if self._state is State.READY and self._process is not None and self._process.result().stirred():
            self._kill()
        self.start()
        assert self._process is not None
        try:
            process = self._process.result()
        except OSError as error:
            self._kill()
            raise WorkerUnavailable(
                f"The worker cannot be started with {self._command[0]!r}: {error}.",
                hint="Check the Python installation with `kernelmate doctor`.",
            ) from error
        if self._state is State.STARTED:
            self._await_ready(process)
            self._state = State.READY
        return process

    def _await_ready(self, process: Process) -> None:
        event = process.receive(self._start_timeout_s)
        if isinstance(event, protocol.Ready) and event.version == protocol.VERSION:
            return
        hint = "See what it printed, and check the installation with `kernelmate doctor`."
        if isinstance(event, protocol.Ready):
            what = f"speaks {event.version}, this session {protocol.VERSION}"
            hint = "Install the same version of kernelmate on both sides."
        elif event is None:
            what = f"was not ready within {self._start_timeout_s:g} s"
        else:
            what = process.kill(_EXIT_GRACE_S)
        process.kill()
        printed = process.output()
        raise WorkerUnavailable(f"The worker {what} before its first task.{' ' * bool(printed)}{printed}", hint=hint)

    def _ask(
        self, process: Process, task: JudgeTask, on_progress: OnProgress | None, timeout_s: float
    ) -> Judgement | protocol.Refused | Death:
        """Send the task and follow it to its end; a process that gives no answer is dead afterwards."""
        self._state = State.BUSY
        self._number += 1
        self._spent = False
        process.begin_task()
        try:
            process.send(protocol.Judge(self._number, task))
        except protocol.FrameError as error:
            raise WorkerUnavailable(str(error), hint="Judge a smaller kernel or fewer sizes.") from error
        clock = _Clock(timeout_s, task.reference_timeout_s)
        while True:
            event = process.receive(clock.remaining())
            if getattr(event, "number", self._number) != self._number or isinstance(event, protocol.Ready):
                continue
            if not isinstance(event, protocol.Progress):
                return self._answer(process, event, clock)
            clock.enter(event.stage, event.done, event.total)
            if on_progress is not None:
                on_progress(event.stage, event.done, event.total)

    def _answer(
        self,
        process: Process,
        event: protocol.Result | protocol.Refused | protocol.OutOfMemory | protocol.Broken | Ended | Flooded | None,
        clock: _Clock,
    ) -> Judgement | protocol.Refused | Death:
        if isinstance(event, protocol.Result):
            self._spent = event.last
            return event.judgement
        if isinstance(event, protocol.Refused):
            self._spent = event.last
            return event
        kind: DeathKind = "worker-crash"
        if event is None:
            kind, sentence = "hang", clock.overdue()
        elif isinstance(event, Flooded):
            kind, sentence = "output-flood", f"More than {self._output_limit} bytes were printed."
        elif isinstance(event, protocol.OutOfMemory):
            limit = f"the limit of {self._memory_limit_mb} MB" if self._memory_limit_mb else "what this machine has"
            kind, sentence = "out-of-memory", f"More memory was asked for than {limit}: {event.detail}"
        elif isinstance(event, protocol.Broken):
            sentence = f"The judge itself failed: {event.detail}"
        else:
            sentence = f"The worker process {process.kill(_EXIT_GRACE_S)}."
            if event.garbage:
                sentence += f" It wrote something that is not the protocol: {event.garbage}"
        process.kill()
        return Death(kind, clock.stage, sentence, process.output(), isinstance(event, protocol.Broken))

    def _kill(self) -> None:
        process, self._process = self._process, None
        self._state = State.IDLE
        if process is not None:
            with contextlib.suppress(OSError):
                process.result().kill()


class _Clock:
    """The time limits of one task: one for all of it, one for each step of the user's reference within."""

    def __init__(self, timeout_s: float, reference_timeout_s: float) -> None:
        self.stage: str | None = None
        self._steps = (0, 0)
        self._timeout_s = timeout_s
        self._reference_timeout_s = reference_timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._stage_deadline = self._deadline

    def enter(self, stage: str, done: int, total: int) -> None:
        """The judge is in this stage now, or took one step in it."""
        self.stage, self._steps = stage, (done, total)
        limit = time.monotonic() + self._reference_timeout_s
        self._stage_deadline = min(self._deadline, limit) if stage == REFERENCE_STAGE else self._deadline

    def remaining(self) -> float:
        """Seconds until the nearest limit."""
        return self._stage_deadline - time.monotonic()

    def overdue(self) -> str:
        """Which limit was passed, in one sentence."""
        if self.stage != REFERENCE_STAGE:
            done, total = self._steps
            steps = f" ({done} of {total} done)" if total else ""
            return f"No verdict within {self._timeout_s:g} s; the last stage was {self.stage or 'the start'}{steps}."
        seconds = self._reference_timeout_s if self._stage_deadline < self._deadline else self._timeout_s
        return f"The reference did not return in {seconds:g} s."


@functools.cache
def _spawner() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="kernelmate-spawner")


_open_workers: weakref.WeakSet[Worker] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for worker in tuple(_open_workers):
        worker.close()
