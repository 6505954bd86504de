"""The compiler process, `python -m kernelmate.compiler.child`.

NVRTC cannot be interrupted, so the process is killed instead.

Frames over the standard streams: four bytes of length, big-endian, then msgpack of `CompileJob` or `CompileOutput`. It
ends with its input, even during a compilation, because a separate thread reads the input.
"""

from __future__ import annotations

import os
import queue
import struct
import sys
import threading
from typing import BinaryIO

import msgspec

MOST_BYTES = 512 << 20


class CompileJob(msgspec.Struct, frozen=True):
    """One compilation: text, in-memory headers by include name, and NVRTC's options."""

    text: str
    name: str
    headers: tuple[tuple[str, str], ...]
    options: tuple[str, ...]
    expressions: tuple[str, ...]


class CompileOutput(msgspec.Struct, frozen=True):
    """Result of a compilation. `missing` is the reason if NVRTC cannot be used at all; all else is then empty.

    If only ptxas failed, `ptx` is set and `ok` is False.
    """

    ok: bool
    log: str
    ptx: str = ""
    cubin: bytes = b""
    lowered: tuple[str, ...] = ()
    missing: str | None = None


def pack(message: CompileJob | CompileOutput) -> bytes:
    """Serialises a message with its length."""
    body = msgspec.msgpack.encode(message)
    return struct.pack(">I", len(body)) + body


def read_frame(stream: BinaryIO) -> bytes:
    """Reads one message's body. Raises EOFError at the end of the stream or at an invalid length."""
    (size,) = struct.unpack(">I", _read_exactly(stream, 4))
    if size > MOST_BYTES:
        raise EOFError
    return _read_exactly(stream, size)


def _read_exactly(stream: BinaryIO, size: int) -> bytes:
    parts = []
    while size:
        part = stream.read(size)
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def main() -> int:
    """Serves jobs until the input ends."""
    # Line information contains the working folder, and code must not depend on where it was compiled.
    os.chdir(os.path.abspath(os.sep))
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    # Output of NVRTC or a library must not corrupt the frames.
    os.dup2(2, 1)
    jobs: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_jobs, args=(requests, jobs), daemon=True).start()
    while True:
        answers.write(pack(_compile(msgspec.msgpack.decode(jobs.get(), type=CompileJob))))
        answers.flush()


def _read_jobs(requests: BinaryIO, jobs: queue.SimpleQueue[bytes]) -> None:
    """Queues incoming jobs; ends the process at the end of the stream, which the parent's death closes."""
    try:
        while True:
            jobs.put(read_frame(requests))
    except (EOFError, OSError):
        os._exit(0)


def _compile(job: CompileJob) -> CompileOutput:
    try:
        from kernelmate.compiler.library import load_library

        library = load_library()
    except Exception as error:  # noqa: BLE001 -- a missing library shows in many ways, and all mean the same
        return CompileOutput(False, "", missing=f"{type(error).__name__}: {error}")
    return library.compile(job)


if __name__ == "__main__":
    sys.exit(main())
