"""A corpus of the history."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelmate.errors import UsageError
from kernelmate.history import History
from kernelmate.records import JudgementEntry
from kernelmate.source import find_kernels, text_unit
from kernelmate_training.corpus import collect
from kernelmate_training.corpus.assemble import CARD, REJECTED
from kernelmate_training.corpus_files import CORPUS

BASE = "// scale\n__global__ void scale(float* x, int n) {\n  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) x[i] = x[i] * 2.0;\n}\n"
BETTER = BASE.replace("2.0;", "2.0f;")
WRONG = BASE.replace("2.0;", "3.0f;")
LAUNCH = {"grid": ["cdiv(n, block)"], "block": ["256"], "shared": "0", "require": []}


def entry(
    author: str, accepted: bool | None, parent: int | None = None, metric: str | None = None, **verdict: object
) -> JudgementEntry:
    document = {
        "accepted": accepted,
        "correct": accepted is not False,
        "cases": [],
        "findings": [],
        "seed": 3,
        **verdict,
    }
    return JudgementEntry(
        "optimize",
        author,
        document,
        prompt="faster",
        metric=metric,
        launch=LAUNCH,
        parent=parent,
        steps=("Write 2.0f.",),
    )


@pytest.fixture
def history_file(tmp_path: Path) -> Path:
    path = tmp_path / "history.sqlite"
    kernels = [find_kernels(text_unit(text, "scale.cu"))[0] for text in (BASE, BETTER, WRONG)]
    race = {"code": "shared-race", "severity": "error", "message": "two threads", "line": 4}
    with History(path) as history:
        base = history.record(kernels[0], entry("user", None, findings=[race]))
        history.record(kernels[1], entry("local:m", True, base, "time"))
        history.record(kernels[2], entry("local:m", False, base, "time"))
        history.record(kernels[1], entry("recipe:r", True, base, "correct"))
    return path


def test_accepted_versions_are_rows_and_rejected_ones_are_kept_apart(history_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    assert collect(folder, history_file) == 2
    change, repair = (json.loads(line) for line in (folder / CORPUS).read_text().splitlines())
    assert (change["task"], change["broken"], change["family"], change["split"]) == (
        "generate",
        None,
        "history",
        "train",
    )
    assert change["before"]["source"] == BASE
    assert change["after"]["source"] == BETTER
    assert change["reasoning"] == ["Write 2.0f."]
    assert (repair["task"], repair["broken"]) == ("debug", "shared-race: line 4: two threads")
    assert change["group"] == repair["group"]
    (rejected,) = [json.loads(line) for line in (folder / REJECTED).read_text().splitlines()]
    assert rejected["after"]["source"] == WRONG
    assert "user's own kernels" in (folder / CARD).read_text()


def test_it_is_written_anew_each_time_but_never_over_a_generated_one(history_file: Path, tmp_path: Path) -> None:
    folder = tmp_path / "corpus"
    assert collect(folder, history_file) == collect(folder, history_file) == 2
    (folder / "settings.json").write_text("{}")
    with pytest.raises(UsageError, match="generated corpus"):
        collect(folder, history_file)
