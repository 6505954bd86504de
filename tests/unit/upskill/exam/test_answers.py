"""Answers that were sampled elsewhere: from prompts in a file to verdicts, through the codec that a model was trained with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmate.errors import SourceError, UsageError
from kernelmate.source import load_kernel, parse_contract
from kernelmate.suggest.codec import codec_named
from kernelmate.suggest.codec.base import Launch, Question, Version
from kernelmate.upskill.exam.answers import Sampled
from kernelmate.upskill.exam.goals import load_exam
from kernelmate.upskill.exam.prompts import write_prompts
from kernelmate.upskill.exam.running import Wanted, run
from kernelmate.upskill.exam.sitting import Terms

SOLUTIONS = Path(__file__).resolve().parents[3] / "data" / "exam"
NAME = "fix-last-rows"
CODEC = "lines-1"


def good_answer(name: str) -> str:
    """What a model would best have answered: the version that a person wrote, launch and all."""
    (goal,) = load_exam((name,)).goals
    sides = []
    for path in (goal.path, SOLUTIONS / f"{goal.kernel}.cu"):
        kernel = load_kernel(path)
        contract = parse_contract(kernel)
        assert contract is not None
        launch = Launch(contract.grid, contract.block, contract.shared, contract.require)
        sides.append((kernel, contract, Version(kernel.unit.text, launch)))
    (kernel, contract, before), (_, _, after) = sides
    question = Question(before.text, kernel.name, before.launch, goal.metric, goal.prompt, "debug", contract=contract)
    return codec_named(CODEC).answer(question, after)


def answers(path: Path, *texts: str) -> Path:
    rows = [{"goal": NAME, "sample": number, "text": text} for number, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_answers_of_a_file_are_read_by_the_codec_and_judged(tmp_path: Path) -> None:
    file = answers(tmp_path / "answers.jsonl", "nothing of use", good_answer(NAME), good_answer(NAME))
    wanted = Wanted(goals=(NAME,), answers=file, codec=CODEC, terms=Terms(k=2, recipes=0))
    result = run(wanted)
    assert [one.standing for one in result.goals[0].attempts] == ["unreadable", "met"]
    assert result.goals[0].attempts[1].again is True
    figures = {one.entrant: one.met for one in result.figures()}
    assert figures == {"model, greedy": 0, "model, k = 2": 1}
    assert result.model is not None
    assert result.model["codec"] == CODEC
    assert result.model["answers_sha256"]


def test_prompts_name_the_goal_and_the_exam_and_are_what_the_answer_is_read_against(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    told: list[str] = []
    assert write_prompts(path, CODEC, (NAME, "fix-blend-names"), on_goal=told.append) == (2, [])
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["goal"] for row in rows] == told == ["fix-blend-names", NAME]
    assert {row["task"] for row in rows} == {"debug"}
    assert {row["exam"] for row in rows} == {load_exam().sha256}
    assert {row["codec"] for row in rows} == {CODEC}
    assert rows[0]["prompt"] != rows[1]["prompt"]


@pytest.mark.parametrize("line", ["{", "[1]", '{"goal": "x", "text": "y"}'])
def test_a_line_that_is_no_answer_is_named(line: str, tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(f"\n{line}\n")
    with pytest.raises(SourceError, match=r"answers\.jsonl:2: this line is no answer"):
        Sampled(path, CODEC)


def test_what_cannot_sit_the_exam_is_said_before_anything_is_judged(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Neither a model nor recipes"):
        run(Wanted(terms=Terms(recipes=0)))
    with pytest.raises(SourceError, match="cannot be read"):
        run(Wanted(answers=tmp_path / "gone.jsonl"))
    with pytest.raises(UsageError, match="no codec 'nonsense'"):
        run(replace(Wanted(answers=answers(tmp_path / "a.jsonl", "x")), codec="nonsense"))
