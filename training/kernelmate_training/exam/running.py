"""Run of the whole exam, one goal or several at a time, stored as results arrive so that it can be resumed."""

from __future__ import annotations

import datetime
import json
import multiprocessing
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from kernelmate.config import Settings, load_settings
from kernelmate.errors import UsageError
from kernelmate.session import Session
from kernelmate.suggest.base import AuthorFailed, SuggestRequest
from kernelmate.version import VERSION
from kernelmate_training.exam.answers import Answered, Answers, Local, Sampled
from kernelmate_training.exam.attempts import Terms, attempt_goal
from kernelmate_training.exam.goals import Exam, Goal, load_exam
from kernelmate_training.exam.records import Attempt, ExamResult, GoalResult, read_goal

APART = 1000
"""Offset between the answer numbers of two models in a joint run; no model gives so many answers."""


@dataclass(frozen=True, slots=True)
class ExamTaker:
    """A model's file of answers, with the codec of its prompts and the model's name."""

    answers: Path
    codec: str
    name: str


class Together:
    """The answers of several models, judged in one run.

    Args:
        sitters: the models, each with its file of answers.

    Raises:
        SourceError: a file of answers cannot be read.
        UsageError: there is no such codec.
    """

    def __init__(self, sitters: Sequence[ExamTaker]) -> None:
        self._models = [Sampled(one.answers, one.codec, one.name) for one in sitters]

    def identity(self) -> Mapping[str, str]:
        """Returns the models' names with the hashes of their answers."""
        told = [model.identity() for model in self._models]
        return {"name": "together", **{f"{n} {one['name']}": one["answers_sha256"] for n, one in enumerate(told)}}

    def identities(self) -> list[Mapping[str, str]]:
        """Returns the identity of each model."""
        return [model.identity() for model in self._models]

    def of(self, goal: str, request: SuggestRequest, k: int) -> Iterator[Answered]:
        """Yields the first `k` answers of each model, one model after the other; an unavailable model has none."""
        for place, model in enumerate(self._models):
            try:
                for answer in model.of(goal, request, k):
                    yield replace(answer, number=place * APART + answer.number)
            except AuthorFailed as error:
                yield Answered(place * APART, None, str(error))


def apart(result: ExamResult, identities: Sequence[Mapping[str, str]]) -> list[ExamResult]:
    """Returns each model's own result from a joint one."""
    return [
        replace(result, model=dict(identity), goals=tuple(_own(goal, place) for goal in result.goals))
        for place, identity in enumerate(identities)
    ]


def _own(goal: GoalResult, place: int) -> GoalResult:
    mine: list[Attempt] = [
        replace(one, number=one.number - place * APART)
        for one in goal.attempts
        if one.author == "model" and one.number // APART == place
    ]
    return replace(goal, attempts=tuple(mine))


SEED = 20261121
"""Seed of the judge's inputs, equal for all runs, so that results do not depend on the machine."""
OTHER_SEED = 977
"""Seed of the inputs with which versions that met a goal are judged again."""
TIMEOUT_S = 600.0
RECIPES = Terms().recipes
"""Default number of recipes' versions for each goal."""

OnGoal = Callable[[GoalResult, int, int], None]
"""Callback with a goal's result, the number of finished goals, and the total."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Options of a run of the exam.

    Attributes:
        goals: names of goals or kernels; empty for all.
        backend: backend that judges; `cuda` measures.
        answers: a file of answers; None to ask the local model `model`.
        together: files of several models instead of one's. Their versions are not judged again with other inputs;
            `apart` separates their results.
        codec: codec of the file's prompts.
        model: name of the local model to ask, "" for the selected one; None asks none.
        terms: conditions of the attempts.
        jobs: number of goals attempted at once, each in a process of its own.
        seed: seed of the judge's inputs.
        labels: stored in the result, for tables.
    """

    goals: tuple[str, ...] = ()
    backend: Literal["emulator", "cuda"] = "emulator"
    answers: Path | None = None
    together: tuple[ExamTaker, ...] = ()
    codec: str = "mixed-2"
    model: str | None = None
    terms: Terms = field(default_factory=Terms)
    jobs: int = 1
    seed: int = SEED
    labels: Mapping[str, str] = field(default_factory=dict)

    def settings(self, seed: int) -> Settings:
        """Returns the sessions' settings: no history, and none of the project's settings that could change a verdict."""
        named = {"model": self.model} if self.model else {}
        return load_settings(backend=self.backend, seed=seed, history=False, timeout_s=TIMEOUT_S, **named)

    def model_that_answers(self) -> Answers | None:
        """Returns the model that takes the exam; None for recipes alone.

        Raises:
            SourceError: the answers cannot be read.
            UsageError: there is no such model or codec.
        """
        if self.together:
            return Together(self.together)
        if self.answers is not None:
            return Sampled(self.answers, self.codec, self.model or None)
        return None if self.model is None else Local(self.settings(self.seed))


def run(wanted: Wanted, *, on_goal: OnGoal | None = None, keep: Path | None = None) -> ExamResult:
    """Run the exam.

    Args:
        wanted: the options.
        on_goal: called with each finished goal, including those of an earlier run.
        keep: file for results so far; a run that finds one of the same exam, model and terms resumes from it.

    Raises:
        UsageError: no author is selected, or there is no such goal or model.
        SourceError: a file cannot be read.
        EnvironmentFailed: compiler, worker or model are unavailable.
        KeyboardInterrupt: the user stopped; `keep` contains the results so far.
    """
    exam = load_exam(wanted.goals)
    answers = wanted.model_that_answers()
    if answers is None and wanted.terms.recipes == 0 and not wanted.terms.synthesis:
        raise UsageError(
            "Neither a model nor recipes or synthesis are selected for the exam.",
            hint="Name a model, or allow recipes or synthesis.",
        )
    model = None if answers is None else dict(answers.identity())
    kept = _Kept(keep, _key(wanted, exam, model))
    done = {one.goal: one for one in kept.results}
    todo = [goal for goal in exam.goals if goal.name not in done]
    for number, goal in enumerate([goal for goal in exam.goals if goal.name in done], 1):
        if on_goal is not None:
            on_goal(done[goal.name], number, len(exam.goals))
    for result in _each(wanted, todo):
        done[result.goal] = result
        kept.add(result)
        if on_goal is not None:
            on_goal(result, len(done), len(exam.goals))
    results = tuple(done[goal.name] for goal in exam.goals if goal.name in done)
    return _result(wanted, exam, model, results)


def interrupted(wanted: Wanted, keep: Path) -> ExamResult:
    """Returns the results in the file of an interrupted run, marked as incomplete.

    Raises:
        SourceError, UsageError: as `run`.
    """
    exam = load_exam(wanted.goals)
    answers = wanted.model_that_answers()
    model = None if answers is None else dict(answers.identity())
    return _result(wanted, exam, model, tuple(_Kept(keep, _key(wanted, exam, model)).results))


def _result(wanted: Wanted, exam: Exam, model: dict[str, str] | None, results: tuple[GoalResult, ...]) -> ExamResult:
    return ExamResult(
        version=exam.version,
        sha256=exam.sha256,
        whole=len(results) == len(load_exam().goals),
        backend=wanted.backend,
        target=_target(wanted),
        seed=wanted.seed,
        model=model,
        k=0 if model is None else wanted.terms.k,
        recipes=wanted.terms.recipes > 0,
        goals=results,
        labels=dict(wanted.labels),
        machine=f"{datetime.datetime.now(tz=datetime.UTC).date()} · {platform.machine()} · kernelmate {VERSION}",
    )


def _target(wanted: Wanted) -> str:
    with Session(wanted.settings(wanted.seed)) as session:
        return session.target.name


def _key(wanted: Wanted, exam: Exam, model: dict[str, str] | None) -> dict[str, Any]:
    """Returns a key that is equal for two runs if one can continue with the other's results."""
    return {
        "sha256": exam.sha256,
        "backend": wanted.backend,
        "seed": wanted.seed,
        "terms": asdict(wanted.terms),
        "model": model,
        "kernelmate": VERSION,
    }


class _Kept:
    """Results in a file, one per line, below a line with the key of the run."""

    def __init__(self, path: Path | None, key: dict[str, Any]) -> None:
        self._path = path
        self.results: list[GoalResult] = []
        if path is None:
            return
        lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        whole = [document for line in lines if (document := _read(line)) is not None]
        if whole and whole[0] == key:
            self.results = [read_goal(one) for one in whole[1:]]
        path.parent.mkdir(parents=True, exist_ok=True)
        # Written again: the last line of a run that was killed may be cut off.
        text = [json.dumps(key), *(json.dumps(asdict(one)) for one in self.results)]
        path.write_text("".join(f"{line}\n" for line in text), encoding="utf-8")

    def add(self, result: GoalResult) -> None:
        """Appends a result to the file."""
        self.results.append(result)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(result)) + "\n")


def _read(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _each(wanted: Wanted, goals: list[Goal]) -> Iterator[GoalResult]:
    """Yields results as they arrive."""
    if wanted.jobs <= 1 or len(goals) <= 1:
        with _ExamWorker(wanted) as worker:
            for goal in goals:
                yield worker.attempt_goal(goal)
        return
    with multiprocessing.get_context("spawn").Pool(min(wanted.jobs, len(goals)), _open, (wanted,)) as pool:
        yield from pool.imap_unordered(_call, goals)


class _ExamWorker:
    """Sessions and model of one process that attempts goals."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._answers = wanted.model_that_answers()
        self._stack = ExitStack()

    def __enter__(self) -> _ExamWorker:
        wanted = self._wanted
        self._session = self._stack.enter_context(Session(wanted.settings(wanted.seed)))
        self._other = self._stack.enter_context(Session(wanted.settings(OTHER_SEED))) if wanted.terms.again else None
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def attempt_goal(self, goal: Goal) -> GoalResult:
        """Returns one goal's result."""
        return attempt_goal(self._session, goal, self._answers, self._wanted.terms, other=self._other)


_exam_workers: list[_ExamWorker] = []
"""This process's worker, after it was opened."""


def _open(wanted: Wanted) -> None:
    _exam_workers.append(_ExamWorker(wanted).__enter__())


def _call(goal: Goal) -> GoalResult:
    return _exam_workers[0].attempt_goal(goal)


__all__ = ["Wanted", "interrupted", "run"]
