"""Nothing that is committed is lost: killed writers, many writers, damaged files, old files."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmate.history import History
from kernelmate.history.migrations import MIGRATIONS, SCHEMA, migrate, schema_of
from kernelmate.records import JudgementEntry, Kernel

Kernels = Callable[..., Kernel]
Judgements = Callable[..., JudgementEntry]

WRITER = """
import sys
from pathlib import Path
from kernelmate.history import History
from kernelmate.records import JudgementEntry
from kernelmate.source import find_kernels, text_unit

path, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with History(path) as history:
    for index in range(count):
        text = f"__global__ void {name}(int *x) {{ x[0] = {index}; }}"
        number = history.record(find_kernels(text_unit(text))[0], JudgementEntry("bench", "user", {"index": index}))
        print(index, flush=True)
    for notice in history.notices:
        print(notice, file=sys.stderr)
"""


def writer(path: Path, name: str, count: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), name, str(count)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_a_killed_writer_loses_nothing_that_it_has_committed(history: History) -> None:
    process = writer(history.path, "k", 10**9)
    assert process.stdout is not None
    said = -1
    for line in process.stdout:
        said = int(line)
        if said == 40:
            break
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    kept = [one.judged.verdict["index"] for one in history.judgements()]
    assert kept == list(range(len(kept)))
    assert len(kept) > said
    assert history.notices == []


def test_eight_writers_at_once_lose_nothing(history: History) -> None:
    each = 60
    processes = [writer(history.path, f"k{index}", each) for index in range(8)]
    for process in processes:
        _, errors = process.communicate()
        assert (process.returncode, errors) == (0, "")
    kept: dict[str, list[int]] = {}
    for one in history.judgements():
        kept.setdefault(one.name, []).append(one.judged.verdict["index"])
    assert kept == {f"k{index}": list(range(each)) for index in range(8)}


@pytest.mark.parametrize(
    "damage", [b"this is no database at all, and never was" * 10, b"SQLite format 3\0" + b"\xa5" * 9000]
)
def test_a_damaged_file_is_moved_aside_and_a_new_one_begun(
    history: History, in_file: Kernels, judged: Judgements, damage: bytes
) -> None:
    history.path.parent.mkdir(parents=True)
    history.path.write_bytes(damage)
    assert history.record(in_file(), judged()) == 1
    (notice,) = history.notices
    (aside,) = history.path.parent.glob("history.db.damaged-*")
    assert str(aside) in notice
    assert aside.read_bytes() == damage
    assert [known.name for known in history.kernels()] == ["scale"]


def test_a_file_that_is_damaged_in_the_middle_is_moved_aside(
    history: History, in_file: Kernels, judged: Judgements
) -> None:
    for index in range(200):
        history.record(in_file(), judged(prompt="x" * 2000 + str(index)))
    history.close()
    with sqlite3.connect(history.path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    body = bytearray(history.path.read_bytes())
    body[8192:] = b"\xa5" * (len(body) - 8192)
    history.path.write_bytes(body)
    list(history.judgements())
    assert len(history.notices) == 1
    assert history.record(in_file(), judged()) == 1


def test_a_file_that_was_deleted_while_it_was_open_is_begun_anew(
    history: History, in_file: Kernels, judged: Judgements
) -> None:
    history.record(in_file(), judged())
    for path in history.path.parent.iterdir():
        path.unlink()
    history.record(in_file(), judged(prompt="after"))
    with History(history.path) as other:
        assert [one.judged.prompt for one in other.judgements()] == ["after"]


@pytest.mark.parametrize("start", range(SCHEMA))
def test_every_older_schema_is_brought_up_to_date(tmp_path: Path, start: int) -> None:
    connection = sqlite3.connect(tmp_path / "old.db", isolation_level=None)
    for script in MIGRATIONS[:start]:
        connection.executescript(script)
    connection.execute(f"PRAGMA user_version = {start}")
    migrate(connection)
    assert schema_of(connection) == SCHEMA
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    assert tables >= {"kernels", "places", "texts", "versions", "judgements"}


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelmate.history.migrations.MIGRATIONS", (*MIGRATIONS, "CREATE TABLE extra (a); NONSENSE"))
    monkeypatch.setattr("kernelmate.history.migrations.SCHEMA", SCHEMA + 1)
    connection = sqlite3.connect(tmp_path / "old.db", isolation_level=None)
    with pytest.raises(sqlite3.OperationalError, match="NONSENSE"):
        migrate(connection)
    assert schema_of(connection) == 0
    assert connection.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()[0] == 0
