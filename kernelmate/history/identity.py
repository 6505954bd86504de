"""Identity of a kernel across versions: after renaming, editing, or moving it to another file."""

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
    """Returns the kernel's file as an absolute path; text without a file keeps its display name."""
    path = kernel.unit.path
    place = path if kernel.unit.language == "text" else os.path.realpath(path)
    return place.encode("utf-8", "backslashreplace").decode("utf-8")


def fingerprint(kernel: Kernel) -> str:
    """Returns a hash of a definition that ignores its name, comments and layout."""
    short = kernel.name.rpartition("::")[2]
    words = ("\0" if token.text == short else token.text for token in lex(kernel.source).tokens)
    return hashlib.sha256("\n".join(words).encode("utf-8", "surrogatepass")).hexdigest()


def find(connection: sqlite3.Connection, kernel: Kernel) -> int | None:
    """Returns the number of a kernel in the history; None if it is new.

    A kernel of the same file and name is the same kernel. It counts as renamed or moved if the history has an equal
    definition that its own file no longer contains, and as renamed and edited at once if its file has lost exactly one
    known kernel and gained this one.
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
    """Returns True if the known kernel still exists in its own file, so that `kernel` is a copy of it."""
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
    # Two units of one Python file share a path, so a kernel that is missing in one unit may be in the other.
    if kernel.unit.language != "cuda" or len(lost) != 1 or new != {kernel.name}:
        return None
    return lost.pop()
