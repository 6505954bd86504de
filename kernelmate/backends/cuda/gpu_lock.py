"""Lock of a GPU: timings are taken one at a time, and nothing else of KernelMate runs on the GPU meanwhile.

Between processes, by locks of files that the system lets go of however a process ends. Launches that are only judged
share the GPU; a timing has it alone. Who wants it alone closes the gate first, so that those who share cannot keep
coming in before it. Two sessions meet where they see the same `/tmp`; containers that share a GPU but no files do not.
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
"""Longest wait for a turn: whoever holds one that long hangs, and its session will kill it in its own time."""

IMPATIENCE_S = 60.0
"""After a wait in vain none is made for so long: a verdict has many launches, and its own time limit."""

FIRST_WAIT_S, LONGEST_WAIT_S = 0.0005, 0.01
"""Sleeps between two looks at a lock that is taken."""


class GpuLock:
    """Turns on one GPU.

    Args:
        gpu: its UUID, which is the same in every process.
        folder: where the files of the locks are.

    Attributes:
        unlocked: why turns cannot be taken here; None where they can.
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
        """The GPU together with others that share it; False where the wait for it was given up.

        Within a turn alone this is part of that turn.
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
        """The GPU alone; False where somebody held on to it for all of the patience, so that it is not."""
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
        """Give back the files."""
        for handle in (self._gate, self._room):
            if handle >= 0:
                os.close(handle)
        self._gate = self._room = -1
        self.unlocked = "closed"


def _open(path: Path) -> int:
    """The file for reading, made where it is not there, usable by every user.

    A file in a sticky folder that somebody else made must not be opened with O_CREAT (`fs.protected_regular` of Linux).
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0)
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):
            handle = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
            with contextlib.suppress(OSError):
                os.fchmod(handle, 0o666)  # whatever the umask took away
            return handle
        return os.open(path, flags)


def _take(handle: int, *, alone: bool, deadline: float) -> bool:
    """Lock a file, waiting until the deadline; False where it is still taken then."""
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
