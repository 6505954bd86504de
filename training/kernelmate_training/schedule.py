"""How far a run is, by steps or by the clock, and the learning rate there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Form = Literal["wsd", "cosine"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The learning rate over a run.

    Attributes:
        form: `wsd` warms up, stays, and decays linearly (Hu et al., "MiniCPM"); `cosine` decays by half a cosine.
        warmup: share of the run in which the rate grows from zero. decay: share in which `wsd` decays.
        final: the last rate over the highest.
    """

    form: Form = "wsd"
    warmup: float = 0.02
    decay: float = 0.4
    final: float = 0.02

    def factor(self, progress: float) -> float:
        """The rate over the highest, at a progress between 0 and 1."""
        progress = min(max(progress, 0.0), 1.0)
        if progress < self.warmup:
            return max(progress / self.warmup, 1e-3)
        if self.form == "cosine":
            done = (progress - self.warmup) / max(1 - self.warmup, 1e-9)
            return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * done))
        left = (1 - progress) / max(self.decay, 1e-9)
        return self.final + (1 - self.final) * min(left, 1.0)


class Clock:
    """Tells how far a run is.

    A run ends after `steps`, or when `seconds` of work are spent, whichever comes first. Seconds count from the start,
    over interruptions; progress by the clock counts from the end of the first step, for what comes before it is compiling.

    Args:
        steps: None for no limit. seconds: None for no limit. spent: seconds of earlier parts of the run.
        lead: of `spent`, those that went before progress began.
        now: the clock, in seconds.
    """

    def __init__(self, steps: int | None, seconds: float | None, *, spent: float = 0.0, lead: float = 0.0, now: Callable[[], float] = time.monotonic) -> None:  # fmt: skip
        self._steps, self._seconds = steps, seconds
        self._now, self._begun = now, now() - spent
        self.lead = lead

    @property
    def spent(self) -> float:
        """Seconds of work so far."""
        return self._now() - self._begun

    def warm(self) -> None:
        """The first step of this process is done: from here on steps take the time that they will take."""
        if self.lead == 0.0:
            self.lead = self.spent

    def progress(self, step: int) -> float:
        """Between 0 and 1; 1 once the run is to end.

        Args:
            step: how many are done.
        """
        by_steps = step / self._steps if self._steps else 0.0
        by_time = 0.0
        if self._seconds is not None:
            by_time = (self.spent - self.lead) / max(self._seconds - self.lead, 1e-9) if self.lead else 0.0
            if self.spent >= self._seconds:
                by_time = 1.0
        return min(max(by_steps, by_time), 1.0)
