"""Vocabularies: texts are cut at special tokens as if each were tried, the longest first."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.suggest.codec import NAMES, codec_named
from kernelmate_training.vocabulary import pattern_of

WORDS = st.lists(st.text("ab@|.:", min_size=1, max_size=5), min_size=1, max_size=12, unique=True)


@given(WORDS, st.text("ab@|.: ", max_size=60))
def test_the_tree_of_words_finds_what_trying_each_finds(words: list[str], text: str) -> None:
    each = re.compile("|".join(re.escape(word) for word in sorted(words, key=len, reverse=True)))
    assert re.split(pattern_of(words), text) == each.split(text)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "chat-1"])
def test_every_special_token_of_a_codec_is_found_whole(name: str) -> None:
    vocabulary = codec_named(name).vocabulary()
    at = re.compile(pattern_of(vocabulary))
    assert [found[0] for found in at.finditer(" ".join(vocabulary))] == list(vocabulary)
