"""Output of kernels: the driver writes it to this process's standard streams when it is waited for."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernelmate.backends.base import MOST_PRINTED

_ASSERT = re.compile(r"^(?P<file>.*?):(?P<line>\d+): .*Assertion `(?P<condition>.*)` failed", re.MULTILINE)
"""The driver's message of a failed assert, one per thread."""


@dataclass(slots=True)
class Printed:
    """Output of a kernel: its first `MOST_PRINTED` bytes, and the total number of bytes."""

    text: str = ""
    size: int = 0
    _kept: bytearray = field(default_factory=bytearray)

    @property
    def flooded(self) -> bool:
        """True if there was more output than is kept."""
        return self.size > MOST_PRINTED

    @property
    def failed_assert(self) -> tuple[str, int] | None:
        """Condition and line of the first failed assert; None if there is none."""
        match = _ASSERT.search(self.text)
        return None if match is None else (match["condition"], int(match["line"]))

    def drain(self, descriptor: int) -> None:
        """Read to the end; only the beginning is kept."""
        with os.fdopen(descriptor, "rb", buffering=0) as stream:
            while chunk := stream.read(1 << 16):
                self.size += len(chunk)
                self._kept += chunk[: max(MOST_PRINTED - len(self._kept), 0)]
        self.text = self._kept.decode(errors="replace")


@contextlib.contextmanager
def captured_output(wanted: bool) -> Iterator[Printed]:
    """Context manager that captures writes to descriptors 1 and 2; captures nothing if not `wanted`, or on Windows.

    The driver prints through the C library, whose buffer is flushed before and after.
    """
    printed = Printed()
    if not wanted or sys.platform == "win32":
        yield printed
        return
    library = ctypes.CDLL(None)
    sys.stdout.flush()
    sys.stderr.flush()
    library.fflush(None)
    reader, writer = os.pipe()
    before = [os.dup(number) for number in (1, 2)]
    thread = threading.Thread(target=printed.drain, args=(reader,), daemon=True)
    thread.start()
    try:
        for number in (1, 2):
            os.dup2(writer, number)
        os.close(writer)
        yield printed
    finally:
        library.fflush(None)
        for number, kept in zip((1, 2), before, strict=True):
            os.dup2(kept, number)
            os.close(kept)
        thread.join()
