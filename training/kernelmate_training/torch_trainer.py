"""Training of a small Llama-style model from scratch, in one loop.

Each step evaluates packed rows, sums the loss on answers, and steps along the gradient. The data of a step depend only
on seed and step, and a checkpoint contains the rest of the state, so an interrupted run continues exactly.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from kernelmate.errors import TrainingFailed, UsageError
from kernelmate_training.augmentation import Augmentation
from kernelmate_training.batches import Batch, Packer
from kernelmate_training.encoded import Encoded
from kernelmate_training.examples import hash_seed
from kernelmate_training.held_out_loss import EarlyStopping, HeldOut
from kernelmate_training.journal import Journal
from kernelmate_training.plans import Clock, TrainingPlan
from kernelmate_training.shapes import Shape, peak_flops
from kernelmate_training.torch_device import RunProcess, compile_layers
from kernelmate_training.torch_feed import Feed, Step
from kernelmate_training.torch_folders import NotSaved, newest, save
from kernelmate_training.torch_llama import Llama, answer_loss, best_way, mask_of, varlen
from kernelmate_training.torch_optimisers import optimisers

BEST = "best"
"""Folder within a run's folder for the model with the lowest held-out loss."""
MOST_FALLBACKS = 2
"""Maximum number of returns to the last checkpoint, each with half the learning rate, after a loss that is not finite."""


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a run: steps, fraction done, recent mean loss, tokens per second."""

    step: int
    share: float
    loss: float
    tokens_per_s: float


@dataclass(frozen=True, slots=True)
class Trained:
    """Result of a training run.

    Attributes:
        model: the final model, or the one with the lowest held-out loss.
        step: steps done.
        finished: True if the run reached its end.
        loss: mean of the last logged steps.
        held_out: held-out loss of `model`; None without held-out examples.
        tokens: tokens seen, over all processes.
        seconds: seconds of work.
        tokens_per_s: speed in the last logged interval.
        best_step: step of `model`.
    """

    model: Llama
    step: int
    finished: bool
    loss: float
    held_out: float | None
    tokens: int
    seconds: float
    tokens_per_s: float
    best_step: int


class _NotFinite(Exception):
    """The loss is not finite."""


class Trainer:
    """One training run.

    Args:
        plan: the plan.
        shape: shape of the model.
        data: examples to learn.
        held_out: examples for the held-out loss; None without any.
        folder: folder of checkpoints and log.
        place: this process.
        varying: augmentation of drawn examples; None for none.
        start: initial tensors; None for random ones.
        on_progress: called every few steps.
        stop: checked between steps; True saves and ends.
    """

    def __init__(self, plan: TrainingPlan, shape: Shape, data: Encoded, held_out: Encoded | None, folder: Path, place: RunProcess, *, varying: Augmentation | None = None, start: dict[str, Tensor] | None = None, on_progress: Callable[[Progress], None] = lambda _: None, stop: Callable[[], bool] = lambda: False) -> None:  # fmt: skip
        self.plan, self.place, self.folder = plan, place, folder
        self._on_progress, self._stop = on_progress, stop
        self.journal = Journal(folder / "log.jsonl" if place.rank == 0 else None)
        rows = max(plan.tokens_per_step // shape.context, 1)
        self._portion = plan.rows_at_once or max(rows // place.processes, 1)
        rows += -rows % (self._portion * place.processes)
        self.packer = Packer(
            data,
            rows,
            shape.context,
            plan.task_weights,
            plan.seed,
            plan.prompt_weight,
            plan.least_answer,
            plan.full_gain,
            varying=varying,
        )
        torch.manual_seed(plan.seed)
        self._attend = best_way(place.device)
        self.model = Llama(shape, self._attend).to(place.device)
        self.model.drop(plan.dropout)
        self._feed = Feed(self.packer, place, self._portion, bounds=self._attend is varlen, workers=plan.workers, told=lambda why: self.journal.write("lost", what=why))  # fmt: skip
        self._compiles = plan.compile if plan.compile is not None else place.device.type == "cuda"
        self._held_out = None
        if held_out is not None and len(held_out):
            self._held_out = HeldOut(
                held_out,
                self._portion,
                shape.context,
                plan.task_weights,
                least_answer=plan.least_answer,
                full_gain=plan.full_gain,
                even=self._compiles,
            )
        self.watch = EarlyStopping(plan.patience, plan.cooldown)
        self._best: dict[str, Tensor] | None = None
        if start is not None:
            self.model.load_state_dict(start)
        self._optimisers = optimisers(self.model, plan.optimiser, plan.rate, plan.weight_decay)
        self._identity = {"plan": plan.identity(), "shape": shape.as_dict(), "data": data.sha256}
        self._loss = answer_loss
        if self._compiles:
            compile_layers(self.model.model.layers)
            self._loss = torch.compile(answer_loss)
        self.step = self.tokens = self._fallbacks = 0
        self._spent = self._lead = 0.0
        self._saved_step = self._best_saved = -1
        self._speed = self._seen = 0.0

    def run(self) -> Trained:
        """Train to the end, or until stopped; resumes from the newest checkpoint in the folder.

        Raises:
            TrainingFailed: the loss was not finite again after the last permitted return to a checkpoint.
            UsageError: the folder's checkpoints are of another run.
        """
        self._resume()
        while True:
            try:
                return self._run()
            except _NotFinite:
                self._go_back()

    def _run(self) -> Trained:
        clock = Clock(self.plan.steps, self.plan.seconds, spent=self._spent, lead=self._lead)
        marks = _Marks(clock.spent, self.tokens)
        losses: list[Tensor] = []
        share, finished, loss = 0.0, False, math.nan
        self.journal.write("start", step=self.step, parameters=self.model.shape.parameters, gpu=self.place.name, processes=self.place.processes, attention=self._attend.__name__, rows=self.packer.rows, **self._identity)  # fmt: skip
        for batch in self._feed.steps(self.step):
            share = self.place.agreed(self._progress(clock))
            finished = share >= 1.0
            if finished or self.place.agreed(float(self._stop())):
                break
            losses.append(self._one(batch, share))
            self.step += 1
            if not marks.begun:
                self._begun(clock, marks)
            if self.step % self.plan.log_steps == 0:
                loss = self._look(losses, clock, marks, batch.attended, share)
                losses.clear()
                if clock.spent - marks.saved >= self.plan.checkpoint_s:
                    self._save(clock)
                    marks.saved = clock.spent
            if self._is_due(clock, marks):
                self._look_at_held_out(clock, share)
                marks.held_out = clock.spent
        return self._end(losses, clock, finished, loss)

    def _progress(self, clock: Clock) -> float:
        decays_from = 1.0 - self.plan.schedule.decay if self.plan.schedule.form == "wsd" else 0.0
        return self.watch.progress(self.step, clock.progress(self.step), decays_from)

    def _end(self, losses: list[Tensor], clock: Clock, finished: bool, loss: float) -> Trained:
        if losses:
            loss = self._mean(losses)
        if self._held_out is not None and finished:
            # Not for an interrupted run: the resumed run must evaluate at the same steps.
            self._look_at_held_out(clock, 1.0)
        self._save(clock)
        seconds, held_out, best_step = clock.spent, self.watch.loss, self.step
        if self._best is not None and finished and self.watch.best_step != self.step:
            self.model.load_state_dict(self._best)
            held_out, best_step = self.watch.best, self.watch.best_step
        self.journal.write("end", step=self.step, finished=finished, loss=loss, held_out=held_out, best_step=best_step, tokens=self.tokens, seconds=round(seconds, 2))  # fmt: skip
        return Trained(self.model, self.step, finished, loss, held_out, self.tokens, seconds, self._speed, best_step)

    def _one(self, step: Step, share: float) -> Tensor:
        """Runs one step; returns its loss, still on the device."""
        if self.plan.dropout:
            torch.manual_seed(hash_seed(self.plan.seed, self.step, self.place.rank))
        rate = self.plan.rate * self.plan.schedule.factor(share) * 0.5**self._fallbacks
        for optimiser in self._optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.zero_grad(set_to_none=True)
        loss = torch.zeros((), device=self.place.device)
        for portion in step.portions:
            part = self._loss_of(portion)
            part.backward()
            loss += part.detach()
        self.place.summed([parameter.grad for parameter in self.model.parameters() if parameter.grad is not None])
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.plan.clip, foreach=True)
        for optimiser in self._optimisers:
            optimiser.step()
        self.tokens += step.filled * self.place.processes
        return self.place.total(loss)

    def _loss_of(self, tensors: dict[str, Tensor]) -> Tensor:
        layout = tensors["layout"] if self._attend is varlen else mask_of(tensors["layout"])
        with self.place.precision():
            stream = self.model(tensors["tokens"], tensors["positions"], layout)
            return self._loss(stream, self.model.head, tensors["targets"], tensors["weights"])

    def _begun(self, clock: Clock, marks: _Marks) -> None:
        """Starts measuring speed and progress, after this process' first step, which includes compilation."""
        self.place.wait()
        clock.warm()
        self.journal.write("first step", seconds=round(clock.spent - marks.at, 2))
        marks.begun, marks.at, marks.tokens = True, clock.spent, self.tokens

    def _look(self, losses: list[Tensor], clock: Clock, marks: _Marks, attended: float, share: float) -> float:
        """Waits for the device, logs the last steps, and checks that the loss is finite."""
        loss = self._mean(losses)
        seconds = max(clock.spent - marks.at, 1e-9)
        self._speed = (self.tokens - marks.tokens) / seconds
        peak = peak_flops(self.place.name)
        flops = self.model.shape.training_flops(attended) * self._speed
        mfu = flops / peak / self.place.processes if peak else None
        marks.at, marks.tokens = clock.spent, self.tokens
        self.journal.write("step", step=self.step, loss=loss, share=round(share, 4), rate=self._optimisers[0].param_groups[0]["lr"], tokens=self.tokens, tokens_per_s=round(self._speed, 1), mfu=mfu, seconds=round(clock.spent, 2))  # fmt: skip
        self._on_progress(Progress(self.step, share, loss, self._speed))
        return loss

    def _mean(self, losses: list[Tensor]) -> float:
        """Returns the mean of losses; raises `_NotFinite` if one is not finite."""
        values = torch.stack(losses).tolist()
        if not all(map(math.isfinite, values)):
            raise _NotFinite
        return float(sum(values) / len(values))

    def _is_due(self, clock: Clock, marks: _Marks) -> bool:
        """Returns True if the held-out loss is due."""
        if self._held_out is None:
            return False
        if self.plan.held_out_steps is not None:
            return self.step % self.plan.held_out_steps == 0
        return 0 < self.plan.held_out_s <= clock.spent - marks.held_out

    def _look_at_held_out(self, clock: Clock, share: float) -> None:
        """Evaluates the held-out loss, and stores the model if it is the best and the run may end with it."""
        assert self._held_out is not None
        if self.plan.dropout:
            self.model.eval()
        found = self._held_out.look(self._loss_on)
        self.model.train()
        if self.watch.see(found.loss, self.step, share) and self.plan.patience:
            self._best = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        ends = self.watch.ends_at
        self.journal.write("held-out", step=self.step, loss=found.loss, smoothed=self.watch.smoothed, tasks=found.tasks, families=found.families, ends_at=ends, seconds=round(clock.spent, 2))  # fmt: skip

    def _loss_on(self, batch: Batch) -> float:
        """Returns the sum of a batch's losses; gradients are recorded if compiled code is to be reused."""
        with torch.set_grad_enabled(self._compiles):
            return float(self._loss_of(self._feed.tensors(batch, 1.0)).detach())

    def _save(self, clock: Clock) -> None:
        """Writes a checkpoint, by the first process; a failure is logged and does not end the run."""
        if self.step == self._saved_step:
            return
        if not all(bool(torch.isfinite(parameter).all()) for parameter in self.model.parameters()):
            raise _NotFinite
        if self.place.rank:
            return
        state = {
            "model": self.model.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self._optimisers],
            "step": self.step,
            "tokens": self.tokens,
            "spent": clock.spent,
            "lead": clock.lead,
            "fallbacks": self._fallbacks,
            "watch": self.watch.state(),
            "identity": self._identity,
        }
        try:
            if self._best is not None and self._best_saved != self.watch.best_step:
                save(self.folder / BEST, self.watch.best_step, {"model": self._best, "step": self.watch.best_step})
                self._best_saved = self.watch.best_step
            save(self.folder, self.step, state)
            self._saved_step = self.step
        except NotSaved as error:
            self.journal.write("not saved", step=self.step, why=str(error))

    def _resume(self) -> None:
        found = newest(self.folder, self.place.device)
        if found is None:
            return
        for why in found.damaged:
            self.journal.write("damaged checkpoint", file=why)
        if not found.state:
            return
        state = found.state
        if state["identity"] != self._identity:
            raise UsageError(
                "The checkpoints are of a run with other data, another shape or another plan.",
                file=str(self.folder),
                hint="Name another folder, or delete this one's step-*.pt to start again.",
            )
        self.model.load_state_dict(state["model"])
        for optimiser, saved in zip(self._optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        self.step, self.tokens = state["step"], state["tokens"]
        self._spent, self._lead, self._fallbacks = (
            state["spent"],
            state["lead"],
            max(self._fallbacks, state["fallbacks"]),
        )
        self._saved_step = self.step
        self.watch = EarlyStopping(**state["watch"])
        self._resume_best()
        self.journal.write("resume", step=self.step, file=found.path.name)

    def _resume_best(self) -> None:
        """Loads the best model so far; if it is lost, that is logged, and the next good model becomes the best."""
        self._best = None
        if self.watch.best_step < 0 or not self.plan.patience:
            return
        found = newest(self.folder / BEST, self.place.device)
        if found is not None and found.state.get("step") == self.watch.best_step:
            self._best, self._best_saved = found.state["model"], self.watch.best_step
            return
        self.journal.write("damaged checkpoint", file=f"{BEST}: the model of step {self.watch.best_step} is not there")
        self.watch.best, self.watch.best_step = math.inf, -1

    def _go_back(self) -> None:
        """Returns to the last checkpoint, with half the rate from there on."""
        self._fallbacks += 1
        failed = self.step
        self.journal.write("loss is not a number", step=failed)
        found = newest(self.folder)
        if self._fallbacks > MOST_FALLBACKS or found is None or not found.state:
            where = (
                f"The last good one is {found.path}." if found is not None and found.state else "None was saved yet."
            )
            raise TrainingFailed(
                f"The loss is not a finite number at step {failed}. {where}",
                hint="Lower training.rate, or training.clip.",
            )
        self._saved_step = -1
        self._resume()


@dataclass(slots=True)
class _Marks:
    """Time and token count of the last figures, and times of the last checkpoint and held-out loss."""

    at: float
    tokens: int
    saved: float = 0.0
    held_out: float = 0.0
    begun: bool = False

    def __post_init__(self) -> None:
        self.saved = self.held_out = self.at
