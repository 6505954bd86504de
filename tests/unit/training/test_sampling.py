"""Sampling in batches: what a model would write one text at a time, and no text disturbs another."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="sampling needs the extra `train`")

from kernelmate.suggest.codec.applicable import answers, format_choice, in_order, offer_tokens, offers_in  # noqa: E402
from kernelmate_training.augmentation import Augmentation, AugmentationRates  # noqa: E402
from kernelmate_training.torch_llama import Llama, mask_of  # noqa: E402
from kernelmate_training.torch_sampling import Drawing, chosen_by, continuation_logprobs, sample, sample_choices  # noqa: E402
from tests.unit.training.small_models import small_model  # noqa: E402

PROMPTS = ["float x = <v1>", "for (int i", "a[i] + <v2> ;  for (int i = 0", "<|ask|>"]


@pytest.fixture(scope="module")
def model(tokenizer: Any) -> Llama:
    return small_model(tokenizer, seed=3, spread=0.2)


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


def test_answers_get_warmer_from_the_first_that_is_drawn() -> None:
    how = Drawing(k=5, temperature=0.5, greedy_first=True, spread=0.6)
    assert [how.warmth(number) for number in range(5)] == pytest.approx([0.0, 0.5, 0.7, 0.9, 1.1])
    assert how.warmth(2, again=2) > how.warmth(2)
    assert Drawing(k=1, temperature=0.8).warmth(0) == 0.8


def test_answers_to_one_prompt_differ_where_those_alike_are_drawn_again(model: Llama, tokenizer: Any) -> None:
    def same(redraws: int) -> int:
        how = Drawing(k=8, temperature=0.3, greedy_first=True, most_tokens=3, redraws=redraws)
        drawn = sample(model, tokenizer, PROMPTS, how, key=lambda text: text[:4])
        assert [one.prompt for one in drawn] == sorted([0, 1, 2, 3] * 8)
        return sum(8 - len({one.text[:4] for one in drawn if one.prompt == prompt}) for prompt in range(4))

    assert same(12) < same(0)


def test_prompts_may_want_different_numbers_of_answers(model: Llama, tokenizer: Any) -> None:
    drawn = sample(model, tokenizer, PROMPTS, Drawing(k=3, most_tokens=8), counts=[2, 0, 1, 0])
    assert [one.prompt for one in drawn] == [0, 0, 2]


def test_answers_that_do_not_fit_are_drawn_again_but_not_the_greedy_ones(model: Llama, tokenizer: Any) -> None:
    def unfit(redraws: int) -> list[bool]:
        how = Drawing(k=6, temperature=1.0, greedy_first=True, most_tokens=3, redraws=redraws)
        drawn = sample(model, tokenizer, PROMPTS, how, key=lambda text: text + str(len(seen)), fits=fits)
        return [len(one.text) % 2 == 1 for one in drawn]

    def fits(prompt: str, text: str) -> bool:
        assert prompt in PROMPTS
        seen.append(text)
        return len(text) % 2 == 0

    seen: list[str] = []
    once, again = unfit(0), unfit(10)
    assert sum(again) < sum(once)
    assert again[::6] == once[::6]


def test_only_the_likeliest_tokens_are_drawn(model: Llama, tokenizer: Any) -> None:
    greedy = sample(model, tokenizer, PROMPTS, Drawing(most_tokens=12))
    narrow = sample(model, tokenizer, PROMPTS, Drawing(most_tokens=12, temperature=2.0, top_p=1e-6))
    assert [one.text for one in narrow] == [one.text for one in greedy]
    wide = sample(model, tokenizer, PROMPTS, Drawing(most_tokens=12, temperature=2.0, top_p=0.999))
    assert [one.text for one in wide] != [one.text for one in greedy]


def test_names_that_are_numbered_otherwise_come_back_as_they_were(model: Llama, tokenizer: Any) -> None:
    class Turned(Augmentation):
        """Exchanges the two names of the tiny vocabulary."""

        def renumbered(self, tokens: Any, random: Any) -> Any:
            table = np.arange(tokenizer.get_vocab_size())
            one, other = (tokenizer.token_to_id(token) for token in ("<v1>", "<v2>"))
            table[[one, other]] = [other, one]
            return table[tokens], table

    turned = Turned(AugmentationRates(), tokenizer.to_str())
    how = Drawing(k=2, temperature=1e-4, greedy_first=True, most_tokens=16)
    swap = {"<v1>": "<v2>", "<v2>": "<v1>"}

    def swapped(text: str) -> str:
        return re.sub("<v[12]>", lambda found: swap[found[0]], text)

    got = sample(model, tokenizer, PROMPTS, how, renumber=turned)
    alone = sample(model, tokenizer, [swapped(prompt) for prompt in PROMPTS], Drawing(most_tokens=16))
    assert [one.text for one in got[1::2]] == [swapped(one.text) for one in alone]
    assert [one.text for one in got[::2]] == [one.text for one in sample(model, tokenizer, PROMPTS, Drawing(most_tokens=16))]  # fmt: skip


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


OFFERING = [
    "float x@offers@use-coalesce:@use-block-size:@#3@use-unroll:@#2@answer",
    "for (int i",
    "a[i]@offers@use-unroll:@answer",
]
"""Prompts with six choices, none, and one."""


@pytest.fixture(scope="module")
def chooser() -> tuple[Llama, Any]:
    """A model with random weights and the vocabulary of choices."""
    from kernelmate_training.vocabulary import train_tokenizer

    words = train_tokenizer(["float x a[i] for (int i = 0"] * 8, ("@end", *offer_tokens(), "@answer"), "@end", 600)
    return small_model(words, seed=5, spread=0.3), words


def chance(model: Llama, words: Any, text: str, token: str) -> float:
    """The log probability of a token after a text that is read by itself."""
    ids = torch.tensor([words.encode(text, add_special_tokens=False).ids])
    with torch.no_grad():
        stream = model(ids, torch.arange(ids.shape[1])[None], mask_of(torch.zeros_like(ids))).detach()
    return float(torch.log_softmax(model.logits(stream[0, -1]).detach().float(), -1)[words.token_to_id(token)])


def test_what_is_offered_is_chosen_likeliest_first_and_the_rest_is_drawn(chooser: tuple[Llama, Any]) -> None:
    model, words = chooser
    drawn = sample_choices(model, words, OFFERING, Drawing(k=7, temperature=1.0, greedy_first=True, most_tokens=6))
    texts = [[one.text for one in drawn if one.prompt == prompt] for prompt in range(3)]
    assert [len(of) for of in texts] == [7, 7, 7]
    assert sorted(texts[0][:6]) == sorted(format_choice(choice) for choice in in_order(offers_in(OFFERING[0])))
    assert texts[2][0] == "@use-unroll:"
    # The prompts of what is drawn have no offers, so it is what they would be answered without them.
    plain = sample(model, words, ["a[i]@answer"], Drawing(k=6, greedy_first=True, most_tokens=6))
    assert texts[2][1] == plain[0].text
    score = {one.text: one.logprob for one in drawn if one.prompt == 0}
    assert score["@use-coalesce:"] == pytest.approx(chance(model, words, OFFERING[0], "@use-coalesce:"), abs=1e-3)
    variant = chance(model, words, OFFERING[0], "@use-unroll:") + chance(model, words, OFFERING[0] + "@use-unroll:", "@#1")  # fmt: skip
    assert score["@use-unroll:@#1"] == pytest.approx(variant, abs=1e-3)


def test_choices_do_not_depend_on_what_else_is_asked_nor_on_the_seed(chooser: tuple[Llama, Any]) -> None:
    model, words = chooser
    together = sample_choices(model, words, OFFERING, Drawing(k=6, seed=1, most_tokens=4))[:6]
    alone = sample_choices(model, words, OFFERING[:1], Drawing(k=6, seed=2, most_tokens=4, batch=1))
    assert [one.text for one in together] == [one.text for one in alone]


def test_what_is_chosen_for_many_prompts_is_what_is_chosen_for_each(chooser: tuple[Llama, Any]) -> None:
    model, words = chooser

    def after(text: str) -> dict[str, float]:
        return continuation_logprobs(model, words, [text], offer_tokens())[0]

    # 6 choices, then pairs of 3 rewrites in either order.
    for prompt, found in zip(OFFERING, chosen_by(model, words, OFFERING, 20), strict=True):
        alone = list(answers(prompt, after))
        assert [text for text, _ in found] == [text for text, _ in alone]
        assert [chance for _, chance in found] == pytest.approx([chance for _, chance in alone], abs=1e-3)
    assert [len(found) for found in chosen_by(model, words, OFFERING, 20)] == [12, 0, 1]


def test_a_prompt_that_fills_the_context_is_offered_nothing(chooser: tuple[Llama, Any]) -> None:
    model, words = chooser
    assert continuation_logprobs(model, words, ["x " * 100, "x"], ["@use-unroll:", "@none"])[0] == {}
    assert list(continuation_logprobs(model, words, ["x " * 100, "x"], ["@use-unroll:", "@none"])[1]) == [
        "@use-unroll:"
    ]
