"""Several models that sit the exam at once: a baseline, or a version that many answer, is judged one time for all of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelmate.suggest.base import AuthorFailed, SuggestRequest
from kernelmate_training.exam.answers import Answered, Sampled
from kernelmate_training.exam.records import Attempt, ExamResult, GoalResult

APART = 1000
"""Answers of the n-th model are numbered from n times this on while all sit together; no model gives so many."""


@dataclass(frozen=True, slots=True)
class Sitter:
    """A model's file of answers: `codec` that its prompts were written with, `name` of the model."""

    answers: Path
    codec: str
    name: str


class Together:
    """The answers of several models, as those of one.

    Args:
        sitters: whose.

    Raises:
        SourceError: a file of answers cannot be read. UsageError: there is no such codec.
    """

    def __init__(self, sitters: Sequence[Sitter]) -> None:
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
