"""Lock of a GPU: one timing at a time, with nothing else of KernelMate on the GPU.

File locks, which the system releases when a process ends, coordinate processes. Judged launches share the GPU; a timing
has it exclusively. A process that wants it exclusively first takes a gate lock, so that new sharers cannot starve it.
Sessions coordinate only if they see the same `/tmp`, which containers may not.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

if sys.platform != "win32":
    import fcntl

FOLDER = Path("/tmp")  # noqa: S108 -- one place for all users and sessions; the files hold nothing
PATIENCE_S = 30.0
"""Longest wait for the lock: a process that holds it that long is hung, and its session will kill it."""

IMPATIENCE_S = 60.0
"""Seconds without waiting after an unsuccessful wait, because a verdict has many launches and a time limit."""

FIRST_WAIT_S, LONGEST_WAIT_S = 0.0005, 0.01
"""Shortest and longest sleep between two attempts to take the lock."""


class GpuLock:
    """Shared and exclusive lock of one GPU.

    Args:
        gpu: its UUID, which is the same in every process.
        folder: folder of the lock files.

    Attributes:
        unlocked: the reason why locking is impossible; None if it works.
    """

    def __init__(self, gpu: str, folder: Path = FOLDER) -> None:
        self.unlocked: str | None = None
        self._alone = False
        self._impatient_until = float("-inf")
        self._gate = self._room = -1
        try:
            self._gate, self._room = (_open(folder / f"kernelmate-{gpu}.{part}") for part in ("gate", "room"))
        except OSError as error:
            self.unlocked = f"no lock file in {folder} ({error.strerror})"
        if sys.platform == "win32":
            self.unlocked = "file locks are POSIX's"

    @contextlib.contextmanager
    def shared(self, patience_s: float = PATIENCE_S) -> Iterator[bool]:
        """Context manager for shared use; gives False if the wait was abandoned.

        Inside exclusive use it does nothing.
        """
        if self._alone or self.unlocked is not None:
            yield True
            return
        deadline = self._deadline(patience_s)
        entered = _take(self._gate, alone=True, deadline=deadline)
        if entered:
            entered = _take(self._room, alone=False, deadline=deadline)
            _leave(self._gate)
        self._remember(entered)
        try:
            yield entered
        finally:
            _leave(self._room)

    @contextlib.contextmanager
    def alone(self, patience_s: float = PATIENCE_S) -> Iterator[bool]:
        """Context manager for exclusive use; gives False if the wait was abandoned, so that use is not exclusive."""
        if self._alone or self.unlocked is not None:
            yield self.unlocked is None
            return
        deadline = self._deadline(patience_s)
        got = _take(self._gate, alone=True, deadline=deadline) and _take(self._room, alone=True, deadline=deadline)
        self._remember(got)
        self._alone = True
        try:
            yield got
        finally:
            self._alone = False
            _leave(self._room)
            _leave(self._gate)

    def _deadline(self, patience_s: float) -> float:
        now = time.monotonic()
        return now if now < self._impatient_until else now + patience_s

    def _remember(self, got: bool) -> None:
        self._impatient_until = float("-inf") if got else time.monotonic() + IMPATIENCE_S

    def close(self) -> None:
        """Closes the lock files."""
        for handle in (self._gate, self._room):
            if handle >= 0:
                os.close(handle)
        self._gate = self._room = -1
        self.unlocked = "closed"


def _open(path: Path) -> int:
    """Opens the file for reading, created if missing, usable by every user.

    Another user's file in a sticky folder must not be opened with O_CREAT (`fs.protected_regular` of Linux).
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            with contextlib.suppress(OSError):
                os.fchmod(handle, 0o666)  # restores what the umask removed
            return handle
        return os.open(path, flags)


def _take(handle: int, *, alone: bool, deadline: float) -> bool:
    """Locks a file, waiting until the deadline; returns False if it is still locked then."""
    if sys.platform == "win32":
        return True
    wanted = (fcntl.LOCK_EX if alone else fcntl.LOCK_SH) | fcntl.LOCK_NB
    wait = FIRST_WAIT_S
    while True:
        try:
            fcntl.flock(handle, wanted)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_S)
        else:
            return True


def _leave(handle: int) -> None:
    if sys.platform != "win32":
        fcntl.flock(handle, fcntl.LOCK_UN)
