"""Overwrites a file in place: how a file is written whose hard links, owner or attributes a new file could not have.

Runs as a script in a session of its own, so that a signal to the user's command does not end it halfway. It loads nothing
but the standard library.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys

CHANGED = "changed"
"""Printed where the file does not hold what it should; nothing was written then."""


def overwrite(target: str, new: str, digest: str) -> bool:
    """Give a file the content of another one, keeping its inode.

    Room for the longer text is taken first, and the old text is put back where writing fails.

    Args:
        target: the file that is written.
        new: the file that holds the text.
        digest: SHA-256 of what the target must hold.

    Returns:
        False where the target holds something else; it is as it was then.

    Raises:
        OSError: it cannot be read or written.
    """
    with open(new, "rb") as source:
        data = source.read()
    with open(target, "r+b", buffering=0) as file:
        with contextlib.suppress(ImportError, OSError):
            # Another hard link has another lock file, but the same inode.
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
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


def _put(handle: int, data: bytes) -> None:
    os.lseek(handle, 0, os.SEEK_SET)
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(handle, rest) :]
    os.ftruncate(handle, len(data))


def main(target: str, new: str, digest: str) -> None:
    """Overwrite, and print nothing, `CHANGED`, or the number of the system's error."""
    try:
        print("" if overwrite(target, new, digest) else CHANGED)
    except OSError as error:
        print(error.errno)


if __name__ == "__main__":
    main(*sys.argv[1:])
