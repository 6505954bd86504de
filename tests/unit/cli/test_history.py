"""`kernelmate history` on a real history."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from kernelmate.cli.main import cli
from kernelmate.history import History
from kernelmate.records import JudgementEntry
from kernelmate.report.json import verdict_json
from kernelmate.source import load_kernel

Run = Callable[..., Result]


@pytest.fixture
def kept(folder: Path, samples: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose kernel was judged, then changed by a recipe; its history."""
    path = folder / "kept.db"
    monkeypatch.setenv("KERNELMATE_HISTORY_FILE", str(path))
    (folder / "twice.cu").write_text(samples.source)
    (folder / "new.cu").write_text(samples.source.replace("tile[512]", "tile[256]"))
    verdict = verdict_json(samples.verdict)
    with History(path) as history:
        parent = history.record(load_kernel(str(folder / "twice.cu")), JudgementEntry("bench", "user", verdict))
        changed = JudgementEntry(
            "optimize",
            "recipe:smaller",
            verdict,
            prompt="less shared memory",
            metric="shared_bytes",
            why="half is never used",
            parent=parent,
        )
        history.record(load_kernel(str(folder / "new.cu")), changed)
    return folder / "twice.cu"


def test_without_a_history_it_says_what_writes_one(run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERNELMATE_HISTORY_FILE", str(folder / "none.db"))
    result = run("history")
    assert result.exit_code == 0
    assert "Nothing was judged yet" in result.stdout
    assert not (folder / "none.db").exists()


def test_kernels_and_versions_are_listed(run: Run, kept: Path, documents: Callable[[str], Any]) -> None:
    assert "twice" in run("history").stdout
    (known,) = documents(run("history", "--json").stdout)["kernels"]
    assert (known["name"], known["versions"], known["judgements"]) == ("twice", 2, 2)
    for given in (str(kept), f"{kept}::twice", "twice", str(known["number"])):
        versions = documents(run("history", given, "--json").stdout)["versions"]
        assert [one["author"] for one in versions] == ["user", "recipe:smaller"]
    shown = run("history", "twice").stdout
    assert "recipe:smaller" in shown
    assert "less shared" in shown


def test_a_kernel_that_was_never_judged_is_an_error(run: Run, kept: Path) -> None:
    result = CliRunner().invoke(cli, ["history", "nobody"])
    assert result.exit_code == 2
    assert "has no version of nobody" in result.stderr


def test_one_version_is_shown_with_its_source(run: Run, kept: Path, documents: Callable[[str], Any]) -> None:
    shown = run("history", "show", "2", "--source").stdout
    assert "half is never used" in shown
    assert "tile[256]" in shown
    (version,) = documents(run("history", "show", "2", "--json").stdout)["versions"]
    assert version["parent"] == 1


def test_two_versions_are_compared(run: Run, kept: Path) -> None:
    result = run("history", "diff", "1", "2")
    assert result.exit_code == 1
    assert "-    __shared__ float tile[512];" in result.stdout
    assert "+    __shared__ float tile[256];" in result.stdout
    assert run("history", "diff", "2", "2").exit_code == 0


def test_a_version_is_put_back_and_what_was_there_is_kept(run: Run, kept: Path) -> None:
    old = kept.read_text()
    kept.write_text(old.replace("tile[512]", "tile[999]"))
    edited = kept.read_text()
    assert run("history", "restore", "1", "--dry-run").exit_code == 0
    assert kept.read_text() == edited
    assert run("history", "restore", "1").exit_code == 0
    assert kept.read_text() == old
    assert (kept.parent / "twice.cu.kernelmate-backup").read_text() == edited
    assert "already" in run("history", "restore", "1").stderr


def test_only_the_kernel_is_put_back_where_the_rest_has_changed(run: Run, kept: Path) -> None:
    kept.write_text(kept.read_text().replace("tile[512]", "tile[999]") + "\n// a remark of the user's\n")
    result = run("history", "restore", "1")
    assert "tile[512]" in kept.read_text()
    assert kept.read_text().endswith("// a remark of the user's\n")
    assert "rest of the file has changed" in result.stderr


@pytest.mark.parametrize("left", ["// nothing left\n", "__global__ void other(int *x) { x[0] = 1; }\n", None])
def test_a_kernel_that_is_gone_is_an_error_that_says_how_to_get_its_text(kept: Path, left: str | None) -> None:
    kept.unlink() if left is None else kept.write_text(left)
    result = CliRunner().invoke(cli, ["history", "restore", "1"])
    assert result.exit_code == 2
    assert "history show 1 --source" in result.stderr


def test_examples_are_exported_line_by_line(run: Run, kept: Path) -> None:
    (line,) = run("history", "export", "--jsonl").stdout.splitlines()
    example = json.loads(line)
    assert example["problem"]["prompt"] == "less shared memory"
    assert "tile[512]" in example["before"]["source"]
    assert "tile[256]" in example["after"]["source"]
    assert example["reasoning"][0] == "half is never used"
    assert set(example) >= {"problem", "constraints", "reasoning", "before", "after", "verdict"}
    assert example["verdict"]["accepted"] == example["after"]["verdict"]["accepted"]
    assert run("history", "export", "--jsonl", "--out", "out.jsonl").exit_code == 0
    assert Path("out.jsonl").read_text().splitlines() == [line]


def test_forgetting_asks_first(kept: Path) -> None:
    refused = CliRunner().invoke(cli, ["history", "forget", "twice"], input="n\n")
    assert refused.exit_code != 0
    assert "recipe:smaller" in CliRunner().invoke(cli, ["history", "twice"]).stdout
    agreed = CliRunner().invoke(cli, ["history", "forget", "twice", "--yes"])
    assert "2 judgements deleted" in agreed.stderr
    assert "Nothing was judged" in CliRunner().invoke(cli, ["history"]).stdout


def test_forgetting_needs_to_know_what(kept: Path) -> None:
    result = CliRunner().invoke(cli, ["history", "forget"])
    assert result.exit_code == 2
    assert "--all" in result.stderr


def test_a_damaged_history_is_replaced_and_said(run: Run, kept: Path) -> None:
    path = kept.parent / "kept.db"
    path.write_bytes(b"no database" * 100)
    result = run("history")
    assert result.exit_code == 0
    assert "The history was damaged" in result.stderr
    assert list(kept.parent.glob("kept.db.damaged-*"))


def test_what_a_session_has_to_say_is_told(run: Run, script: Any, folder: Path, samples: Any) -> None:
    (folder / "twice.cu").write_text(samples.source)
    script.notices = ("a notice of the session",)
    assert "a notice of the session" in run("bench", "twice.cu").stderr
