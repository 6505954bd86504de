"""Messages between the compiler process and its client.

Frames over the standard streams: four bytes of length, big-endian, then msgpack of `CompileJob` or `CompileOutput`.
"""

from __future__ import annotations

import struct
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
    """Result of a compilation. If NVRTC cannot be used, `missing` is the reason, and all else is empty.

    If only ptxas failed, `ptx` is set and `ok` is False. If the compiler crashed on these options and others compiled the
    text, `after_crash` says so.
    """

    ok: bool
    log: str
    ptx: str = ""
    cubin: bytes = b""
    lowered: tuple[str, ...] = ()
    missing: str | None = None
    after_crash: str = ""


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
