"""Launches of announced tasks, which the worker starts while it judges another one on a GPU."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from kernelmate.backends.cuda.emulated_checks import EmulatedChecks
from kernelmate.backends.cuda.isolated import IsolatedCuda
from kernelmate.backends.emulator import EmulatorBackend
from kernelmate.backends.emulator_pool import EmulatorPool
from kernelmate.compiler import find_target
from kernelmate.records import Compiled, CompileOptions, JudgeTask, Target
from kernelmate.session.preparing import KernelPreparer
from kernelmate.source import contract_for, find_kernels, text_unit
from kernelmate.worker import protocol, task_server
from kernelmate.worker.task_server import MOST_BEGUN, TaskServer


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[TaskServer]:
    """A server whose GPU is the emulator, with one process that emulates ahead."""
    emulator, processes = EmulatorBackend(), EmulatorPool(1)

    def companion(compiled: Compiled, target: Target) -> EmulatedChecks:
        return EmulatedChecks(emulator.load(compiled, target), compiled, target, processes)

    own: Any = SimpleNamespace(name="cuda", poisoned=False, load=emulator.load, companion=companion, turns=None)
    gpu = IsolatedCuda(SimpleNamespace(poisoned=False), own)  # type: ignore[arg-type]
    monkeypatch.setattr(IsolatedCuda, "computing", lambda self: nullcontext(np))
    monkeypatch.setattr(task_server, "opened_gpu", lambda *_: gpu)
    announced: queue.SimpleQueue[protocol.PrefetchRequest] = queue.SimpleQueue()
    yield TaskServer(protocol.Hello(protocol.VERSION, None, "cuda"), None, lambda _: None, None, None, announced)
    processes.close()


SCALE = """\
// /// kernelmate
// sizes = [{ n = 1024 }, { n = 1 }]
// grid = "cdiv(n, block)"
// block = 256
// reference = "2 * x"
// [args]
// x = "in float32[n]"
// y = "out float32[n]"
// n = "int32"
// ///
__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2 * x[i];
}
"""


@pytest.fixture
def tasks(tmp_path: Path) -> list[JudgeTask]:
    """Tasks that differ in their seed."""
    (kernel,) = find_kernels(text_unit(SCALE, str(tmp_path / "scale.cu")))
    target = find_target(None)
    version = KernelPreparer(target, CompileOptions(), 60.0).prepare(kernel, contract_for(kernel), None).version
    return [JudgeTask("cuda", target, version, version, None, (), seed, str(tmp_path)) for seed in range(1, 5)]


def test_an_announced_task_finds_its_launches_begun(server: TaskServer, tasks: list[JudgeTask]) -> None:
    server._announced.put(protocol.PrefetchRequest(tasks[1], launches=True))
    server._begin_announced(tasks[0], lambda *_: None)
    assert server._take_begun(tasks[2]) is None
    begun = server._take_begun(tasks[1])
    assert begun is not None
    assert begun.compiled == tasks[1].candidate.compiled
    sizes = {size for (size, _), _ in begun._foreseen}
    assert {(("n", 1024),), (("n", 1),)} <= sizes
    assert server._take_begun(tasks[1]) is None


def test_the_task_that_is_judged_already_is_not_begun_again(server: TaskServer, tasks: list[JudgeTask]) -> None:
    server._announced.put(protocol.PrefetchRequest(tasks[0], launches=True))
    server._begin_announced(tasks[0], lambda *_: None)
    assert server._take_begun(tasks[0]) is None


def test_of_many_announced_tasks_the_last_are_kept(server: TaskServer, tasks: list[JudgeTask]) -> None:
    for one in tasks[1:]:
        server._announced.put(protocol.PrefetchRequest(one, launches=True))
    for _ in range(len(tasks)):
        server._begin_announced(tasks[0], lambda *_: None)
    assert [server._take_begun(one) is not None for one in tasks[1:]] == [False] + [True] * MOST_BEGUN


def test_the_stage_of_the_users_python_is_reported_and_left_again(server: TaskServer, tasks: list[JudgeTask]) -> None:
    stages: list[str] = []
    server._announced.put(protocol.PrefetchRequest(tasks[1], launches=True))
    server._begin_announced(tasks[0], lambda stage, done, total: stages.append(stage))
    assert stages[0] == "reference"
    assert stages[-1] == "timing"
