"""The whole exam: goal after goal, or several at a time, kept as it comes, so that what was cut off goes on where it was."""

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
"""Answers of the n-th model are numbered from n times this on while all sit together; no model gives so many."""


@dataclass(frozen=True, slots=True)
class ExamTaker:
    """A model's file of answers: `codec` that its prompts were written with, `name` of the model."""

    answers: Path
    codec: str
    name: str


class Together:
    """The answers of several models, as those of one.

    Args:
        sitters: the models, each with its file of answers.

    Raises:
        SourceError: a file of answers cannot be read. UsageError: there is no such codec.
    """

    def __init__(self, sitters: Sequence[ExamTaker]) -> None:
        self._models = [Sampled(one.answers, one.codec, one.name) for one in sitters]

    def identity(self) -> Mapping[str, str]:
        """Every model's name with the hash of its answers."""
        told = [model.identity() for model in self._models]
        return {"name": "together", **{f"{n} {one['name']}": one["answers_sha256"] for n, one in enumerate(told)}}

    def identities(self) -> list[Mapping[str, str]]:
        """Each model's own."""
        return [model.identity() for model in self._models]

    def of(self, goal: str, request: SuggestRequest, k: int) -> Iterator[Answered]:
        """The first `k` answers of each model, one model after the other; one that cannot be asked has none."""
        for place, model in enumerate(self._models):
            try:
                for answer in model.of(goal, request, k):
                    yield replace(answer, number=place * APART + answer.number)
            except AuthorFailed as error:
                yield Answered(place * APART, None, str(error))


def apart(result: ExamResult, identities: Sequence[Mapping[str, str]]) -> list[ExamResult]:
    """Each model's own result out of one of all."""
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
"""Of the judge's inputs, for everybody: results are then the same wherever they are taken."""
OTHER_SEED = 977
"""Of the inputs that versions which met a goal are judged with again."""
TIMEOUT_S = 600.0
RECIPES = Terms().recipes
"""Versions of recipes for each goal, where no other number is given."""

OnGoal = Callable[[GoalResult, int, int], None]
"""Told of a goal's result, how many are done, and how many there are."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A request to run the exam.

    Attributes:
        goals: names of goals or kernels; empty for all.
        backend: where versions are judged; `cuda` measures.
        answers: a file of answers; None asks the local model, where `model` says so.
        together: files of several models, in place of one's. Their versions are not judged again with other inputs, and
            `apart` tells their results apart.
        codec: that the file's prompts were written with.
        model: ask the local model: its name, or "" for the one in use; None asks none.
        terms: how each goal is tried. jobs: goals at a time, each in a process of its own.
        labels: kept in the result, for tables of many.
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
        """Who sits the exam; None for recipes alone.

        Raises:
            SourceError: the answers cannot be read. UsageError: there is no such model or codec.
        """
        if self.together:
            return Together(self.together)
        if self.answers is not None:
            return Sampled(self.answers, self.codec, self.model or None)
        return None if self.model is None else Local(self.settings(self.seed))


def run(wanted: Wanted, *, on_goal: OnGoal | None = None, keep: Path | None = None) -> ExamResult:
    """Sit the exam.

    Args:
        wanted: what is to be run.
        on_goal: called with each goal as it is done, and of those that an earlier run had done.
        keep: a file for what is done so far; a run that finds one of the same exam, model and terms goes on from it.

    Raises:
        UsageError: there is nothing that could answer, or no such goal or model. SourceError: a file cannot be read.
        EnvironmentFailed: compiler, worker or model are unavailable.
        KeyboardInterrupt: the user stopped; what is done is in `keep`.
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
    """Results in a file, a line each, below a line that says of what run they are."""

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
        """One more, on the disk at once."""
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
    """Results as they come."""
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
        """One goal's result."""
        return attempt_goal(self._session, goal, self._answers, self._wanted.terms, other=self._other)


_exam_workers: list[_ExamWorker] = []
"""This process's worker, once it has one."""


def _open(wanted: Wanted) -> None:
    _exam_workers.append(_ExamWorker(wanted).__enter__())


def _call(goal: Goal) -> GoalResult:
    return _exam_workers[0].attempt_goal(goal)


__all__ = ["Wanted", "interrupted", "run"]
