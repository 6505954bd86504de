"""Attempts at one goal: versions of recipes and of a model, each judged by the product's session with all guards."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from kernelmate.decide.metrics import metric_value, rightness
from kernelmate.errors import KernelmateError, SourceError
from kernelmate.records import Candidate, Judged, Verdict
from kernelmate.session import Session
from kernelmate.suggest.base import AuthorFailed, SuggestRequest
from kernelmate.suggest.offline import Offline
from kernelmate.suggest.synthesis import Synthesis
from kernelmate_training.exam.answers import Answers
from kernelmate_training.exam.goals import Goal
from kernelmate_training.exam.records import Attempt, Author, GoalResult, Standing

MOST_CANDIDATES = 10_000
"""Limit for a search's candidates, above any real number; authors have limits of their own."""
MOST_WHY = 300
UNCHANGED = "the same as the baseline"


@dataclass(frozen=True, slots=True)
class Terms:
    """Conditions of attempts.

    Attributes:
        k: number of the model's answers.
        recipes: largest number of recipes' versions to judge; 0 leaves them out. They end with the first version that
            meets the goal.
        again: True to judge the best version of each author that meets the goal once more, with other inputs.
        synthesis: True to judge kernels written from the reference too.
    """

    k: int = 8
    recipes: int = 12
    again: bool = True
    synthesis: bool = False


def attempt_goal(
    session: Session, goal: Goal, answers: Answers | None, terms: Terms, *, other: Session | None = None
) -> GoalResult:
    """Attempt one goal by recipes, by kernels written from the reference, and by a model.

    Args:
        session: the session that judges.
        goal: the goal.
        answers: the model's answers; None for recipes alone.
        terms: conditions of the attempts.
        other: session with another seed that judges again; None to judge nothing again.

    Raises:
        EnvironmentFailed: compiler or worker are unavailable.
        UsageError: a requested model does not exist.
    """
    began = time.monotonic()
    kernel = goal.load()
    recipes, written = _Recipes(goal, terms.recipes), _Written(terms.synthesis)
    model = _Model(goal, answers, terms.k)
    try:
        found = session.optimize(
            kernel, goal.prompt, max_candidates=MOST_CANDIDATES, suggesters=(recipes, written, model)
        )
    except KernelmateError as error:
        if error.exit_code != SourceError.exit_code:
            raise
        return GoalResult(goal.name, goal.kernel, goal.metric, None, (), error.message, time.monotonic() - began)
    if found.objective.metric != goal.metric:
        problem = f"The prompt is read as {found.objective.metric}, and the goal is about {goal.metric}."
        return GoalResult(goal.name, goal.kernel, goal.metric, None, (), problem, time.monotonic() - began)
    final = {id(one.candidate): one.verdict for one in found.candidates}
    entries = [_settled(entry, final) for entry in (*recipes.entries, *written.entries, *model.entries)]
    if terms.again and other is not None:
        entries = _judged_again(goal, entries, other)
    problem = model.problem or (found.notes[0] if not entries and found.notes else "")
    before = metric_value(goal.metric, found.baseline)
    attempts = tuple(_attempt(goal, entry) for entry in entries)
    return GoalResult(
        goal.name, goal.kernel, goal.metric, before, attempts, problem, round(time.monotonic() - began, 2)
    )


@dataclass(frozen=True, slots=True)
class _Entry:
    """One version and the facts about it."""

    author: Author
    number: int
    candidate: Candidate | None
    verdict: Verdict | None
    problem: str = ""
    seconds: float | None = None
    again: bool | None = None


@dataclass(slots=True)
class _Recipes:
    """Recipes as a suggester that records every verdict, and ends with the first version that meets the goal."""

    goal: Goal
    most: int
    name: str = "recipes"
    entries: list[_Entry] = field(default_factory=list)

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Yields nothing; versions are judged and recorded on the way."""
        if self.most == 0:
            return
        seen: set[int] = set()
        met = False

        def judge(candidate: Candidate) -> Judged:
            nonlocal met
            judged = request.judge(candidate)
            if id(judged.candidate) not in seen and judged.candidate.author.startswith("recipe:"):
                seen.add(id(judged.candidate))
                self.entries.append(_Entry("recipes", len(self.entries), judged.candidate, judged.verdict))
                met = met or self.goal.met(judged.verdict)
            return judged

        def stop() -> bool:
            return met or request.stop()

        for candidate in Offline(most=self.most).propose(replace(request, judge=judge, stop=stop)):
            judge(candidate)
            if stop():
                break
        yield from ()


@dataclass(slots=True)
class _Written:
    """Kernels written from the reference, as a suggester that records every verdict."""

    wanted: bool
    name: str = "synthesis"
    entries: list[_Entry] = field(default_factory=list)

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Yields nothing; versions are judged and recorded on the way."""
        for candidate in Synthesis().propose(replace(request, expect=None)) if self.wanted else ():
            judged = request.judge(candidate)
            self.entries.append(_Entry("synthesis", len(self.entries), judged.candidate, judged.verdict))
        yield from ()


@dataclass(slots=True)
class _Model:
    """A model as a suggester that records the verdict of each answer."""

    goal: Goal
    answers: Answers | None
    k: int
    name: str = "model"
    problem: str = ""
    entries: list[_Entry] = field(default_factory=list)

    def propose(self, request: SuggestRequest) -> Iterator[Candidate]:
        """Yields nothing; versions are judged and recorded on the way."""
        if self.answers is None:
            return
        blind = replace(request, versions=tuple, earlier=tuple)  # the model does not see the recipes' versions
        try:
            for answer in self.answers.of(self.goal.name, blind, self.k):
                verdict = None if answer.candidate is None else request.judge(answer.candidate).verdict
                self.entries.append(
                    _Entry("model", answer.number, answer.candidate, verdict, answer.problem, answer.seconds)
                )
        except AuthorFailed as error:
            self.problem = str(error)
        yield from ()


def _settled(entry: _Entry, final: dict[int, Verdict]) -> _Entry:
    """Returns the entry with its final verdict; the best version is timed again at the end of a search."""
    return replace(entry, verdict=final.get(id(entry.candidate), entry.verdict))


def _judged_again(goal: Goal, entries: list[_Entry], other: Session) -> list[_Entry]:
    """Returns the entries after judging each author's first version that met the goal again, with another seed."""
    chosen: dict[Author, int] = {}
    for place, entry in enumerate(entries):
        if entry.verdict is not None and goal.met(entry.verdict):
            chosen.setdefault(entry.author, place)
    for place in chosen.values():
        candidate = entries[place].candidate
        assert candidate is not None
        verdict = other.bench(candidate.kernel, contract=candidate.contract)[0]
        entries[place] = replace(entries[place], again=bool(rightness(verdict)))
    return entries


def _attempt(goal: Goal, entry: _Entry) -> Attempt:
    if entry.candidate is None or entry.verdict is None:
        return Attempt("model", entry.number, "unreadable", "", why=_short(entry.problem), seconds=entry.seconds)
    verdict = entry.verdict
    speedup = None if verdict.speedup is None else round(verdict.speedup.median, 4)
    return Attempt(
        author=entry.author,
        number=entry.number,
        standing=standing(goal, verdict),
        label=entry.candidate.author,
        after=metric_value(goal.metric, verdict),
        speedup=speedup,
        why=_short(verdict.reasons[0] if verdict.reasons else ""),
        seconds=None if entry.seconds is None else round(entry.seconds, 3),
        again=entry.again,
    )


def standing(goal: Goal, verdict: Verdict) -> Standing:
    """Returns the standing of a version with this verdict."""
    if UNCHANGED in verdict.reasons:
        return "unchanged"
    if not verdict.compiled:
        return "broken"
    if not rightness(verdict):
        return "wrong"
    if goal.met(verdict):
        return "met"
    asked = verdict.objective
    return "better" if asked is not None and asked.met else "right"


def _short(text: str) -> str:
    return " ".join(text.split())[:MOST_WHY]
