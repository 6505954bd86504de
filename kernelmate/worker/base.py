"""Interface between workers and sessions: states, results, and the ways in which a task can end its worker."""

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
"""Callback with a stage, its finished steps, and its total."""

REFERENCE_STAGE = "reference"
"""Name of the stage in which the user's Python runs."""


class WorkerState(enum.Enum):
    """State of a worker."""

    IDLE = "no process yet; the next task starts one"
    STARTED = "a process was started and may still be loading"
    READY = "the process waits for a task"
    BUSY = "the process works on a task"
    CLOSED = "given back; no task is taken any more"


@dataclass(frozen=True, slots=True)
class TaskDeath:
    """A task that ended its worker instead of returning a result.

    Attributes:
        kind: the finding's code.
        stage: the last reported stage, None if there is none.
        detail: the signal or the limit, in one sentence.
        output: the last lines that the process printed, or what it printed when it crashed; often empty.
        judge_failed: True if KernelMate's judge itself failed, which says nothing about the version.
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
        gpu: the name of its GPU; None if it uses none.
        capability: that GPU's compute capability.
        mps: True if NVIDIA's Multi-Process Service is active, with which a fault in one process affects others.
        problem: the reason why its backend cannot run, with advice; None if it can.
    """

    gpu: str | None = None
    capability: tuple[int, int] | None = None
    mps: bool = False
    problem: tuple[str, str] | None = None


class JudgeWorker(Protocol):
    """Judges tasks, locally or remotely."""

    @property
    def state(self) -> WorkerState:
        """The worker's state."""
        ...

    def start(self) -> None:
        """Starts the process without waiting, so that the first task finds it warm."""
        ...

    def judge(
        self, task: JudgeTask, on_progress: OnProgress | None = None, timeout_s: float = 120.0
    ) -> Judgement | TaskDeath:
        """Judges one task; returns its judgement, or how it ended the worker."""
        ...

    def trace(self, task: JudgeTask, timeout_s: float = 20.0) -> str | TaskDeath:
        """Returns the graph of the reference of the task's candidate as text, or how tracing it ended the worker."""
        ...

    def ahead(self, task: JudgeTask) -> None:
        """Announces the next task, so that the worker can compute ahead what does not depend on the kernel."""
        ...

    def announce(self, task: JudgeTask) -> None:
        """Announces a task while another is judged, so that its launches are emulated meanwhile; from any thread."""
        ...

    def renew(self) -> None:
        """Replaces the process for the next task."""
        ...

    def close(self) -> None:
        """Releases everything; nothing runs afterwards."""
        ...


def no_verdict_within(seconds: float) -> str:
    """Returns the beginning of the sentence on a task that exceeded its time limit."""
    return f"No verdict within {seconds:g} s"


class TaskClock:
    """The time limits of one task: one for all of it, one for each step of the user's reference within.

    Args:
        timeout_s: seconds for the whole task.
        reference_timeout_s: seconds for one step of the reference.
    """

    def __init__(self, timeout_s: float, reference_timeout_s: float) -> None:
        self.stage: str | None = None
        self._steps = (0, 0)
        self._timeout_s = timeout_s
        self._reference_timeout_s = reference_timeout_s
        self._deadline = time.monotonic() + timeout_s
        self._stage_deadline = self._deadline

    def enter(self, stage: str, done: int, total: int) -> None:
        """Records the stage that the judge entered, or a step in it."""
        self.stage = stage
        if total > 1:
            self._steps = (done, total)  # a stage of a single step gives no progress
        limit = time.monotonic() + self._reference_timeout_s
        self._stage_deadline = min(self._deadline, limit) if stage == REFERENCE_STAGE else self._deadline

    def remaining(self) -> float:
        """Seconds until the nearest limit."""
        return self._stage_deadline - time.monotonic()

    def overdue(self) -> str:
        """Returns the exceeded limit, in one sentence."""
        if self.stage != REFERENCE_STAGE:
            done, total = self._steps
            steps = f" ({done} of {total} done)" if total else ""
            return f"{no_verdict_within(self._timeout_s)}; the last stage was {self.stage or 'the start'}{steps}."
        seconds = self._reference_timeout_s if self._stage_deadline < self._deadline else self._timeout_s
        return f"The reference did not return in {seconds:g} s."
