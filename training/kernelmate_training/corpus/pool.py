"""Worker processes that study groups.

A worker that hangs, dies or loses its GPU is replaced, and only its group is lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

from kernelmate_training.corpus.drafting import Family
from kernelmate_training.corpus.journal import GroupResult
from kernelmate_training.spawned import Spawned

START_S = 240.0
"""Longest time in seconds until a worker's first answer, which includes loading libraries and opening the GPU."""

GROUP_S = 90.0
"""Longest time in seconds for one group; a worker that takes longer counts as hung."""


@dataclass(frozen=True, slots=True)
class Job:
    """Settings that all workers receive.

    Attributes:
        target: the GPU's name, for compiling and prediction.
        seed: seed of the corpus.
        devices: CUDA device numbers that workers share; empty to emulate.
    """

    target: str
    seed: int
    devices: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of one group, or the reason that it has none."""

    number: int
    family: str
    found: GroupResult | None
    lost: str = ""


class _Worker(Spawned):
    """One started worker and its present group."""

    def __init__(self, job: Job, device: int | None) -> None:
        super().__init__(_serve, job.target, job.seed, device)
        self.device = device
        self.busy: tuple[int, str] | None = None
        self.deadline = 0.0
        self.answered = False

    def ask(self, number: int, family: str) -> None:
        """Sends a group to the worker."""
        self.busy = number, family
        self.deadline = time.monotonic() + (GROUP_S if self.answered else START_S)
        self.pipe.send((number, family))


class Pool:
    """Pool of workers; the context manager kills them on every exit.

    Args:
        job: settings of all workers.
        workers: number of workers.
    """

    def __init__(self, job: Job, workers: int) -> None:
        self._job, self._count = job, workers
        self._workers: list[_Worker] = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.kill()

    def answers(self, wanted: Iterator[tuple[int, str]]) -> Iterator[Answer]:
        """Yields answers as they arrive; groups are taken from `wanted` as workers become free."""
        while True:
            while len(self._workers) < self._count and self._feed(None, wanted):
                pass
            busy = {worker.pipe: worker for worker in self._workers if worker.busy is not None}
            if not busy:
                return
            ready = wait(list(busy), timeout=max(0.0, min(w.deadline for w in busy.values()) - time.monotonic()))
            for pipe in ready:
                assert isinstance(pipe, Connection)
                yield self._received(busy[pipe], wanted)
            now = time.monotonic()
            for worker in [w for w in busy.values() if w.busy is not None and w.deadline < now and w.pipe not in ready]:
                yield self._given_up(worker, "it took too long")

    def _feed(self, worker: _Worker | None, wanted: Iterator[tuple[int, str]]) -> bool:
        """Sends the next group to a worker, or to a new one; returns False if there is none."""
        following = next(wanted, None)
        if following is None:
            return False
        if worker is None:
            worker = _Worker(self._job, least_taken(self._job.devices, [one.device for one in self._workers]))
            self._workers.append(worker)
        worker.ask(*following)
        return True

    def _received(self, worker: _Worker, wanted: Iterator[tuple[int, str]]) -> Answer:
        assert worker.busy is not None
        number, family = worker.busy
        try:
            found, unfit = worker.pipe.recv()
        except (EOFError, OSError):
            return self._given_up(worker, "its worker died")
        worker.busy, worker.answered = None, True
        if unfit:
            self._replace(worker)
        else:
            self._feed(worker, wanted)
        return Answer(number, family, found, "" if found is not None else str(unfit))

    def _given_up(self, worker: _Worker, why: str) -> Answer:
        assert worker.busy is not None
        number, family = worker.busy
        if not worker.answered and why == "its worker died":
            raise WorkerCannotStart(worker.process.exitcode)
        self._replace(worker)
        return Answer(number, family, None, why)

    def _replace(self, worker: _Worker) -> None:
        """Kills a worker; a new one is started when there is work."""
        worker.kill()
        self._workers.remove(worker)


def least_taken(devices: Sequence[int], taken: Sequence[int | None]) -> int | None:
    """Returns the GPU with the fewest workers; None if there are no GPUs.

    The replacement of a lost worker thus gets its GPU, and workers stay evenly distributed.
    """
    return min(devices, key=taken.count) if devices else None


class WorkerCannotStart(RuntimeError):
    """A worker ended before its first answer."""

    def __init__(self, code: int | None) -> None:
        super().__init__(
            f"A worker of the corpus ended with code {code} before its first group. Its own words stand above; "
            "`kernelmate doctor` says what is missing."
        )


def _serve(pipe: Connection, target: str, seed: int, device: int | None) -> None:
    """Main loop of a worker: receives groups and sends results, until the pipe closes or its GPU is lost."""
    from kernelmate.compiler import find_target
    from kernelmate_training.corpus.families import registry
    from kernelmate_training.corpus.group_processing import study
    from kernelmate_training.corpus.judging import Judge

    gpu = None
    if device is not None:
        from kernelmate_training.corpus.gpu import Gpu

        gpu = Gpu(device)
    judge, families = Judge(find_target(target), gpu), registry()
    while True:
        try:
            number, name = pipe.recv()
        except (EOFError, OSError):
            return
        found, unfit = _studied(judge, families[name], number, seed, study)
        pipe.send((found, unfit))
        if unfit and gpu is not None and gpu.lost:
            return


def _studied(judge: Any, family: Family, number: int, seed: int, study: Any) -> tuple[GroupResult | None, str]:
    """Returns one group's result, and the reason that this process must be replaced; empty if it need not be."""
    try:
        found: GroupResult = study(judge, family, number, seed)
    except Exception as error:  # noqa: BLE001 -- one group must not cost the others
        if judge.gpu is not None and judge.gpu.lost:
            return None, f"the GPU was lost: {error}"
        return GroupResult(number, family.name, wrong=[f"failed: {type(error).__name__}: {error}"[:500]]), ""
    return found, "the GPU was lost" if judge.gpu is not None and judge.gpu.lost else ""
