"""Sampling of answers from a model of this trainer, many at once.

The prompts of a batch are evaluated together, then answers are generated token by token. Keys and values are cached;
finished texts leave the batch. Several answers to one prompt should differ: each is sampled at a higher temperature
than the one before, from the most probable tokens only, may see different placeholder numbers, and is sampled again if
it equals another. Offers of a prompt are not sampled, but chosen by probability.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from kernelmate.suggest.codec.applicable import answers, choice_of, fits, offer_tokens, texts_asked, without_offers
from kernelmate_training.augmentation import Augmentation
from kernelmate_training.torch_llama import Block, Llama

if TYPE_CHECKING:
    from tokenizers import Tokenizer

STEPS_UNTIL_LOOKED = 8
"""Tokens between two checks for finished texts; a check waits for the device."""
WARMER = 0.15
"""Increase of the temperature each time that an answer is sampled again."""
SHARE_KEPT = 0.7
"""Fraction of unfinished texts in a batch below which finished ones are removed."""


@dataclass(frozen=True, slots=True)
class Drawing:
    """Settings for sampling answers.

    Attributes:
        k: answers to each prompt.
        temperature: 0 takes the most probable token each time.
        greedy_first: True to sample the first answer to each prompt at temperature 0.
        seed: seed of the draws.
        most_tokens: largest number of tokens of an answer.
        batch: texts at once; None for as many as memory probably holds.
        spread: increase of the temperature from the first sampled answer to the last.
        top_p: probability of the set of most probable tokens to sample from (Holtzman et al., nucleus sampling).
        redraws: number of times that a truncated or duplicate answer is sampled again, at rising temperatures.
    """

    k: int = 1
    temperature: float = 0.0
    greedy_first: bool = False
    seed: int = 1
    most_tokens: int = 640
    batch: int | None = None
    spread: float = 0.0
    top_p: float = 1.0
    redraws: int = 0

    def warmth(self, number: int, again: int = 0) -> float:
        """Returns the temperature of one of a prompt's answers, sampled for the first time or again."""
        first = 1 if self.greedy_first else 0
        if number < first:
            return 0.0
        share = (number - first) / max(self.k - first - 1, 1)
        return self.temperature + self.spread * share + WARMER * again


@dataclass(frozen=True, slots=True)
class SampledAnswer:
    """One answer.

    Attributes:
        prompt: number of the prompt.
        text: the text without its end token.
        tokens: number of tokens.
        finished: True if it ended with the end token.
        logprob: log probability under the model at temperature 1, summed over its tokens.
    """

    prompt: int
    text: str
    tokens: int
    finished: bool
    logprob: float


@dataclass(slots=True, eq=False)
class _Job:
    """One answer to be sampled.

    `ids` are the tokens of its prompt. `back` maps tokens of the answer to the prompt's own placeholder numbers; None
    without renumbering.
    """

    prompt: int
    number: int
    ids: list[int]
    temperature: float
    back: np.ndarray[Any, Any] | None = None
    drawn: SampledAnswer | None = None


@torch.no_grad()
def sample(model: Llama, tokenizer: Tokenizer, prompts: Sequence[str], how: Drawing, *, end: int = 0, renumber: Augmentation | None = None, counts: Sequence[int] | None = None, key: Callable[[str], str] = str, fits: Callable[[str, str], bool] = lambda prompt, answer: True, stop: Callable[[], bool] = lambda: False) -> list[SampledAnswer]:  # fmt: skip
    """Returns answers to all prompts, in their order, the k answers to one prompt together.

    Prompts that leave no room for an answer in the model's context get none.

    Args:
        model: the model, on the device to use.
        tokenizer: the model's tokenizer.
        prompts: exact input texts.
        how: sampling settings.
        end: the token that ends an answer.
        renumber: changes placeholder numbers in the prompts of answers that are not greedy; None changes none.
        counts: answers to each prompt; None for `how.k` to all.
        key: returns a key that is equal for equivalent answers.
        fits: returns True if an answer is valid for its prompt; invalid ones are sampled again too.
        stop: checked between batches; True leaves the rest unanswered.
    """
    context = model.shape.context
    encoded = [entry.ids for entry in tokenizer.encode_batch(list(prompts), add_special_tokens=False)]
    asked = [prompt for prompt, ids in enumerate(encoded) if 0 < len(ids) < context]
    random = torch.Generator(model.head.device).manual_seed(how.seed)
    write = _Writer(model, tokenizer, how, end, random, stop)
    wanted = [how.k] * len(prompts) if counts is None else counts
    jobs = [
        _job(prompt, number, encoded[prompt], how, renumber) for prompt in asked for number in range(wanted[prompt])
    ]
    write.all(jobs)
    _redraw(jobs, encoded, write, renumber, key, lambda job: job.drawn is None or fits(prompts[job.prompt], job.drawn.text))  # fmt: skip
    return [job.drawn for job in sorted(jobs, key=lambda job: (job.prompt, job.number)) if job.drawn is not None]


def sample_choices(model: Llama, tokenizer: Tokenizer, prompts: Sequence[str], how: Drawing, *, end: int = 0, renumber: Augmentation | None = None, stop: Callable[[], bool] = lambda: False) -> list[SampledAnswer]:  # fmt: skip
    """Returns answers to all prompts as users get them: choices among the offers first, the most probable first.

    Further answers are sampled by `sample`, from prompts without the offers.

    Args: as of `sample`.
    """
    chosen = [
        SampledAnswer(number, text, text.count("@"), True, logprob)
        for number, found in enumerate(chosen_by(model, tokenizer, prompts, how.k, how.batch))
        for text, logprob in found
    ]
    given = Counter(one.prompt for one in chosen)
    left = [how.k - given[number] for number in range(len(prompts))]
    free = sample(model, tokenizer, [without_offers(prompt) for prompt in prompts], how, end=end, renumber=renumber, counts=left, key=choice_of, fits=fits, stop=stop)  # fmt: skip
    return sorted([*chosen, *free], key=lambda one: one.prompt)


def chosen_by(model: Llama, tokenizer: Tokenizer, prompts: Sequence[str], count: int, batch: int | None = None) -> list[list[tuple[str, float]]]:  # fmt: skip
    """Returns each prompt's most probable choices as answers with log probabilities, as `choosing.answers` does.

    Args:
        model: the model, on the device to use.
        tokenizer: the model's tokenizer.
        prompts: exact prompts.
        count: largest number of answers to each.
        batch: texts at once.
    """
    after: dict[str, dict[str, float]] = {}
    found: dict[int, list[tuple[str, float]]] = {}
    asked = list(dict.fromkeys(text for prompt in prompts for text in texts_asked(prompt)))
    while True:
        after |= zip(asked, continuation_logprobs(model, tokenizer, asked, offer_tokens(), batch), strict=True)
        missing: dict[str, None] = {}
        for number, prompt in enumerate(prompts):
            if number not in found:
                try:
                    found[number] = list(islice(answers(prompt, after.__getitem__), count))
                except KeyError as error:
                    missing[error.args[0]] = None
        if not missing:
            return [found[number] for number in range(len(prompts))]
        asked = list(missing)


@torch.no_grad()
def continuation_logprobs(model: Llama, tokenizer: Tokenizer, texts: Sequence[str], tokens: Sequence[str], batch: int | None = None) -> list[dict[str, float]]:  # fmt: skip
    """Returns, for each text, log probabilities of some tokens to follow it; empty for texts that fill the context.

    Args:
        model: the model, on the device to use.
        tokenizer: the model's tokenizer.
        texts: exact texts.
        tokens: tokens as text; those that the vocabulary lacks are left out.
        batch: texts at once; None for as many as memory probably holds.
    """
    ids = {token: number for token in tokens if (number := tokenizer.token_to_id(token)) is not None}
    columns = torch.tensor(list(ids.values()), dtype=torch.long, device=model.head.device)
    jobs = [_Job(at, 0, one.ids, 0.0) for at, one in enumerate(tokenizer.encode_batch(list(texts), add_special_tokens=False))]  # fmt: skip
    jobs = sorted((job for job in jobs if 0 < len(job.ids) < model.shape.context), key=lambda job: len(job.ids))
    found: list[dict[str, float]] = [{} for _ in texts]
    most, random = batch or _batch_that_fits(model), torch.Generator(model.head.device)
    for at in range(0, len(jobs), most):
        some = jobs[at : at + most]
        read = _Batch(model, some, Drawing(most_tokens=1), 0, random)
        chances = functional.log_softmax(read.last, -1)[:, columns].tolist()
        for job, row in zip(some, chances, strict=True):
            found[job.prompt] = dict(zip(ids, row, strict=True))
    return found


def _redraw(jobs: Sequence[_Job], encoded: Sequence[list[int]], write: _Writer, renumber: Augmentation | None, key: Callable[[str], str], fit: Callable[[_Job], bool]) -> None:  # fmt: skip
    """Samples truncated, duplicate and invalid answers again, at rising temperatures."""
    for again in range(1, write.how.redraws + 1):
        found = _repeated(jobs, key)
        repeated = [job for job in jobs if job in found or (job.temperature > 0 and not fit(job))]
        if not repeated or write.stop():
            return
        drawn = [_job(job.prompt, job.number, encoded[job.prompt], write.how, renumber, again) for job in repeated]
        write.all(drawn)
        for job, other in zip(repeated, drawn, strict=True):
            # A truncated answer is better than none.
            if other.drawn is not None and (other.drawn.finished or job.drawn is None):
                job.drawn = other.drawn


def _job(prompt: int, number: int, ids: list[int], how: Drawing, renumber: Augmentation | None, again: int = 0) -> _Job:
    temperature = how.warmth(number, again)
    if renumber is None or temperature == 0.0:
        return _Job(prompt, number, ids, temperature)
    random = np.random.default_rng([how.seed, prompt, number, again])
    tokens, back = renumber.renumbered(np.array(ids), random)
    return _Job(prompt, number, tokens.tolist(), temperature, back)


def _repeated(jobs: Sequence[_Job], key: Callable[[str], str]) -> list[_Job]:
    """Returns the jobs whose answers were truncated, or equal an earlier one; greedy ones are excluded."""
    known: set[tuple[int, str]] = set()
    found = []
    for job in jobs:
        if job.drawn is None:
            continue
        content = job.prompt, key(job.drawn.text)
        if job.temperature > 0 and (content in known or not job.drawn.finished):
            found.append(job)
        known.add(content)
    return found


@dataclass(slots=True)
class _Writer:
    """Runs jobs in batches of prompts of similar length."""

    model: Llama
    tokenizer: Tokenizer
    how: Drawing
    end: int
    random: torch.Generator
    stop: Callable[[], bool]

    def all(self, jobs: Sequence[_Job]) -> None:
        """Runs all jobs, until stopped."""
        order = sorted(jobs, key=lambda job: len(job.ids))
        most = max(1, (self.how.batch or _batch_that_fits(self.model)))
        for at in range(0, len(order), most):
            if self.stop():
                return
            self._some(order[at : at + most])

    def _some(self, jobs: Sequence[_Job]) -> None:
        room = min(self.how.most_tokens, self.model.shape.context - max(len(job.ids) for job in jobs))
        texts, logprobs = _Batch(self.model, jobs, self.how, self.end, self.random).write(max(room, 1))
        for job, ids, logprob in zip(jobs, texts, logprobs, strict=True):
            finished = self.end in ids
            written = ids[: ids.index(self.end)] if finished else ids
            meant = written if job.back is None else job.back[written].tolist() if written else []
            job.drawn = SampledAnswer(job.prompt, self.tokenizer.decode(meant), len(written), finished, logprob)


def _batch_that_fits(model: Llama) -> int:
    """Returns the number of texts whose keys and values take at most half of the GPU's free memory; 16 on a CPU."""
    device = model.head.device
    if device.type != "cuda":
        return 16
    shape = model.shape
    one = 2 * shape.layers * shape.context * shape.kv_heads * shape.head * 2
    return int(min(max(torch.cuda.mem_get_info(device)[0] // 2 // one, 8), 512))


class _Batch:
    """Texts that are generated together, with prompts padded on the right."""

    def __init__(self, model: Llama, jobs: Sequence[_Job], how: Drawing, end: int, random: torch.Generator) -> None:
        self.model, self.end, self.random, self.top_p = model, end, random, how.top_p
        self.device = model.head.device
        self.kind = torch.bfloat16 if self.device.type == "cuda" else torch.float32
        shape = model.shape
        self.lengths = torch.tensor([len(job.ids) for job in jobs], device=self.device)
        longest = int(self.lengths.max())
        capacity = min(longest + how.most_tokens, shape.context) + 1
        padded = torch.zeros(len(jobs), longest, dtype=torch.long)
        for number, job in enumerate(jobs):
            padded[number, : len(job.ids)] = torch.tensor(job.ids)
        size = (len(jobs), shape.kv_heads, capacity, shape.head)
        self.keys = [torch.zeros(size, dtype=self.kind, device=self.device) for _ in range(shape.layers)]
        self.values = [torch.zeros(size, dtype=self.kind, device=self.device) for _ in range(shape.layers)]
        self.temperatures = torch.tensor([[job.temperature] for job in jobs], device=self.device)
        self.last = self._read(padded.to(self.device))

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.kind == torch.bfloat16)

    def _read(self, tokens: Tensor) -> Tensor:
        """Evaluates the prompts; returns the logits after each."""
        with self._precision():
            positions = torch.arange(tokens.shape[1], device=self.device)[None].expand_as(tokens)
            cos, sin = self.model.turns(positions)
            x = self.model.entered(tokens)
            for number, layer in enumerate(self.model.model.layers):
                query, key, value = _parts(layer, x, cos, sin)
                for kept, new in ((self.keys[number], key), (self.values[number], value)):
                    kept[:, :, : tokens.shape[1]] = new.to(self.kind)
                # Padding follows the prompt, where no token attends to it.
                attended = _attended(query, key.to(query.dtype), value.to(query.dtype), causal=True)
                x = layer.fed(x + layer.self_attn.out(attended))
            ends = x[torch.arange(len(x), device=self.device), self.lengths - 1]
            logits: Tensor = self.model.logits(self.model.model.norm(ends)).float()
        return logits

    def write(self, most: int) -> tuple[list[list[int]], list[float]]:
        """Generates up to `most` tokens of each text; returns them and their log probabilities."""
        count = len(self.lengths)
        written = torch.full((count, most), self.end, dtype=torch.long, device=self.device)
        logprobs = torch.zeros(count, device=self.device)
        alive = torch.ones(count, dtype=torch.bool, device=self.device)
        active = torch.arange(count, device=self.device)
        for step in range(most):
            token = self._draw(self.last)
            chosen = functional.log_softmax(self.last, -1).gather(1, token[:, None])[:, 0]
            token = torch.where(alive, token, self.end)
            logprobs[active] += torch.where(alive, chosen, 0.0)
            written[active, step] = token
            alive = alive & (token != self.end)
            if step % STEPS_UNTIL_LOOKED == STEPS_UNTIL_LOOKED - 1:
                going = int(alive.sum())
                if going == 0:
                    break
                if going < SHARE_KEPT * len(alive):
                    active, token, alive = active[alive], token[alive], self._shrink(alive)
            if step + 1 < most:
                self.last = self._next(token)
        # A truncated answer has no end token; a finished one is padded with end tokens.
        return [_until_end(ids, self.end) for ids in written.tolist()], logprobs.tolist()

    def _shrink(self, alive: Tensor) -> Tensor:
        self.keys = [kept[alive] for kept in self.keys]
        self.values = [kept[alive] for kept in self.values]
        self.lengths, self.temperatures = self.lengths[alive], self.temperatures[alive]
        return alive[alive]

    def _draw(self, logits: Tensor) -> Tensor:
        likeliest = logits.argmax(-1)
        if not bool((self.temperatures > 0).any()):
            return likeliest
        chances = functional.softmax(logits / self.temperatures.clamp(min=1e-3), -1)
        if self.top_p < 1.0:
            ranked, places = chances.sort(-1, descending=True)
            before = ranked.cumsum(-1) - ranked
            chances = torch.zeros_like(chances).scatter(-1, places, ranked * (before < self.top_p))
        drawn = torch.multinomial(chances, 1, generator=self.random)[:, 0]
        return torch.where(self.temperatures[:, 0] > 0, drawn, likeliest)

    def _next(self, token: Tensor) -> Tensor:
        """Evaluates one further token of each text; returns the logits after it."""
        with self._precision():
            rows = torch.arange(len(token), device=self.device)
            cos, sin = self.model.turns(self.lengths[:, None])
            used = int(self.lengths.max()) + 1
            mask = (torch.arange(used, device=self.device)[None] <= self.lengths[:, None])[:, None, None]
            x = self.model.entered(token[:, None])
            for number, layer in enumerate(self.model.model.layers):
                query, key, value = _parts(layer, x, cos, sin)
                keys, values = self.keys[number], self.values[number]
                keys[rows, :, self.lengths] = key[:, :, 0].to(self.kind)
                values[rows, :, self.lengths] = value[:, :, 0].to(self.kind)
                attended = _attended(
                    query, keys[:, :, :used].to(query.dtype), values[:, :, :used].to(query.dtype), mask
                )
                x = layer.fed(x + layer.self_attn.out(attended))
            self.lengths = self.lengths + 1
            logits: Tensor = self.model.logits(self.model.model.norm(x[:, 0])).float()
        return logits


def _parts(layer: Block, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns queries, keys and values with heads before tokens."""
    query, key, value = layer.self_attn.project(layer.input_layernorm(x), cos, sin)
    return query.transpose(1, 2), key.transpose(1, 2), value.transpose(1, 2)


def _attended(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = key.repeat_interleave(groups, 1), value.repeat_interleave(groups, 1)
    result = functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal)
    return result.transpose(1, 2)


def _until_end(ids: list[int], end: int) -> list[int]:
    return ids[: ids.index(end) + 1] if end in ids else ids
