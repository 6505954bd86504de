"""Interface of a worker to sessions: its state, its answers, and the ways in which a task can end it."""

from __future__ import annotations

import enum
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

from kernelmate.records import FindingCode, Judgement, JudgeTask

DeathKind: TypeAlias = Literal[
    FindingCode.HANG, FindingCode.WORKER_CRASH, FindingCode.OUT_OF_MEMORY, FindingCode.OUTPUT_FLOOD
]
"""Finding codes for the ways in which a task can end its worker."""

OnProgress: TypeAlias = Callable[[str, int, int], None]
"""Told of a stage, and how many of how many of its steps are done."""

REFERENCE_STAGE = "reference"
"""The judge's name for the stage in which the user's Python runs."""


class WorkerState(enum.Enum):
    """State of a worker."""

    IDLE = "no process yet; the next task starts one"
    STARTED = "a process was started and may still be loading"
    READY = "the process waits for a task"
    BUSY = "the process works on a task"
    CLOSED = "given back; no task is taken any more"


@dataclass(frozen=True, slots=True)
class TaskDeath:
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


@dataclass(frozen=True, slots=True)
class WorkerMachine:
    """Device and software of a worker that is ready.

    Attributes:
        gpu: the name of its GPU; None where it uses none.
        capability: that GPU's compute capability.
        mps: NVIDIA's Multi-Process Service is in use there, under which the fault of one process reaches others.
        problem: why its backend cannot run there, and what to do; None where it can.
    """

    gpu: str | None = None
    capability: tuple[int, int] | None = None
    mps: bool = False
    problem: tuple[str, str] | None = None


class JudgeWorker(Protocol):
    """Judges tasks, locally or remotely."""

    @property
    def state(self) -> WorkerState:
        """Its state."""
        ...

    def start(self) -> None:
        """Begin to start, without waiting, so that the first task finds it warm."""
        ...

    def judge(
        self, task: JudgeTask, on_progress: OnProgress | None = None, timeout_s: float = 120.0
    ) -> Judgement | TaskDeath:
        """Judge one task, or say how it ended the worker."""
        ...

    def trace(self, task: JudgeTask, timeout_s: float = 20.0) -> str | TaskDeath:
        """The graph of the reference of the task's candidate, as text, or how tracing it ended the worker."""
        ...

    def ahead(self, task: JudgeTask) -> None:
        """Say what may be asked next, so that what does not depend on the kernel is worked out meanwhile."""
        ...

    def renew(self) -> None:
        """Let the next task find a fresh process."""
        ...

    def close(self) -> None:
        """Give back everything; nothing runs afterwards."""
        ...


class TaskClock:
    """The time limits of one task: one for all of it, one for each step of the user's reference within.

    Args:
        timeout_s: seconds for the whole task. reference_timeout_s: seconds for one step of the reference.
    """

    def __init__(self, timeout_s: float, reference_timeout_s: float) -> None:
        self.stage: str | None = None
        self._steps = (0, 0)
        self._timeout_s = timeout_s
        self._reference_timeout_s = reference_timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._stage_deadline = self._deadline

    def enter(self, stage: str, done: int, total: int) -> None:
        """The judge is in this stage now, or took one step in it."""
        self.stage = stage
        if total > 1:
            self._steps = (done, total)  # what consists of one step does not tell how far the task is
        limit = time.monotonic() + self._reference_timeout_s
        self._stage_deadline = min(self._deadline, limit) if stage == REFERENCE_STAGE else self._deadline

    def remaining(self) -> float:
        """Seconds until the nearest limit."""
        return self._stage_deadline - time.monotonic()

    def overdue(self) -> str:
        """The exceeded limit, in one sentence."""
        if self.stage != REFERENCE_STAGE:
            done, total = self._steps
            steps = f" ({done} of {total} done)" if total else ""
            return f"No verdict within {self._timeout_s:g} s; the last stage was {self.stage or 'the start'}{steps}."
        seconds = self._reference_timeout_s if self._stage_deadline < self._deadline else self._timeout_s
        return f"The reference did not return in {seconds:g} s."
