"""Pairs of a corpus as prompts and answers, and the vocabulary that splits them into tokens."""

from __future__ import annotations

import json
import lzma
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelmate.errors import UsageError
from kernelmate.suggest.codec import NAMES, codec_named
from kernelmate_training.corpus_files import PACKED
from kernelmate_training.examples import format_examples, lines_of, question_of
from kernelmate_training.vocabulary import pattern_of

CORPUS = Path(__file__).resolve().parents[2] / "data" / "upskill"


@pytest.mark.parametrize("name", ["mixed-2", "mixed-2-plain"])
def test_answers_of_a_stored_corpus_lead_back_to_its_versions(name: str) -> None:
    codec = codec_named(name)
    lines = lines_of(CORPUS)
    told = format_examples(lines, name, processes=1)
    assert not told.left_out
    for line, example in zip(map(json.loads, lines), told.examples, strict=True):
        asked = codec.ask(question_of(line))
        assert asked.prompt == example.prompt
        answer = asked.read(example.answer)
        assert (answer.version is None) == (example.task == "analyse")
        if answer.version is not None:
            assert asked.read(codec.answer(question_of(line), answer.version)).version == answer.version


def test_a_packed_corpus_is_read_like_a_plain_one_and_a_damaged_one_is_said(tmp_path: Path) -> None:
    lines = lines_of(CORPUS)
    packed = tmp_path / PACKED
    packed.write_bytes(lzma.compress("\n".join(lines).encode()))
    assert lines_of(tmp_path) == lines == lines_of(packed)
    packed.write_bytes(packed.read_bytes()[:-30])
    with pytest.raises(UsageError, match="cannot be read"):
        lines_of(tmp_path)


def test_copies_differ_in_placeholders_alone() -> None:
    lines = lines_of(CORPUS)[:2]
    told = format_examples(lines, "mixed-2", copies=3, processes=1).examples
    assert len(told) == 6
    assert len({example.prompt for example in told[:3]}) == 3
    assert len({len(example.prompt.split("@v")) for example in told[:3]}) == 1


def test_what_a_version_gains_in_time_is_told_and_nothing_else_is() -> None:
    line = json.loads(next(line for line in lines_of(CORPUS) if json.loads(line)["task"] == "generate"))

    def gain(task: str = "generate", **objective: object) -> float | None:
        line.update(task=task, verdict={"objective": objective})
        return format_examples([json.dumps(line)], "mixed-2", processes=1).examples[0].gain

    assert gain(name="time", before=12.0, after=8.0) == 1.5
    assert gain(name="registers", before=40, after=32) is None
    assert gain(name="time", before=12.0, after=None) is None
    assert gain("debug", name="time", before=12.0, after=8.0) is None


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
