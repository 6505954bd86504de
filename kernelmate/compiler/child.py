"""The compiler's own process: `python -m kernelmate.compiler.child`. NVRTC cannot be interrupted, so it is killed.

Frames over the standard streams: four bytes of length, big-endian, then msgpack of `Job` or `Product`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import struct
import sys
from typing import Any, BinaryIO

import msgspec

MOST_BYTES = 256 << 20


class Job(msgspec.Struct, frozen=True):
    """One compilation: text, in-memory headers by the name they are included by, and NVRTC's options."""

    text: str
    name: str
    headers: tuple[tuple[str, str], ...]
    options: tuple[str, ...]
    expressions: tuple[str, ...]


class Product(msgspec.Struct, frozen=True):
    """What came of it. `missing` says why NVRTC cannot be used at all; then there is nothing else."""

    ok: bool
    log: str
    ptx: str = ""
    cubin: bytes = b""
    lowered: tuple[str, ...] = ()
    missing: str | None = None


def write_frame(stream: BinaryIO, message: Job | Product) -> None:
    """Write one message and flush."""
    body = msgspec.msgpack.encode(message)
    stream.write(struct.pack(">I", len(body)) + body)
    stream.flush()


def read_exactly(stream: BinaryIO, size: int) -> bytes:
    """Exactly `size` bytes. Raises EOFError at the end of the stream."""
    parts = []
    while size:
        part = stream.read(size)
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def read_frame(stream: BinaryIO) -> bytes:
    """One message's body. Raises EOFError at the end of the stream or at a length that no message has."""
    (size,) = struct.unpack(">I", read_exactly(stream, 4))
    if size > MOST_BYTES:
        raise EOFError
    return read_exactly(stream, size)


def main() -> int:
    """Serve jobs until the input ends."""
    _die_with_parent()
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    while True:
        try:
            job = msgspec.msgpack.decode(read_frame(requests), type=Job)
        except EOFError:
            return 0
        write_frame(answers, compile_job(job))


def _die_with_parent() -> None:
    if sys.platform.startswith("linux"):
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)


def nvrtc_version() -> tuple[int, int]:
    """Major and minor of the NVRTC that compiles. Raises ImportError or OSError or RuntimeError where there is none."""
    from cuda.bindings import nvrtc

    status, major, minor = nvrtc.nvrtcVersion()
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(str(status))
    return major, minor


def compile_job(job: Job) -> Product:
    """Compile in this process; never raises."""
    try:
        from cuda.bindings import nvrtc

        return _compile(nvrtc, job)
    except Exception as error:  # noqa: BLE001 -- a missing library shows in many ways, and all mean the same
        return Product(False, "", missing=f"{type(error).__name__}: {error}")


def _compile(nvrtc: Any, job: Job) -> Product:
    contents = [content.encode() for _, content in job.headers]
    names = [name.encode() for name, _ in job.headers]
    status, program = nvrtc.nvrtcCreateProgram(job.text.encode(), job.name.encode(), len(names), contents, names)
    _demand(nvrtc, status)
    try:
        for expression in job.expressions:
            nvrtc.nvrtcAddNameExpression(program, expression.encode())
        options = [option.encode() for option in job.options]
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
        log = _fetch(nvrtc, program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog).decode(errors="replace")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            return Product(False, log.rstrip("\0"))
        ptx = _fetch(nvrtc, program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX).decode(errors="replace").rstrip("\0")
        cubin = _fetch(nvrtc, program, nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
        lowered = []
        for expression in job.expressions:
            status, name = nvrtc.nvrtcGetLoweredName(program, expression.encode())
            _demand(nvrtc, status)
            lowered.append(name.decode())
        return Product(True, log.rstrip("\0"), ptx, cubin, tuple(lowered))
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _demand(nvrtc: Any, status: Any) -> None:
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise RuntimeError(str(status))


def _fetch(nvrtc: Any, program: Any, size_of: Any, get: Any) -> bytes:
    status, size = size_of(program)
    _demand(nvrtc, status)
    buffer: bytes = b"\0" * size
    _demand(nvrtc, get(program, buffer)[0])
    return buffer


if __name__ == "__main__":
    sys.exit(main())
