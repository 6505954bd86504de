"""Nothing that is committed is lost: killed writers, many writers, damaged files, old files."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelmate.history import History
from kernelmate.history.export import lines
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


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_killed_among_others_a_writer_stops_nobody(history: History) -> None:
    each = 150
    processes = [writer(history.path, f"k{index}", each) for index in range(4)]
    said = [-1] * 4
    for index, most in ((0, 20), (1, 70)):
        assert processes[index].stdout is not None
        for line in processes[index].stdout:
            said[index] = int(line)
            if said[index] == most:
                break
        processes[index].kill()
    for index, process in enumerate(processes):
        output, errors = process.communicate()
        assert errors == ""
        said[index] = max([said[index], *map(int, output.split())])
    kept = by_kernel(history)
    assert [kept[f"k{index}"] == list(range(len(kept[f"k{index}"]))) for index in range(4)] == [True] * 4
    assert all(len(kept[f"k{index}"]) > said[index] for index in range(4))
    assert [len(kept["k2"]), len(kept["k3"])] == [each, each]
    with sqlite3.connect(history.path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def by_kernel(history: History) -> dict[str, list[int]]:
    """Returns the stored judgements of each kernel, in their order."""
    kept: dict[str, list[int]] = {}
    for one in history.judgements():
        kept.setdefault(one.name, []).append(one.judged.verdict["index"])
    return kept


def test_eight_writers_of_a_thousand_versions_at_once_lose_nothing(history: History) -> None:
    each = 1000
    processes = [writer(history.path, f"k{index}", each) for index in range(8)]
    for process in processes:
        _, errors = process.communicate()
        assert (process.returncode, errors) == (0, "")
    assert by_kernel(history) == {f"k{index}": list(range(each)) for index in range(8)}


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


def schema_files() -> list[Path]:
    """Returns the files of older schemas: each has a kernel, its first version, and a version by Claude."""
    return sorted((Path(__file__).parents[2] / "data" / "history").glob("schema*.sql"))


def test_there_is_a_file_of_every_older_schema() -> None:
    assert [path.stem for path in schema_files()] == [f"schema{number}" for number in range(1, SCHEMA)]


@pytest.mark.parametrize("dump", schema_files(), ids=lambda path: path.stem)
def test_what_older_versions_have_kept_is_read_and_written_on(
    history: History, cell: Kernels, judged: Judgements, dump: Path
) -> None:
    history.path.parent.mkdir(parents=True)
    with sqlite3.connect(history.path) as connection:
        connection.executescript(dump.read_text())
    own, made = history.judgements()
    assert (own.judged.author, own.judged.parent, own.judged.steps) == ("user", None, ())
    assert (made.judged.author, made.judged.prompt, made.judged.why) == ("claude:some-model", "make it faster", "adds")
    assert (made.judged.parent, made.judged.cost.usd) == (own.version, 0.5)
    assert "x[i] += x[i]" in made.source
    assert made.judged.launch == {"grid": ["1"], "block": ["128"], "shared": "0", "require": []}
    (example,) = lines(history)
    assert json.loads(example)["reasoning"] == ["adds"]
    again = history.record(cell(made.text), judged(steps=("it was seen", "it was done"), parent=own.version))
    assert history.version(again).judged.steps == ("it was seen", "it was done")
    assert history.notices == []


FROZEN = """
import sys
from pathlib import Path
from kernelmate.errors import HistoryUnavailable
from kernelmate.history import History
from kernelmate.records import JudgementEntry
from kernelmate.source import find_kernels, text_unit

with History(Path(sys.argv[1])) as history:
    print([one.name for one in history.judgements()])
    try:
        history.record(find_kernels(text_unit("__global__ void k() {}"))[0], JudgementEntry("bench", "user", {}))
    except HistoryUnavailable as error:
        print(error)
    print([one.name for one in history.judgements()])
"""


@pytest.mark.parametrize("there", [True, False], ids=["with a history", "without one"])
def test_a_folder_that_cannot_be_written_is_read_and_said(
    history: History, in_file: Kernels, judged: Judgements, there: bool, frozen: Callable[..., str]
) -> None:
    history.path.parent.mkdir(parents=True)
    if there:
        history.record(in_file(), judged())
        history.close()
    before, said, *after = frozen(history.path.parent, "-c", FROZEN, str(history.path)).splitlines()
    assert before == after[-1] == ("['scale']" if there else "[]")
    assert "cannot be used" in said
    assert "history = false" in "\n".join([said, *after])


ON_A_FULL_DISK = """
import resource, sys
from pathlib import Path
from kernelmate.errors import HistoryUnavailable
from kernelmate.history import History
from kernelmate.history.export import lines
from kernelmate.records import JudgementEntry
from kernelmate.source import find_kernels, text_unit

resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
with History(Path(sys.argv[1])) as history:
    for _ in range(2):
        print(len(list(history.judgements())), [one.versions for one in history.kernels()], len(list(lines(history))))
    try:
        history.record(find_kernels(text_unit("__global__ void k() {}"))[0], JudgementEntry("bench", "user", {}))
    except HistoryUnavailable as error:
        print(error)
    print(history.notices)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits on files as on POSIX")
@pytest.mark.parametrize("closed", [True, False], ids=["closed in order", "with what a killed writer left"])
def test_where_no_file_can_grow_the_history_is_read_whole(history: History, *, closed: bool) -> None:
    done = WRITER if closed else WRITER + "    import os\n    os._exit(0)\n"
    subprocess.run([sys.executable, "-c", done, str(history.path), "k", "30"], check=True, stdout=subprocess.DEVNULL)
    Path(f"{history.path}-shm").unlink(missing_ok=True)
    command = [sys.executable, "-c", ON_A_FULL_DISK, str(history.path)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said[0] == said[1] == "30 [30] 0"
    assert "cannot be used" in said[2]
    assert said[-1] == "[]"
    assert len(list(history.judgements())) == 30


def test_an_older_file_is_read_where_nothing_can_be_written(tmp_path: Path, frozen: Callable[..., str]) -> None:
    path = tmp_path / "kept" / "history.db"
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.executescript(f"{MIGRATIONS[0]} PRAGMA user_version = 1;")
    connection.close()
    before, *_ = frozen(path.parent, "-c", FROZEN, str(path)).splitlines()
    assert before == "[]"


def test_a_migration_that_fails_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernelmate.history.migrations.MIGRATIONS", (*MIGRATIONS, "CREATE TABLE extra (a); NONSENSE"))
    monkeypatch.setattr("kernelmate.history.migrations.SCHEMA", SCHEMA + 1)
    connection = sqlite3.connect(tmp_path / "old.db", isolation_level=None)
    with pytest.raises(sqlite3.OperationalError, match="NONSENSE"):
        migrate(connection)
    assert schema_of(connection) == 0
    assert connection.execute("SELECT COUNT(*) FROM sqlite_schema").fetchone()[0] == 0
