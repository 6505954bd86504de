"""Examples for instruct models: they ask what the product asks, and their answers decode to the intended version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelmate.suggest.codec import codec_named
from kernelmate.suggest.codec.base import CodecVersion, NotEncodable, Question, UndecodableAnswer
from kernelmate.suggest.codec.lines import read_tokens
from kernelmate.suggest.prompts import RULES
from kernelmate_training.examples import format_examples, launch_of, lines_of, question_of, version_of

CORPUS = Path(__file__).resolve().parents[2] / "data" / "upskill"
ROWS = [json.loads(line) for line in lines_of(CORPUS)]
CODEC = codec_named("chat-1")


@pytest.mark.parametrize("row", ROWS, ids=range(len(ROWS)))
def test_an_answer_is_read_back_as_the_version_that_was_meant(row: dict) -> None:
    question = question_of(row)
    asked = CODEC.ask(question)
    after = None if question.task == "analyse" else version_of(row["after"])
    read = asked.read(CODEC.answer(question, after, row["reasoning"]))
    if after is None:
        assert read.version is None
        assert row["reasoning"][0] in read.analysis[0]
    else:
        assert read.version is not None
        assert sorted(read_tokens(read.version.text).texts) == sorted(read_tokens(after.text).texts)
        assert read.version.launch == after.launch


def test_the_question_is_the_products() -> None:
    (_, system), (role, user) = CODEC.ask(question_of(ROWS[0])).messages
    assert system == RULES
    assert role == "user"
    assert "<kernel>" in user
    assert ROWS[0]["problem"]["kernel"] in user


@pytest.mark.parametrize("answer", ["", "no JSON", "{}", '{"analysis": "a", "changes": [], "kernel": "int main() {}"}'])
def test_what_is_no_version_is_unreadable(answer: str) -> None:
    row = next(row for row in ROWS if row["task"] == "generate")
    with pytest.raises(UndecodableAnswer):
        CODEC.ask(question_of(row)).read(answer)


def test_a_kernel_that_is_not_there_cannot_be_told() -> None:
    launch = launch_of({"grid": ["1"], "block": ["32"]})
    with pytest.raises(NotEncodable, match="is not in the text"):
        CODEC.ask(Question("__global__ void f() {}", "g", launch))
    assert CodecVersion("", launch).launch.shared == "0"


def test_a_whole_corpus_is_told_for_chat() -> None:
    told = format_examples([json.dumps(row) for row in ROWS], "chat-1", processes=1)
    assert not told.left_out
    assert all(example.messages for example in told.examples)
