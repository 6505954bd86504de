"""Store of one user's history: judgements are recorded, and read by kernel and by version."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from kernelmate.errors import HistoryUnavailable, UsageError
from kernelmate.history import database, identity
from kernelmate.history.database import DatabaseDamaged
from kernelmate.records import Cost, JudgementEntry, Kernel, KnownKernel, RecordedJudgement
from kernelmate.version import VERSION

Answer = TypeVar("Answer")

_RECORDED = """
SELECT judgements.*, versions.kernel, versions.name, versions.path, versions.start, versions.stop, versions.language,
       versions.launch, texts.body
FROM judgements JOIN versions ON versions.id = judgements.version JOIN texts ON texts.hash = versions.text
"""


class History:
    """One history file. Any number of processes and threads may use it at once; every call is one transaction.

    A damaged file is moved aside and a new one started; `notices` then says so.

    Args:
        path: the file; None for the user's own. Files and folders are opened or created on first use.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or database.default_path()
        self.notices: list[str] = []
        self._connection: sqlite3.Connection | None = None
        self._file: tuple[int, int] | None = None
        self._turn = threading.Lock()

    def __enter__(self) -> History:
        """Returns the history; the file is opened on first use."""
        return self

    def __exit__(self, *_: object) -> None:
        """Closes the file."""
        self.close()

    def close(self) -> None:
        """Closes the file; the next call opens it again."""
        with self._turn:
            self._disconnect()

    def record(self, kernel: Kernel, judged: JudgementEntry) -> int:
        """Stores one judgement. After this returns, it survives a crash of the process.

        A power cut may lose the last few judgements, each as a whole, because writes do not wait for the disk.

        Args:
            kernel: the version, within its whole unit.
            judged: the judgement; with a `parent`, it is recorded as a version of the parent's kernel.

        Returns:
            The number of the version, the same for the same text and launch of a kernel.

        Raises:
            HistoryUnavailable: the file cannot be written.
        """
        return self._do(lambda connection: _record(connection, kernel, judged), write=True)

    def kernels(self) -> list[KnownKernel]:
        """Returns all kernels, the most recently judged first.

        Raises:
            HistoryUnavailable: the file cannot be read.
        """
        query = """
            SELECT kernels.id, kernels.name, kernels.path, kernels.seen_us, COUNT(DISTINCT versions.id) AS versions,
                   COUNT(judgements.id) AS judgements
            FROM kernels JOIN versions ON versions.kernel = kernels.id JOIN judgements ON judgements.version = versions.id
            GROUP BY kernels.id ORDER BY kernels.seen_us DESC, kernels.id DESC
        """
        rows = self._read(lambda connection: connection.execute(query).fetchall())
        return [
            KnownKernel(r["id"], r["name"], r["path"], r["versions"], r["judgements"], r["seen_us"]) for r in rows or ()
        ]

    def find(self, kernel: Kernel) -> int | None:
        """Returns the number of a kernel as it is now, across renames and moves; None if it was never judged.

        Raises:
            HistoryUnavailable: the file cannot be read.
        """
        return self._read(lambda connection: identity.find(connection, kernel))

    def judgements(self, kernel: int | None = None, version: int | None = None) -> Iterator[RecordedJudgement]:
        """Iterate over judgements in chronological order: all, those of a kernel, or those of a version.

        Raises:
            HistoryUnavailable: the file cannot be read.
        """
        chosen = {"versions.kernel": kernel, "versions.id": version}
        given = {name: value for name, value in chosen.items() if value is not None}
        where = " AND ".join(f"{name} = ?" for name in given) or "TRUE"
        query = f"{_RECORDED} WHERE {where} AND judgements.id > ? ORDER BY judgements.id LIMIT 256"

        def page(after: int) -> list[sqlite3.Row]:
            return self._read(lambda connection: connection.execute(query, (*given.values(), after)).fetchall()) or []

        rows = page(0)
        while rows:
            yield from map(_recorded, rows)
            rows = page(rows[-1]["id"])

    def latest_of(self, kernel: int, most: int) -> list[RecordedJudgement]:
        """Returns a kernel's latest judgements, the most recent first.

        Raises:
            HistoryUnavailable: the file cannot be read.
        """
        query = f"{_RECORDED} WHERE versions.kernel = ? ORDER BY judgements.id DESC LIMIT ?"
        rows = self._read(lambda connection: connection.execute(query, (kernel, most)).fetchall())
        return [_recorded(row) for row in rows or ()]

    def version(self, number: int) -> RecordedJudgement:
        """Returns a version with its latest judgement.

        Raises:
            UsageError: there is no such version.
            HistoryUnavailable: the file cannot be read.
        """
        query = f"{_RECORDED} WHERE versions.id = ? ORDER BY judgements.id DESC LIMIT 1"
        row = self._read(lambda connection: connection.execute(query, (number,)).fetchone())
        if row is None:
            raise UsageError(
                f"The history has no version {number}.", hint="`kernelmate history FILE` lists a kernel's versions."
            )
        return _recorded(row)

    def version_at(self, number: int, at_us: int) -> RecordedJudgement | None:
        """Returns a version with the judgement in force at a time; None if it had none yet or was deleted.

        Raises:
            HistoryUnavailable: the file cannot be read.
        """
        query = f"{_RECORDED} WHERE versions.id = ? AND judgements.at_us <= ? ORDER BY judgements.id DESC LIMIT 1"
        row = self._read(lambda connection: connection.execute(query, (number, at_us)).fetchone())
        return None if row is None else _recorded(row)

    def forget(self, *, kernel: int | None = None, before_us: int | None = None) -> int:
        """Deletes permanently: a kernel, all judgements before a time, both, or everything.

        Returns the number of deleted judgements.

        Raises:
            HistoryUnavailable: the file cannot be written.
        """
        if not self.path.exists():
            return 0
        gone = self._do(lambda connection: _forget(connection, kernel, before_us), write=True)
        # Deleted data must not stay readable in free pages of the file.
        self._do(lambda connection: connection.execute("VACUUM").fetchall(), write=True)
        self._do(lambda connection: connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall(), write=True)
        return gone

    def _read(self, work: Callable[[sqlite3.Connection], Answer]) -> Answer | None:
        """Runs a read on the file; returns None if there is no history yet."""
        try:
            return self._do(work, write=False)
        except FileNotFoundError:
            return None

    def _do(self, work: Callable[[sqlite3.Connection], Answer], *, write: bool) -> Answer:
        with self._turn:
            try:
                return self._attempt(work, write=write)
            except DatabaseDamaged as damage:
                self._disconnect()
                self._replace(damage)
            try:
                return self._attempt(work, write=write)
            except DatabaseDamaged as damage:
                raise HistoryUnavailable(
                    f"The history {self.path} is damaged again at once: {damage}.", hint="Check the disk."
                ) from damage

    def _attempt(self, work: Callable[[sqlite3.Connection], Answer], *, write: bool) -> Answer:
        with database.translated_errors(self.path):
            if self._connection is None or self._moved():
                self._disconnect()
                self._connection = database.connect(self.path, write=write)
                self._file = _identity(self.path)
            try:
                return work(self._connection)
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise
            finally:
                if isinstance(self._connection, database.Snapshot):
                    self._disconnect()

    def _moved(self) -> bool:
        """Returns True if another process has moved the file aside, so that writes would go to the moved one."""
        return _identity(self.path) != self._file

    def _replace(self, damage: DatabaseDamaged) -> None:
        aside = database.set_aside(self.path)
        if aside is not None:
            self.notices.append(f"The history was damaged ({damage}). It is kept as {aside}, and a new one is begun.")

    def _disconnect(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()


def _identity(path: Path) -> tuple[int, int] | None:
    """Returns device and inode of the file that a path names now; None without a file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _clean(text: str | None) -> str | None:
    """Returns text that a database can hold: lone surrogates, as in a file name that is not UTF-8, are escaped."""
    return None if text is None else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _record(connection: sqlite3.Connection, kernel: Kernel, judged: JudgementEntry) -> int:
    now = time.time_ns() // 1000
    connection.execute("BEGIN IMMEDIATE")
    parent = _existing(connection, judged.parent)
    number = _kernel(connection, kernel, parent, now)
    version = _version(connection, number, kernel, judged.launch)
    connection.execute(
        "INSERT INTO judgements (version, at_us, command, author, prompt, metric, why, parent, verdict, input_tokens, "
        "output_tokens, usd, tool, steps) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            version,
            now,
            judged.command,
            _clean(judged.author),
            _clean(judged.prompt),
            judged.metric,
            _clean(judged.why),
            parent,
            json.dumps(judged.verdict, allow_nan=False, separators=(",", ":")),
            judged.cost.input_tokens,
            judged.cost.output_tokens,
            judged.cost.usd,
            VERSION,
            json.dumps(judged.steps) if judged.steps else None,
        ),
    )
    connection.execute("COMMIT")
    return version


def _existing(connection: sqlite3.Connection, version: int | None) -> int | None:
    """Returns the version's number; None if it was deleted."""
    row = connection.execute("SELECT id FROM versions WHERE id = ?", (version,)).fetchone()
    return None if row is None else int(row["id"])


def _kernel(connection: sqlite3.Connection, kernel: Kernel, parent: int | None, now: int) -> int:
    """Returns the kernel's number and updates its file and position; a candidate gets those of its parent."""
    if parent is not None:
        row = connection.execute("SELECT kernel FROM versions WHERE id = ?", (parent,)).fetchone()
        connection.execute("UPDATE kernels SET seen_us = ? WHERE id = ?", (now, row["kernel"]))
        return int(row["kernel"])
    path = identity.place_of(kernel)
    number = identity.find(connection, kernel)
    if number is None:
        insert = "INSERT INTO kernels (name, path, seen_us) VALUES (?, ?, ?)"
        number = int(connection.execute(insert, (kernel.name, path, now)).lastrowid or 0)
    else:
        update = "UPDATE kernels SET name = ?, path = ?, seen_us = ? WHERE id = ?"
        connection.execute(update, (kernel.name, path, now, number))
    place = (
        "INSERT INTO places (path, name, kernel) VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET kernel = excluded.kernel"
    )
    connection.execute(place, (path, kernel.name, number))
    return number


def _version(connection: sqlite3.Connection, number: int, kernel: Kernel, launch: Mapping[str, Any] | None) -> int:
    shape = None if launch is None else json.dumps(launch, sort_keys=True)
    text = kernel.unit.text.encode("utf-8", "surrogatepass")
    text_hash = hashlib.sha256(text).hexdigest()
    content = hashlib.sha256(f"{text_hash}\n{kernel.name}\n{shape}".encode()).hexdigest()
    row = connection.execute("SELECT id FROM versions WHERE kernel = ? AND content = ?", (number, content)).fetchone()
    if row is not None:
        return int(row["id"])
    connection.execute("INSERT OR IGNORE INTO texts (hash, body) VALUES (?, ?)", (text_hash, zlib.compress(text)))
    cursor = connection.execute(
        "INSERT INTO versions (kernel, content, fingerprint, text, name, path, start, stop, language, launch) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            number,
            content,
            identity.fingerprint(kernel),
            text_hash,
            kernel.name,
            identity.place_of(kernel),
            kernel.start,
            kernel.end,
            kernel.unit.language,
            shape,
        ),
    )
    return int(cursor.lastrowid or 0)


def _forget(connection: sqlite3.Connection, kernel: int | None, before_us: int | None) -> int:
    connection.execute("BEGIN IMMEDIATE")
    where, values = ["TRUE"], []
    if kernel is not None:
        where.append("version IN (SELECT id FROM versions WHERE kernel = ?)")
        values.append(kernel)
    if before_us is not None:
        where.append("at_us < ?")
        values.append(before_us)
    gone = connection.execute(f"DELETE FROM judgements WHERE {' AND '.join(where)}", values).rowcount  # noqa: S608
    for statement in (
        "DELETE FROM versions WHERE id NOT IN (SELECT version FROM judgements)",
        "DELETE FROM kernels WHERE id NOT IN (SELECT kernel FROM versions)",
        "DELETE FROM texts WHERE hash NOT IN (SELECT text FROM versions)",
    ):
        connection.execute(statement)
    connection.execute("COMMIT")
    return gone


def _recorded(row: sqlite3.Row) -> RecordedJudgement:
    judged = JudgementEntry(
        command=row["command"],
        author=row["author"],
        verdict=json.loads(row["verdict"]),
        prompt=row["prompt"],
        metric=row["metric"],
        why=row["why"],
        launch=None if row["launch"] is None else json.loads(row["launch"]),
        parent=row["parent"],
        cost=Cost(row["input_tokens"], row["output_tokens"], row["usd"]),
        steps=() if row["steps"] is None else tuple(json.loads(row["steps"])),
    )
    return RecordedJudgement(
        version=row["version"],
        kernel=row["kernel"],
        name=row["name"],
        path=row["path"],
        at_us=row["at_us"],
        text=zlib.decompress(row["body"]).decode("utf-8", "surrogatepass"),
        start=row["start"],
        end=row["stop"],
        language=row["language"],
        tool=row["tool"],
        judged=judged,
    )
