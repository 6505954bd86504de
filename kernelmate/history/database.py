"""The history's file: opened so that many processes share it, and replaced when it is damaged."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from kernelmate.errors import HistoryUnavailable
from kernelmate.history.migrations import SCHEMA, migrate, schema_of

BUSY_S = 30.0
"""Longest wait for another process's transaction; ours take milliseconds."""

_DAMAGED = frozenset({"SQLITE_CORRUPT", "SQLITE_NOTADB"})
_SIDE_FILES = ("-wal", "-shm", "-journal")


def default_path() -> Path:
    """`history.db` in the user's data folder."""
    import platformdirs

    return platformdirs.user_data_path("kernelmate") / "history.db"


class Damaged(Exception):
    """The file is no SQLite database, or one that contradicts itself."""


def connect(path: Path, *, write: bool) -> sqlite3.Connection:
    """A connection in autocommit mode to an up-to-date file.

    Args:
        path: the file; made, with its folder, where `write` is set.
        write: the caller means to change it.

    Raises:
        Damaged: the file cannot be used any more.
        HistoryUnavailable: it cannot be read or written here, or a newer version has made it.
        FileNotFoundError: there is none, and nothing is to be written.
    """
    if write:
        _make_folder(path)
    elif not path.exists():
        raise FileNotFoundError(path)
    with translated(path):
        # Where nothing can be written beside it, SQLite reads a file only if told that nobody else writes it either.
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
    """A copy of the file in memory, for one reading; the next one reads the file again."""


def _snapshot(path: Path, unusual: Exception) -> Snapshot:
    """A copy of a file that cannot be opened in the usual way, as on a full disk, which has no room for its side files.

    Args:
        path: the file.
        unusual: what kept it from being opened; raised again where this cannot be done either.
    """
    memory = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False, factory=Snapshot)
    # With a lock on the whole file SQLite keeps the index of what was written last in memory. Without it, only what has
    # reached the file itself can be read.
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
        # Closing must not move what the side file holds into a file that has no room for it.
        source.setconfig(sqlite3.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, True)
    return source


def _make_folder(path: Path) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        # Prompts and kernels are the user's alone; SQLite gives its side files the mode of the file.
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    except OSError as error:
        raise _unavailable(path, error.strerror or str(error)) from error


def _set_up(connection: sqlite3.Connection, path: Path) -> None:
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = NORMAL")
    if _known_schema(connection, path) == SCHEMA:
        return
    # SQLite does not wait for others while it changes the journal, so whoever sets the file up does it alone.
    with _lock(path):
        # Readers never wait for a writer, and a process killed in the middle of a write costs that write alone. Where
        # a file system cannot do it, SQLite keeps its own older way.
        connection.execute("PRAGMA journal_mode = WAL")
        migrate(connection)


def _known_schema(connection: sqlite3.Connection, path: Path) -> int:
    """The schema version of the file; rows are accessible by name from now on.

    Raises:
        HistoryUnavailable: a newer version has made it.
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
def translated(path: Path) -> Iterator[None]:
    """SQLite's errors as ours.

    Raises:
        Damaged: the file is no database, or a contradictory one.
        HistoryUnavailable: anything else that keeps it from being read or written.
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
            raise Damaged(str(error)) from error
        if isinstance(error, (sqlite3.ProgrammingError, sqlite3.IntegrityError)):
            raise
        raise _unavailable(path, str(error)) from error


def _unavailable(path: Path, why: str) -> HistoryUnavailable:
    return HistoryUnavailable(
        f"The history {path} cannot be used: {why}.",
        hint="Make room or make it writable, name another file in the setting history_file, or set history = false.",
    )


def set_aside(path: Path) -> Path | None:
    """Move a damaged file out of the way, its side files with it.

    Of several processes that find the damage at once one moves it; the others find a good file or none.

    Returns:
        Where it is now; None when there was nothing damaged any more.

    Raises:
        HistoryUnavailable: it cannot be moved.
    """
    try:
        with _lock(path):
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
    """The file is a database without contradictions; only asked once damage was met, for it reads all of it."""
    try:
        with contextlib.closing(sqlite3.connect(path, timeout=BUSY_S)) as connection:
            return bool(connection.execute("PRAGMA quick_check(1)").fetchone()[0] == "ok")
    except sqlite3.OperationalError:
        return True
    except sqlite3.DatabaseError:
        return False


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """Hold a lock that ends with the process; on systems without `flock` processes only hope."""
    with os.fdopen(os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT, 0o600), "r+b") as handle:
        with contextlib.suppress(ImportError):
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
