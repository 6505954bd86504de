"""Results of the exam for each goal and author: records kept in JSON, and the tables printed from them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from kernelmate.errors import SourceError

SCHEMA = 1

Author = Literal["recipes", "synthesis", "model"]
Standing = Literal["unreadable", "unchanged", "broken", "wrong", "right", "better", "met"]
"""Result of a version, in ascending order.

`unreadable`: the answer contains no version. `unchanged`: it equals the baseline. `broken`: refused or not compiling.
`wrong`. `right`: correct but not better. `better`: better beyond noise. `met`: the goal is met.
"""

ORDER: tuple[Standing, ...] = ("unreadable", "unchanged", "broken", "wrong", "right", "better", "met")


@dataclass(frozen=True, slots=True)
class Attempt:
    """One version that was proposed for a goal.

    Attributes:
        author: the kind of author.
        number: number of the author's version, from 0; a model's 0 is its greedy answer.
        standing: the result.
        label: the author's own name, such as `recipe:warp-per-row`.
        after: the goal's metric; None if unknown.
        speedup: the baseline's time over its time.
        why: the reason of a failure, or the gain.
        seconds: time of the model's answer; None for recipes and for answers from a file.
        again: True if a second judgement with other inputs found the version correct; None without one.
    """

    author: Author
    number: int
    standing: Standing
    label: str
    after: float | None = None
    speedup: float | None = None
    why: str = ""
    seconds: float | None = None
    again: bool | None = None

    def reached(self, standing: Standing) -> bool:
        """Returns True if the attempt has at least this standing."""
        return ORDER.index(self.standing) >= ORDER.index(standing)


@dataclass(frozen=True, slots=True)
class GoalResult:
    """Result of one goal.

    `before` is the baseline's metric, `problem` the reason that the goal could not be attempted.
    """

    goal: str
    kernel: str
    metric: str
    before: float | None
    attempts: tuple[Attempt, ...]
    problem: str = ""
    seconds: float = 0.0

    def reached(self, standing: Standing, authors: Iterable[Author], k: int | None = None) -> bool:
        """Returns True if a version of one of the authors has at least this standing.

        Of a model's answers, only the first `k` count.
        """
        wanted = tuple(authors)
        return any(
            one.reached(standing)
            for one in self.attempts
            if one.author in wanted and (one.author != "model" or k is None or one.number < k)
        )


@dataclass(frozen=True, slots=True)
class Figure:
    """Numbers of goals by an entrant's best version.

    Attributes:
        entrant: the model, the recipes, or both.
        right: goals with a correct version.
        better: goals with a version better than the baseline.
        met: goals met.
        goals: all goals.
    """

    entrant: str
    right: int
    better: int
    met: int
    goals: int


@dataclass(frozen=True, slots=True)
class ExamResult:
    """Result of one run of the exam.

    Attributes:
        version, sha256: identity of the exam.
        whole: True if all goals were attempted.
        backend: backend that judged.
        target: the GPU that figures refer to.
        seed: seed of the judge's inputs.
        model: name, codec, and SHA-256 of the model's file or answers; None without a model.
        k: answers of the model to each goal.
        recipes: True if recipes took part.
        goals: results by goal.
        labels: statements about the model by the person who ran the exam.
        machine: machine, date and versions.
    """

    version: int
    sha256: str
    whole: bool
    backend: str
    target: str
    seed: int
    model: Mapping[str, str] | None
    k: int
    recipes: bool
    goals: tuple[GoalResult, ...]
    labels: Mapping[str, str] = field(default_factory=dict)
    machine: str = ""

    def figures(self) -> tuple[Figure, ...]:
        """Returns a figure for each entrant: the model greedy, the model at k, recipes, synthesis, and combinations."""
        entrants: list[tuple[str, tuple[Author, ...], int | None]] = []
        if self.model is not None:
            entrants.append(("model, greedy", ("model",), 1))
            if self.k > 1:
                entrants.append((f"model, k = {self.k}", ("model",), self.k))
        if self.recipes:
            entrants.append(("recipes", ("recipes",), None))
        if any(one.author == "synthesis" for goal in self.goals for one in goal.attempts):
            entrants.append(("synthesis", ("synthesis",), None))
            if self.recipes:
                entrants.append(("recipes and synthesis", ("recipes", "synthesis"), None))
        if self.model is not None and self.recipes:
            entrants.append(("both", ("model", "recipes"), self.k))
        return tuple(self._figure(*entrant) for entrant in entrants)

    def _figure(self, name: str, authors: tuple[Author, ...], k: int | None) -> Figure:
        standings: tuple[Standing, ...] = ("right", "better", "met")
        right, better, met = (sum(goal.reached(one, authors, k) for goal in self.goals) for one in standings)
        return Figure(name, right, better, met, len(self.goals))

    def held(self) -> tuple[int, int]:
        """Returns how many of the versions that were judged again stayed correct, and their number."""
        again = [one.again for goal in self.goals for one in goal.attempts if one.again is not None]
        return sum(again), len(again)

    def greedy_seconds(self) -> tuple[float, ...]:
        """Returns the wall seconds of each greedy answer, if a model was asked in this run."""
        return tuple(
            one.seconds
            for goal in self.goals
            for one in goal.attempts
            if one.author == "model" and one.number == 0 and one.seconds is not None
        )


def joined(model: ExamResult, recipes: ExamResult) -> ExamResult:
    """Returns one result from a model's run and the recipes' run.

    Args:
        model: the model's result; versions of other authors in it are left out.
        recipes: the result of recipes and synthesis; a model's answers in it are left out.

    Raises:
        SourceError: they are of different exams, backends, targets or seeds, or one lacks its part.
    """
    for name in ("sha256", "backend", "target", "seed"):
        if getattr(model, name) != getattr(recipes, name):
            raise SourceError(
                f"The results differ in {name}: {getattr(model, name)} and {getattr(recipes, name)}.",
                hint="Only results of one exam with the same options can be joined.",
            )
    if model.model is None or not recipes.recipes:
        raise SourceError("One result must be a model's and the other one of recipes.")
    others = {goal.goal: goal for goal in recipes.goals}
    goals = tuple(
        replace(
            goal,
            attempts=(
                *(one for one in others[goal.goal].attempts if one.author != "model"),
                *(one for one in goal.attempts if one.author == "model"),
            ),
        )
        for goal in model.goals
        if goal.goal in others
    )
    return replace(model, recipes=True, goals=goals, whole=model.whole and recipes.whole)


def to_json(result: ExamResult) -> dict[str, Any]:
    """Returns the result as JSON values, with its figures."""
    document = {"schema": SCHEMA, **asdict(result)}
    document["figures"] = [asdict(one) for one in result.figures()]
    right, judged = result.held()
    document["judged_again"] = {"right": right, "of": judged}
    return document


def read_result(path: Path) -> ExamResult:
    """Returns the result in a file that `to_json` describes.

    Raises:
        SourceError: the file has another form.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        known = {name: document[name] for name in ExamResult.__dataclass_fields__}
        return ExamResult(**{**known, "goals": tuple(read_goal(one) for one in document["goals"])})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SourceError(f"{path} is not the result of an exam: {error}") from None


def read_goal(document: Mapping[str, Any]) -> GoalResult:
    """Returns one goal's result from JSON values."""
    attempts: Sequence[Mapping[str, Any]] = document["attempts"]
    return GoalResult(**{**document, "attempts": tuple(Attempt(**one) for one in attempts)})


_SIGNS = {"unreadable": "?", "unchanged": "=", "broken": "x", "wrong": "w", "right": "r", "better": "b", "met": "MET"}
LEGEND = "MET goal met · b better · r right · w wrong · x does not compile or refused · = unchanged · ? unreadable · - nothing"


def summary_lines(result: ExamResult) -> Iterator[str]:
    """Yields lines with the settings of an exam and the figures of every entrant."""
    part = "" if result.whole else f", {len(result.goals)} goals of it"
    yield f"Exam {result.version}{part} · sha256 {result.sha256[:16]} · {result.backend} · {result.target} · seed {result.seed}"
    if result.model is not None:
        yield "Model " + ", ".join(f"{name} {value}" for name, value in result.model.items())
    yield ""
    yield f"{'entrant':<21} {'right':>12} {'better':>12} {'met':>12}"
    for one in result.figures():
        shares = (f"{count:>4} ({count / max(one.goals, 1):>5.1%})" for count in (one.right, one.better, one.met))
        yield f"{one.entrant:<21} " + " ".join(f"{share:>12}" for share in shares)
    right, judged = result.held()
    if judged:
        yield f"{judged} versions that met a goal were judged again with other inputs; {right} of them are right."
    seconds = result.greedy_seconds()
    if seconds:
        longest = max(seconds)
        yield f"A greedy answer took {statistics.median(seconds):.2f} s (median), {longest:.2f} s at most, of {len(seconds)}."


def goal_lines(result: ExamResult) -> Iterator[str]:
    """Yields a heading, a line for each goal, and the legend."""
    yield f"{'goal':<26} {'metric':<13} {'before':>9} {'model':<9} {'k':<9} {'recipes':<9} {'written':<9} best"
    for goal in result.goals:
        yield goal_line(goal)
    yield LEGEND


def goal_line(goal: GoalResult) -> str:
    """Returns one line on a goal, for a table.

    It has the standings of the model's greedy answer, of all its answers and of the recipes, and the author and figure
    of the best version.
    """
    greedy = [one for one in goal.attempts if one.author == "model" and one.number == 0]
    best = best_of(goal, ("model", "recipes", "synthesis"))
    told = "" if best is None or best.after is None else f"{best.label} to {best.after:.4g}"
    if goal.problem and best is None:
        told = goal.problem[:80]
    before = "-" if goal.before is None else f"{goal.before:.4g}"
    model, recipes = best_of(goal, ("model",)), best_of(goal, ("recipes",))
    written = best_of(goal, ("synthesis",))
    return (
        f"{goal.goal:<26} {goal.metric:<13} {before:>9} {_sign(greedy[0] if greedy else None):<9} "
        f"{_sign(model):<9} {_sign(recipes):<9} {_sign(written):<9} {told}".rstrip()
    )


def best_of(goal: GoalResult, authors: tuple[Author, ...]) -> Attempt | None:
    """Returns the best attempt of some authors, the first of equal ones; None without one."""
    mine = [one for one in goal.attempts if one.author in authors]
    return max(mine, key=lambda one: ORDER.index(one.standing), default=None)


def _sign(attempt: Attempt | None) -> str:
    return "-" if attempt is None else _SIGNS[attempt.standing]
