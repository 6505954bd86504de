"""Sessions with a worker that answers as the test says, and files to judge."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelmate.compiler.process import COMPILER, CompilerProcess
from kernelmate.config import Settings, load_settings
from kernelmate.errors import ReferenceFailed
from kernelmate.records import (
    Case,
    Counters,
    Judgement,
    JudgeTask,
    Kernel,
    LaunchShape,
    SizeMetrics,
    Timing,
)
from kernelmate.session import Session
from kernelmate.source import load_kernel
from kernelmate.worker.client import OnProgress, TaskDeath, WorkerState

SCALE = """\
// /// kernelmate
// sizes = [{ n = 1024 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "reference.py:scale"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// a = "float32 = 2.0"
// n = "int32"
// ///
__global__ void scale(const float* x, float* y, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i];
}
"""


@pytest.fixture(autouse=True)
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings of the person who runs the tests, and a folder of the test's own to stand in."""
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setattr("kernelmate.config.user_file", lambda: tmp_path / "no.toml")
    for name in Settings.model_fields:
        monkeypatch.delenv(f"KERNELMATE_{name.upper()}", raising=False)
    monkeypatch.setenv("KERNELMATE_STARTER", "false")


@pytest.fixture
def scale() -> str:
    return SCALE


@pytest.fixture
def load() -> Callable[..., Kernel]:
    """Write a file in the current folder and give its kernel."""

    def write(text: str, name: str = "scale.cu", kernel: str | None = None) -> Kernel:
        path = Path.cwd() / name
        path.write_text(textwrap.dedent(text))
        return load_kernel(f"{path}::{kernel}" if kernel else str(path))

    return write


@pytest.fixture
def judgement() -> Callable[..., Judgement]:
    """A judgement with a time and sectors at every listed size."""

    def make(
        task: JudgeTask, us: float = 10.0, sectors: int = 100, correct: bool | None = True, **more: Any
    ) -> Judgement:
        counted = dict.fromkeys(Counters.__dataclass_fields__)
        counters = Counters(
            **{**counted, "source": "emulated", "global_load_sectors": sectors, "global_store_sectors": 0}
        )
        timing = Timing("predicted", us, (us / 1.01, us * 1.01), us, None, None, None, None)
        sizes = task.candidate.contract.sizes
        metrics = tuple(SizeMetrics(size, LaunchShape((1, 1, 1), (256, 1, 1)), counters, timing) for size in sizes)
        cases = tuple(Case(size, "contract", correct, True, False, 0.1, None, us) for size in sizes)
        return Judgement(correct, cases, more.pop("findings", ()), metrics, **more)

    return make


class ScriptedWorker:
    """Answers tasks by a function, and keeps them."""

    def __init__(self, answer: Callable[[JudgeTask], Judgement | TaskDeath]) -> None:
        self.answer = answer
        self.tasks: list[JudgeTask] = []
        self.timeouts: list[float] = []
        self.renewed = 0
        self.foreseen: list[JudgeTask] = []
        self.state = WorkerState.IDLE

    def start(self) -> None:
        self.state = WorkerState.STARTED

    def judge(
        self, task: JudgeTask, on_progress: OnProgress | None = None, timeout_s: float = 0.0
    ) -> Judgement | TaskDeath:
        self.tasks.append(task)
        self.timeouts.append(timeout_s)
        if on_progress is not None:
            on_progress("kernel", 1, 2)
        return self.answer(task)

    def trace(self, task: JudgeTask, timeout_s: float = 0.0) -> str | TaskDeath:
        raise ReferenceFailed("This worker traces nothing.")

    def announce(self, task: JudgeTask) -> None:
        """Does nothing: the tasks are judged in this process."""

    def ahead(self, task: JudgeTask) -> None:
        self.foreseen.append(task)

    def renew(self) -> None:
        self.renewed += 1

    def close(self) -> None:
        self.state = WorkerState.CLOSED


@pytest.fixture
def scripted(judgement: Callable[..., Judgement]) -> Iterator[Callable[..., tuple[Session, ScriptedWorker]]]:
    """A session whose worker answers by a function of the task; right and equally fast without one."""
    open_sessions: list[Session] = []

    def make(
        answer: Callable[[JudgeTask], Judgement | TaskDeath] | None = None,
        on_progress: OnProgress | None = None,
        compiler: CompilerProcess = COMPILER,
        **settings: Any,
    ) -> tuple[Session, ScriptedWorker]:
        worker = ScriptedWorker(answer or judgement)
        session = Session(load_settings(**{"seed": 7, **settings}), on_progress, worker=worker, compiler=compiler)
        open_sessions.append(session)
        return session, worker

    yield make
    for session in open_sessions:
        session.close()
