"""The wire format between a session and its worker: the only module that both sides import.

The worker exists because a candidate kernel may loop for ever, crash, corrupt its GPU context or exhaust memory, and
because a reference is untested Python code. Neither may damage a notebook's arrays or an editor, so both run in a child
process that the session can kill and replace at any time. No memory is shared and all communication uses the child's
standard streams, so the child may also be started by `ssh host`.

The isolation covers:

- A hang, a crash, running out of memory and endless output end the child, never the session, and become findings.
- The child is given back to the system when the session closes, is interrupted, or is killed outright.
- Memory is capped by the system (address space, where there are `setrlimit` limits; beside CUDA, which reserves address
  space for all memory of the machine, the data that can be written), core dumps are off. So is memory of the GPU.
- Whatever prints (Python, C libraries, kernels) is kept off the protocol and counted.
- The child gets environment variables of an allow-list only.
- References and makers of inputs run in a process of their own (`evaluator.py`), which holds no descriptor of this
channel.
- Processes that left the child's group end with it (Linux).

docs/security.md lists for each operating system which of these hold, and the test of each.

A frame is a 4-byte big-endian length and that many bytes of MessagePack: one tagged message. The session speaks first
(`Hello`, which names the backend and the GPU), the child answers `ReadyMessage` once it can judge, then each
`JudgeRequest` or `TraceRequest` gets any number of `ProgressMessage` and one of `TaskResult` (`TraceResult`),
`TaskRefused`, `OutOfMemory` or `ChildFailed`. The end of the child's input ends the child.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from io import RawIOBase
from typing import Any, BinaryIO, TypeAlias, TypeVar

import msgspec

from kernelmate import errors
from kernelmate.errors import KernelmateError
from kernelmate.records import BackendName, Judgement, JudgeTask
from kernelmate.version import VERSION as PACKAGE_VERSION

PROTOCOL = 3
"""Protocol version, raised whenever a message changes its meaning.

Records in messages change with the package's version.
"""

VERSION = f"{PROTOCOL}/{PACKAGE_VERSION}"
"""Version that both sides must share: of the protocol, and of the package that defines the records."""

MAX_FRAME = 64 * 1024 * 1024
"""Bytes in the largest frame that is written or read. Judgements take kilobytes, tasks a few megabytes of code."""

_Message = TypeVar("_Message")
_HEADER = 4


class Hello(msgspec.Struct, frozen=True, tag=True):
    """First message to the child: it says what to prepare for the first task.

    Attributes:
        version: `VERSION` of the session.
        memory_limit: bytes beyond the idle child's use; None for no limit.
        backend: the one that tasks will name.
        device: the GPU's number there, as CUDA counts them.
        device_memory_limit: bytes of the GPU's memory that launches may take; None for most of what is free.
        remote: True if the user's files come with each task, because this machine does not have them.
    """

    version: str
    memory_limit: int | None
    backend: BackendName = "emulator"
    device: int = 0
    device_memory_limit: int | None = None
    remote: bool = False


class JudgeRequest(msgspec.Struct, frozen=True, tag=True):
    """One task; `number` is repeated in every message about it.

    `files` are those of the user that the task names, by path without its root, for a remote child.
    """

    number: int
    task: JudgeTask
    files: Mapping[str, bytes] = {}


class TraceRequest(msgspec.Struct, frozen=True, tag=True):
    """Asks for the graph of the reference of a task's candidate; fields as in `JudgeRequest`."""

    number: int
    task: JudgeTask
    files: Mapping[str, bytes] = {}


class PrefetchRequest(msgspec.Struct, frozen=True, tag=True):
    """Announces a task that may come next, so that work independent of its kernel can be done while the child is idle.

    It gets no reply, and is dropped as soon as a `JudgeRequest` arrives. The user's files came with the last request.

    Attributes:
        task: the task.
        launches: start the candidate's own emulated launches; False prepares only what does not depend on its kernel.
    """

    task: JudgeTask
    launches: bool = False


class ReadyMessage(msgspec.Struct, frozen=True, tag=True):
    """First message of the child: it is ready for tasks.

    Attributes:
        version: `VERSION` of the child.
        gpu: the name of its GPU, None if it uses none.
        capability: that GPU's compute capability.
        mps: True if NVIDIA's Multi-Process Service is active, with which a fault in one process affects others.
        problem: the reason why the backend cannot run, with advice; None if it can.
    """

    version: str
    gpu: str | None = None
    capability: tuple[int, int] | None = None
    mps: bool = False
    problem: tuple[str, str] | None = None


class ProgressMessage(msgspec.Struct, frozen=True, tag=True):
    """Progress of the task. The stage is `reference` while the user's Python runs."""

    number: int
    stage: str
    done: int
    total: int


class TaskResult(msgspec.Struct, frozen=True, tag=True):
    """The task's result; after a result marked `last` the child ends, because kernels cannot run in it any more."""

    number: int
    judgement: Judgement
    last: bool = False


class TraceResult(msgspec.Struct, frozen=True, tag=True):
    """The answer to `TraceRequest`: the graph, as `kernelmate.synthesis.graph.Graph.text` writes it."""

    number: int
    graph: str


class TaskRefused(msgspec.Struct, frozen=True, tag=True):
    """The task ended in a `KernelmateError`, which the user has to resolve. `last` as in `TaskResult`."""

    number: int
    code: str
    message: str
    file: str | None
    line: int | None
    column: int | None
    hint: str | None
    last: bool = False


class OutOfMemory(msgspec.Struct, frozen=True, tag=True):
    """The task exceeded the memory limit. The child ends after this message."""

    number: int
    detail: str


class ChildFailed(msgspec.Struct, frozen=True, tag=True):
    """Internal failure of the child; `detail` ends in the exception. The child ends after this message."""

    number: int
    detail: str


ToChild: TypeAlias = Hello | JudgeRequest | TraceRequest | PrefetchRequest
"""Messages that a session sends."""

FromChild: TypeAlias = (
    ReadyMessage | ProgressMessage | TaskResult | TraceResult | TaskRefused | OutOfMemory | ChildFailed
)
"""Messages that a child sends."""


class FrameError(Exception):
    """Bytes that are not a frame of this protocol, or a message over `MAX_FRAME`."""


def _plain(value: Any) -> Any:
    """Converts NumPy scalars, which result from array arithmetic, to Python numbers."""
    item = getattr(value, "item", None)
    if callable(item):
        return item()
    raise TypeError(f"{type(value).__name__} does not travel in a message")


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)
_to_child: msgspec.msgpack.Decoder[ToChild] = msgspec.msgpack.Decoder(ToChild)
_from_child: msgspec.msgpack.Decoder[FromChild] = msgspec.msgpack.Decoder(FromChild)


def frame(message: ToChild | FromChild) -> bytes:
    """Serialise one message, with its length.

    Raises:
        FrameError: the message is over `MAX_FRAME` or cannot be serialised.
    """
    try:
        body = _encoder.encode(message)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise FrameError(f"A message cannot be written: {error}") from error
    if len(body) > MAX_FRAME:
        raise FrameError(f"A message of {len(body)} bytes is over the {MAX_FRAME} that a frame may hold.")
    return len(body).to_bytes(_HEADER, "big") + body


def write(stream: RawIOBase, message: ToChild | FromChild) -> None:
    """Writes one whole message to an unbuffered stream.

    Raises:
        FrameError: as `frame` does, before anything is written.
        OSError: the other side has closed the stream.
    """
    rest = memoryview(frame(message))
    while rest:
        rest = rest[stream.write(rest) or 0 :]


def read_to_child(stream: BinaryIO) -> ToChild | None:
    """Reads the session's next message; None at the end of the stream.

    Raises:
        FrameError: the bytes are not a message to a child.
    """
    return _read(stream, _to_child.decode)


def read_from_child(stream: BinaryIO) -> FromChild | None:
    """Reads the child's next message; None at the end of the stream.

    Raises:
        FrameError: the bytes are not a message from a child.
    """
    return _read(stream, _from_child.decode)


def _read(stream: BinaryIO, decode: Callable[[bytes], _Message]) -> _Message | None:
    header = stream.read(_HEADER)
    if not header:
        return None
    if len(header) < _HEADER:
        raise FrameError("The stream ended inside a frame.")
    length = int.from_bytes(header, "big")
    if length > MAX_FRAME:
        raise FrameError(f"A frame claims {length} bytes; at most {MAX_FRAME} are read.")
    body = stream.read(length)
    if len(body) < length:
        raise FrameError("The stream ended inside a frame.")
    try:
        return decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"A frame holds no message of this protocol: {error}") from error


def refusal(number: int, error: KernelmateError, *, last: bool = False) -> TaskRefused:
    """Converts an error to a message."""
    return TaskRefused(number, error.code, error.message, error.file, error.line, error.column, error.hint, last)


def error_of(refused: TaskRefused) -> KernelmateError:
    """Converts a message back to the error, of the class in `kernelmate.errors` that has its code."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KernelmateError)]
    by_code = {kind.code: kind for kind in kinds}
    return by_code.get(refused.code, KernelmateError)(
        refused.message, file=refused.file, line=refused.line, column=refused.column, hint=refused.hint
    )


def rootless(path: str) -> str:
    """Returns a path of the session's machine without root or drive, with `/`.

    The names of files sent to a remote worker.
    """
    return path.replace("\\", "/").replace(":", "").lstrip("/")
