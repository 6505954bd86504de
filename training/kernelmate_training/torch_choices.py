"""Share of good choices that a model makes among applicable rewrites, on held-out problems.

It serves to compare models during development. The exam is not used for that, because selecting models by it would bias
its results.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

from kernelmate.suggest.codec.applicable import (
    choice_of,
    choices,
    fits,
    format_choice,
    in_order,
    offer_tokens,
    offers_in,
    texts_asked,
)
from kernelmate_training.encoded import Encoded
from kernelmate_training.examples import TASKS
from kernelmate_training.torch_llama import Llama
from kernelmate_training.torch_sampling import continuation_logprobs

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FIRST = 3
"""Number of first choices among which a good one is searched, for the second figure."""


def agreement(model: Llama, tokenizer: Tokenizer, held_out: Encoded, batch: int | None = None) -> dict[str, dict[str, float]]:  # fmt: skip
    """Returns by task the number of `questions`, and the fractions with a good first choice and one among three.

    Their keys are `questions`, `first` and `three`. A question is a prompt with more than one choice; a good choice is
    one that a row with this prompt makes.

    Args:
        model: the model, on the device to use.
        tokenizer: the model's tokenizer.
        held_out: examples of families that the model was not trained on.
        batch: prompts at once; None for as many as memory probably holds.
    """
    asked = _questions(tokenizer, held_out)
    texts = [text for prompts in asked.values() for prompt in prompts for text in texts_asked(prompt)]
    after = dict(zip(texts, continuation_logprobs(model, tokenizer, texts, offer_tokens(), batch), strict=True))
    found = {}
    for task, prompts in asked.items():
        ranks = [
            [format_choice(choice) in good for choice, _ in islice(choices(prompt, after.__getitem__), FIRST)]
            for prompt, good in prompts.items()
        ]
        count = len(ranks)
        shares = (sum(hits[0] for hits in ranks) / count, sum(map(any, ranks)) / count)
        found[task] = {"questions": float(count), "first": round(shares[0], 4), "three": round(shares[1], 4)}
    return found


def _questions(tokenizer: Tokenizer, held_out: Encoded) -> Mapping[str, dict[str, set[str]]]:
    """Returns by task every prompt with the answers that are good choices."""
    found: defaultdict[str, dict[str, set[str]]] = defaultdict(dict)
    for at in range(len(held_out)):
        tokens = held_out.tokens[held_out.starts[at] : held_out.starts[at + 1]].tolist()
        cut = int(held_out.answers[at])
        answer = choice_of(tokenizer.decode(tokens[cut:-1], skip_special_tokens=False))
        if not answer.startswith("@use-"):
            continue
        prompt = tokenizer.decode(tokens[:cut], skip_special_tokens=False)
        if len(in_order(offers_in(prompt))) > 1 and fits(prompt, answer):
            found[TASKS[held_out.tasks[at]]].setdefault(prompt, set()).add(answer)
    return found
