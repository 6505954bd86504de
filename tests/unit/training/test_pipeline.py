"""The whole way in miniature, by the command itself, on stored pairs: trained, exported, asked; cut, and gone on with."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

torch = pytest.importorskip("torch", reason="training needs the extra `train`")

from kernelmate.cli.main import cli  # noqa: E402
from kernelmate.suggest.local.library import read_facts  # noqa: E402
from kernelmate_training.examples import format_examples, lines_of  # noqa: E402
from kernelmate_training.journal import events  # noqa: E402
from kernelmate_training.pipeline import Pipeline  # noqa: E402
from kernelmate_training.settings import ModelSection, TrainingSection, Upskill  # noqa: E402

CORPUS = Path(__file__).resolve().parents[2] / "data" / "upskill"
CONFIG = """
name = "mini"
folder = "work"
[corpus]
folder = "{corpus}"
[training]
steps = {steps}
tokens_per_step = 2048
log_steps = 2
held_out_s = 0
[[models]]
name = "mini-lines"
vocabulary = 1400
hidden = 32
layers = 1
heads = 2
feed_forward = 64
context = 1024
[sampling]
prompts = "prompts"
k = 2
most_tokens = 12
"""


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., Path]:
    def write(text: str = CONFIG, **values: Any) -> Path:
        path = tmp_path / "mini.toml"
        path.write_text(text.format(**{"corpus": CORPUS, "steps": 4, **values}))
        return path

    return write


def invoke(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def test_one_command_trains_exports_and_asks(config: Callable[..., Path], tmp_path: Path) -> None:
    prompts = tmp_path / "prompts"
    prompts.mkdir()
    told = format_examples(lines_of(CORPUS), "mixed-2", processes=1).examples[:3]
    rows = [{"goal": f"g{number}", "prompt": example.prompt} for number, example in enumerate(told)]
    (prompts / "mixed-2.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = invoke("upskill", "run", config(), "--json")
    assert result.exit_code == 0, result.output
    document = json.loads(result.stdout)
    assert document["problems"] == []
    folder = tmp_path / "work" / "models" / "mini-lines"
    facts = read_facts(folder / "mini-lines-q8_0.gguf")
    assert (facts["architecture"], facts["licence"]) == ("llama", "Apache-2.0")
    answers = [json.loads(line) for line in (folder / "answers.jsonl").read_text().splitlines()]
    assert [(one["goal"], one["sample"]) for one in answers] == [(f"g{goal}", n) for goal in range(3) for n in range(2)]
    again = invoke("upskill", "run", config(steps=6), "--json")
    assert json.loads(again.stdout)["results"]["mini-lines"]["trained"]["steps"] == 6
    assert [event["step"] for event in events(folder / "log.jsonl", "resume")] == [4]


def test_a_run_at_its_end_takes_no_further_step_and_keeps_its_figures(config: Callable[..., Path]) -> None:
    first, second = (json.loads(invoke("upskill", "train", config(), "--json").stdout)["results"]["mini-lines"] for _ in range(2))  # fmt: skip
    assert (first["steps"], second["steps"]) == (4, 4)
    assert second["loss"] == first["loss"] > 0


def test_a_step_is_done_again_where_what_it_rests_on_is_another(config: Callable[..., Path], tmp_path: Path) -> None:
    text = CONFIG.replace('prompts = "prompts"', "")
    assert json.loads(invoke("upskill", "run", config(text), "--json").stdout)["problems"] == []
    folder = tmp_path / "work" / "models" / "mini-lines"
    trained = (folder / "model.safetensors").stat().st_mtime_ns
    other = invoke("upskill", "run", config(text + '[export]\nkind = "f16"\n'), "--json")
    assert json.loads(other.stdout)["results"]["mini-lines"]["gguf"].endswith("mini-lines-f16.gguf")
    assert (folder / "model.safetensors").stat().st_mtime_ns == trained
    assert "training: done before" in (folder / "output.txt").read_text()


def test_a_model_that_cannot_be_trained_is_said_and_costs_the_others_nothing(config: Callable[..., Path], tmp_path: Path) -> None:  # fmt: skip
    text = CONFIG.replace('prompts = "prompts"', "") + '[[models]]\nname = "bad"\ncodec = "no-such-codec"\n'
    result = invoke("upskill", "run", config(text, steps=2), "--json")
    document = json.loads(result.stdout)
    assert result.exit_code == 1
    assert any("no-such-codec" in problem for problem in document["problems"])
    assert Path(document["results"]["mini-lines"]["gguf"]).is_file()


def test_a_dry_run_says_time_and_memory_and_does_nothing(config: Callable[..., Path], tmp_path: Path) -> None:
    result = invoke("upskill", "run", config(), "--dry-run")
    assert result.exit_code == 0
    assert "mini-lines:" in result.output
    assert "GiB" in result.output
    assert not (tmp_path / "work").exists()


def test_a_corpus_that_is_not_there_is_said(config: Callable[..., Path], tmp_path: Path) -> None:
    result = invoke("upskill", "train", config(corpus=tmp_path / "nowhere"))
    assert result.exit_code == 2
    assert "kernelmate upskill generate" in result.output


class Timed(Pipeline):
    """Whole, with processes that only take time in the place of training."""

    def __init__(self, settings: Upskill, takes: dict[str, float]) -> None:
        super().__init__(settings, gpus=(0, 1))
        self.takes = takes
        self.begun: list[tuple[str, int | None, float | None]] = []

    def _start(self, model: ModelSection, gpu: int | None, seconds: float | None) -> subprocess.Popen[bytes]:
        self.begun.append((model.name, gpu, seconds))
        return subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({self.takes[model.name]})"])


def test_a_gpu_that_is_free_takes_the_next_model_and_a_model_gets_its_own_seconds(tmp_path: Path) -> None:
    models = tuple(ModelSection(name=name, training={"seconds": 30} if name == "long" else {}) for name in ("long", "short", "third"))  # fmt: skip
    settings = Upskill(name="x", folder=tmp_path, models=models, training=TrainingSection(steps=1))
    whole = Timed(settings, {"long": 4.0, "short": 0.1, "third": 0.1})
    whole._train(100.0)
    assert [(name, gpu) for name, gpu, _ in whole.begun] == [("long", 0), ("short", 1), ("third", 1)]
    long, short, third = (seconds for _, _, seconds in whole.begun)
    assert long == 30
    assert short == pytest.approx(50, abs=2)
    assert third is not None
    assert 80 < third < 100
    assert whole.outcome.problems == []


def test_a_model_without_time_left_is_said_and_not_begun(tmp_path: Path) -> None:
    models = tuple(ModelSection(name=name) for name in ("one", "two", "three"))
    whole = Timed(Upskill(name="x", folder=tmp_path, models=models, training=TrainingSection(steps=1)), {"one": 1.2, "two": 1.2})  # fmt: skip
    whole._train(1.5)
    assert [name for name, _, _ in whole.begun] == ["one", "two"]
    assert whole.outcome.problems == ["three: no time was left to train it."]
