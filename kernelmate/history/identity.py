"""Identity of a kernel across versions: renamed, edited, or moved to another file."""

from __future__ import annotations

import hashlib
import os
import re
import sqlite3
from pathlib import Path

from kernelmate.records import Kernel
from kernelmate.source import find_kernels
from kernelmate.source.tokens import lex


def place_of(kernel: Kernel) -> str:
    """The kernel's file as an absolute path; text without a file keeps the name that it goes by."""
    path = kernel.unit.path
    place = path if kernel.unit.language == "text" else os.path.realpath(path)
    return place.encode("utf-8", "backslashreplace").decode("utf-8")


def fingerprint(kernel: Kernel) -> str:
    """A definition without its name, comments and layout."""
    short = kernel.name.rpartition("::")[2]
    words = ("\0" if token.text == short else token.text for token in lex(kernel.source).tokens)
    return hashlib.sha256("\n".join(words).encode("utf-8", "surrogatepass")).hexdigest()


def find(connection: sqlite3.Connection, kernel: Kernel) -> int | None:
    """The number of a kernel in the history, None when it is new there.

    The same place and name are the same kernel. Otherwise it was renamed or moved where an equal definition is known
    whose own place holds it no longer; and it was renamed and edited at once where its file has lost exactly one known
    kernel and gained this one.
    """
    path = place_of(kernel)
    row = connection.execute("SELECT kernel FROM places WHERE path = ? AND name = ?", (path, kernel.name)).fetchone()
    if row is not None:
        return int(row["kernel"])
    equal = connection.execute(
        "SELECT kernel, MAX(id) AS latest FROM versions WHERE fingerprint = ? GROUP BY kernel ORDER BY latest DESC",
        (fingerprint(kernel),),
    ).fetchall()
    for candidate in equal:
        if not _still_there(connection, int(candidate["kernel"]), kernel):
            return int(candidate["kernel"])
    return _renamed(connection, kernel, path)


def _still_there(connection: sqlite3.Connection, number: int, kernel: Kernel) -> bool:
    """The known kernel stands in a place of its own yet, so that this one is a copy of it."""
    places = connection.execute("SELECT path, name FROM places WHERE kernel = ?", (number,)).fetchall()
    return any(_holds(row["path"], row["name"], kernel) for row in places)


def _holds(path: str, name: str, kernel: Kernel) -> bool:
    if path == place_of(kernel) and kernel.unit.language != "python":
        return name in {other.name for other in find_kernels(kernel.unit)}
    if not os.path.isabs(path):
        return False
    try:
        text = Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return re.search(rf"\b{re.escape(name.rpartition('::')[2])}\b", text) is not None


def _renamed(connection: sqlite3.Connection, kernel: Kernel, path: str) -> int | None:
    present = {other.name for other in find_kernels(kernel.unit)}
    rows = connection.execute("SELECT kernel, name FROM places WHERE path = ?", (path,)).fetchall()
    known = {row["name"] for row in rows}
    standing = {int(row["kernel"]) for row in rows if row["name"] in present}
    lost = {int(row["kernel"]) for row in rows} - standing
    new = present - known
    # Two units of one Python file share a path, so what one of them lacks may stand in the other.
    if kernel.unit.language != "cuda" or len(lost) != 1 or new != {kernel.name}:
        return None
    return lost.pop()
