"""Sampling in batches: what a model would write one text at a time, and no text disturbs another."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="sampling needs the extra `train`")

from kernelmate.upskill.shapes import Shape  # noqa: E402
from kernelmate.upskill.torch_attention import mask_of  # noqa: E402
from kernelmate.upskill.torch_llama import Llama  # noqa: E402
from kernelmate.upskill.torch_sampling import Drawing, sample  # noqa: E402

PROMPTS = ["float x = <v1>", "for (int i", "a[i] + <v2> ;  for (int i = 0", "<|ask|>"]


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Llama:
    torch.manual_seed(3)
    shape = Shape(tokenizer.get_vocab_size(), hidden=32, layers=2, heads=4, kv_heads=2, feed_forward=64, context=64)
    made = Llama(shape).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    return made


def one_by_one(model: Llama, tokenizer: Any, prompt: str, most: int) -> str:
    """The likeliest tokens, the whole text read anew for each."""
    ids = tokenizer.encode(prompt, add_special_tokens=False).ids
    written: list[int] = []
    while len(written) < most:
        tokens = torch.tensor([ids + written])
        with torch.no_grad():
            stream = model(tokens, torch.arange(tokens.shape[1])[None], mask_of(torch.zeros_like(tokens)))
        token = int(model.logits(stream[0, -1]).argmax())
        if token == 0:
            break
        written.append(token)
    return str(tokenizer.decode(written))


def test_greedy_answers_are_those_of_one_text_at_a_time(model: Llama, tokenizer: Any) -> None:
    drawn = sample(model, tokenizer, PROMPTS, Drawing(most_tokens=24))
    assert [one.text for one in drawn] == [one_by_one(model, tokenizer, prompt, 24) for prompt in PROMPTS]


def test_answers_do_not_depend_on_what_else_is_asked(model: Llama, tokenizer: Any) -> None:
    together = sample(model, tokenizer, PROMPTS, Drawing(most_tokens=24))
    alone = [sample(model, tokenizer, [prompt], Drawing(most_tokens=24))[0].text for prompt in PROMPTS]
    assert [one.text for one in together] == alone


def test_each_prompt_gets_k_answers_the_first_greedy_and_the_same_for_the_same_seed(model: Llama, tokenizer: Any) -> None:  # fmt: skip
    how = Drawing(k=4, temperature=1.0, greedy_first=True, seed=5, most_tokens=12)
    drawn = sample(model, tokenizer, PROMPTS, how)
    greedy = sample(model, tokenizer, PROMPTS, Drawing(most_tokens=12))
    assert [one.prompt for one in drawn] == [0] * 4 + [1] * 4 + [2] * 4 + [3] * 4
    assert [one.text for one in drawn[::4]] == [one.text for one in greedy]
    assert len({one.text for one in drawn}) > 8
    assert drawn == sample(model, tokenizer, PROMPTS, how)


def test_a_greedy_answer_is_likelier_than_drawn_ones_on_average(model: Llama, tokenizer: Any) -> None:
    drawn = sample(model, tokenizer, PROMPTS * 4, Drawing(k=4, temperature=1.5, greedy_first=True, most_tokens=8))
    per_token = [one.logprob / max(one.tokens, 1) for one in drawn]
    assert sum(per_token[::4]) / len(per_token[::4]) > sum(per_token) / len(per_token)


def test_an_answer_fits_into_the_context_and_a_prompt_that_leaves_no_room_gets_none(model: Llama, tokenizer: Any) -> None:  # fmt: skip
    long = "x[i] + " * 60
    drawn = sample(model, tokenizer, [long, "float"], Drawing(most_tokens=500))
    assert [one.prompt for one in drawn] == [1]
    assert drawn[0].tokens + 1 <= 64


def test_stopping_leaves_the_rest_unanswered(model: Llama, tokenizer: Any) -> None:
    looks = iter([False, True])
    drawn = sample(model, tokenizer, PROMPTS, Drawing(most_tokens=4, batch=2), stop=lambda: next(looks))
    assert len(drawn) == 2
