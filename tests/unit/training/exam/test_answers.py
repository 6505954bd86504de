"""Answers that were sampled elsewhere: from prompts in a file to verdicts, through the codec that a model was trained with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kernelmate.errors import SourceError, UsageError
from kernelmate.records import Candidate
from kernelmate.session import authors
from kernelmate.source import load_kernel, parse_contract, same_kernel, with_text
from kernelmate.suggest.base import AuthorFailed, SuggestRequest
from kernelmate.suggest.codec import codec_named
from kernelmate.suggest.codec.base import CodecLaunch, CodecVersion, Question
from kernelmate_training.exam import answers as answering
from kernelmate_training.exam.answers import Sampled
from kernelmate_training.exam.attempts import Terms
from kernelmate_training.exam.goals import load_exam
from kernelmate_training.exam.prompts import write_prompts
from kernelmate_training.exam.running import ExamTaker, Together, Wanted, apart, run

SOLUTIONS = Path(__file__).resolve().parents[3] / "data" / "exam"
NAME = "fix-last-rows"
CODEC = "mixed-2"


def good_answer(name: str) -> str:
    """Returns the best answer that a model could give: the version that a person wrote, with its launch."""
    (goal,) = load_exam((name,)).goals
    sides = []
    for path in (goal.path, SOLUTIONS / f"{goal.kernel}.cu"):
        kernel = load_kernel(path)
        contract = parse_contract(kernel)
        assert contract is not None
        launch = CodecLaunch(contract.grid, contract.block, contract.shared, contract.require)
        sides.append((kernel, contract, CodecVersion(kernel.unit.text, launch)))
    (kernel, contract, before), (_, _, after) = sides
    question = Question(before.text, kernel.name, before.launch, goal.metric, goal.prompt, "debug", contract=contract)
    return codec_named(CODEC).answer(question, after)


def answers(path: Path, *texts: str) -> Path:
    rows = [{"goal": NAME, "sample": number, "text": text} for number, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.exhaustive(share=0.2)
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


@pytest.mark.exhaustive(share=0.2)
def test_models_that_sit_together_come_out_as_if_each_sat_alone(tmp_path: Path) -> None:
    good = good_answer(NAME)
    files = [
        answers(tmp_path / "one.jsonl", "nothing of use", good, good),
        answers(tmp_path / "two.jsonl", good),
        answers(tmp_path / "none.jsonl"),
    ]
    sitters = tuple(ExamTaker(file, CODEC, file.stem) for file in files)
    together = run(Wanted(goals=(NAME,), together=sitters, terms=Terms(k=2, recipes=0, again=False)))
    each = apart(together, Together(sitters).identities())
    assert [[one.standing for one in result.goals[0].attempts] for result in each] == [
        ["unreadable", "met"],
        ["met"],
        [],
    ]
    assert [[one.number for one in result.goals[0].attempts] for result in each] == [[0, 1], [0], []]
    for file, result in zip(files[:2], each[:2], strict=True):
        alone = run(Wanted(goals=(NAME,), answers=file, codec=CODEC, terms=Terms(k=2, recipes=0, again=False)))
        assert result.model == alone.model
        assert result.figures() == alone.figures()
        assert [one.after for one in result.goals[0].attempts] == [one.after for one in alone.goals[0].attempts]


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
    with pytest.raises(SourceError, match=r"answers\.jsonl:2: this line is not an answer"):
        Sampled(path, CODEC)


def test_what_cannot_sit_the_exam_is_said_before_anything_is_judged(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="Neither a model nor recipes"):
        run(Wanted(terms=Terms(recipes=0)))
    with pytest.raises(SourceError, match="cannot be read"):
        run(Wanted(answers=tmp_path / "gone.jsonl"))
    with pytest.raises(UsageError, match="no codec 'nonsense'"):
        run(replace(Wanted(answers=answers(tmp_path / "a.jsonl", "x")), codec="nonsense"))


class Drawing:
    """A local model whose attempts are given: versions of the kernel by what stands in one place; None is unreadable."""

    name = "local:drawn"

    def __init__(self, *attempts: str | None) -> None:
        self.attempts = attempts

    def samples(self, request: SuggestRequest, count: int) -> Iterator[Candidate]:
        read = 0
        for attempt in self.attempts[:count]:
            if attempt is None:
                continue
            text = request.kernel.unit.text.replace("cols + cols - 1 - c", f"cols + {attempt}")
            kernel = same_kernel(request.kernel, with_text(request.kernel.unit, text))
            read += 1
            yield Candidate(self.name, "", kernel, request.contract)
        if not read:
            raise AuthorFailed("malformed", "nothing that can be used")


def of_local(monkeypatch: pytest.MonkeyPatch, k: int, *attempts: str | None) -> list[tuple[int, str | None]]:
    """Numbers and texts of a local model's answers, each with a time of its own."""
    kernel = load_kernel(load_exam((NAME,)).goals[0].path)
    contract = parse_contract(kernel)
    assert contract is not None
    request: Any = SimpleNamespace(kernel=kernel, contract=contract)
    monkeypatch.setattr(answering, "_model_identity", lambda settings: {"name": "drawn"})
    monkeypatch.setattr(authors, "local_model", lambda *args, **options: Drawing(*attempts))
    settings = Wanted().settings(1)
    found = list(answering.Local(settings).of(NAME, request, k))
    assert all(one.seconds is not None and one.seconds >= 0 for one in found)
    return [
        (one.number, None if one.candidate is None else one.candidate.kernel.source.split("cols + ")[2].split("]")[0])
        for one in found
    ]


def test_a_local_model_answers_greedily_once_and_the_drawn_answers_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_local(monkeypatch, 1, "a", "b") == [(0, "a")]
    assert of_local(monkeypatch, 4, "a", "b", "a", "c", "d") == [(0, "a"), (1, "b"), (2, "c")]


def test_a_greedy_answer_that_cannot_be_read_stays_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    assert of_local(monkeypatch, 3, None, "b", None) == [(0, None), (1, "b")]
    assert of_local(monkeypatch, 2, None, None) == [(0, None), (1, None)]
