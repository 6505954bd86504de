"""One child process of the worker: its streams are read and written by threads, so that nothing it does can block us."""

from __future__ import annotations

import collections
import contextlib
import io
import os
import queue
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelmate.worker import protocol
from kernelmate.worker.confinement import SCRATCH, kill_descendants

_TAIL_BYTES = 16 * 1024
_TAIL_LINES = 6
_WAITING_EVENTS = 256
"""Messages that may lie unread; a child that sends more waits, as it would before a full pipe."""
_SCRATCH_PREFIX, _STALE_S = "kernelmate-scratch-", 60.0
_FATAL = "Fatal Python error"
"""First words of `faulthandler`; the lines after it are worth more than the last ones."""


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """The child will send no more; `garbage` says what it sent instead of a message, if that is why."""

    garbage: str | None = None


@dataclass(frozen=True, slots=True)
class Flooded:
    """The child printed more than the limit since the last task began."""


class Process:
    """A started child, in a session and process group of its own.

    Args:
        command: what starts it. environment: its variables.
        output_limit: bytes that it may print in one task.

    Raises:
        OSError: there is no such command, or no process to be had.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], output_limit: int) -> None:
        self._owner = os.getpid()
        self._output_limit = output_limit
        self._printed = 0
        self._flooded = False
        self._dead = False
        self._over = False
        self._releasing = threading.Lock()
        self._writing: threading.Thread | None = None
        self._tail: collections.deque[bytes] = collections.deque()
        self._events: queue.Queue[protocol.FromChild | ProcessEnded | Flooded] = queue.Queue(_WAITING_EVENTS)
        self._scratch, self._lock = _scratch()
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**environment, SCRATCH: self._scratch},
            **_own_group(),
        )
        self._threads = [self._thread(self._read_messages), self._thread(self._drain_output)]

    @property
    def pid(self) -> int:
        """The child's process id; also its process group's."""
        return self._popen.pid

    def begin_task(self) -> None:
        """Count what is printed from zero again."""
        self._printed = 0
        self._flooded = False
        self._tail.clear()

    def send(self, message: protocol.ToChild) -> None:
        """Send without waiting for the child to read; messages arrive whole, and in their order.

        Raises:
            FrameError: the message cannot be sent.
        """
        # Made here, so that what cannot be sent is this caller's error and not a thread's.
        data = protocol.frame(message)
        before = self._writing
        self._writing = self._thread(lambda: self._write(data, before))
        self._threads = [one for one in self._threads if one.is_alive()] + [self._writing]

    def receive(self, timeout_s: float) -> protocol.FromChild | ProcessEnded | Flooded | None:
        """The next message; None if there was none within `timeout_s` seconds."""
        if timeout_s <= 0:
            return None
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def stirred(self) -> bool:
        """The child is gone, or said something, while nothing was asked of it."""
        return self._dead or not self._events.empty()

    def lives(self) -> bool:
        """The child runs, and has not closed its stream."""
        return not self._dead and not self._over and self._popen.poll() is None

    def await_end(self, grace_s: float) -> int | None:
        """The exit status of a child that ends by itself within `grace_s` seconds; None where it does not."""
        try:
            return self._popen.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """Kill the child, its group and all that it started; wait for nothing."""
        if os.getpid() != self._owner:
            # A fork of the session's process has our handle, but not our child.
            return
        self._dead = True
        with contextlib.suppress(OSError):
            if sys.platform == "win32":
                self._popen.kill()
            else:
                if self._popen.poll() is None:
                    kill_descendants(self._popen.pid)
                os.killpg(self._popen.pid, signal.SIGKILL)

    def kill(self) -> None:
        """Kill the child and its group, wait for it, close its streams. May be called from two threads."""
        if os.getpid() != self._owner:
            return
        self.stop()
        self._popen.wait()
        with self._releasing:
            self._release()

    def output(self) -> str:
        """The last lines that the child printed, or what it printed when it crashed; printable text only."""
        text = b"".join(tuple(self._tail)).decode("utf-8", "replace")
        lines = [line.rstrip() for line in text.splitlines() if line.strip()]
        fatal = next((index for index, line in enumerate(lines) if line.startswith(_FATAL)), None)
        chosen = lines[-_TAIL_LINES:] if fatal is None else lines[fatal : fatal + _TAIL_LINES]
        return "\n".join("".join(c if c.isprintable() else "?" for c in line)[:400] for line in chosen)

    def _thread(self, work: Any) -> threading.Thread:
        thread = threading.Thread(target=work, daemon=True, name=f"kernelmate-worker-{self._popen.pid}")
        thread.start()
        return thread

    def _read_messages(self) -> None:
        assert isinstance(self._popen.stdout, io.RawIOBase)
        stream = io.BufferedReader(self._popen.stdout)
        end = ProcessEnded()
        try:
            while (message := protocol.read_from_child(stream)) is not None and not self._dead:
                self._events.put(message)
        except protocol.FrameError as error:
            end = ProcessEnded(garbage=str(error))
        except (OSError, ValueError):
            pass
        self._over = True
        self._events.put(end)

    def _drain_output(self) -> None:
        """Read all that is printed, so that printing never blocks the child; keep the end, count the rest."""
        assert self._popen.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            while chunk := self._popen.stderr.read(65536):
                self._printed += len(chunk)
                self._tail.append(chunk[-_TAIL_BYTES:])
                while sum(map(len, tuple(self._tail)[1:])) > _TAIL_BYTES:
                    self._tail.popleft()
                if self._printed > self._output_limit and not self._flooded:
                    self._flooded = True
                    self._events.put(Flooded())

    def _write(self, data: bytes, before: threading.Thread | None) -> None:
        """Write a message once that before it is written: a child that reads slowly may have a part of it in its pipe."""
        assert self._popen.stdin is not None
        if before is not None:
            before.join()
        rest = memoryview(data)
        # A child that is gone is noticed by the end of its stream.
        with contextlib.suppress(OSError, ValueError):
            while rest:
                rest = rest[self._popen.stdin.write(rest) :]

    def _release(self) -> None:
        """Let the threads run out, then close the streams. One that an escaped process keeps open is left alone."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        until = time.monotonic() + 1.0
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < until:
            with contextlib.suppress(queue.Empty):
                self._events.get(timeout=0.02)
        with contextlib.suppress(queue.Full):
            # A thread that waits for an answer, and closing is another's, must not wait for what was just dropped.
            self._events.put_nowait(ProcessEnded())
        if not any(thread.is_alive() for thread in self._threads):
            for stream in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
                if stream is not None:
                    stream.close()


def _own_group() -> dict[str, Any]:
    """Arguments of `Popen` that keep the terminal's Ctrl-C from the child."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


def _scratch() -> tuple[str, int | None]:
    """A new folder for temporary files of the child, and a descriptor that holds a lock on it where the system has such.

    Folders that killed sessions have left are removed: nobody holds their locks.
    """
    parent = Path(tempfile.gettempdir())
    if sys.platform == "win32":
        return tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=parent), None
    for left in parent.glob(f"{_SCRATCH_PREFIX}*"):
        with contextlib.suppress(OSError):
            # One that was just made may not be locked yet.
            if time.time() - left.stat().st_mtime > _STALE_S:
                os.close(_locked(left))
                shutil.rmtree(left, ignore_errors=True)
    made = tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=parent)
    try:
        return made, _locked(Path(made))
    except OSError:
        # This file system has no locks, so nobody takes one either and removes the folder.
        return made, None


def _locked(folder: Path) -> int:
    """A descriptor of a folder that holds its lock.

    Raises:
        OSError: another process holds it, or the folder is not this user's.
    """
    import fcntl

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def ending(status: int | None) -> str:
    """Describes the end of a child, as half a sentence; `status` is None if it was killed."""
    if status is None:
        return "was killed"
    if status >= 0:
        return f"ended with exit status {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = ", as the system does when memory runs out" if name == "SIGKILL" else ""
    return f"was killed by {name}{hint}"
