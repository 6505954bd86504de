"""Compiled programs on disk, one file per content hash.

A file is written under a temporary name and then moved, so that no process reads an incomplete one; a damaged file is ignored.
Disk errors are ignored: a program is then compiled each time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

from kernelmate.files import locked, write_atomically

MOST_BYTES = 256 << 20
"""Total size of the files above which the oldest are removed."""
ABANDONED_S = 3600.0
"""Age in seconds from which an unfinished file counts as abandoned by a killed process."""
LOCKS, PATIENCE_S = 64, 20.0
"""Number of programs that can be compiled at once, and seconds that a process waits for another one."""
_MAGIC = b"KMJIT1\n"


def folder() -> Path:
    """Returns the folder of the programs: `emulator` in the user's cache folder, or in `KERNELMATE_CACHE_DIR`."""
    import platformdirs

    base = os.environ.get("KERNELMATE_CACHE_DIR") or platformdirs.user_cache_dir("kernelmate")
    return Path(base) / "emulator"


def _path(key: str) -> Path:
    return folder() / f"{key}.bin"


def is_stored(key: str) -> bool:
    """Returns True if there is a file for the key."""
    try:
        return _path(key).is_file()
    except OSError:
        return False


def read(key: str) -> tuple[bytes, bytes] | None:
    """Returns head and code; None without a complete file."""
    path = _path(key)
    try:
        raw = path.read_bytes()
        with contextlib.suppress(OSError):
            os.utime(path)
    except OSError:
        return None
    digest, rest = raw[len(_MAGIC) : len(_MAGIC) + 32], raw[len(_MAGIC) + 32 :]
    if not raw.startswith(_MAGIC) or len(rest) < 8 or hashlib.sha256(rest).digest() != digest:
        return None
    size = int.from_bytes(rest[:8], "little")
    return rest[8 : 8 + size], rest[8 + size :]


def write(key: str, head: bytes, code: bytes) -> None:
    """Stores a program, if the disk allows."""
    rest = len(head).to_bytes(8, "little") + head + code
    try:
        write_atomically(_path(key), _MAGIC + hashlib.sha256(rest).digest() + rest)
    except OSError:
        return
    _make_room()


@contextlib.contextmanager
def compile_lock(key: str) -> Iterator[None]:
    """Context manager: one process compiles a program while others that need it wait, with a time limit, to read it afterwards."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            locks = folder().with_name("emulator-locks")
            locks.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(locks / str(int(key[:8], 16) % LOCKS), PATIENCE_S))
        yield


def _make_room() -> None:
    """Removes least recently used files above a total size; other processes may do the same concurrently."""
    with contextlib.suppress(OSError):
        for left in folder().glob("*.part"):
            if time.time() - left.stat().st_mtime > ABANDONED_S:
                left.unlink(missing_ok=True)
        entries = [(path.stat(), path) for path in folder().glob("*.bin")]
        total = sum(status.st_size for status, _ in entries)
        for status, path in sorted(entries, key=lambda entry: entry[0].st_mtime):
            if total <= MOST_BYTES:
                return
            path.unlink(missing_ok=True)
            total -= status.st_size
