"""Rounds as a process' whole work: a copy plays them, is exported and asked, and its model stays what it was."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="rounds need the extra `train`")

from kernelmate.errors import UsageError
from kernelmate_training.examples import format_examples, lines_of
from kernelmate_training.round_process import KEPT, copy_model, run_rounds
from kernelmate_training.settings import Upskill
from kernelmate_training.training_job import train_model

CORPUS = Path(__file__).resolve().parents[2] / "data" / "upskill"
SHAPE = {"vocabulary": 1400, "hidden": 32, "layers": 1, "heads": 2, "feed_forward": 64, "context": 1024}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> Upskill:
    folder = tmp_path_factory.mktemp("p")
    (folder / "prompts").mkdir()
    prompt = format_examples(lines_of(CORPUS), "mixed-2", processes=1).examples[0].prompt
    (folder / "prompts" / "mixed-2.jsonl").write_text(json.dumps({"goal": "g", "prompt": prompt}) + "\n")
    made = Upskill.model_validate(
        {
            "name": "p", "folder": folder, "corpus": {"folder": CORPUS, "workers": 1},
            "training": {"steps": 2, "tokens_per_step": 2048, "held_out_s": 0},
            "models": [{"name": "m", **SHAPE}, {"name": "m-self", **SHAPE}, {"name": "m-grpo", **SHAPE}],
            "rounds": {"kind": "self", "prompts": 1, "k": 1, "seconds": 20, "steps": 1},
            "sampling": {"prompts": folder / "prompts", "k": 2, "most_tokens": 8},
        }
    )  # fmt: skip
    train_model(made, made.model("m"))
    return made


def test_a_copy_plays_and_leaves_its_model_alone(settings: Upskill) -> None:
    before = {name: (settings.model_folder("m") / name).read_bytes() for name in KEPT}
    copy_model(settings, "m", "m-self")
    assert run_rounds(settings, "m-self") == ()
    folder = settings.model_folder("m-self")
    result = json.loads((folder / "result.json").read_text())
    assert [one["kind"] for one in result["rounds"]] == ["self"]
    assert Path(result["export"]).is_file()
    assert len((folder / "answers.jsonl").read_text().splitlines()) == 2
    assert {name: (settings.model_folder("m") / name).read_bytes() for name in KEPT} == before


def test_what_has_played_is_not_overwritten_and_what_is_not_there_is_said(settings: Upskill) -> None:
    copy_model(settings, "m", "m-again")
    own = settings.model_folder("m-again") / KEPT[0]
    own.write_text("{}")
    copy_model(settings, "m", "m-again")
    assert own.read_text() == "{}"
    with pytest.raises(UsageError):
        copy_model(settings, "nobody", "m-other")


def test_a_round_by_advantages_says_what_it_moved(settings: Upskill) -> None:
    copy_model(settings, "m", "m-grpo")
    rounds = settings.rounds.model_copy(update={"kind": "grpo", "k": 3, "most_tokens": 6})
    assert run_rounds(settings.model_copy(update={"rounds": rounds}), "m-grpo") == ()
    (played,) = json.loads((settings.model_folder("m-grpo") / "kernelmate.json").read_text())["rounds"]
    assert (played["kind"], played["judged_on"]) == ("grpo", "emulated")
    # A model after two steps answers nothing of use: all its answers are worth the same, and nothing moves.
    assert (played["answers"], played["reward"], played["more"]["steps"]) == (3, 0.0, 0)
