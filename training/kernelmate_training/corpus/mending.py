"""What the built-in repairs make of a broken version: the way back where one leads there, else the first that turns out right."""

from __future__ import annotations

from dataclasses import dataclass

from kernelmate.suggest.codec.applicable import Offer, candidates
from kernelmate.suggest.codec.base import NotEncodable, Question, UndecodableAnswer
from kernelmate.suggest.codec.programs import Step
from kernelmate_training.corpus.judging import Judge, Judged

TRIED = 8
"""Versions that are judged for one mistake."""


@dataclass(frozen=True, slots=True)
class Mending:
    """A repair, the number of its variant, the version that it makes, and why."""

    step: Step
    judged: Judged
    why: str


def mended(judge: Judge, question: Question, original: str) -> tuple[tuple[Offer, ...], Mending | None]:
    """The repairs that apply, and the first whose version is right; None if none is.

    Args:
        judge: of the group.
        question: about the broken version, as a model is asked.
        original: what the mistake was put into; a repair that leads back to it is taken before all others.
    """
    try:
        found = [(name, made) for name, made in candidates(question)]
    except (NotEncodable, UndecodableAnswer):
        return (), None
    offers = tuple((name, len(made)) for name, made in found)
    # The first variant of each, then the second of each: what comes late in the list is not left out.
    turns = [
        (name, number, made[number])
        for number in range(max((len(made) for _, made in found), default=0))
        for name, made in found
        if number < len(made)
    ]
    back = [turn for turn in turns if turn[2].kernel.unit.text == original]
    for name, number, candidate in (back or turns)[:TRIED]:
        judged = judge.judge(candidate.kernel.unit.text)
        if judged.right:
            return offers, Mending((name, number), judged, candidate.why)
    return offers, None
