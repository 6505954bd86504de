"""What the built-in repairs make of a broken version: the first that turns out right, in the order in which they are offered."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmate.suggest.codec.base import Question, Unreadable, Untellable
from kernelmate.suggest.codec.offers import Offer, candidates
from kernelmate.suggest.codec.programs import Step
from kernelmate.upskill.corpus.judging import Judge, Judged

VARIANTS = 4
"""Of one repair, the first ones."""
TRIED = 6
"""Versions that are judged for one mistake."""


@dataclass(frozen=True, slots=True)
class Mending:
    """A repair, the number of its variant, the version that it makes, and why."""

    step: Step
    judged: Judged
    why: str


def mended(judge: Judge, question: Question) -> tuple[tuple[Offer, ...], Mending | None]:
    """The repairs that apply, and the first whose version is right; None where none is.

    Args:
        judge: of the group.
        question: about the broken version, as a model is asked.
    """
    try:
        found = [(name, made) for name, made in candidates(question)]
    except (Untellable, Unreadable):
        return (), None
    offers = tuple((name, len(made)) for name, made in found)
    left = TRIED
    for name, made in found:
        for number, candidate in enumerate(made[:VARIANTS]):
            if left == 0:
                return offers, None
            left -= 1
            judged = judge.judge(candidate.kernel.unit.text)
            if judged.right:
                return offers, Mending((name, number), judged, candidate.why)
    return offers, None
