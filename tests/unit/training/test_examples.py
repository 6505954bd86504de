"""Pairs of a corpus as prompts and answers: nothing of a pair is lost in a codec's words."""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from kernelmate.errors import UsageError
from kernelmate.suggest.codec import codec_named
from kernelmate_training.corpus_files import PACKED
from kernelmate_training.examples import format_examples, lines_of, question_of

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
