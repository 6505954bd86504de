"""The compiler child, seen from its parent: kept warm, killed at the time limit, replaced at once."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import signal
import struct
import subprocess
import sys
import threading
import time

import msgspec

from kernelmate.compiler.child import Job, Product
from kernelmate.errors import CompilerUnavailable, CompileTimeout


class CompilerProcess:
    """One child. Safe to use from several threads, one compilation at a time."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()

    def compile(self, job: Job, timeout_s: float) -> Product:
        """Compile in the child.

        Raises:
            CompileTimeout: it did not end in `timeout_s` seconds, and was killed.
            CompilerUnavailable: the child cannot be started, dies at once, or finds no NVRTC.
        """
        with self._lock:
            try:
                product = self._ask(job, timeout_s)
            except EOFError:
                # The child may have died while it was idle; a job that kills it twice is at fault itself.
                self._kill()
                try:
                    product = self._ask(job, timeout_s)
                except EOFError:
                    self._kill()
                    return Product(False, f"{job.name}(1): error: the compiler crashed on this text")
            except BaseException:
                self._kill()
                raise
        if product.missing is not None:
            raise CompilerUnavailable(
                f"NVRTC cannot be used ({product.missing}).",
                hint="Install it: pip install 'kernelmate' (Linux, Windows).",
            )
        return product

    def start(self) -> None:
        """Start the child ahead of the first job."""
        if self._child is not None and self._child.poll() is None:
            return
        if sys.platform == "darwin":
            raise CompilerUnavailable(
                "compiling CUDA is not available on macOS: NVIDIA ships no compiler for it.",
                hint="Use a Linux or Windows machine.",
            )
        try:
            self._child = subprocess.Popen(
                [sys.executable, "-m", "kernelmate.compiler.child"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise CompilerUnavailable(
                f"the compiler's process cannot be started: {error}.", hint="Check limits on processes and memory."
            ) from None

    def close(self) -> None:
        """Leave no process behind."""
        with self._lock:
            self._kill()

    def _ask(self, job: Job, timeout_s: float) -> Product:
        self.start()
        assert self._child is not None
        assert self._child.stdin is not None
        body = msgspec.msgpack.encode(job)
        try:
            self._child.stdin.write(struct.pack(">I", len(body)) + body)
            self._child.stdin.flush()
        except OSError:
            raise EOFError from None
        deadline = time.monotonic() + timeout_s
        (size,) = struct.unpack(">I", self._receive(4, deadline, timeout_s, job))
        return msgspec.msgpack.decode(self._receive(size, deadline, timeout_s, job), type=Product)

    def _receive(self, size: int, deadline: float, timeout_s: float, job: Job) -> bytes:
        assert self._child is not None
        assert self._child.stdout is not None
        descriptor = self._child.stdout.fileno()
        received = bytearray()
        while len(received) < size:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([descriptor], [], [], left)[0]:
                self._kill()
                raise CompileTimeout(
                    f"the compiler did not end in {timeout_s:g} s and was killed.",
                    file=job.name,
                    hint="Look for templates or constant expressions that unfold without end, or raise --timeout.",
                )
            part = os.read(descriptor, min(size - len(received), 1 << 20))
            if not part:
                raise EOFError
            received += part
        return bytes(received)

    def _kill(self) -> None:
        child, self._child = self._child, None
        if child is None:
            return
        with contextlib.suppress(OSError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        for stream in (child.stdin, child.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()


COMPILER = CompilerProcess()
"""The child of this process, started when first needed."""

atexit.register(COMPILER.close)
