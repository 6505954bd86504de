"""The ablation table: a row for each model, read from what runs leave, and what one choice alone is worth."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from benchmarks.upskill_ablations import main, models_without_result, rows_of, table
from benchmarks.upskill_offers import at_random, in_order
from kernelmate.errors import SourceError
from kernelmate_training.exam import Attempt, ExamResult, GoalResult, to_json


def result(met: int, *, of: int = 4, greedy: int = 0, sha256: str = "a" * 64, **labels: str) -> ExamResult:
    def goal(number: int) -> GoalResult:
        first = Attempt("model", 0, "met" if number < greedy else "wrong", "local:m")
        second = Attempt("model", 1, "met" if number < met else "right", "local:m")
        return GoalResult(f"g{number}", "k", "time", 1.0, (first, second))

    goals = tuple(goal(number) for number in range(of))
    return ExamResult(
        1, sha256, True, "emulator", "H100 SXM", 1, {"name": "m", "codec": "lines-1"}, 2, False, goals, labels
    )


def leave(folder: Path, one: ExamResult, **facts: Any) -> Path:
    folder.mkdir(parents=True)
    (folder / "exam.json").write_text(json.dumps(to_json(one)))
    (folder / "kernelmate.json").write_text(json.dumps(facts))
    return folder


def test_rows_take_what_a_model_was_from_its_own_facts(tmp_path: Path) -> None:
    corpus = {"train": {"examples": 1200}}
    leave(tmp_path / "a", result(3, greedy=1), name="a", codec="lines-1", parameters=35_000_000, corpus=corpus)
    leave(tmp_path / "b" / "deep", result(1), name="b", codec="whole-1-plain", parameters=35_000_000, corpus=corpus)
    first, second = rows_of([tmp_path])
    assert (first.model, first.output, first.placeholders, first.parameters, first.pairs) == (
        "a", "line edits", True, 35_000_000, 1200,
    )  # fmt: skip
    assert (first.greedy, first.best, first.k) == ((0.25, 0.25, 0.25), (1.0, 0.75, 0.75), 2)
    assert (second.output, second.placeholders) == ("whole kernels", False)


def test_labels_say_it_where_the_model_lies_elsewhere(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    one = result(
        2, name="x", output="actions", placeholders="no", parameters="15000000", pairs="99", rounds="2 contrastive"
    )
    path.write_text(json.dumps(to_json(one)))
    (row,) = rows_of([path])
    assert (row.model, row.output, row.placeholders, row.parameters, row.pairs, row.rounds) == (
        "x", "recipe actions", False, 15_000_000, 99, "2 contrastive",
    )  # fmt: skip


def test_the_best_stands_first_and_single_choices_are_compared(tmp_path: Path) -> None:
    leave(tmp_path / "a", result(1), name="small", codec="lines-1", parameters=15_000_000)
    leave(tmp_path / "b", result(3), name="large", codec="lines-1", parameters=80_000_000)
    leave(tmp_path / "c", result(2), name="other", codec="whole-1", parameters=35_000_000)
    lines = list(table(list(rows_of([tmp_path]))))
    names = [line.split()[0] for line in lines if line[:1].isalpha() and "%" in line]
    assert names == ["large", "other", "small"]
    assert [line.strip() for line in lines if line.startswith("  ")] == [
        "parameters: 80.0M 0.0%, 75.0% against 15.0M 0.0%, 25.0% (large, small)"
    ]


def test_what_a_codec_and_its_vocabulary_change_of_the_numbers_is_no_other_choice(tmp_path: Path) -> None:
    def left(name: str, met: int, examples: int, parameters: int, seconds: float = 60.2, **more: Any) -> None:
        facts = {"parameters": parameters, "seconds": seconds, "corpus": {"train": {"examples": examples}}, **more}
        leave(tmp_path / name, result(met), name=name, **{"codec": "mixed-2", **facts})

    played = [{"kind": "self"}, {"kind": "contrastive"}, {"kind": "self"}]
    left("mixed", 3, 24945, 33_317_376)
    left("actions", 2, 21451, 32_900_000, codec="actions-1")
    left("plain", 1, 24945, 33_900_000, codec="mixed-2-plain")
    left("half", 2, 12105, 33_260_032)
    left("longer", 4, 24945, 33_317_376, seconds=127.0)
    left("played", 4, 24945, 33_317_376, rounds=played)
    effects = {line.split(":")[0].strip(): line for line in table(list(rows_of([tmp_path]))) if line.startswith("  ")}
    assert set(effects) == {"output", "placeholders", "pairs", "seconds", "rounds"}
    assert "offers, edits 0.0%, 75.0% against recipe actions 0.0%, 50.0% (mixed, actions)" in effects["output"]
    assert "24945 0.0%, 75.0% against 12105" in effects["pairs"]
    assert "3 self+contrastive 0.0%, 100.0% against 0 0.0%, 75.0% (played, mixed)" in effects["rounds"]


def test_results_of_different_exams_are_not_in_one_table(tmp_path: Path) -> None:
    leave(tmp_path / "a", result(1), name="a", codec="lines-1")
    leave(tmp_path / "b", result(1, sha256="b" * 64), name="b", codec="lines-1")
    assert sum("exam " in line for line in table(list(rows_of([tmp_path])))) == 2


def test_answers_that_were_not_judged_are_found(tmp_path: Path) -> None:
    leave(tmp_path / "done", result(1), codec="lines-1")
    (tmp_path / "done" / "answers.jsonl").write_text("")
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "answers.jsonl").write_text("")
    (tmp_path / "open" / "kernelmate.json").write_text("{}")
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "answers.jsonl").write_text("")
    assert list(models_without_result([tmp_path])) == [tmp_path / "open"]


def test_what_cannot_be_a_row_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SourceError, match="There is no result"):
        list(rows_of([tmp_path]))
    alone = ExamResult(1, "a" * 64, True, "emulator", "H100 SXM", 1, None, 0, True, ())
    path = tmp_path / "recipes.json"
    path.write_text(json.dumps(to_json(alone)))
    with pytest.raises(SourceError, match="recipes alone"):
        list(rows_of([path]))


def test_the_table_is_printed_and_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(tmp_path / "a", result(1), name="only", codec="actions-1", parameters=2)
    out = tmp_path / "table.txt"
    monkeypatch.setattr("sys.argv", ["upskill_ablations", str(tmp_path), "-o", str(out)])
    main()
    assert capsys.readouterr().out == out.read_text()
    assert "only                     recipe actions" in out.read_text()


def test_the_controls_take_each_variant_once() -> None:
    offers = (("unroll", 2), ("coalesce", 1), ("block-size", 3))
    first = [("unroll", 0), ("coalesce", 0), ("block-size", 0), ("unroll", 1), ("block-size", 1), ("block-size", 2)]
    assert in_order(offers) == first
    assert sorted(at_random(offers, "1 a")) == sorted(first)
    assert at_random(offers, "1 a") == at_random(offers, "1 a") != first
