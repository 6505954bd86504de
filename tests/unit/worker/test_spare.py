"""A reserve process takes over after a task has ended its predecessor."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import pytest

from kernelmate.records import Judgement, JudgeTask
from kernelmate.worker.client import TaskDeath, Worker, WorkerSetup

MakeTask = Callable[..., JudgeTask]
PID = "import os; printed = os.getpid()"


@pytest.fixture
def worker(command: tuple[str, ...]) -> Iterator[Worker]:
    with Worker(command, memory_limit_mb=300, opening=WorkerSetup(spare=True)) as worker:
        yield worker


def children(group_of: int) -> set[int]:
    """Living children of this process."""
    found = set()
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="ascii") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if int(fields[1]) == group_of and fields[0] not in "ZX":
                found.add(int(entry))
    return found


def waiting(besides: set[int], patience_s: float = 20.0) -> int:
    """The process that waits for its turn."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        more = children(os.getpid()) - besides
        if more:
            return more.pop()
        time.sleep(0.02)
    pytest.fail("no process was kept ready")


def judged(worker: Worker, task: JudgeTask) -> int:
    answer = worker.judge(task)
    assert isinstance(answer, Judgement)
    return int(answer.printed)


def test_the_one_kept_ready_judges_next_after_a_death(
    worker: Worker, task: MakeTask, gone: Callable[[int], bool]
) -> None:
    before = children(os.getpid())
    first = judged(worker, task(PID))
    spare = waiting(before | {first})
    assert isinstance(worker.judge(task("import os; os.abort()")), TaskDeath)
    assert judged(worker, task(PID)) == spare
    assert gone(first)
    assert waiting(before | {first, spare}) not in {first, spare}


def test_no_task_waits_for_the_end_of_a_process_that_takes_its_time(
    worker: Worker, task: MakeTask, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kernelmate.worker.process import Process

    real = Process.kill

    def slow(self: Process) -> None:
        time.sleep(3.0)
        real(self)

    monkeypatch.setattr(Process, "kill", slow)
    first = judged(worker, task(PID))
    began = time.monotonic()
    assert isinstance(worker.judge(task("while True: pass"), timeout_s=0.2), TaskDeath)
    assert judged(worker, task(PID)) != first
    assert time.monotonic() - began < 2.9


def test_one_kept_ready_that_went_away_is_replaced_in_silence(
    worker: Worker, task: MakeTask, gone: Callable[[int], bool]
) -> None:
    before = children(os.getpid())
    first = judged(worker, task(PID))
    spare = waiting(before | {first})
    os.kill(spare, signal.SIGKILL)
    assert gone(spare)
    time.sleep(0.2)
    assert isinstance(worker.judge(task("import os; os.abort()")), TaskDeath)
    assert judged(worker, task(PID)) not in {first, spare}


def test_closing_ends_the_one_kept_ready_too(worker: Worker, task: MakeTask, gone: Callable[[int], bool]) -> None:
    before = children(os.getpid())
    first = judged(worker, task(PID))
    spare = waiting(before | {first})
    worker.close()
    assert gone(first)
    assert gone(spare)


def test_without_need_none_is_kept(command: tuple[str, ...], task: MakeTask) -> None:
    before = children(os.getpid())
    with Worker(command) as worker:
        first = judged(worker, task(PID))
        time.sleep(0.5)
        assert children(os.getpid()) - before == {first}
