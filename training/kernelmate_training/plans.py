"""Plan of a training run: shares of the tasks, limits, and the learning rate by steps or by the clock."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Form = Literal["wsd", "cosine"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """The learning rate over a run.

    Attributes:
        form: `wsd` warms up, stays constant, and decays linearly (Hu et al., "MiniCPM"); `cosine` decays by half a
            cosine.
        warmup: fraction of the run in which the rate grows from zero.
        decay: fraction in which `wsd` decays.
        final: ratio of the last rate to the highest.
    """

    form: Form = "wsd"
    warmup: float = 0.02
    decay: float = 0.4
    final: float = 0.02

    def factor(self, progress: float) -> float:
        """Returns the ratio of the rate to the highest, at a progress between 0 and 1."""
        progress = min(max(progress, 0.0), 1.0)
        if progress < self.warmup:
            return max(progress / self.warmup, 1e-3)
        if self.form == "cosine":
            done = (progress - self.warmup) / max(1 - self.warmup, 1e-9)
            return self.final + (1 - self.final) * 0.5 * (1 + math.cos(math.pi * done))
        left = (1 - progress) / max(self.decay, 1e-9)
        return self.final + (1 - self.final) * min(left, 1.0)


class Clock:
    """Progress of a run by steps and by time.

    A run ends after `steps`, or after `seconds` of work, whichever comes first. Seconds count from the start, across
    interruptions; progress by time counts from the end of the first step, which includes compilation.

    Args:
        steps: None for no limit.
        seconds: None for no limit.
        spent: seconds of earlier parts of the run.
        lead: part of `spent` before the end of the first step.
        now: returns the time in seconds.
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
        """Marks the end of this process's first step, from which progress by time counts."""
        if self.lead == 0.0:
            self.lead = self.spent

    def progress(self, step: int) -> float:
        """Returns the progress between 0 and 1; 1 if the run must end.

        Args:
            step: number of steps done.
        """
        by_steps = step / self._steps if self._steps else 0.0
        by_time = 0.0
        if self._seconds is not None:
            by_time = (self.spent - self.lead) / max(self._seconds - self.lead, 1e-9) if self.lead else 0.0
            if self.spent >= self._seconds:
                by_time = 1.0
        return min(max(by_steps, by_time), 1.0)


TASK_WEIGHTS: Mapping[str, float] = {"generate": 0.4, "analyse": 0.3, "debug": 0.3}
"""Shares of the three tasks among drawn examples."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """Settings of a training run.

    Attributes:
        steps: number of steps after which the run ends.
        seconds: time after which the run ends, including compilation; one of the two limits is required.
        tokens_per_step: tokens over all processes, rounded to whole rows.
        rows_at_once: rows of one process in one forward pass; None for all of a step's.
        optimiser: `adamw` or `muon`.
        rate: the highest learning rate.
        schedule: the schedule of the rate.
        weight_decay: decoupled weight decay.
        clip: largest norm of the gradient.
        task_weights: shares of the tasks among drawn examples.
        prompt_weight: weight of prompt tokens in the loss.
        least_answer: an answer with fewer tokens has the weight of one with this many, so that one-token choices count;
            0 gives all answer tokens equal weights.
        full_gain: speedup from which an answer has full weight; smaller ones are weighted by their logarithm, since
            small gains may be noise. 0 gives all equal weights.
        seed: seed of the initial weights and of all draws.
        checkpoint_s: seconds between checkpoints.
        log_steps: steps between log entries.
        held_out_s: seconds between evaluations of the held-out loss; 0 for none.
        held_out_steps: steps between these evaluations, so that a resumed run repeats them; takes precedence over
            `held_out_s`.
        patience: number of held-out losses in a row, smoothed, that may be no better than the best. After that the rate
            decays within `cooldown` of the steps so far, and the best model is the result. 0 disables both.
        dropout: dropout of what each layer adds to the residual stream.
        augment: rates as in `AugmentationRates`; empty for none.
        workers: processes that make batches; 0 makes them in a thread.
        precision: `auto` is bf16 on a GPU that supports it.
        compile: None compiles on a GPU.
    """

    steps: int | None = None
    seconds: float | None = None
    tokens_per_step: int = 65_536
    rows_at_once: int | None = None
    optimiser: Literal["adamw", "muon"] = "muon"
    rate: float = 2e-3
    schedule: Schedule = field(default_factory=Schedule)
    weight_decay: float = 0.1
    clip: float = 1.0
    task_weights: Mapping[str, float] = field(default_factory=lambda: dict(TASK_WEIGHTS))
    prompt_weight: float = 0.0
    least_answer: int = 0
    full_gain: float = 0.0
    seed: int = 1
    checkpoint_s: float = 120.0
    log_steps: int = 10
    held_out_s: float = 30.0
    held_out_steps: int | None = None
    patience: int = 0
    cooldown: float = 0.25
    dropout: float = 0.0
    augment: Mapping[str, float] = field(default_factory=dict)
    workers: int = 0
    precision: Literal["auto", "bf16", "float32"] = "auto"
    compile: bool | None = None

    def __post_init__(self) -> None:
        if self.steps is None and self.seconds is None:
            raise ValueError("a run needs steps or seconds to end")

    def identity(self) -> dict[str, Any]:
        """Returns the values that a continued run must share with its beginning: all that determine the result of a step."""
        plan = asdict(self)
        for name in (
            "checkpoint_s",
            "log_steps",
            "held_out_s",
            "compile",
            "steps",
            "seconds",
            "rows_at_once",
            "workers",
        ):
            del plan[name]
        return plan
