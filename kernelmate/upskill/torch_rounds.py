"""The model in rounds: asked in batches, trained on what was learned with the corpus mixed in against forgetting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from kernelmate.upskill.encoded import Encoded, encode
from kernelmate.upskill.examples import Example
from kernelmate.upskill.preparing import prepare
from kernelmate.upskill.schedule import Schedule
from kernelmate.upskill.settings import ModelSection, Upskill
from kernelmate.upskill.torch_device import place
from kernelmate.upskill.torch_folders import load_folder, load_llama, save_folder
from kernelmate.upskill.torch_sampling import Drawing, answered
from kernelmate.upskill.torch_trainer import Trainer
from kernelmate.upskill.varying import Variation, Varying

REPLAY = 0.5
"""Share of the corpus' examples among what a round trains on."""


class Player:
    """A trained model that is asked and trained on.

    Args:
        settings: all of the file.
        model: which.
        told: lines about how far it is.

    Raises:
        UsageError: it was not trained yet.
    """

    def __init__(self, settings: Upskill, model: ModelSection, told: Callable[[str], None]) -> None:
        self._settings, self._model, self._told = settings, model, told
        self._found = load_folder(settings.model_folder(model.name))
        self._llama = load_llama(self._found)
        self._tokenizer = Tokenizer.from_str(self._found.tokenizer)
        self._asked, self._kept = 0, False

    def draw(self, prompts: Sequence[str]) -> list[tuple[int, str]]:
        """Answers to prompts, by number; prompts that leave no room get none."""
        section = self._settings.rounds
        device = "cuda" if torch.cuda.is_available() else "cpu"
        self._asked += 1
        like = self._settings.sampling
        how = Drawing(section.k, section.temperature, greedy_first=True, seed=self._settings.seed + self._asked, most_tokens=like.most_tokens, spread=like.spread, top_p=like.top_p, redraws=like.redraws)  # fmt: skip
        renumber = Varying(Variation(), self._found.tokenizer, self._found.codec) if like.renumber else None
        model = self._llama.to(device).eval()
        drawn = answered(model, self._tokenizer, prompts, how, renumber=renumber)
        return [(one.prompt, one.text) for one in drawn if one.finished]

    def train(self, learned: Sequence[Example], number: int) -> None:
        """Train some steps on what was learned, mixed with the corpus."""
        new, _ = encode(learned, self._tokenizer, self._model.context)
        if not len(new):
            self._told("nothing to learn in this round")
            return
        section = self._settings.rounds
        corpus = prepare(self._settings, self._model)
        wanted = int(len(new) * REPLAY / (1 - REPLAY))
        data = joined(new, drawn(corpus.train, wanted, self._settings.seed + number))
        plan = self._settings.plan(self._model)
        plan = replace(plan, steps=section.steps, seconds=None, rate=section.rate, schedule=Schedule("cosine"), task_weights={}, held_out_s=0, held_out_steps=None, patience=0)  # fmt: skip
        folder = self._settings.model_folder(self._model.name) / "rounds" / f"{number:02d}"
        with place(plan.precision) as here:
            start = {name: tensor.to(here.device) for name, tensor in self._llama.state_dict().items()}
            held_out = corpus.held_out if len(corpus.held_out) else None
            varying = Varying(Variation.of(plan.augment), self._found.tokenizer, self._found.codec) if plan.augment else None  # fmt: skip
            done = Trainer(plan, self._llama.shape, data, held_out, folder, here, varying=varying, start=start).run()
            self._llama.load_state_dict(done.model.state_dict())
        self._told(f"{len(new)} examples learned, loss {done.loss:.4f}, held out {done.held_out}")

    def keep(self, rounds: list[dict[str, Any]]) -> None:
        """The model in place of the one before the rounds, which stays in `before-rounds`."""
        folder = self._settings.model_folder(self._model.name)
        if not self._kept:
            save_folder(folder / "before-rounds", load_llama(self._found), self._found.tokenizer, self._found.facts)
            self._kept = True
        save_folder(folder, self._llama.cpu(), self._found.tokenizer, {**self._found.facts, "rounds": rounds})


def joined(one: Encoded, other: Encoded) -> Encoded:
    """Two sets of examples as one."""
    return Encoded(
        np.concatenate([one.tokens, other.tokens]),
        np.concatenate([one.starts, other.starts[1:] + one.starts[-1]]),
        np.concatenate([one.answers, other.answers]),
        np.concatenate([one.tasks, other.tasks]),
    )


def drawn(data: Encoded, count: int, seed: int) -> Encoded:
    """Some of the examples, each at most once."""
    return data.take(np.random.default_rng(seed).permutation(len(data))[:count])
