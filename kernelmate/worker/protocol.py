"""The wire format between a session and its worker: the only module that both sides import.

The worker exists because a candidate kernel may loop for ever, crash, corrupt its GPU context or exhaust memory, and
because a reference is untested Python code. Neither may damage a notebook's arrays or an editor, so both run in a child
process that the session can kill and replace at any time. No memory is shared and all communication uses the child's
standard streams, so the child may also run behind `ssh host`.

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
    """First message to the child: what it gets ready for, so that the first task finds it warm.

    Attributes:
        version: `VERSION` of the session.
        memory_limit: bytes beyond what the idle child takes; None for no limit.
        backend: the one that tasks will name.
        device: the GPU's number there, as CUDA counts them.
        device_memory_limit: bytes of the GPU's memory that launches may take; None for most of what is free.
        remote: files of the user come with each task, since this machine has none of them.
    """

    version: str
    memory_limit: int | None
    backend: BackendName = "emulator"
    device: int = 0
    device_memory_limit: int | None = None
    remote: bool = False


class JudgeRequest(msgspec.Struct, frozen=True, tag=True):
    """One task; `number` comes back with everything that is said about it.

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
    """A task that may come next: what does not depend on its kernel may be worked out while nothing else is asked.

    It is not answered, and dropped as soon as there is a `JudgeRequest`. Files of the user came with the last one.
    """

    task: JudgeTask


class ReadyMessage(msgspec.Struct, frozen=True, tag=True):
    """First message of the child: it has loaded what it needs and waits for tasks.

    Attributes:
        version: `VERSION` of the child.
        gpu: the name of its GPU, None where it uses none.
        capability: that GPU's compute capability.
        mps: NVIDIA's Multi-Process Service is between it and the GPU, and carries faults to others.
        problem: why the backend cannot run there, and what to do about it; None where it can.
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
    """The task's answer; after the `last` one the child ends, since kernels cannot run in it any more."""

    number: int
    judgement: Judgement
    last: bool = False


class TraceResult(msgspec.Struct, frozen=True, tag=True):
    """The answer to `TraceRequest`: the graph, as `kernelmate.synthesis.graph.Graph.text` writes it."""

    number: int
    graph: str


class TaskRefused(msgspec.Struct, frozen=True, tag=True):
    """The task ended in a `KernelmateError`: something the user has to change. `last` as in `TaskResult`."""

    number: int
    code: str
    message: str
    file: str | None
    line: int | None
    column: int | None
    hint: str | None
    last: bool = False


class OutOfMemory(msgspec.Struct, frozen=True, tag=True):
    """The task asked for more than the memory limit. The child ends after saying so."""

    number: int
    detail: str


class ChildFailed(msgspec.Struct, frozen=True, tag=True):
    """Something in the child failed that should not have; `detail` ends in the exception. The child ends after it."""

    number: int
    detail: str


ToChild: TypeAlias = Hello | JudgeRequest | TraceRequest | PrefetchRequest
"""Messages of a session."""

FromChild: TypeAlias = (
    ReadyMessage | ProgressMessage | TaskResult | TraceResult | TaskRefused | OutOfMemory | ChildFailed
)
"""Messages of a child."""


class FrameError(Exception):
    """Bytes that are no frame of this protocol, or a message over `MAX_FRAME`."""


def _plain(value: Any) -> Any:
    """NumPy scalars as Python numbers: they come out of arithmetic on arrays and say the same."""
    item = getattr(value, "item", None)
    if callable(item):
        return item()
    raise TypeError(f"{type(value).__name__} does not travel in a message")


_encoder = msgspec.msgpack.Encoder(enc_hook=_plain)
_to_child: msgspec.msgpack.Decoder[ToChild] = msgspec.msgpack.Decoder(ToChild)
_from_child: msgspec.msgpack.Decoder[FromChild] = msgspec.msgpack.Decoder(FromChild)


def frame(message: ToChild | FromChild) -> bytes:
    """One message as bytes, length included.

    Raises:
        FrameError: the message is over `MAX_FRAME` or holds what cannot travel.
    """
    try:
        body = _encoder.encode(message)
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise FrameError(f"A message cannot be written: {error}") from error
    if len(body) > MAX_FRAME:
        raise FrameError(f"A message of {len(body)} bytes is over the {MAX_FRAME} that a frame may hold.")
    return len(body).to_bytes(_HEADER, "big") + body


def write(stream: RawIOBase, message: ToChild | FromChild) -> None:
    """Write one message to an unbuffered stream, whole.

    Raises:
        FrameError: as `frame` does, before anything is written.
        OSError: the other side is gone.
    """
    rest = memoryview(frame(message))
    while rest:
        rest = rest[stream.write(rest) or 0 :]


def read_to_child(stream: BinaryIO) -> ToChild | None:
    """The next message of the session; None at the end of the stream.

    Raises:
        FrameError: the bytes are no message to a child.
    """
    return _read(stream, _to_child.decode)


def read_from_child(stream: BinaryIO) -> FromChild | None:
    """The next message of the child; None at the end of the stream.

    Raises:
        FrameError: the bytes are no message from a child.
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
    """An error as a message."""
    return TaskRefused(number, error.code, error.message, error.file, error.line, error.column, error.hint, last)


def error_of(refused: TaskRefused) -> KernelmateError:
    """The same error on the other side, of the class of `kernelmate.errors` that has its code."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, KernelmateError)]
    by_code = {kind.code: kind for kind in kinds}
    return by_code.get(refused.code, KernelmateError)(
        refused.message, file=refused.file, line=refused.line, column=refused.column, hint=refused.hint
    )


def rootless(path: str) -> str:
    """A path of the session's machine without its root or drive, with `/`: how files are named that travel."""
    return path.replace("\\", "/").replace(":", "").lstrip("/")
