"""Tables of the history, and migrations of files from older versions.

`MIGRATIONS[n]` leads from schema n to n + 1; `PRAGMA user_version` holds a file's schema. A released migration is never
changed, because files made by it exist.
"""

from __future__ import annotations

import sqlite3

_FIRST = """
CREATE TABLE kernels (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL,
    path TEXT NOT NULL,
    seen_us INTEGER NOT NULL
) STRICT;
CREATE TABLE places (
    path TEXT NOT NULL,
    name TEXT NOT NULL,
    kernel INTEGER NOT NULL REFERENCES kernels (id) ON DELETE CASCADE,
    PRIMARY KEY (path, name)
) STRICT, WITHOUT ROWID;
CREATE INDEX places_kernel ON places (kernel);
CREATE TABLE texts (
    hash TEXT PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
CREATE TABLE versions (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    kernel INTEGER NOT NULL REFERENCES kernels (id) ON DELETE CASCADE,
    content TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    text TEXT NOT NULL REFERENCES texts (hash),
    name TEXT NOT NULL,
    path TEXT NOT NULL,
    start INTEGER NOT NULL,
    stop INTEGER NOT NULL,
    language TEXT NOT NULL,
    launch TEXT,
    UNIQUE (kernel, content)
) STRICT;
CREATE INDEX versions_fingerprint ON versions (fingerprint);
CREATE INDEX versions_text ON versions (text);
CREATE TABLE judgements (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    version INTEGER NOT NULL REFERENCES versions (id) ON DELETE CASCADE,
    at_us INTEGER NOT NULL,
    command TEXT NOT NULL,
    author TEXT NOT NULL,
    prompt TEXT,
    metric TEXT,
    why TEXT,
    parent INTEGER REFERENCES versions (id) ON DELETE SET NULL,
    verdict TEXT NOT NULL,
    input_tokens INTEGER,
    output_tokens INTEGER,
    usd REAL,
    tool TEXT NOT NULL
) STRICT;
CREATE INDEX judgements_version ON judgements (version);
CREATE INDEX judgements_parent ON judgements (parent);
"""

_STEPS = """
ALTER TABLE judgements ADD COLUMN steps TEXT;
"""
"""Schema 2: a column with the author's steps to a version, as a JSON list of sentences; NULL if unknown."""

MIGRATIONS: tuple[str, ...] = (_FIRST, _STEPS)

SCHEMA = len(MIGRATIONS)
"""Schema that this version of KernelMate reads and writes."""


def schema_of(connection: sqlite3.Connection) -> int:
    """Returns the schema of a file; 0 for an empty one."""
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def migrate(connection: sqlite3.Connection) -> None:
    """Migrate a file to `SCHEMA` in one transaction; does nothing if it is already there or newer.

    Args:
        connection: in autocommit mode.
    """
    if schema_of(connection) >= SCHEMA:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Another process may have migrated it first.
        for script in MIGRATIONS[schema_of(connection) :]:
            for statement in script.split(";"):
                if statement.strip():
                    connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {max(SCHEMA, schema_of(connection))}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
