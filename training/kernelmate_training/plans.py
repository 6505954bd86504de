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


TASK_WEIGHTS: Mapping[str, float] = {"generate": 0.4, "analyse": 0.3, "debug": 0.3}
"""Shares of the three tasks among the examples that are drawn."""


@dataclass(frozen=True, slots=True)
class TrainingPlan:
    """A run of the trainer.

    Attributes:
        steps: it ends after so many. seconds: or when so many are spent, compiling included. One of the two must be given.
        tokens_per_step: over all processes; a whole number of rows is made of it.
        rows_at_once: of one process in one forward pass; None for all of a step's.
        optimiser: `adamw` or `muon`. rate: the highest learning rate. schedule: its course.
        weight_decay: decoupled. clip: largest norm of the gradient.
        task_weights: shares of the tasks among drawn examples. prompt_weight: of prompts' tokens in the loss.
        least_answer: an answer of fewer tokens weighs as much in the loss as one of this many, so that choices made in a word are
            not lost among long ones; 0 weighs all tokens of answers alike.
        full_gain: an answer that makes a version this many times as fast weighs fully, one that gains less in proportion to the
            logarithm; what gains little is hardly more than chance. 0 weighs all alike.
        seed: of the model's start and of all draws.
        checkpoint_s, log_steps: how often. held_out_s: how often the loss on what is held out is taken; 0 never.
        held_out_steps: the same by steps, so that a run that goes on does it at the same ones; it goes before `held_out_s`.
        patience: the run comes to its end once so many held-out losses in a row were no better than the best, smoothed: the rate
            decays within `cooldown` of the steps so far, and the best model is what stays. 0 for neither.
        dropout: of what each layer adds to the stream. augment: shares of what is varied, as in `Variation`; empty for none.
        workers: processes that make batches; 0 makes them in a thread.
        precision: `auto` is bf16 on a GPU that has it. compile: None compiles on a GPU.
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
