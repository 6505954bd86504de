"""Overwrites a file in place, for files whose hard links, owner or attributes a new file could not have.

Runs as a script in a session of its own, so that a signal to the user's command does not end it halfway. It imports
only the standard library.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import time

CHANGED = "changed"
"""Printed if the file does not have the expected content; nothing is then written."""

WAIT_S = 10.0
"""Seconds to wait for another process that holds the file's lock."""

_RETRY_S = 0.05


def overwrite(target: str, new: str, digest: str) -> bool:
    """Give a file the content of another one, keeping its inode.

    Space for a longer text is allocated first, and the old text is restored if writing fails.

    Args:
        target: the file to overwrite.
        new: the file with the new content.
        digest: SHA-256 of the content that the target must have.

    Returns:
        False if the target has other content; it is then unchanged.

    Raises:
        OSError: it cannot be read or written, or another process holds its lock for longer than `WAIT_S`.
    """
    with open(new, "rb") as source:
        data = source.read()
    with open(target, "r+b", buffering=0) as file:
        # Another hard link has another lock file, but the same inode.
        _lock(file.fileno())
        old = file.read()
        if hashlib.sha256(old).hexdigest() != digest:
            return False
        try:
            if len(data) > len(old) and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, len(data))
            _put(file.fileno(), data)
            os.fsync(file.fileno())
        except OSError:
            with contextlib.suppress(OSError):
                _put(file.fileno(), old)
            raise
    return True


def _lock(handle: int) -> None:
    """Locks a file, if its file system has locks; whoever may read it can hold its lock, so that the wait has a limit."""
    try:
        import fcntl
    except ImportError:
        return
    until = time.monotonic() + WAIT_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise
            time.sleep(_RETRY_S)
        except OSError:
            return
        else:
            return


def _put(handle: int, data: bytes) -> None:
    os.lseek(handle, 0, os.SEEK_SET)
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]
    os.ftruncate(handle, len(data))


def main(target: str, new: str, digest: str) -> None:
    """Overwrites; prints nothing, `CHANGED`, or the system's error number."""
    try:
        print("" if overwrite(target, new, digest) else CHANGED)
    except OSError as error:
        print(error.errno)


if __name__ == "__main__":
    main(*sys.argv[1:])
