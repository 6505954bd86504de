"""Group relative policy optimisation: raises the probability of answers that are better than others to their question.

The objective is that of DeepSeekMath (Shao et al., arXiv 2402.03300, equations 3 and 4) with outcome rewards. For each
token of answer i, with the ratio r of its present probability to that at sampling and the advantage A_i of the answer
in its group, it is min(r A_i, clip(r, 1 - e, 1 + e) A_i) - b (s - log s - 1), where s is the ratio of the reference
model's probability to the present one; the mean over the tokens of an answer, then over answers.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import functional

from kernelmate_training.rewards import WeightedAnswer
from kernelmate_training.torch_llama import Llama, mask_of
from kernelmate_training.torch_optimisers import optimisers

if TYPE_CHECKING:
    from tokenizers import Tokenizer

SCORED_AT_ONCE = 32
"""Number of answers in one forward pass."""


@dataclass(frozen=True, slots=True)
class Policy:
    """Hyperparameters of policy optimisation.

    Attributes:
        rate: learning rate.
        clip: e in the objective.
        kl: b in the objective.
        passes: passes over a round's answers.
        batch: answers of one step.
        norm: largest norm of the gradient.
        seed: seed of the answers' order.
    """

    rate: float = 1e-5
    clip: float = 0.2
    kl: float = 0.04
    passes: int = 2
    batch: int = 64
    norm: float = 1.0
    seed: int = 1


@dataclass(frozen=True, slots=True)
class RoundTraining:
    """Figures of a round's training.

    Attributes:
        steps: number of steps.
        clipped: fraction of tokens whose ratio was clipped.
        distance: mean distance to the reference in nats per token.
    """

    steps: int
    clipped: float
    distance: float


@dataclass(frozen=True, slots=True)
class _Texts:
    """Prompts with their answers, padded on the right, all [answers, tokens]; `answers` marks targets of answers."""

    tokens: Tensor
    targets: Tensor
    answers: Tensor
    documents: Tensor


def token_losses(now: Tensor, drawn: Tensor, reference: Tensor, advantages: Tensor, how: Policy) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Returns the negated objective of each token, whether its ratio was clipped, and its distance to the reference.

    Args:
        now: present log probabilities of the tokens [answers, tokens].
        drawn: log probabilities when they were sampled.
        reference: log probabilities under the model before all rounds.
        advantages: advantages of the answers [answers, 1].
        how: clip and kl.
    """
    ratio = (now - drawn).exp()
    within = ratio.clamp(1 - how.clip, 1 + how.clip)
    gained = torch.minimum(ratio * advantages, within * advantages)
    behind = reference - now
    distance = behind.exp() - behind - 1
    return how.kl * distance - gained, ratio * advantages > gained, distance


class GroupRelative:
    """Policy optimisation of a model over several rounds; the reference is a copy of the model at construction.

    Args:
        model: the model, changed in place.
        tokenizer: the model's tokenizer.
        how: hyperparameters.
    """

    def __init__(self, model: Llama, tokenizer: Tokenizer, how: Policy) -> None:
        self._model, self._tokenizer, self._how = model, tokenizer, how
        self._reference = copy.deepcopy(model).eval().requires_grad_(False)
        self._optimisers = optimisers(model, "adamw", how.rate, 0.0)
        self._round = 0

    def learn(self, answers: Sequence[WeightedAnswer]) -> RoundTraining:
        """Trains on the answers of one round, which the present model has sampled.

        Answers without advantage are skipped.
        """
        kept = [one for one in answers if one.advantage != 0.0 and self._fits(one)]
        if not kept:
            return RoundTraining(0, 0.0, 0.0)
        self._round += 1
        self._reference.to(self._model.head.device)
        texts = self._encoded(kept)
        drawn, reference = self._scored(self._model, texts), self._scored(self._reference, texts)
        steps, clipped, distance, tokens = 0, 0.0, 0.0, 0.0
        self._model.train()
        for chosen in self._batches(len(kept)):
            here = _taken(texts, chosen)
            weights = here.answers / here.answers.sum(1, keepdim=True).clamp(min=1)
            advantages = torch.tensor([[kept[at].advantage] for at in chosen.tolist()], device=weights.device)
            for optimiser in self._optimisers:
                optimiser.zero_grad(set_to_none=True)
            width = here.tokens.shape[1]
            for part in range(0, len(chosen), SCORED_AT_ONCE):
                at = slice(part, part + SCORED_AT_ONCE)
                now = logprobs(self._model, _Texts(here.tokens[at], here.targets[at], here.answers[at], here.documents[at]))  # fmt: skip
                losses, cut, far = token_losses(
                    now, drawn[chosen[at], :width], reference[chosen[at], :width], advantages[at], self._how
                )
                ((losses * weights[at]).sum() / len(chosen)).backward()
                clipped += float((cut & here.answers[at].bool()).sum())
                distance += float((far * here.answers[at]).sum().detach())
            tokens += float(here.answers.sum())
            torch.nn.utils.clip_grad_norm_(self._model.parameters(), self._how.norm)
            for optimiser in self._optimisers:
                optimiser.step()
            steps += 1
        self._model.eval()
        return RoundTraining(steps, clipped / max(tokens, 1.0), distance / max(tokens, 1.0))

    def _fits(self, one: WeightedAnswer) -> bool:
        length = len(self._ids(one.prompt)) + len(self._ids(one.answer))
        return bool(one.answer) and length <= self._model.shape.context

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def _encoded(self, answers: Sequence[WeightedAnswer]) -> _Texts:
        device = self._model.head.device
        pairs = [(self._ids(one.prompt), self._ids(one.answer)) for one in answers]
        longest = max(len(prompt) + len(answer) for prompt, answer in pairs)
        tokens, targets = torch.zeros(2, len(pairs), longest, dtype=torch.long)
        marks = torch.zeros(len(pairs), longest)
        documents = torch.ones(len(pairs), longest, dtype=torch.long)
        for number, (prompt, answer) in enumerate(pairs):
            text, size = torch.tensor([*prompt, *answer]), len(prompt) + len(answer)
            tokens[number, :size], targets[number, : size - 1] = text, text[1:]
            marks[number, max(len(prompt) - 1, 0) : size - 1] = 1.0
            documents[number, :size] = 0
        return _Texts(tokens.to(device), targets.to(device), marks.to(device), documents.to(device))

    @torch.no_grad()
    def _scored(self, model: Llama, texts: _Texts) -> Tensor:
        """Returns log probabilities of all targets, [answers, tokens]."""
        scores = torch.zeros_like(texts.answers)
        for numbers in torch.arange(len(texts.tokens), device=texts.tokens.device).split(SCORED_AT_ONCE):
            here = _taken(texts, numbers)
            scores[numbers, : here.tokens.shape[1]] = logprobs(model, here)
        return scores

    def _batches(self, count: int) -> Iterator[Tensor]:
        random = torch.Generator().manual_seed(self._how.seed * 1000 + self._round)
        device = self._model.head.device
        for _ in range(self._how.passes):
            yield from (part.to(device) for part in torch.randperm(count, generator=random).split(self._how.batch))


def logprobs(model: Llama, texts: Any) -> Tensor:
    """Returns log probabilities of the targets under a model, [answers, tokens], in float32 for exact differences."""
    positions = torch.arange(texts.tokens.shape[1], device=texts.tokens.device).expand_as(texts.tokens)
    logits = model.logits(model(texts.tokens, positions, mask_of(texts.documents))).float()
    return -functional.cross_entropy(logits.flatten(0, 1), texts.targets.flatten(), reduction="none").view_as(texts.targets)  # fmt: skip


def _taken(texts: _Texts, numbers: Tensor) -> _Texts:
    """Returns some of the texts, truncated to the longest of them."""
    width = int((texts.documents[numbers] == 0).sum(1).max())
    return _Texts(*(part[numbers, :width] for part in (texts.tokens, texts.targets, texts.answers, texts.documents)))
