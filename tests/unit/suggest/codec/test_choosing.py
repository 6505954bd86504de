"""Choices among offers: by what the model holds likely, each once, and no rewrite alone while there are others."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from kernelmate.suggest.codec.applicable import (
    MOST_OF_ONE,
    MOST_PAIRS,
    REWRITES,
    UNNAMED,
    Choice,
    answers,
    choices,
    fits,
    format_choice,
    format_offers,
    in_order,
    texts_asked,
)

PROMPT = "@code@1:x;@offers@use-coalesce:@use-block-size:@#3@use-unroll:@#2@answer"


class Model:
    """Log probabilities after texts, from chances; and which texts they were asked for."""

    def __init__(self, chances: Mapping[str, Mapping[str, float]]) -> None:
        self.chances, self.asked = chances, list[str]()

    def __call__(self, text: str) -> dict[str, float]:
        self.asked.append(text)
        ending = max((ending for ending in self.chances if text.endswith(ending)), key=len)
        return {token: math.log(chance) for token, chance in self.chances[ending].items()}


def first(model: Model, count: int, most_of_one: int = MOST_OF_ONE) -> list[Choice]:
    return [choice for choice, _ in islice(choices(PROMPT, model, most_of_one), count)]


def test_the_likeliest_choice_is_first_and_an_edit_is_none() -> None:
    model = Model({"": {"@rep": 0.6, "@use-unroll:": 0.3, "@use-coalesce:": 0.1}, "@use-unroll:": {"@#1": 0.9}})
    assert first(model, 9) == [
        ("unroll", 1), ("coalesce", 0), ("unroll", 0), ("block-size", 0), ("block-size", 1), ("block-size", 2)
    ]  # fmt: skip


def test_variants_are_asked_for_only_once_their_turn_has_come() -> None:
    model = Model({"": {"@use-coalesce:": 0.6, "@use-unroll:": 0.3}, "@use-unroll:": {}})
    assert first(model, 1) == [("coalesce", 0)]
    assert model.asked == [PROMPT]
    assert first(model, 2) == [("coalesce", 0), ("unroll", 0)]
    assert model.asked[1:] == [PROMPT, PROMPT + "@use-unroll:"]
    assert set(model.asked) < set(texts_asked(PROMPT)) == {PROMPT, PROMPT + "@use-unroll:", PROMPT + "@use-block-size:"}


def test_a_rewrite_without_a_number_is_as_likely_as_whatever_is_no_number() -> None:
    found = dict(choices(PROMPT, Model({"": {"@use-block-size:": 0.5}, "@use-block-size:": {"@#1": 0.5, "@#2": 0.2}, "@use-unroll:": {}})))  # fmt: skip
    assert math.isclose(math.exp(found["block-size", 0]), 0.5 * 0.3)
    assert math.isclose(math.exp(found["block-size", 1]), 0.5 * 0.5)
    assert found["coalesce", 0] == UNNAMED


def test_no_rewrite_stands_before_all_others_with_more_than_its_share() -> None:
    model = Model({"": {"@use-block-size:": 0.98}, "@use-block-size:": {"@#1": 0.5, "@#2": 0.3}, "@use-unroll:": {}})
    assert first(model, 2, most_of_one=1) == [("block-size", 1), ("coalesce", 0)]
    assert first(model, 9, most_of_one=1)[-3:] == [("block-size", 2), ("block-size", 0), ("unroll", 1)]


def test_without_offers_nothing_is_asked() -> None:
    model = Model({})
    assert list(choices("@code@1:x;@answer", model)) == []
    assert texts_asked("@code@1:x;@answer") == model.asked == []


def test_pairs_follow_the_choices_the_likeliest_first_each_of_two_rewrites() -> None:
    model = Model(
        {
            "": {"@use-unroll:": 0.5, "@use-coalesce:": 0.3, "@use-block-size:": 0.1},
            "@use-unroll:": {"@#1": 0.9},
            "@use-unroll:@#1": {"@use-coalesce:": 0.2, "@use-block-size:": 0.6},
            "@use-coalesce:": {"@use-unroll:": 0.9, "@use-block-size:": 0.01},
            "@use-unroll:@#1@use-block-size:": {"@#2": 0.8},
            "@use-block-size:": {"@#1": 0.4, "@use-unroll:": 0.1},
        }
    )
    found = list(answers(PROMPT, model))
    singles, pairs = found[:6], found[6:]
    assert [text for text, _ in singles] == [format_choice(choice) for choice, _ in choices(PROMPT, model)]
    assert [text for text, _ in pairs[:3]] == [
        "@use-unroll:@#1@use-block-size:@#2", "@use-coalesce:@use-unroll:@#1", "@use-unroll:@#1@use-coalesce:"
    ]  # fmt: skip
    assert math.isclose(math.exp(pairs[0][1]), 0.5 * 0.9 * 0.6 * 0.8)
    assert len(pairs) == 6
    assert all(len(re.findall("@use-[a-z-]+:", text)) == 2 for text, _ in pairs)
    assert all(len(set(re.findall("@use-[a-z-]+:", text))) == 2 for text, _ in pairs)


def test_pairs_cost_nothing_where_choices_suffice_and_there_are_not_too_many() -> None:
    model = Model({"": {"@use-coalesce:": 0.6}, "@use-unroll:": {}, "@use-block-size:": {}})
    assert len(list(islice(answers(PROMPT, model), 6))) == 6
    assert set(model.asked) <= set(texts_asked(PROMPT))
    every = f"@code{format_offers([(name, 1) for name in list(REWRITES)[:9]])}@answer"
    assert len(list(answers(every, Model({"": {}})))) == 9 + MOST_PAIRS
    assert list(answers("@code@offers@use-unroll:@answer", Model({"": {"@use-unroll:": 0.5}}))) == [
        ("@use-unroll:", math.log(0.5))
    ]


OFFERS = st.dictionaries(st.sampled_from(list(REWRITES)), st.integers(1, 5), max_size=6)
CHANCES = st.dictionaries(st.sampled_from(["@rep", "@#1", "@#2", "@#9", *(f"@use-{name}:" for name in REWRITES)]), st.floats(1e-9, 0.1))  # fmt: skip


@given(OFFERS, CHANCES, st.integers(1, 5))
def test_everything_that_is_offered_is_named_once(
    offers: dict[str, int], chances: dict[str, float], most_of_one: int
) -> None:
    prompt = f"@code{format_offers(list(offers.items()))}@answer"
    found = [choice for choice, _ in choices(prompt, Model({"": chances}), most_of_one)]
    assert sorted(found) == sorted(in_order(list(offers.items())))
    assert len(set(found)) == len(found)
    assert all(fits(prompt, format_choice(choice)) for choice in found)
