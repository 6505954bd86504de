"""Access to the history's SQLite file: shared by many processes, replaced when damaged."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from kernelmate.errors import HistoryUnavailable
from kernelmate.files import locked
from kernelmate.history.migrations import SCHEMA, migrate, schema_of

BUSY_S = 30.0
"""Longest wait for another process's transaction, in seconds; transactions take milliseconds."""

_DAMAGED = frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB"})
_SIDE_FILES = ("-wal", "-shm", "-journal")


def default_path() -> Path:
    """Returns the path of `history.db` in the user's data folder."""
    import platformdirs

    return platformdirs.user_data_path("kernelmate") / "history.db"


class DatabaseDamaged(Exception):
    """The file is not an SQLite database, or is corrupt."""


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """Returns a connection in autocommit mode to a file of the current schema.

    Args:
        path: the file; created, with its folder, if `write` is set.
        write: True for a connection that writes.

    Raises:
        DatabaseDamaged: the file is corrupt.
        HistoryUnavailable: the file cannot be read or written, or a newer version created it.
        FileNotFoundError: the file does not exist and `write` is not set.
    """
    if write:
        _make_folder(path)
    elif not path.exists():
        raise FileNotFoundError(path)
    with translated_errors(path):
        # In a read-only folder, SQLite opens a file only as `immutable`, which asserts that no other process writes it.
        frozen = not os.access(path.parent, os.W_OK)
        name = f"{path.absolute().as_uri()}?immutable=1" if frozen and not write else str(path)
        connection = sqlite3.connect(
            name, timeout=BUSY_S, isolation_level=None, check_same_thread=False, uri=name != str(path)
        )
        try:
            _set_up(connection, path)
        except BaseException as error:
            connection.close()
            if not write and isinstance(error, (sqlite3.OperationalError, OSError)):
                return _snapshot(path, error)
            raise
    return connection


class Snapshot(sqlite3.Connection):
    """A copy of the file in memory for one read; the next read loads the file again."""


def _snapshot(path: Path, unusual: Exception) -> Snapshot:
    """Returns an in-memory copy of a file that cannot be opened normally, for example because the disk is full.

    Args:
        path: the file.
        unusual: the error of opening it; raised again if copying fails too.
    """
    memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=Snapshot)
    # With an exclusive lock, SQLite keeps the write-ahead log's index in memory. Without it, only data that has reached
    # the main file can be read.
    for mode, pragma in (("mode=rw", "locking_mode = EXCLUSIVE"), ("immutable=1", "query_only = ON")):
        try:
            with contextlib.closing(_opened_for_copying(path, mode)) as source:
                source.execute(f"PRAGMA {pragma}")
                source.backup(memory)
            if _known_schema(memory, path) < SCHEMA:
                migrate(memory)
        except sqlite3.DatabaseError:
            continue
        return memory
    memory.close()
    raise unusual


def _opened_for_copying(path: Path, mode: str) -> sqlite3.Connection:
    source = sqlite3.connect(f"{path.absolute().as_uri()}?{mode}", timeout=1, isolation_level=None, uri=True)
    if sys.version_info >= (3, 12):
        # Closing must not checkpoint the write-ahead log into a file that has no room for it.
        source.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
    return source


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Prompts and kernels are private to the user; SQLite gives its side files the mode of the main file.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise _unavailable(path, error.strerror or str(error)) from error


def _set_up(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = NORMAL")
    if _known_schema(connection, path) == SCHEMA:
        return
    # SQLite does not wait for other connections while it changes the journal mode, so one process sets the file up
    # alone.
    with locked(Path(f"{path}.lock")):
        # With a write-ahead log, readers never wait for a writer, and a process killed during a write loses that write
        # alone. On a file system without support for it, SQLite keeps its rollback journal.
        connection.execute("PRAGMA journal_mode = WAL")
        migrate(connection)


def _known_schema(connection: sqlite3.Connection, path: Path) -> int:
    """Returns the schema version of the file, and makes rows accessible by column name.

    Raises:
        HistoryUnavailable: a newer version created the file.
    """
    connection.row_factory = sqlite3.Row
    schema = schema_of(connection)
    if schema > SCHEMA:
        raise HistoryUnavailable(
            f"The history {path} was made by a newer version of KernelMate (schema {schema}, this one knows {SCHEMA}).",
            hint="Upgrade KernelMate, or name another file in the setting history_file.",
        )
    return schema


@contextlib.contextmanager
def translated_errors(path: Path) -> Iterator[None]:
    """Context manager that translates SQLite's errors into ours.

    Raises:
        DatabaseDamaged: the file is not a database, or is corrupt.
        HistoryUnavailable: any other error of reading or writing it.
    """
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unavailable(path, error.strerror or str(error)) from error
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", "") or ""
        if any(name.startswith(kind) for kind in _DAMAGED):
            raise DatabaseDamaged(str(error)) from error
        if isinstance(error, (sqlite3.ProgrammingError, sqlite3.IntegrityError)):
            raise
        raise _unavailable(path, str(error)) from error


def _unavailable(path: Path, why: str) -> HistoryUnavailable:
    return HistoryUnavailable(
        f"The history {path} cannot be used: {why}.",
        hint="Free disk space or make the file writable, name another file in the setting history_file, or set history = false.",
    )


def set_aside(path: Path) -> Path | None:
    """Move a damaged file and its side files out of the way.

    If several processes find the damage at once, one moves the file; the others find a good file or none.

    Returns:
        Its new path; None if the file was no longer damaged.

    Raises:
        HistoryUnavailable: the file cannot be moved.
    """
    try:
        with locked(Path(f"{path}.lock")):
            if not path.exists() or _sound(path):
                return None
            stamp = time.strftime("%Y%m%d-%H%M%S")
            aside = path.with_name(f"{path.name}.damaged-{stamp}-{os.getpid()}")
            os.replace(path, aside)
            for suffix in _SIDE_FILES:
                with contextlib.suppress(FileNotFoundError):
                    os.replace(f"{path}{suffix}", f"{aside}{suffix}")
            return aside
    except OSError as error:
        raise _unavailable(path, f"it is damaged, and cannot be moved aside: {error.strerror or error}") from error


def _sound(path: Path) -> bool:
    """Returns True if the file is an intact database.

    Called only after damage was met, because it reads the whole file.
    """
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_S)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.OperationalError:
        return True
    except sqlite3.DatabaseError:
        return False
