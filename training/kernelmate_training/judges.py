"""Parallel judging of a model's answers by processes with the corpus' judge.

If a process hangs or dies, only its question is lost.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING

from kernelmate.records import MetricName
from kernelmate_training.rewards import Grade
from kernelmate_training.spawned import Spawned

if TYPE_CHECKING:
    from kernelmate_training.corpus.judging import Judge, Judged

START_S = 120.0
"""Longest time in seconds until a process' first answer, which includes loading the compiler and the emulator."""
ANSWER_S = 12.0
"""Longest time in seconds for one version; a longer one counts as hung."""
OVERTIME_S = 6.0
"""Seconds that a question being judged gets after the time limit."""
SUSPICIOUS = 20.0
"""Gain from which a version is judged again with other inputs before it counts."""


@dataclass(frozen=True, slots=True)
class Case:
    """One question with its answers.

    Attributes:
        number: number of the question.
        before: text of the unit to be improved.
        right: a correct text, whose inputs and reference all answers share; equals `before` unless that is broken.
        metric: the requested metric.
        prompt: the request in a user's words.
        answers: distinct texts of the changed unit.
        target: the GPU's name.
        seed: seed of the inputs.
    """

    number: int
    before: str
    right: str
    metric: MetricName
    prompt: str
    answers: tuple[str, ...]
    target: str
    seed: int


def judge_all(cases: Sequence[Case], *, workers: int | None = None, seconds: float | None = None, told: Callable[[int, int], None] = lambda done, total: None) -> dict[int, tuple[Grade, ...]]:  # fmt: skip
    """Returns the grades of all answers by the number of their question; questions that were not reached are left out.

    Args:
        cases: questions with answers.
        workers: number of processes; None for as many as there are cores.
        seconds: time in seconds after which no question is begun.
        told: called with the number of finished questions and the total.
    """
    with Judges(max(1, min(workers or os.cpu_count() or 1, len(cases)))) as judges:
        return judges.grades(cases, seconds, told)


class Judges:
    """Pool of judging processes for several rounds; the context manager kills them on every exit.

    Args:
        workers: number of processes; None for as many as there are cores. They start with the first question.
    """

    def __init__(self, workers: int | None = None) -> None:
        self._count = workers or os.cpu_count() or 1
        self._pool: list[_Worker] = []

    def __enter__(self) -> Judges:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._pool:
            worker.kill()
        self._pool.clear()

    def grades(self, cases: Sequence[Case], seconds: float | None = None, told: Callable[[int, int], None] = lambda done, total: None) -> dict[int, tuple[Grade, ...]]:  # fmt: skip
        """Returns grades as `judge_all` does; a process that is still busy some seconds after the time limit is replaced."""
        begun = time.monotonic()
        waiting, found = list(reversed(cases)), dict[int, tuple[Grade, ...]]()
        while waiting or any(worker.case for worker in self._pool):
            spent = time.monotonic() - begun
            if seconds is not None and spent > seconds:
                waiting.clear()
            while waiting and len(self._pool) < self._count:
                self._pool.append(_Worker())
                self._pool[-1].ask(waiting.pop())
            for worker in self._pool:
                if worker.case is None and waiting:
                    worker.ask(waiting.pop())
                elif worker.case is not None and seconds is not None and spent > seconds + OVERTIME_S:
                    worker.renew()
            for number, grades in _received(self._pool):
                found[number] = grades
                told(len(found), len(cases))
        return found


def _received(pool: list[_Worker]) -> Iterator[tuple[int, tuple[Grade, ...]]]:
    """Yields the grades that processes have sent.

    Processes that hang or died are replaced, and the answers to their question count as wrong.
    """
    busy = {worker.pipe: worker for worker in pool if worker.case is not None}
    for pipe in wait(list(busy), timeout=0.5):
        worker = busy[pipe]  # type: ignore[index]
        assert worker.case is not None
        try:
            grades: tuple[Grade, ...] = worker.pipe.recv()
        except (EOFError, OSError):
            continue
        yield worker.case.number, grades
        worker.case, worker.warm = None, True
    for worker in pool:
        if worker.case is not None and (time.monotonic() > worker.deadline or not worker.process.is_alive()):
            lost = tuple(Grade(right=False, words="it hung, or ended its judge") for _ in worker.case.answers)
            yield worker.case.number, lost
            worker.renew()


class _Worker(Spawned):
    """One process and its present question."""

    def __init__(self) -> None:
        self._start()

    def _start(self) -> None:
        super().__init__(_serve)
        self.case: Case | None = None
        self.warm, self.deadline = False, 0.0

    def ask(self, case: Case) -> None:
        """Sends a question to the process."""
        self.case = case
        allowed = ANSWER_S * (2 + len(case.answers)) + (0.0 if self.warm else START_S)
        self.deadline = time.monotonic() + allowed
        self.pipe.send(case)

    def renew(self) -> None:
        """Replaces the process by a new one."""
        self.kill()
        self._start()


def _serve(pipe: Connection) -> None:
    """Runs a judging process: receives questions and sends grades until the pipe is closed."""
    from kernelmate.compiler.targets import find_target
    from kernelmate_training.corpus.judging import Judge

    judges: dict[str, Judge] = {}
    while True:
        try:
            case: Case = pipe.recv()
        except (EOFError, OSError):
            return
        judge = judges.get(case.target) or judges.setdefault(case.target, Judge(find_target(case.target)))
        pipe.send(grades_of(judge, case))


def grades_of(judge: Judge, case: Case) -> tuple[Grade, ...]:
    """Returns the grades of the answers to one question, by the corpus' judge in this process."""
    judge.begin(case.seed)
    known = judge.judge(case.right)
    if not known.right:
        return tuple(Grade(right=False, words="the question's own kernel is not right here") for _ in case.answers)
    found = []
    for text in case.answers:
        grade = _graded(judge, case, known, text)
        if grade.right and grade.gain is not None and grade.gain > SUSPICIOUS:
            # A suspicious gain is judged again with other inputs; then the group's own inputs are restored.
            judge.begin(case.seed + 1)
            other = _graded(judge, case, judge.judge(case.right), text)
            judge.begin(case.seed)
            judge.judge(case.right)
            grade = Grade(other.right, other.better, other.gain, other.words, suspicious=True)
        found.append(grade)
    return tuple(found)


def _graded(judge: Judge, case: Case, known: Judged, text: str) -> Grade:
    from kernelmate.decide.acceptance import decide
    from kernelmate.decide.metrics import metric_value
    from kernelmate.decide.objective import read_objective
    from kernelmate.measure.statistics import EDITED, speedup

    judged = judge.judge(text)
    if not judged.right:
        return Grade(right=False, words=judged.words or "it could not be judged")
    if case.metric == "correct":
        return Grade(right=True, better=True)
    first, second = known.verdict, judged.verdict
    objective = read_objective(case.prompt, name=case.metric)
    decision = decide(objective, first, second, known.metrics, judged.metrics, error=EDITED)
    if case.metric == "time":
        ratio = speedup(first.timing, second.timing, EDITED).median if first.timing and second.timing else None
    else:
        before, after = metric_value(case.metric, first), metric_value(case.metric, second)
        ratio = before / after if before and after else None
        ratio = None if ratio is None else (1 / ratio if case.metric == "occupancy" else ratio)
    met = decision.objective is not None and decision.objective.met is True
    return Grade(right=True, better=decision.accepted is not False and met, gain=ratio)
