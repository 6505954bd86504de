"""`kernelmate upskill run` with the tiny configuration, as a user gives it: from no corpus to an exam that was sat; then once more."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the whole way needs the extra `train`: make train-tools")
pytest.importorskip("gguf", reason="export needs the extra `train`: make train-tools")

from kernelmate.suggest.local.library import read_facts
from kernelmate_training.exam.goals import exam_hash
from kernelmate_training.exam.similarity import nearest_of

pytestmark = pytest.mark.timeout(600)
"""Two whole runs of training: minutes, as against the 150 s that `make test` gives a test."""

CONFIG = Path(__file__).resolve().parents[2] / "examples" / "upskill" / "tiny.toml"
MODEL, GOAL = "tiny-mixed", "rotate-image-coalescing"
TOLD_ANEW = {"run.jsonl", "outcome.json", "settings.json", "exam.jsonl"}
"""Files that say how the last command went, or are read and written as they were."""


def run(*arguments: object, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "kernelmate", *map(str, arguments)]
    done = subprocess.run(command, cwd=cwd, env={**os.environ, **more}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """When each file was written, and how long it is."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name not in TOLD_ANEW]
    return {str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.stat().st_size) for path in files}


def test_the_tiny_configuration_goes_the_whole_way_and_then_does_nothing_twice(tmp_path: Path) -> None:
    # The configuration names a folder two above its own.
    config = tmp_path / "examples" / "upskill" / CONFIG.name
    config.parent.mkdir(parents=True)
    shutil.copyfile(CONFIG, config)
    first = document(run("upskill", "run", config, "--json", cwd=tmp_path))
    assert first["problems"] == []
    folder = tmp_path / "build" / "upskill-tiny"
    see_the_corpus(folder / "corpus")
    see_the_model(folder / "models" / MODEL, first["results"][MODEL])
    see_the_exam(first["results"][MODEL]["exam"])
    if find_spec("xllamacpp") or find_spec("llama_cpp"):
        see_it_answer_by_llama_cpp(Path(first["results"][MODEL]["gguf"]), tmp_path)

    before, exam = state(folder), (folder / "models" / MODEL / "exam.jsonl").read_bytes()
    again = run("upskill", "run", config, cwd=tmp_path)
    assert f"{MODEL}: done before" in again.stderr
    assert state(folder) == before
    assert (folder / "models" / MODEL / "exam.jsonl").read_bytes() == exam
    second = json.loads((folder / "outcome.json").read_text())
    assert (second["problems"], second["results"]) == ([], first["results"])


def see_the_corpus(folder: Path) -> None:
    rows = rows_of(folder / "corpus.jsonl")
    tasks = Counter(row["task"] for row in rows)
    assert set(tasks) == {"generate", "analyse", "debug"}
    assert min(tasks.values()) >= 10
    assert len({row["family"] for row in rows}) >= 5
    for row in rows:
        assert row["judged_on"] == "emulated"
        assert row["after"] is None or row["after"]["verdict"]["correct"] is True
        if row["task"] == "debug":
            assert row["broken"]
            assert row["before"]["verdict"] is None or row["before"]["verdict"]["correct"] is not True
    assert json.loads((folder / "manifest.json").read_text())["rows"] == len(rows)
    assert "emulated" in (folder / "card.md").read_text()
    near = nearest_of(folder)
    assert near.texts > 20
    assert near.near == ()


def see_the_model(folder: Path, result: dict[str, Any]) -> None:
    facts = read_facts(Path(result["gguf"]))
    assert (facts["architecture"], facts["codec"]) == ("llama", "mixed-2")
    log = rows_of(folder / "log.jsonl")
    losses = [event["loss"] for event in log if event["event"] == "step"]
    assert losses[-1] < 0.6 * losses[0]
    played = json.loads((folder / "kernelmate.json").read_text())["rounds"]
    assert [one["kind"] for one in played] == ["self", "contrastive"]
    assert played[0]["questions"] == 6
    assert played[0]["answers"] > 0
    answers = rows_of(folder / "answers.jsonl")
    assert [(one["goal"], one["sample"]) for one in answers] == [(GOAL, 0), (GOAL, 1)]


def see_the_exam(exam: dict[str, Any]) -> None:
    assert exam["sha256"] == exam_hash()
    (goal,) = exam["goals"]
    assert (goal["goal"], goal["problem"]) == (GOAL, "")
    assert [attempt["number"] for attempt in goal["attempts"]] == [0, 1]


def see_it_answer_by_llama_cpp(file: Path, folder: Path) -> None:
    """The file as a user takes it into use: added, loaded, asked for a goal by its own codec."""
    (folder / "run").mkdir(mode=0o700)
    own = {"KERNELMATE_MODELS_DIR": str(folder / "added"), "XDG_RUNTIME_DIR": str(folder / "run"), "KERNELMATE_MODEL_THREADS": "1"}  # fmt: skip
    run("model", "add", file, "--name", "mine", cwd=folder, **own)
    try:
        tried = document(run("model", "test", "mine", "--json", cwd=folder, **own))
        tried |= document(run("upskill", "examine", "mine", "--goals", GOAL, "--k", "2", "--no-recipes", "--json", cwd=folder, **own))  # fmt: skip
    finally:
        run("model", "stop", cwd=folder, **own)
    assert tried["test"]["tokens_per_s"] > 0
    assert tried["exam"]["model"]["codec"] == "mixed-2"
    (goal,) = tried["exam"]["goals"]
    assert goal["problem"] == ""
    assert goal["attempts"]
