"""Child processes of the worker: threads read and write their streams, so that they cannot block the session.

The pool starts and ends them, and keeps one ready if starting is slow.
"""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import functools
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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from kernelmate.confinement import SCRATCH, kill_descendants, own_group
from kernelmate.worker import protocol

_TAIL_BYTES = 16 * 1024
_TAIL_LINES = 6
_WAITING_EVENTS = 256
"""Maximum number of unread messages; a child that sends more waits, as with a full pipe."""
_SCRATCH_PREFIX, _STALE_S = "kernelmate-scratch-", 60.0
_FATAL = "Fatal Python error"
"""First words of `faulthandler`; the lines after it are more informative than the last ones."""


@dataclass(frozen=True, slots=True)
class ProcessEnded:
    """Event: the child will send no more messages; `garbage` is what it sent in place of a message, if that is the reason."""

    garbage: str | None = None


@dataclass(frozen=True, slots=True)
class OutputFlooded:
    """The child printed more than the limit since the last task began."""


class Process:
    """A started child, in a session and process group of its own.

    Args:
        command: what starts it.
        environment: its variables.
        output_limit: bytes that it may print in one task.

    Raises:
        OSError: the command does not exist, or the system can start no process.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], output_limit: int) -> None:
        self._owner = os.getpid()
        self._output_limit = output_limit
        self._printed = 0
        self._flooded = False
        self._dead = False
        self._over = False
        self._releasing, self._sending = threading.Lock(), threading.Lock()
        self._writing: threading.Thread | None = None
        self._tail: collections.deque[bytes] = collections.deque()
        self._events: queue.Queue[protocol.FromChild | ProcessEnded | OutputFlooded] = queue.Queue(_WAITING_EVENTS)
        self._scratch, self._lock = _scratch()
        self._popen = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env={**environment, SCRATCH: self._scratch},
            **own_group(),
        )
        self._threads = [self._thread(self._read_messages), self._thread(self._drain_output)]

    @property
    def pid(self) -> int:
        """The child's process id; also its process group's."""
        return self._popen.pid

    def begin_task(self) -> None:
        """Resets the count of printed bytes."""
        self._printed = 0
        self._flooded = False
        self._tail.clear()

    def send(self, message: protocol.ToChild) -> None:
        """Sends without waiting for the child to read; messages arrive whole and in order, from any thread.

        Raises:
            FrameError: the message cannot be sent.
        """
        # Serialised here, so that an error is raised in the caller and not in a thread.
        data = protocol.frame(message)
        with self._sending:
            before = self._writing
            self._writing = self._thread(lambda: self._write(data, before))
            self._threads = [one for one in self._threads if one.is_alive()] + [self._writing]

    def receive(self, timeout_s: float) -> protocol.FromChild | ProcessEnded | OutputFlooded | None:
        """Returns the next message; None if there was none within `timeout_s` seconds."""
        if timeout_s <= 0:
            return None
        try:
            return self._events.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def stirred(self) -> bool:
        """Returns True if the child ended, or sent something, while idle."""
        return self._dead or not self._events.empty()

    def lives(self) -> bool:
        """Returns True if the child runs and has not closed its stream."""
        return not self._dead and not self._over and self._popen.poll() is None

    def await_end(self, grace_s: float) -> int | None:
        """Returns the exit status of a child that ends by itself within `grace_s` seconds; else None."""
        try:
            return self._popen.wait(timeout=grace_s)
        except subprocess.TimeoutExpired:
            return None

    def stop(self) -> None:
        """Kills the child, its group and all that it started, without waiting."""
        if os.getpid() != self._owner:
            # A fork of the session's process inherits this handle, but the child is not its own.
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
        """Kills the child and its group, waits for it, and closes its streams. May be called from two threads."""
        if os.getpid() != self._owner:
            return
        self.stop()
        self._popen.wait()
        with self._releasing:
            self._release()

    def output(self) -> str:
        """Returns the last lines that the child printed, or its crash report; printable text only."""
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
        """Reads all output, so that printing never blocks the child; keeps the end and counts the rest."""
        assert self._popen.stderr is not None
        with contextlib.suppress(OSError, ValueError):
            while chunk := self._popen.stderr.read(65536):
                self._printed += len(chunk)
                self._tail.append(chunk[-_TAIL_BYTES:])
                while sum(map(len, tuple(self._tail)[1:])) > _TAIL_BYTES:
                    self._tail.popleft()
                if self._printed > self._output_limit and not self._flooded:
                    self._flooded = True
                    self._events.put(OutputFlooded())

    def _write(self, data: bytes, before: threading.Thread | None) -> None:
        """Writes a message after the preceding one: a child that reads slowly may have part of that in its pipe."""
        assert self._popen.stdin is not None
        if before is not None:
            before.join()
        rest = memoryview(data)
        # The end of its stream reveals a child that is gone.
        with contextlib.suppress(OSError, ValueError):
            while rest:
                rest = rest[self._popen.stdin.write(rest) :]

    def _release(self) -> None:
        """Lets the threads finish, then closes the streams. A stream that an escaped process keeps open is not closed."""
        shutil.rmtree(self._scratch, ignore_errors=True)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        until = time.monotonic() + 1.0
        while any(thread.is_alive() for thread in self._threads) and time.monotonic() < until:
            with contextlib.suppress(queue.Empty):
                self._events.get(timeout=0.02)
        with contextlib.suppress(queue.Full):
            # A thread that waits for an answer while another thread closes must not wait for the events that were just
            # discarded.
            self._events.put_nowait(ProcessEnded())
        if not any(thread.is_alive() for thread in self._threads):
            for stream in (self._popen.stdin, self._popen.stdout, self._popen.stderr):
                if stream is not None:
                    stream.close()


def _scratch() -> tuple[str, int | None]:
    """Creates a folder for the child's temporary files, and returns it with a descriptor that locks it if locks exist.

    Folders left by killed sessions are removed: nobody holds their locks.
    """
    parent = Path(tempfile.gettempdir())
    if sys.platform == "win32":
        return tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=parent), None
    for left in parent.glob(f"{_SCRATCH_PREFIX}*"):
        with contextlib.suppress(OSError):
            # A folder that was just created may not be locked yet.
            if time.time() - left.stat().st_mtime > _STALE_S:
                os.close(_locked(left))
                shutil.rmtree(left, ignore_errors=True)
    made = tempfile.mkdtemp(prefix=_SCRATCH_PREFIX, dir=parent)
    try:
        return made, _locked(Path(made))
    except OSError:
        # This file system has no locks, so nobody can lock a folder in order to remove it either.
        return made, None


def _locked(folder: Path) -> int:
    """Returns a descriptor of a folder that holds its lock.

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


def exit_description(status: int | None) -> str:
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


Started: TypeAlias = "concurrent.futures.Future[Process]"


class ProcessPool:
    """Starts processes, and ends them in the background.

    Ending a process on a GPU takes as long as the driver needs to stop its kernels and free its memory; starting one
    takes as long as creating CUDA's context. With a spare process the next task waits for neither.

    Args:
        start: starts a process; called in a thread that lives as long as this program, since the system ties a child's
            life to the thread that started it.
        greet: called with each new process.
        spare: True keeps one more process ready.
    """

    def __init__(self, start: Callable[[], Process], greet: Callable[[Started], None], *, spare: bool) -> None:
        self._start, self._greet, self._spare = start, greet, spare
        self._waiting: Started | None = None
        self._leaving: list[threading.Thread] = []
        self._closed = False

    def take(self) -> Started:
        """Returns a process for the next tasks: the spare one if it is alive, else a new one."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            if not waiting.done() or (not waiting.exception() and waiting.result().lives()):
                return waiting
            self.kill_in_background(waiting)
        return self._new()

    def prepare(self) -> None:
        """Starts the spare process in the background, if one is to be kept."""
        if self._spare and not self._closed and self._waiting is None:
            self._waiting = self._new()

    def kill_in_background(self, process: Started) -> None:
        """Kills a process now, and waits for its end in the background."""
        with contextlib.suppress(OSError):
            if process.done():
                process.result().stop()
        thread = threading.Thread(target=_kill, args=(process,), daemon=True, name="kernelmate-worker-end")
        thread.start()
        self._leaving = [one for one in self._leaving if one.is_alive()] + [thread]

    def close(self) -> None:
        """Ends the spare process, and waits until all killed processes have ended."""
        self._closed = True
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self.kill_in_background(waiting)
        for thread in self._leaving:
            thread.join()
        self._leaving = []

    def _new(self) -> Started:
        process = _spawner().submit(self._start)
        process.add_done_callback(self._greet)
        return process


def _kill(process: Started) -> None:
    with contextlib.suppress(OSError):
        process.result().kill()


@functools.cache
def _spawner() -> concurrent.futures.ThreadPoolExecutor:
    return concurrent.futures.ThreadPoolExecutor(max_workers=1, thread_name_prefix="kernelmate-spawner")
