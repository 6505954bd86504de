"""Building a corpus: what is in it, that it can be gone on with, and that equal settings give the same."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from kernelmate.errors import UsageError
from kernelmate_training.corpus import Manifest, Settings, build
from kernelmate_training.corpus.assemble import CARD, MANIFEST, PromptFilter
from kernelmate_training.corpus.examples import StoredRow, mark_of
from kernelmate_training.corpus.families.catalogue import HELD_OUT
from kernelmate_training.corpus.journal import PARTS
from kernelmate_training.corpus_files import CORPUS

pytestmark = pytest.mark.exhaustive(share=0.2, together=True)

FEW = ("column-map", "sum-all", "transpose", "multistep-solver")


def settings(folder: Path, count: int = 24) -> Settings:
    return Settings(folder, count=count, seed=5, workers=1, families=FEW)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Manifest]:
    folder = tmp_path_factory.mktemp("corpus")
    return folder, build(settings(folder))


def rows_of(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / CORPUS).read_text().splitlines()]


def test_rows_have_what_the_format_says(built: tuple[Path, Manifest]) -> None:
    folder, manifest = built
    rows = rows_of(folder)
    assert len(rows) == manifest.rows >= 24
    for row in rows:
        assert set(row) >= {"format", "problem", "constraints", "reasoning", "before", "after", "verdict", "author", "cost",
                            "judged_us", "tool", "task", "family", "group", "split", "styles", "seed", "judged_on", "broken"}  # fmt: skip
        assert row["task"] in ("generate", "analyse", "debug")
        assert row["judged_on"] == "emulated"
        assert row["before"]["source"] != row["after"]["source"]
        assert "// /// kernelmate" in row["before"]["source"]
        assert row["after"]["verdict"]["correct"] is True
        assert row["reasoning"]
        assert (row["split"] == "held-out") == (row["family"] in HELD_OUT)


def test_broken_versions_failed_and_others_did_not(built: tuple[Path, Manifest]) -> None:
    for row in rows_of(built[0]):
        debug = row["task"] == "debug"
        assert bool(row["broken"]) is debug
        assert row["before"]["verdict"]["correct"] is (not debug)
        assert row["verdict"]["accepted"] is not False


def test_without_a_gpu_no_time_is_called_measured(built: tuple[Path, Manifest]) -> None:
    timed = [row for row in rows_of(built[0]) if row["problem"]["metric"] == "time"]
    assert timed
    assert all(row["verdict"]["speedup"]["kind"] == "predicted" and row["verdict"]["accepted"] is None for row in timed)


def test_tasks_have_their_shares_and_no_two_rows_teach_the_same(built: tuple[Path, Manifest]) -> None:
    rows = rows_of(built[0])
    tasks = Counter(row["task"] for row in rows)
    assert tasks == {"generate": 10, "analyse": 8, "debug": 8}
    assert len({mark_of(row) for row in rows}) == len(rows)


def test_rows_of_one_problem_share_a_group(built: tuple[Path, Manifest]) -> None:
    contracts: dict[str, set[str]] = {}
    for row in rows_of(built[0]):
        reference = next(line for line in row["after"]["source"].splitlines() if line.startswith("// reference"))
        contracts.setdefault(row["group"], set()).add(reference)
    assert all(len(found) == 1 for found in contracts.values())


def test_the_card_and_the_manifest_tell_the_same(built: tuple[Path, Manifest]) -> None:
    folder, manifest = built
    assert json.loads((folder / MANIFEST).read_text())["hash"] == manifest.hash
    card = (folder / CARD).read_text()
    assert manifest.hash in card
    assert "There was no GPU" in card
    assert all(f"| {name} |" in card for name in manifest.families)


def test_a_cut_off_run_goes_on_and_ends_the_same(built: tuple[Path, Manifest], tmp_path: Path) -> None:
    folder, manifest = built
    lines = (folder / PARTS).read_text().splitlines(keepends=True)
    (tmp_path / "settings.json").write_text((folder / "settings.json").read_text())
    (tmp_path / PARTS).write_text("".join(lines[: len(lines) // 2]) + lines[len(lines) // 2][:200])
    again = build(settings(tmp_path))
    assert again.hash == manifest.hash
    assert again.tasks == manifest.tasks


def test_a_folder_keeps_to_its_settings(built: tuple[Path, Manifest]) -> None:
    folder, _ = built
    with pytest.raises(UsageError, match="other settings"):
        build(Settings(folder, count=24, seed=6, workers=1, families=FEW))
    with pytest.raises(UsageError, match="no family"):
        build(Settings(folder, families=("no-such",)))


def test_the_sieve_takes_each_row_once_and_no_more_of_a_task_than_is_wanted() -> None:
    def row(task: str, mark: int) -> StoredRow:
        return StoredRow("{}", task, "time", str(mark), "", "memory", "f", "train", ())

    sieve = PromptFilter(10)
    assert sieve.takes(row("generate", 1))
    assert not sieve.takes(row("generate", 1))
    assert [sieve.takes(row("debug", n)) for n in range(2, 7)] == [True, True, True, False, False]
    assert not sieve.full
    assert sieve.duplicates == 1


def alive(group: int) -> list[int]:
    """Processes of a group that are not only waiting to be reaped (Linux, proc(5))."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            state, _, of = stat.read_text().rpartition(")")[2].split()[:3]
            if int(of) == group and state != "Z":
                found.append(int(stat.parent.name))
    return found


@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_ctrl_c_stops_at_once_and_leaves_no_worker(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "kernelmate_training.corpus",
        str(tmp_path),
        "--count",
        "9999",
        "--workers",
        "1",
        "--families",
        "int-map",
    ]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        parts = tmp_path / PARTS
        while not (parts.exists() and parts.stat().st_size) and process.poll() is None:
            time.sleep(0.05)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        _, said = process.communicate()
        assert process.returncode == 130
        assert "goes on from here" in said
        while alive(process.pid):  # a helper of Python's own ends a moment after its parent
            time.sleep(0.05)
