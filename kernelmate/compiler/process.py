"""The compiler child, seen from its parent: kept warm, killed at the time limit, replaced at once."""

from __future__ import annotations

import atexit
import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
from typing import Any, BinaryIO, cast

import msgspec

from kernelmate.compiler.child import Job, Product, pack, read_frame
from kernelmate.compiler.places import require_platform
from kernelmate.errors import CompilerUnavailable, CompileTimeout


class _Child:
    """One started child and the thread that reads what it answers.

    It ends with its input, so with this process too, however that ends; in a session of its own it does not get the
    terminal's Ctrl-C.
    """

    def __init__(self) -> None:
        self.owner = os.getpid()
        self.popen = subprocess.Popen(
            [sys.executable, "-P", "-m", "kernelmate.compiler.child"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            **_own_group(),
        )
        self._answers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True, name="kernelmate-compiler").start()

    def ask(self, job: Job, timeout_s: float) -> Product | None:
        """The answer; None when the child died. Raises `queue.Empty` when the time is up."""
        assert self.popen.stdin is not None
        try:
            self.popen.stdin.write(pack(job))
            self.popen.stdin.flush()
        except OSError:
            return None
        body = self._answers.get(timeout=timeout_s)
        return None if body is None else msgspec.msgpack.decode(body, type=Product)

    def kill(self) -> None:
        """Kill it and wait for it. In a fork of this process, only forget it."""
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

    def _read(self) -> None:
        assert self.popen.stdout is not None
        with contextlib.suppress(EOFError, OSError, ValueError), self.popen.stdout as stream:
            while True:
                self._answers.put(read_frame(cast(BinaryIO, stream)))
        self._answers.put(None)


class Abandoned(Exception):
    """A compilation was killed because nobody wants its result any more."""


def _own_group() -> dict[str, Any]:
    """Arguments of `Popen` that keep the terminal's Ctrl-C from the child."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP}
    return {"start_new_session": True}


class CompilerProcess:
    """The compiler of this process. Safe to use from several threads, one compilation at a time."""

    def __init__(self) -> None:
        self._child: _Child | None = None
        self._lock = threading.Lock()
        self._abandoned = False

    @property
    def pid(self) -> int | None:
        """The child's process id; None while there is none."""
        return None if self._child is None else self._child.popen.pid

    def compile(self, job: Job, timeout_s: float) -> Product:
        """Compile in the child.

        Raises:
            CompileTimeout: it did not end in `timeout_s` seconds, and was killed.
            CompilerUnavailable: the child cannot be started, or finds no NVRTC.
            Abandoned: another thread called `abandon` meanwhile.
        """
        with self._lock:
            self._abandoned = False
            try:
                product = self._ask(job, timeout_s)
                if product is None and self._abandoned:
                    self._started()  # the next text is already being waited for
                    raise Abandoned
                if product is None:
                    # The child may have died while it was idle; a job that kills it twice is at fault itself.
                    product = self._ask(job, timeout_s)
            except Abandoned:
                raise
            except queue.Empty:
                self._kill()
                raise CompileTimeout(
                    f"The compiler did not end in {timeout_s:g} s and was killed.",
                    hint="Look for templates or constant expressions that unfold without end, or allow it more time.",
                ) from None
            except BaseException:
                # Ctrl-C among them: what the child is busy with is not wanted any more.
                self._kill()
                raise
        if product is None:
            return Product(False, "The compiler crashed on this text.")
        if product.missing is not None:
            raise CompilerUnavailable(
                f"NVRTC cannot be used ({product.missing}).",
                hint="Run: pip install cuda-bindings nvidia-cuda-nvrtc nvidia-cuda-runtime nvidia-cuda-cccl",
            )
        return product

    def abandon(self) -> None:
        """Kill the compilation that another thread waits for, if there is one; that thread gets `Abandoned`."""
        child = self._child
        if child is not None and self._lock.locked():
            self._abandoned = True
            child.kill()

    def start(self) -> None:
        """Start the child ahead of the first job.

        Raises:
            CompilerUnavailable: it cannot be started.
        """
        with self._lock:
            self._started()

    def close(self) -> None:
        """Leave no process behind."""
        with self._lock:
            self._kill()

    def _started(self) -> _Child:
        child = self._child
        if child is None or child.owner != os.getpid() or child.popen.poll() is not None:
            require_platform()
            self._kill()
            try:
                child = self._child = _Child()
            except OSError as error:
                raise CompilerUnavailable(
                    f"The compiler's process cannot be started: {error}.", hint="Check limits on processes and memory."
                ) from None
        return child

    def _ask(self, job: Job, timeout_s: float) -> Product | None:
        answer = self._started().ask(job, timeout_s)
        if answer is None:
            self._kill()
        return answer

    def _kill(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.kill()


COMPILER = CompilerProcess()
"""The child of this process, started when first needed."""

atexit.register(COMPILER.close)
