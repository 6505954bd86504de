"""Rewards of judged answers, and the advantages computed from them.

A wrong answer has reward 0. A correct one has `RIGHT` plus its gain: the clipped, smoothed logarithm of before over
after. Answers are compared only with others to the same question.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

RIGHT = 0.1
"""Reward of a correct answer without a gain: above a wrong one's, below that of any noticeable gain."""
SMOOTH = 0.05
"""Logarithm of a gain below which gains are mostly noise and count in proportion to their square."""


@dataclass(frozen=True, slots=True)
class Grade:
    """The grade of one answer.

    Attributes:
        right: True if it was correct at every size that ran.
        better: True if it is worth taking by the product's decision.
        gain: the objective before over after; None if unknown.
        words: the reason that it is wrong; empty for correct answers.
        suspicious: True if the gain was so large that it was judged again.
    """

    right: bool
    better: bool = False
    gain: float | None = None
    words: str = ""
    suspicious: bool = False


@dataclass(frozen=True, slots=True)
class WeightedAnswer:
    """A sampled answer: its prompt, its text with the end token, and its advantage over the others to its question."""

    prompt: str
    answer: str
    advantage: float


def reward(grade: Grade, clip: float) -> float:
    """Returns the reward, between 0 and `RIGHT` + `clip`.

    Args:
        grade: grade of the answer.
        clip: largest logarithm of a gain that counts.
    """
    if not grade.right:
        return 0.0
    logarithm = math.log(grade.gain) if grade.gain is not None and grade.gain > 0 else 0.0
    size = abs(logarithm)
    smoothed = size - SMOOTH / 2 if size > SMOOTH else size * size / (2 * SMOOTH)
    gained = math.copysign(min(smoothed, clip), logarithm) / clip
    return RIGHT + max(gained, -RIGHT)


def advantages(rewards: Sequence[float]) -> list[float]:
    """Returns the rewards of one group minus their mean, divided by their standard deviation; 0 if all are equal."""
    if not rewards:
        return []
    mean = sum(rewards) / len(rewards)
    deviation = math.sqrt(sum((one - mean) ** 2 for one in rewards) / len(rewards))
    return [0.0 if deviation < 1e-6 else (one - mean) / deviation for one in rewards]
