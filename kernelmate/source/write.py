"""Writes a changed kernel back into the user's file, atomically."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from kernelmate.errors import SourceError
from kernelmate.records import FileChange, Kernel
from kernelmate.source.overwrite import CHANGED, overwrite
from kernelmate.source.rewrite import file_text

LOCK_WAIT_S = 10.0
_RETRY_S = 0.05


def write_back(before: Kernel, after: Kernel, others: Sequence[FileChange] = ()) -> Path:
    """Writes a changed kernel into its file, and the changes of other files that belong to it into theirs.

    The old text is kept beside each file as `FILE.kernelmate-backup` (numbered if that holds another text). The new file
    replaces the old one atomically, with the same owner, mode and extended attributes, so a reader sees the old or the
    new text. A file with several hard links, or with an owner or attributes that a new file cannot get, is overwritten
    in place by a separate process. Concurrent writers are serialised, and the second finds the file changed.

    Args:
        before: the kernel as read; the file must still have the text that it was read from.
        after: the kernel within its changed unit.
        others: changes of other files, which must still have the texts that they were read with.

    Returns:
        Path of the backup of the kernel's file.

    Raises:
        SourceError: the kernel has no file, or a file has changed or vanished, or cannot be written. All files are then
        unchanged.
    """
    if before.unit.language == "text":
        raise SourceError(f"{before.name} is text without a file.", file=before.unit.path, hint="Copy it by hand.")
    texts = [(Path(before.unit.path), file_text(before), file_text(after))]
    texts += [(Path(one.path), one.before, one.after) for one in others]
    for path, _, _ in texts:
        check_writable(path)
    backups = list[Path]()
    try:
        for path, old, new in texts:
            backups.append(_write(path, old.encode("utf-8"), new.encode("utf-8")))
    except SourceError:
        for path, old, new in texts[: len(backups)]:
            with contextlib.suppress(SourceError):  # another program has written it since
                _write(path, new.encode("utf-8"), old.encode("utf-8"))
        raise
    return backups[0]


def _write(path: Path, old: bytes, new: bytes) -> Path:
    """Replaces a file's content, and returns the path of its backup."""
    target = Path(os.path.realpath(path))
    try:
        with _locked(target) as lock:
            if target.read_bytes() != old:
                raise _changed(path)
            backup = _keep(target, old)
            if not _replace(target, new, old, lock):
                raise _changed(path)
    except OSError as error:
        raise SourceError(
            f"The file cannot be written: {error.strerror or error}; it is as it was.",
            file=str(path),
            hint=f"Free disk space in {target.parent} or make it writable, or copy the change by hand.",
        ) from None
    return backup


def check_writable(path: Path) -> None:
    """Refuses a file that `write_back` will not write, before any work is done.

    A read-only file is refused even for root, since it was made read-only on purpose.

    Raises:
        SourceError: the file or its folder is read-only.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not _writable(target):
        raise SourceError(
            "The file cannot be written: it is read-only. Nothing was changed.",
            file=str(path),
            hint=f"Make {target} writable (chmod u+w), or leave --accept out and copy the change by hand.",
        )
    if target.parent.exists() and not _writable(target.parent):
        raise SourceError(
            "The file cannot be written: its folder is read-only. Nothing was changed.",
            file=str(path),
            hint=f"Make {target.parent} writable: the version before is kept there.",
        )


def clear_leftovers(path: Path) -> None:
    """Removes files that a killed `write_back` left behind.

    Does nothing while another process writes, or to other users' files.
    """
    target = Path(os.path.realpath(path))
    new, lock = _new(target), _lock_file(target)
    if not os.path.lexists(new) and not os.path.lexists(lock):
        return
    with contextlib.suppress(OSError, SourceError), _locked(target, wait_s=0):
        if os.path.lexists(new) and _ours(new, target):
            new.unlink()


def _ours(new: Path, target: Path) -> bool:
    """Returns True for a regular file of this user, or of the owner of the file that it was to replace."""
    status = new.lstat()
    owners = {target.stat().st_uid, os.geteuid() if hasattr(os, "geteuid") else status.st_uid}
    return stat.S_ISREG(status.st_mode) and status.st_uid in owners


def _writable(path: Path) -> bool:
    return os.access(path, os.W_OK) and bool(path.stat().st_mode & 0o222)


def _changed(path: Path) -> SourceError:
    return SourceError(
        "The file changed after it was read; nothing was written.",
        file=str(path),
        hint="Run the command again on the file as it is now.",
    )


def _new(path: Path) -> Path:
    """Returns the temporary file that is written first; it belongs to the holder of the lock."""
    return path.with_name(f".{path.name}.kernelmate-new")


def _lock_file(path: Path) -> Path:
    return path.with_name(f".{path.name}.kernelmate-lock")


@contextlib.contextmanager
def _locked(path: Path, wait_s: float = LOCK_WAIT_S) -> Iterator[int]:
    """Context manager that holds the lock file `.FILE.kernelmate-lock` while the file is written, and gives its descriptor.

    The operating system releases the lock when the process ends. The holder removes the empty lock file, and a process
    that then holds a removed one tries again.

    Raises:
        OSError: the lock file cannot be made, or is a symbolic link.
        SourceError: another process holds it for longer.
    """
    lock = _lock_file(path)
    deadline = time.monotonic() + wait_s
    while True:
        # A project may bring a symbolic link of this name, whose target is not to be created.
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
        if _try_lock(handle) and _is_same_file(handle, lock):
            break
        os.close(handle)
        if time.monotonic() > deadline:
            raise SourceError(
                "Another process is writing this file.", file=str(path), hint="Try again when it is done."
            )
        time.sleep(_RETRY_S)
    try:
        yield handle
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
    """Writes the backup under the first free name; an existing backup with the same text is reused."""
    number = 0
    while True:
        backup = path.with_name(f"{path.name}.kernelmate-backup" + (f"-{number}" if number else ""))
        if not os.path.lexists(backup):
            break
        if backup.is_file() and not backup.is_symlink() and backup.read_bytes() == data:
            return backup
        number += 1
    with _written(path, data) as (new, _):
        os.rename(new, backup)
    return backup


def _replace(path: Path, data: bytes, old: bytes, lock: int) -> bool:
    """Replaces the file's content; returns False if it no longer has the old one."""
    with _written(path, data) as (new, alike):
        if not alike or path.stat().st_nlink > 1:
            return _overwrite(path, new, hashlib.sha256(old).hexdigest(), lock)
        os.replace(new, path)
    return True


@contextlib.contextmanager
def _written(path: Path, data: bytes) -> Iterator[tuple[Path, bool]]:
    """Context manager for a temporary file, synced to disk.

    Gives its path and whether owner, mode and attributes could be copied.
    """
    new = _new(path)
    new.unlink(missing_ok=True)
    try:
        handle = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield new, _made_alike(new, path)
    finally:
        with contextlib.suppress(OSError):
            new.unlink()


def _made_alike(new: Path, path: Path) -> bool:
    """Copies owner, mode and extended attributes; returns False if this user may not."""
    status = path.stat()
    try:
        if hasattr(os, "chown") and (status.st_uid, status.st_gid) != (new.stat().st_uid, new.stat().st_gid):
            os.chown(new, status.st_uid, status.st_gid)
        os.chmod(new, stat.S_IMODE(status.st_mode))
        wanted, present = _attributes(path), _attributes(new)
        for name in present.keys() - wanted.keys():
            os.removexattr(new, name)
        for name, value in wanted.items():
            if present.get(name) != value:
                os.setxattr(new, name, value)
    except OSError:
        return False
    return stat.S_IMODE(new.stat().st_mode) == stat.S_IMODE(status.st_mode)


def _attributes(path: Path) -> dict[str, bytes]:
    """Returns extended attributes, including access control lists; empty if the system has none."""
    if sys.platform != "linux":
        return {}
    try:
        return {name: os.getxattr(path, name) for name in os.listxattr(path)}
    except OSError:
        return {}


def _overwrite(path: Path, new: Path, digest: str, lock: int) -> bool:
    """Overwrite a file in place; returns False if it does not have the expected content.

    Raises:
        OSError: the file cannot be written.
    """
    if sys.platform == "win32":
        return overwrite(str(path), str(new), digest)
    script = Path(overwrite.__code__.co_filename)
    # The child process holds the lock too, so that nobody takes its file for a leftover if this process is killed.
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(script), str(path), str(new), digest],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,
        pass_fds=(lock,),
        text=True,
    ) as process:
        said = process.communicate()[0].strip()
    if said.isdigit():
        raise OSError(int(said), os.strerror(int(said)))
    if process.returncode:
        raise OSError(f"the process that writes it ended with status {process.returncode}")
    return said != CHANGED
