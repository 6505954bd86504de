"""What a training run is to do, before any of it is done."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from kernelmate_training.schedule import Schedule

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
        """What a run that goes on must have in common with its beginning: all that decides what a step does."""
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
