"""Loss on held-out examples by task and family, and the decision from it that a run has converged."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kernelmate_training.batches import Batch, Packer
from kernelmate_training.encoded import Encoded
from kernelmate_training.examples import TASKS

MOST_CELLS = 24
"""Largest number of pairs of a task and a family to evaluate, the largest pairs first."""


@dataclass(frozen=True, slots=True)
class HeldOutLoss:
    """Mean losses over answer tokens.

    Attributes:
        loss: mean over tasks by their weights, each the mean over its families.
        tasks: loss of each task.
        families: number of each family with its mean over tasks.
    """

    loss: float
    tasks: Mapping[str, float]
    families: Mapping[int, float]


class HeldOut:
    """Held-out examples, in one batch for each task and family.

    Args:
        data: the examples.
        rows: largest number of rows of a batch.
        length: tokens of a row.
        weights: weights of the tasks.
        least_answer, full_gain: as in a plan.
        even: True to give all batches one shape, so that compiled code serves all.
    """

    def __init__(self, data: Encoded, rows: int, length: int, weights: Mapping[str, float], *, least_answer: int = 0, full_gain: float = 0.0, even: bool) -> None:  # fmt: skip
        self._weights = weights
        self._cells = [
            (task, family, packer.batch(some), packer.weight(some))
            for task, family, packer, some in _cells(data, rows, length, least_answer, full_gain, even=even)
        ]

    def look(self, loss_of: Callable[[Batch], float]) -> HeldOutLoss:
        """Returns the present loss.

        Args:
            loss_of: returns the sum of the losses of a batch's answer tokens.
        """
        found = [(task, family, loss_of(batch) / max(weight, 1e-9)) for task, family, batch, weight in self._cells]
        tasks = {name: [loss for task, _, loss in found if task == name] for name in TASKS}
        means = {name: float(np.mean(losses)) for name, losses in tasks.items() if losses}
        families = sorted({family for _, family, _ in found})
        by_family = {one: float(np.mean([loss for _, family, loss in found if family == one])) for one in families}
        shares = np.array([max(self._weights.get(name, 0.0), 0.0) for name in means])
        total = float(np.average([*means.values()], weights=shares if shares.sum() else None))
        return HeldOutLoss(total, means, by_family)


def _cells(
    data: Encoded, rows: int, length: int, least_answer: int, full_gain: float, *, even: bool
) -> Iterator[tuple[str, int, Packer, list[list[int]]]]:
    families = data.families if data.families is not None else np.zeros(len(data), dtype=np.int64)
    pairs, counts = np.unique(np.stack([data.tasks.astype(np.int64), families.astype(np.int64)]), axis=1, return_counts=True)  # fmt: skip
    for at in np.argsort(-counts, kind="stable")[:MOST_CELLS]:
        task, family = int(pairs[0, at]), int(pairs[1, at])
        chosen = np.flatnonzero((data.tasks == task) & (families == family))
        packer = Packer(data.take(chosen), rows, length, {}, 0, least_answer=least_answer, full_gain=full_gain)
        some = packer.epoch_rows(0)[:rows]
        yield TASKS[task], family, packer, some + [[] for _ in range(rows - len(some) if even else 0)]


SMOOTHING = 0.5
"""Weight of the newest loss in the smoothed one."""
CLEARLY = 1e-3
"""Fraction by which a loss must be lower than the best to count as better."""
LEAST_STEPS = 5
"""Smallest number of steps of a cooldown."""


@dataclass(slots=True)
class EarlyStopping:
    """History of the held-out loss, and the decision to end the run.

    Attributes:
        patience: number of losses in a row that may be no better than the best; 0 for any number.
        cooldown: length of the final decay, as a fraction of the steps before it.
        smoothed: exponentially smoothed loss.
        best: lowest smoothed loss, seen at `best_step`.
        bad: number of losses since then.
        loss: the newest loss, not smoothed.
        ends_from, ends_at: steps between which the rate decays; None until the patience is exceeded.
        share: fraction of the run that was done at that point.
    """

    patience: int = 0
    cooldown: float = 0.25
    smoothed: float | None = None
    best: float = math.inf
    best_step: int = -1
    bad: int = 0
    loss: float | None = None
    ends_from: int | None = None
    ends_at: int | None = None
    share: float = 0.0

    def see(self, loss: float, step: int, share: float) -> bool:
        """Records a loss; returns True if it is the best so far.

        Args:
            loss: loss on held-out examples.
            step: the number of steps done.
            share: fraction of the run that is done.
        """
        self.loss = loss
        self.smoothed = loss if self.smoothed is None else SMOOTHING * loss + (1 - SMOOTHING) * self.smoothed
        if self.smoothed < self.best * (1 - CLEARLY):
            self.best, self.best_step, self.bad = self.smoothed, step, 0
            return True
        self.bad += 1
        if self.patience and self.bad >= self.patience and self.ends_from is None:
            self.ends_from, self.share = step, share
            self.ends_at = step + max(int(step * self.cooldown), LEAST_STEPS)
        return False

    def progress(self, step: int, share: float, decays_from: float) -> float:
        """Returns the fraction of the run that is done, which early stopping may have shortened.

        Args:
            step: number of steps done.
            share: fraction of the run by steps or by the clock.
            decays_from: fraction from which the rate decays.
        """
        if self.ends_from is None or self.ends_at is None:
            return share
        first = max(self.share, decays_from)
        done = (step - self.ends_from) / (self.ends_at - self.ends_from)
        return max(share, min(first + (1.0 - first) * done, 1.0))

    def state(self) -> dict[str, Any]:
        """Returns the state for a checkpoint."""
        return asdict(self)
