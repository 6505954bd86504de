"""When a run has learned what it can: the smoothed loss on what is held out, and the best so far."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

SMOOTHING = 0.5
"""Weight of the newest loss in the smoothed one."""
CLEARLY = 1e-3
"""A share by which a loss must be lower than the best to count as better."""
LEAST_STEPS = 5
"""Steps of a cooldown at least."""


@dataclass(slots=True)
class EarlyStopping:
    """What was seen of the held-out loss, and whether the run is to come to its end.

    Attributes:
        patience: losses in a row that may be no better than the best; 0 for any number.
        cooldown: length of the end, as a share of the steps before it.
        smoothed: loss lately. best: the lowest of these, seen at `best_step`. bad: losses since. loss: the newest as it was.
        ends_from, ends_at: steps between which the rate decays; None until the patience is at its end.
        share: of the run that was done then.
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
        """Take a loss in; True if it is the best so far.

        Args:
            loss: on what is held out.
            step: after which it was taken.
            share: of the run that is done.
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
        """How far the run is, where it may have been told to end.

        Args:
            step: how many are done.
            share: of the run by steps or by the clock.
            decays_from: the share from which on the rate decays.
        """
        if self.ends_from is None or self.ends_at is None:
            return share
        first = max(self.share, decays_from)
        done = (step - self.ends_from) / (self.ends_at - self.ends_from)
        return max(share, min(first + (1.0 - first) * done, 1.0))

    def state(self) -> dict[str, Any]:
        """For a checkpoint."""
        return asdict(self)
