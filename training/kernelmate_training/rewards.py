"""Rewards of judged answers, and the advantages that follow from them.

An answer that is not right is worth nothing. A right one is worth something by being right, and more by its gain: the
clipped, smoothed logarithm of before over after. Answers to one question are compared with each other alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

RIGHT = 0.1
"""Of a right answer that gains nothing: above a wrong one, below any gain that shows."""
SMOOTH = 0.05
"""Gains below this, as a logarithm, are noise of measurements and predictions: they count in proportion to their square."""


@dataclass(frozen=True, slots=True)
class Grade:
    """The grade of one answer.

    Attributes:
        right: it was right wherever it ran. better: worth taking by the product's own decision.
        gain: the objective, before over after, where both are known.
        words: what was said against it; empty for right ones. suspicious: a gain so large that it was judged again.
    """

    right: bool
    better: bool = False
    gain: float | None = None
    words: str = ""
    suspicious: bool = False


@dataclass(frozen=True, slots=True)
class Weighed:
    """An answer that was drawn: its prompt, its text with what ends it, and its advantage over the others to its question."""

    prompt: str
    answer: str
    advantage: float


def reward(grade: Grade, clip: float) -> float:
    """Between 0 and 1 + `RIGHT`.

    Args:
        grade: of the answer.
        clip: the logarithm of a gain counts up to this.
    """
    if not grade.right:
        return 0.0
    logarithm = math.log(grade.gain) if grade.gain is not None and grade.gain > 0 else 0.0
    size = abs(logarithm)
    smoothed = size - SMOOTH / 2 if size > SMOOTH else size * size / (2 * SMOOTH)
    gained = math.copysign(min(smoothed, clip), logarithm) / clip
    return RIGHT + max(gained, -RIGHT)


def advantages(rewards: Sequence[float]) -> list[float]:
    """Rewards of one group less their mean, over their standard deviation; all 0 if they are alike."""
    if not rewards:
        return []
    mean = sum(rewards) / len(rewards)
    deviation = math.sqrt(sum((one - mean) ** 2 for one in rewards) / len(rewards))
    return [0.0 if deviation < 1e-6 else (one - mean) / deviation for one in rewards]
