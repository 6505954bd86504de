"""Writing a changed kernel back into the user's file: whole or not at all."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from kernelmate.errors import SourceError
from kernelmate.records import Kernel
from kernelmate.source.rewrite import file_text

LOCK_WAIT_S = 10.0
_RETRY_S = 0.05


def write_back(before: Kernel, after: Kernel) -> Path:
    """Put a changed kernel into its file.

    The old file is kept beside it as `FILE.kernelmate-backup` (numbered where that is taken). The new one replaces it
    in one step with the same permissions, so a reader sees the old text or the new, never a mixture. Two processes
    that write at once take turns, and the second finds the file changed.

    Args:
        before: the kernel as read; the file must still hold what it was read from.
        after: the kernel within its changed unit.

    Returns:
        Path of the backup.

    Raises:
        SourceError: the kernel has no file, the file changed or went away meanwhile, or cannot be written. The file is
            as it was then.
    """
    if before.unit.language == "text":
        raise SourceError(f"{before.name} is text without a file.", file=before.unit.path, hint="Copy it by hand.")
    path = Path(before.unit.path)
    new = file_text(after).encode("utf-8")
    old = file_text(before).encode("utf-8")
    target = Path(os.path.realpath(path))
    try:
        with _locked(target):
            if target.read_bytes() != old:
                raise SourceError(
                    "The file changed after it was read; nothing was written.",
                    file=str(path),
                    hint="Run the command again on the file as it is now.",
                )
            backup = _keep(target, old)
            _replace(target, new)
    except OSError as error:
        raise SourceError(
            f"The file cannot be written: {error.strerror or error}; it is as it was.",
            file=str(path),
            hint=f"Make {target.parent} writable, or copy the change by hand.",
        ) from None
    return backup


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the directory entry `.FILE.kernelmate-lock` while the file is written.

    The operating system lets go of the lock when the process ends, however it ends; the empty lock file is removed by
    whoever holds it, and whoever then holds a removed one tries again.
    """
    lock = path.with_name(f".{path.name}.kernelmate-lock")
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
        if _try_lock(handle) and _is_same_file(handle, lock):
            break
        os.close(handle)
        if time.monotonic() > deadline:
            raise SourceError(
                "Another process is writing this file.", file=str(path), hint="Try again when it is done."
            )
        time.sleep(_RETRY_S)
    try:
        yield
    finally:
        if sys.platform != "win32":
            with contextlib.suppress(OSError):
                lock.unlink()
        os.close(handle)


def _is_same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except OSError:
        return False


if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True


def _keep(path: Path, data: bytes) -> Path:
    """Write the backup under the first free name."""
    number = 0
    while True:
        backup = path.with_name(f"{path.name}.kernelmate-backup" + (f"-{number}" if number else ""))
        try:
            handle = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, path.stat().st_mode & 0o777)
        except FileExistsError:
            number += 1
            continue
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            backup.unlink(missing_ok=True)
            raise
        return backup


def _replace(path: Path, data: bytes) -> None:
    """Exchange the file's content in one step, permissions kept."""
    mode = path.stat().st_mode & 0o7777
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".kernelmate-new", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, mode)
        os.replace(name, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name)
        raise
