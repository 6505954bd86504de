"""Manages the compiler's child processes: kept warm, killed at the time limit, and replaced at once."""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Collection, Iterator
from typing import Any, BinaryIO, cast

import msgspec

from kernelmate.compiler.frames import CompileJob, CompileOutput, pack, read_frame
from kernelmate.compiler.places import require_platform
from kernelmate.environment import allowed
from kernelmate.errors import CompilerUnavailable, CompileTimeout

MOST_CHILDREN = 8
"""Maximum of child processes: each takes about 110 MB with NVRTC loaded, and more for large templates."""


NVRTC_CHILD = "kernelmate.compiler.child"
_NVRTC_PACKAGES = "cuda-bindings nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl"


class _Child:
    """One started child process and the thread that reads its replies.

    It ends with its input, and therefore with this process; it runs in its own session, so that it does not get the
    terminal's Ctrl-C.
    """

    def __init__(self, module: str) -> None:
        self.owner = os.getpid()
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        command = [sys.executable, "-P", "-m", module]
        environment: dict[str, str] | None = None
        if module != NVRTC_CHILD:  # NVRTC writes no files and evaluates nothing
            self._scratch = tempfile.TemporaryDirectory(prefix="kernelmate-compiler-", ignore_cleanup_errors=True)
            command.append(self._scratch.name)
            environment = allowed(os.environ)
        self.popen = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            **_own_group(),
        )
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True, name="kernelmate-compiler").start()

    def ask(self, job: CompileJob, timeout_s: float) -> CompileOutput | None:
        """Returns the reply; None if the child died. Raises `queue.Empty` at the time limit."""
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(pack(job))
            self.popen.stdin.flush()
        except OSError:
            return None
        body = self._answers.get(timeout=timeout_s)
        return None if body is None else msgspec.msgpack.decode(body, type=CompileOutput)

    def kill(self) -> None:
        """Kills it and waits for its end. In a fork of this process, only drops the handle."""
        if os.getpid() != self.owner:
            return
        if self.popen.poll() is None:
            with contextlib.suppress(OSError):
                if sys.platform == "win32":
                    self.popen.kill()
                else:
                    os.killpg(self.popen.pid, signal.SIGKILL)
        self.popen.wait()
        if self.popen.stdin is not None:
            with contextlib.suppress(OSError):
                self.popen.stdin.close()
        if self._scratch is not None:
            self._scratch.cleanup()

    def _read(self) -> None:
        assert self.popen.stdout is not None
        with contextlib.suppress(EOFError, OSError, ValueError), self.popen.stdout as stream:
            while True:
                self._answers.put(read_frame(cast(BinaryIO, stream)))
        self._answers.put(None)


class Abandoned(Exception):
    """A compilation was killed because its result is no longer needed."""


def _own_group() -> dict[str, Any]:
    """Returns arguments of `Popen` that keep the terminal's Ctrl-C from the child."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


class _ChildSlot:
    """One child of a `CompilerProcess`, started on first use; the thread that holds the slot compiles alone in it.

    Attributes:
        child: the process; None without one.
        thread: the waiting thread, by `threading.get_ident`.
        abandoned: True if the result is no longer needed.
        another: True if the next job will come soon.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self.child: _Child | None = None
        self.thread: int | None = None
        self.abandoned = self.another = False

    def compile(self, job: CompileJob, timeout_s: float) -> CompileOutput | None:
        """Return the result; None if the job has killed the child twice.

        Raises:
            CompileTimeout: it did not end in time, and was killed. CompilerUnavailable: the child cannot be started.
            Abandoned: nobody wants the product any more.
        """
        self.abandoned = False
        try:
            product = self._ask(job, timeout_s)
            if product is None and self.abandoned:
                if self.another:
                    self.started()
                raise Abandoned
            if product is None:
                # The child may have died while idle; a job that kills it twice is at fault itself.
                product = self._ask(job, timeout_s)
        except Abandoned:
            raise
        except queue.Empty:
            self.kill()
            raise CompileTimeout(
                f"The compiler did not end in {timeout_s:g} s and was killed.",
                hint="Look for templates or constant expressions that unfold without end, or allow it more time.",
            ) from None
        except BaseException:
            # Also for Ctrl-C: the child's current job is no longer needed.
            self.kill()
            raise
        return product

    def started(self) -> _Child:
        """Return the live child.

        Raises:
            CompilerUnavailable: it cannot be started.
        """
        child = self.child
        if child is None or child.owner != os.getpid() or child.popen.poll() is not None:
            require_platform()
            self.kill()
            try:
                child = self.child = _Child(self._module)
            except OSError as error:
                raise CompilerUnavailable(
                    f"The compiler's process cannot be started: {error}.", hint="Check limits on processes and memory."
                ) from None
        return child

    def kill(self) -> None:
        """End the child, if there is one."""
        child, self.child = self.child, None
        if child is not None:
            child.kill()

    def _ask(self, job: CompileJob, timeout_s: float) -> CompileOutput | None:
        answer = self.started().ask(job, timeout_s)
        if answer is None:
            self.kill()
        return answer


class CompilerProcess:
    """The compiler of this process. Thread-safe; as many threads compile at once as there are children.

    A child is started when all others are busy, so sequential compilations use one child.

    Args:
        children: the most there are; None for one per core, up to `MOST_CHILDREN`.
        module: what a child runs. All but NVRTC's, which evaluate text in Python, get the name of a folder for temporary
            files, and no environment variables beside those that a worker gets.
        install: what to install where a child's library is missing.
    """

    def __init__(self, children: int | None = None, module: str = NVRTC_CHILD, install: str = _NVRTC_PACKAGES) -> None:
        self.children = children or min(MOST_CHILDREN, _cores())
        self._install = install
        self._seats = [_ChildSlot(module) for _ in range(self.children)]
        self._free = list(reversed(self._seats))
        self._changed = threading.Condition()

    @property
    def pid(self) -> int | None:
        """The first child's process id; None without one."""
        child = self._seats[0].child
        return None if child is None else child.popen.pid

    def compile(self, job: CompileJob, timeout_s: float) -> CompileOutput:
        """Compile in a child.

        Raises:
            CompileTimeout: it did not end in `timeout_s` seconds, and was killed.
            CompilerUnavailable: the child cannot be started, or finds no NVRTC.
            Abandoned: another thread called `abandon` meanwhile.
        """
        with self._seat() as seat:
            product = seat.compile(job, timeout_s)
        if product is None:
            return CompileOutput(False, "The compiler crashed on this text.")
        if product.missing is not None:
            raise CompilerUnavailable(
                f"The compiler cannot be used ({product.missing}).", hint=f"Run: pip install {self._install}"
            )
        return product

    def abandon(self, threads: Collection[int] | None = None) -> None:
        """Kill the compilations that other threads wait for; those threads get `Abandoned`.

        Args:
            threads: the waiting threads, by `threading.get_ident`; None for all, whose children are then restarted at
                once.
        """
        for seat in self._seats:
            child, thread = seat.child, seat.thread
            if child is not None and thread is not None and (threads is None or thread in threads):
                seat.abandoned, seat.another = True, threads is None
                child.kill()

    def start(self) -> None:
        """Start a child ahead of the first job.

        Raises:
            CompilerUnavailable: it cannot be started.
        """
        with self._seat() as seat:
            seat.started()

    def close(self) -> None:
        """Ends all child processes."""
        with contextlib.ExitStack() as held:
            for seat in [held.enter_context(self._seat()) for _ in self._seats]:
                seat.kill()

    @contextlib.contextmanager
    def _seat(self) -> Iterator[_ChildSlot]:
        """Context manager that reserves a slot for this thread, preferably the one used last; waits if all are taken."""
        with self._changed:
            self._changed.wait_for(lambda: self._free)
            seat = self._free.pop()
            seat.thread = threading.get_ident()
        try:
            yield seat
        finally:
            with self._changed:
                seat.thread = None
                self._free.append(seat)
                self._changed.notify()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


COMPILER = CompilerProcess()
"""The compiler processes of this program, started on first use."""

atexit.register(COMPILER.close)
