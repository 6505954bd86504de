"""Manages the compiler's child processes, which are reused, killed at the time limit, and then replaced."""

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
from typing import BinaryIO, cast

import msgspec

from kernelmate.compiler.cuda_toolkit import require_platform
from kernelmate.compiler.frames import CompileJob, CompileOutput, pack, read_frame
from kernelmate.confinement import own_group
from kernelmate.environment import allowed
from kernelmate.errors import CompilerUnavailable, CompileTimeout

MOST_CHILDREN = 8
"""Maximum number of child processes; each takes about 110 MB with NVRTC loaded, and more for large templates."""


NVRTC_CHILD = "kernelmate.compiler.child"
_FEWER_OPTIMISATIONS = "--Ofast-compile=min"
_CRASHED = (
    "NVRTC crashed while it compiled this kernel, which is a fault of NVRTC even if the text has one, too: another version "
    "of it may compile the kernel or name the error."
)
_CRASHED_OPTIMISING = (
    "NVRTC crashed while it optimised this kernel, so it was compiled with --Ofast-compile=min: the code differs from that "
    "of another version of NVRTC."
)
_NVRTC_PACKAGES = "cuda-bindings nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl"


class _Child:
    """One started child process and the thread that reads its replies.

    The child exits when its input is closed, and therefore with this process. It runs in its own session, so that it
    does not receive the terminal's Ctrl-C.
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
            **own_group(),
        )
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True, name="kernelmate-compiler").start()

    def ask(self, job: CompileJob, timeout_s: float) -> CompileOutput | None:
        """Returns the reply; None if the child died.

        Raises:
            queue.Empty: the time limit passed.
        """
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(pack(job))
            self.popen.stdin.flush()
        except OSError:
            return None
        body = self._answers.get(timeout=timeout_s)
        return None if body is None else msgspec.msgpack.decode(body, type=CompileOutput)

    def kill(self) -> None:
        """Kills the child and waits for it; in a fork of this process, does nothing."""
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


class CompilationAbandoned(Exception):
    """A compilation was killed because its result is no longer needed."""


class _ChildSlot:
    """One child of a `CompilerProcess`, started on first use, and used by one thread at a time.

    Attributes:
        child: the process; None if there is none.
        thread: the waiting thread, by `threading.get_ident`.
        abandoned: True if the result is no longer needed.
        another: True if a new child is to be started after an abandoned job.
    """

    def __init__(self, module: str) -> None:
        self._module = module
        self.child: _Child | None = None
        self.thread: int | None = None
        self.abandoned = self.another = False

    def compile(self, job: CompileJob, timeout_s: float) -> CompileOutput | None:
        """Returns the result; None if the job has killed the child twice.

        Raises:
            CompileTimeout: the compilation did not end in time, and the child was killed.
            CompilerUnavailable: the child cannot be started.
            CompilationAbandoned: another thread called `abandon`.
        """
        self.abandoned = False
        try:
            product = self._ask(job, timeout_s)
            if product is None and self.abandoned:
                if self.another:
                    self.started()
                raise CompilationAbandoned
            if product is None:
                # The child may have died while idle; a job that kills it twice is at fault itself.
                product = self._ask(job, timeout_s)
        except CompilationAbandoned:
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
        """Returns the running child, started if necessary.

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
        """Kills the child, if there is one."""
        child, self.child = self.child, None
        if child is not None:
            child.kill()

    def _ask(self, job: CompileJob, timeout_s: float) -> CompileOutput | None:
        answer = self.started().ask(job, timeout_s)
        if answer is None:
            self.kill()
        return answer


class CompilerProcess:
    """Runs compilations in child processes. Thread-safe: as many threads compile at once as there are children.

    A child is started when all others are busy, so sequential compilations use one child.

    Args:
        children: maximum number of children; None for one per core, up to `MOST_CHILDREN`.
        module: the module that a child runs. Modules other than NVRTC's evaluate text in Python; they get the name of a
            folder for temporary files, and only the environment variables that a worker gets.
        install: the package to install if a child's library is missing.
    """

    def __init__(self, children: int | None = None, module: str = NVRTC_CHILD, install: str = _NVRTC_PACKAGES) -> None:
        self.children = children or min(MOST_CHILDREN, _cores())
        self._module, self._install = module, install
        self._seats = [_ChildSlot(module) for _ in range(self.children)]
        self._free = list(reversed(self._seats))
        self._changed = threading.Condition()

    @property
    def pid(self) -> int | None:
        """Process id of the first child; None if there is none."""
        child = self._seats[0].child
        return None if child is None else child.popen.pid

    def compile(self, job: CompileJob, timeout_s: float) -> CompileOutput:
        """Compiles in a child.

        Raises:
            CompileTimeout: the compilation did not end within `timeout_s` seconds, and was killed.
            CompilerUnavailable: the child cannot be started, or finds no NVRTC.
            CompilationAbandoned: another thread called `abandon` meanwhile.
        """
        product = self._in_seat(job, timeout_s)
        if product is None:
            return self._after_crash(job, timeout_s)
        if product.missing is not None:
            raise CompilerUnavailable(
                f"The compiler cannot be used ({product.missing}).", hint=f"Run: pip install {self._install}"
            )
        return product

    def _after_crash(self, job: CompileJob, timeout_s: float) -> CompileOutput:
        """Compiles a text that crashed the compiler in ways that avoid known crashes.

        NVRTC 13.5 crashes on the name of a template's instance if the template's own declaration has an error, which a
        compilation without names reports, and in an optimisation that `--Ofast-compile=min` leaves out.
        """
        if job.expressions:
            product = self._in_seat(msgspec.structs.replace(job, expressions=()), timeout_s)
            if product is not None and not product.ok and product.log.strip():
                return product
        if self._module == NVRTC_CHILD:
            fewer = msgspec.structs.replace(job, options=(*job.options, _FEWER_OPTIMISATIONS))
            product = self._in_seat(fewer, timeout_s)
            if product is not None and product.ok:
                return msgspec.structs.replace(product, after_crash=_CRASHED_OPTIMISING)
            return CompileOutput(False, _CRASHED)
        return CompileOutput(False, "The compiler crashed on this text.")

    def _in_seat(self, job: CompileJob, timeout_s: float) -> CompileOutput | None:
        with self._seat() as seat:
            return seat.compile(job, timeout_s)

    def abandon(self, threads: Collection[int] | None = None) -> None:
        """Kill the compilations that other threads wait for; those threads get `CompilationAbandoned`.

        Args:
            threads: the waiting threads, by `threading.get_ident`; None for all; their children are then restarted
                immediately.
        """
        for seat in self._seats:
            child, thread = seat.child, seat.thread
            if child is not None and thread is not None and (threads is None or thread in threads):
                seat.abandoned, seat.another = True, threads is None
                child.kill()

    def start(self) -> None:
        """Starts a child before the first job.

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
        """Context manager that reserves a slot for this thread, preferably the last one used; waits for a free slot."""
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
