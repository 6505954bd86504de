"""Share of good choices of a model on held-out rows: counted by question, and against the model's own probabilities."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="sampling needs the extra `train`")

from kernelmate.suggest.codec.applicable import (  # noqa: E402
    choices,
    format_choice,
    offer_tokens,
    texts_asked,
)
from kernelmate_training.encoded import encode  # noqa: E402
from kernelmate_training.examples import Example  # noqa: E402
from kernelmate_training.torch_choices import agreement  # noqa: E402
from kernelmate_training.torch_llama import Llama  # noqa: E402
from kernelmate_training.torch_sampling import continuation_logprobs  # noqa: E402
from kernelmate_training.vocabulary import train_tokenizer  # noqa: E402
from tests.unit.training.small_models import small_model  # noqa: E402

THREE = "float x@offers@use-coalesce:@use-unroll:@#2@answer"
FOUR = "a[i]@offers@use-coalesce:@use-block-size:@#2@use-divide:@answer"
ONE = "a[i]@offers@use-divide:@answer"
TOKENIZER = train_tokenizer(["float x a[i]"] * 8, ("@end", *offer_tokens(), "@rep", "@answer"), "@end", 600)


@pytest.fixture(scope="module")
def model() -> Llama:
    return small_model(TOKENIZER, seed=7, spread=0.3)


def figures(model: Llama, *pairs: tuple[str, str], task: str = "generate") -> Any:
    held_out = [Example(prompt, f"{answer}@end", task, "g", held_out=True) for prompt, answer in pairs]
    return agreement(model, TOKENIZER, encode(held_out, TOKENIZER, 64)[0], batch=2)


def order(model: Llama, prompt: str) -> list[str]:
    texts = texts_asked(prompt)
    after = dict(zip(texts, continuation_logprobs(model, TOKENIZER, texts, offer_tokens()), strict=True))
    return [format_choice(choice) for choice, _ in choices(prompt, after.__getitem__)]


def test_the_first_choice_counts_where_a_row_takes_it(model: Llama) -> None:
    likeliest = order(model, FOUR)
    assert len(likeliest) == 4
    for place, answer in enumerate(likeliest):
        found = figures(model, (FOUR, answer))
        assert found == {"generate": {"questions": 1.0, "first": float(place == 0), "three": float(place < 3)}}


def test_rows_of_one_prompt_are_one_question_and_each_of_their_choices_is_good(model: Llama) -> None:
    first, *_, last = order(model, FOUR)
    assert figures(model, (FOUR, last), (FOUR, first))["generate"] == {"questions": 1.0, "first": 1.0, "three": 1.0}
    both = figures(model, (FOUR, last), (THREE, order(model, THREE)[0]))["generate"]
    assert both == {"questions": 2.0, "first": 0.5, "three": 0.5}


def test_edits_and_what_leaves_no_choice_are_no_questions(model: Llama) -> None:
    assert figures(model, (ONE, "@use-divide:"), (FOUR, "@rep"), ("a[i]@answer", "@rep")) == {}
    assert list(figures(model, (THREE, "@use-unroll:@#1@use-divide:"), task="debug")) == ["debug"]
