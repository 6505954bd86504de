"""The model in rounds: sampled in batches, and trained on learned answers mixed with the corpus against forgetting."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from kernelmate_training.augmentation import Augmentation, AugmentationRates
from kernelmate_training.encoded import Encoded, encode
from kernelmate_training.examples import Example
from kernelmate_training.plans import Schedule
from kernelmate_training.preparing import TrainingData, prepare
from kernelmate_training.rewards import WeightedAnswer
from kernelmate_training.settings import ModelSection, Upskill
from kernelmate_training.torch_device import place
from kernelmate_training.torch_folders import load_folder, load_llama, save_folder
from kernelmate_training.torch_grpo import GroupRelative, Policy
from kernelmate_training.torch_llama import Llama
from kernelmate_training.torch_sampling import Drawing, sample, sample_choices
from kernelmate_training.torch_trainer import Trainer

REPLAY = 0.75
"""Share of the corpus' examples in a round's training."""


class RoundModel:
    """A trained model that is sampled and trained.

    Args:
        settings: the configuration.
        model: the model to train.
        told: called with lines of progress.

    Raises:
        UsageError: the model was not trained yet.
    """

    def __init__(self, settings: Upskill, model: ModelSection, told: Callable[[str], None]) -> None:
        self._settings, self._model, self._told = settings, model, told
        self._found = load_folder(settings.model_folder(model.name))
        self._llama = load_llama(self._found)
        self._tokenizer = Tokenizer.from_str(self._found.tokenizer)
        self._asked, self._kept = 0, False
        self._policy: GroupRelative | None = None

    def draw(self, prompts: Sequence[str]) -> list[tuple[int, str]]:
        """Returns answers to prompts as users get them, by the prompt's number.

        Prompts without room for an answer get none.
        """
        like = self._settings.sampling
        how = replace(self._drawing(), greedy_first=True, spread=like.spread, top_p=like.top_p, redraws=like.redraws)
        renumber = Augmentation(AugmentationRates(), self._found.tokenizer) if like.renumber else None
        drawn = sample_choices(self._here(), self._tokenizer, prompts, how, renumber=renumber)
        return [(one.prompt, one.text) for one in drawn if one.finished]

    def draw_by_chance(self, prompts: Sequence[str]) -> list[tuple[int, str]]:
        """Returns answers sampled from the model's distribution, each with its end token; truncated ones have none."""
        end = str(self._found.facts.get("end") or "")
        drawn = sample(self._here(), self._tokenizer, prompts, self._drawing())
        return [(one.prompt, one.text + (end if one.finished else "")) for one in drawn]

    def _drawing(self) -> Drawing:
        section = self._settings.rounds
        self._asked += 1
        most = section.most_tokens or self._settings.sampling.most_tokens
        return Drawing(section.k, section.temperature, seed=self._settings.seed + self._asked, most_tokens=most)

    def _here(self) -> Llama:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        model: Llama = self._llama.to(device).eval()
        return model

    def move(self, answers: Sequence[WeightedAnswer]) -> dict[str, Any]:
        """Raises or lowers the probabilities of answers by their advantages; returns the figures."""
        if self._policy is None:
            section = self._settings.rounds
            how = Policy(section.rate, section.ratio, section.kl, section.passes, section.batch, seed=self._settings.seed)  # fmt: skip
            self._policy = GroupRelative(self._here(), self._tokenizer, how)
        self._here()
        moved = asdict(self._policy.learn(answers))
        self._told(f"{len(answers)} answers that differ from the others to their question: {moved}")
        return moved

    def train(self, learned: Sequence[Example], number: int) -> dict[str, Any] | None:
        """Trains some steps on learned answers, mixed with the corpus; returns the losses, None without answers."""
        new, _ = encode(learned, self._tokenizer, self._model.context)
        if not len(new):
            self._told("nothing to learn in this round")
            return None
        section = self._settings.rounds
        corpus = self._corpus
        wanted = int(len(new) * REPLAY / (1 - REPLAY))
        data = joined(new, drawn(corpus.train, wanted, self._settings.seed + number))
        plan = self._settings.plan(self._model)
        # So few steps take less time than compiling or starting processes that make batches.
        plan = replace(plan, steps=section.steps, seconds=None, rate=section.rate, schedule=Schedule("cosine"), task_weights={}, held_out_s=0, held_out_steps=None, patience=0, compile=False, workers=0)  # fmt: skip
        folder = self._settings.model_folder(self._model.name) / "rounds" / f"{number:02d}"
        # A round is never resumed, so checkpoints of an earlier one are removed.
        shutil.rmtree(folder, ignore_errors=True)
        with place(plan.precision) as here:
            start = {name: tensor.to(here.device) for name, tensor in self._llama.state_dict().items()}
            held_out = corpus.held_out if len(corpus.held_out) else None
            varying = Augmentation(AugmentationRates.of(plan.augment), self._found.tokenizer) if plan.augment else None  # fmt: skip
            done = Trainer(plan, self._llama.shape, data, held_out, folder, here, varying=varying, start=start).run()
            self._llama.load_state_dict(done.model.state_dict())
        for path in folder.glob("step-*"):
            path.unlink(missing_ok=True)
        self._told(f"{len(new)} examples learned, loss {done.loss:.4f}, held out {done.held_out}")
        return {"loss": done.loss, "held_out": done.held_out}

    @cached_property
    def _corpus(self) -> TrainingData:
        return prepare(self._settings, self._model)

    def keep(self, rounds: list[dict[str, Any]]) -> None:
        """Stores the model in place of the one before the rounds, which stays in `before-rounds`."""
        folder = self._settings.model_folder(self._model.name)
        if not self._kept:
            save_folder(folder / "before-rounds", load_llama(self._found), self._found.tokenizer, self._found.facts)
            self._kept = True
        save_folder(folder, self._llama.cpu(), self._found.tokenizer, {**self._found.facts, "rounds": rounds})


def joined(one: Encoded, other: Encoded) -> Encoded:
    """Returns two sets of examples as one."""
    gains = None if one.gains is None or other.gains is None else np.concatenate([one.gains, other.gains])
    return Encoded(
        np.concatenate([one.tokens, other.tokens]),
        np.concatenate([one.starts, other.starts[1:] + one.starts[-1]]),
        np.concatenate([one.answers, other.answers]),
        np.concatenate([one.tasks, other.tasks]),
        gains=gains,
    )


def drawn(data: Encoded, count: int, seed: int) -> Encoded:
    """Returns some random examples, each at most once."""
    return data.take(np.random.default_rng(seed).permutation(len(data))[:count])
