"""`kernelmate model` with a real tiny model and real llama.cpp."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kernelmate.cli.main import cli
from kernelmate.suggest.consent import Consents

pytest.importorskip("gguf")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "suggest" / "local"))

from tiny_gguf import write_tiny_gguf

Run = Callable[..., Result]


@pytest.fixture
def tiny(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KERNELMATE_MODELS_DIR", str(folder / "models"))
    monkeypatch.setenv("KERNELMATE_MODEL_CONTEXT", "1024")
    monkeypatch.setenv("KERNELMATE_MODEL_THREADS", "1")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder / "run"))
    (folder / "run").mkdir(mode=0o700)
    return write_tiny_gguf(folder / "tiny.gguf")


def test_a_model_is_added_listed_used_and_removed(run: Run, tiny: Path, documents: Callable[[str], Any]) -> None:
    assert "No model yet" in run("model", "list").stdout
    added = run("model", "add", "tiny.gguf")
    assert added.exit_code == 0
    assert "sha256" in added.stderr
    assert "licence Apache-2.0" in added.stderr
    run("model", "add", "tiny.gguf", "--name", "second")
    listed = documents(run("model", "list", "--json").stdout)
    assert (listed["use"], [model["name"] for model in listed["models"]]) == ("tiny", ["second", "tiny"])
    assert run("model", "use", "second").exit_code == 0
    assert documents(run("model", "list", "--json").stdout)["use"] == "second"
    assert "* second" in " ".join(run("model", "list").stdout.split())
    assert "is left where it is" in run("model", "remove", "second").stderr
    assert tiny.exists()


def test_doctor_says_which_model_would_be_asked(run: Run, tiny: Path, documents: Callable[[str], Any]) -> None:
    def looked() -> tuple[str, str]:
        checks = {check["name"]: check for check in documents(run("doctor", "--json").stdout)["checks"]}
        return checks["model"]["status"], checks["model"]["detail"]

    assert looked()[0] == "missing"
    run("model", "add", "tiny.gguf")
    status, detail = looked()
    assert status == "ok"
    assert detail.startswith("tiny, served by ")
    tiny.unlink()
    assert "The file of the model tiny is gone" in looked()[1]


def test_where_says_how_the_model_in_use_would_be_served(run: Run, tiny: Path, documents: Callable[[str], Any]) -> None:
    def memory() -> str:
        return str(documents(run("model", "where", "--json").stdout)["where"]["memory"])

    assert memory() == "no model is in use"
    run("model", "add", "tiny.gguf")
    assert memory().startswith("2 conversations of 1,024 tokens, on the CPU: about ")


def test_a_model_is_tried_shared_and_stopped(run: Run, tiny: Path, documents: Callable[[str], Any]) -> None:
    run("model", "add", "tiny.gguf")
    try:
        tried = documents(run("model", "test", "--json").stdout)["test"]
        assert tried["model"] == "tiny"
        assert tried["tokens_per_s"] > 0
        assert "model tiny" in documents(run("model", "where", "--json").stdout)["where"]["server"]
        assert "tokens per second" in run("model", "test").stdout
        exam = documents(
            run("upskill", "examine", "--k", "2", "--goals", "fix-trapezoid", "--json", "-o", "exam.json").stdout
        )["exam"]
    finally:
        stopped = run("model", "stop")
    assert "has ended" in stopped.stderr
    # A tiny model of random weights writes nothing of use, and the exam says so; a repair does it.
    figures = {one["entrant"]: one["met"] for one in exam["figures"]}
    assert figures == {"model, greedy": 0, "model, k = 2": 0, "recipes": 1, "both": 1}
    assert exam["model"]["name"] == "tiny"
    (goal,) = exam["goals"]
    assert goal["attempts"][-1]["standing"] == "unreadable" or goal["problem"]
    assert json.loads(Path("exam.json").read_text()) == exam
    assert "no server ran" in run("model", "stop").stderr


def test_consent_is_shown_and_withdrawn(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    consents = Consents(folder / "consent.json")
    monkeypatch.setattr("kernelmate.suggest.consent.default_path", lambda: consents.path)
    (folder / "project" / ".git").mkdir(parents=True)
    (folder / "project" / "kernels").mkdir()
    assert "you are asked before the first is" in run("model", "consent", "project").stderr
    consents.give(folder / "project", "api.example.com")
    consents.give(folder, "api.example.com")
    shown = run("model", "consent", "project/kernels")
    assert "api.example.com: text of" in shown.stderr
    assert "--withdraw" in shown.stderr
    assert consents.given(folder / "project", "api.example.com")
    assert "withdrawn" in run("model", "consent", "project/kernels", "--withdraw").stderr
    assert not consents.given(folder / "project", "api.example.com")
    assert consents.given(folder, "api.example.com")


def test_the_exams_goals_are_listed_without_a_model(run: Run, documents: Callable[[str], Any]) -> None:
    goals = documents(run("upskill", "examine", "--list", "--json").stdout)["goals"]
    assert len(goals) >= 64
    assert goals[0]["prompt"] in run("upskill", "examine", "--list").stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["add", "gone.gguf"], "no file gone.gguf"),
        (["add", "notes.txt"], "no file notes.txt"),
        (["add", "bad.gguf"], "not a GGUF file"),
        (["use", "nobody"], "no model 'nobody'"),
        (["remove", "nobody"], "no model 'nobody'"),
        (["test"], "No model is in use"),
        (["serve"], "No model is in use"),
    ],
)
def test_mistakes_are_told_with_what_to_do(tiny: Path, arguments: list[str], told: str) -> None:
    Path("bad.gguf").write_text("no")
    result = CliRunner().invoke(cli, ["model", *arguments])
    assert result.exit_code == 2
    assert told in result.stderr
    assert "hint:" in result.stderr


def test_an_author_that_does_not_exist_is_told(tiny: Path, samples: Any) -> None:
    Path("twice.cu").write_text(samples.source)
    result = CliRunner().invoke(cli, ["optimize", "twice.cu", "faster", "--author", "nobody"])
    assert result.exit_code == 2
    assert "auto, synthesis, recipes, local, claude" in result.stderr
    missing = CliRunner().invoke(cli, ["optimize", "twice.cu", "faster", "--author", "local"])
    assert missing.exit_code == 2
    assert "kernelmate model add" in missing.stderr


def test_nonsense_of_a_real_model_costs_a_note_and_no_candidate(tiny: Path, samples: Any) -> None:
    Path("twice.cu").write_text(samples.source)
    runner = CliRunner()
    runner.invoke(cli, ["model", "add", "tiny.gguf"])
    try:
        result = runner.invoke(
            cli, ["optimize", "twice.cu", "make it faster", "--author", "local", "--samples", "1", "--json"],
            env={"KERNELMATE_MODEL_CONTEXT": "4096"},
        )  # fmt: skip
    finally:
        runner.invoke(cli, ["model", "stop"])
    assert result.exit_code == 1, result.stderr
    assert json.loads(result.stdout)["candidates"] == []
    assert "local:tiny" in result.stderr
