"""Client of the process in which references and `inputs` functions run: arrays are sent to it and received from it.

Replies are pure data: a header of fixed form, and arrays of the requested names, shapes and types. Any other reply is
an error, and the process is killed. The process holds no descriptor of the channel that verdicts are sent through.
"""

from __future__ import annotations

import math
import mmap
import os
import select
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec
import numpy as np

from kernelmate.checks.precision import FUSED, Array, Arrays, is_fused, is_inexact
from kernelmate.checks.reference_messages import (
    AllocationFailed,
    Answer,
    ArraysMade,
    Call,
    Described,
    EvaluateReference,
    EvaluationFailed,
    LoadReference,
    MakeInputs,
    ReferenceLoaded,
    ReferenceTraced,
    Request,
    TraceReference,
)
from kernelmate.errors import ReferenceFailed
from kernelmate.records import Contract, Size
from kernelmate.source import argument_shapes, numpy_dtype
from kernelmate.source.dtypes import ITEM_BYTES

MAX_HEADER = 1 << 20
"""Maximum length in bytes of a header."""
_LENGTH = 4
TYPES = frozenset(ITEM_BYTES)
"""NumPy names of the array types that can be sent."""
GRACE_S = 2.0
"""Seconds to wait for a process that closed its channel to exit by itself, so that its own exit status can be reported."""


_ALIGNED = 64
"""Alignment in bytes of each array in shared memory."""

_answers: msgspec.msgpack.Decoder[Answer] = msgspec.msgpack.Decoder(Answer)


class Violation(Exception):
    """Received bytes do not match the request."""


@dataclass(frozen=True, slots=True)
class Channel:
    """One direction of the channel between two processes.

    Attributes:
        descriptor: an end of a pipe, for headers and for arrays that do not fit in the area.
        area: memory that both processes map. Data in it is copied before it is trusted.
    """

    descriptor: int
    area: mmap.mmap


class ReferenceProcess:
    """A process that evaluates references, forked off the one that judges.

    Args:
        requests, answers: this side's ends of two channels.
        pid: the process.
    """

    def __init__(self, requests: Channel, answers: Channel, pid: int) -> None:
        self._requests, self._answers, self._pid = requests, answers, pid
        self._number = 0
        self._turn = threading.Lock()
        self.ended: str | None = None
        """The reason why the process ended, as a verb phrase; None while it runs."""

    def load(self, contract: Contract, directory: Path) -> tuple[int, dict[str, str]]:
        """Loads a contract's reference.

        Returns its number for `evaluate`, and the modules that its file imported from its folder.

        Raises:
            ReferenceFailed: it cannot be loaded, or the process has ended.
        """
        with self._turn:
            number = self._next()
            answer = self._ask(contract, LoadReference(number, contract, str(directory)), {})
            if not isinstance(answer, ReferenceLoaded):
                self._break(contract, "sent arrays that nobody asked for")
            return number, answer.helpers

    def evaluate(self, loaded: int, contract: Contract, calls: Sequence[Call], size: Size) -> list[Arrays]:
        """Evaluates calls on NumPy arrays, each as `Reference.__call__`.

        Raises:
            ReferenceFailed: the reference failed, or the process ended or sent other data than its arrays.
        """
        shapes = argument_shapes(contract, size)
        outputs = [a for a in contract.args if a.direction in ("out", "inout")]
        wanted = {
            answer_name(index, a.name): (shapes[a.name], _outputs(a.dtype))
            for index in range(len(calls))
            for a in outputs
        }
        arrays, named = _shared(calls)
        with self._turn:
            request = EvaluateReference(self._next(), loaded, dict(size), named, described(arrays))
            taken = self._taken(contract, self._ask(contract, request, arrays), wanted)
        return [{a.name: taken[answer_name(index, a.name)] for a in outputs} for index in range(len(calls))]

    def make(self, contract: Contract, directory: Path, size: Size, seed: int) -> tuple[Arrays, dict[str, str]]:
        """Returns the arrays of the contract's `inputs` function, of the contract's shapes and types, and modules as `load` does.

        Raises:
            ReferenceFailed: as `evaluate`.
        """
        shapes = argument_shapes(contract, size)
        wanted = {
            a.name: (shapes[a.name], frozenset({numpy_dtype(a.dtype).name}))
            for a in contract.args
            if a.shape is not None
        }
        with self._turn:
            answer = self._ask(contract, MakeInputs(self._next(), contract, str(directory), dict(size), seed), {})
            return self._taken(contract, answer, wanted), getattr(answer, "helpers", {})

    def trace(self, contract: Contract, directory: Path) -> str:
        """Returns the graph of the contract's reference, as text.

        Raises:
            ReferenceFailed: it cannot be traced, or as `evaluate`.
        """
        with self._turn:
            answer = self._ask(contract, TraceReference(self._next(), contract, str(directory)), {})
            if not isinstance(answer, ReferenceTraced):
                self._break(contract, "sent something else than a graph")
            return answer.graph

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _ask(
        self, contract: Contract, request: Request, arrays: Arrays
    ) -> ReferenceLoaded | ArraysMade | ReferenceTraced:
        """Sends a request and reads the header of its answer.

        Raises:
            ReferenceFailed: as `evaluate`.
            MemoryError: an allocation failed in the process.
        """
        if self.ended is not None:
            self._refuse(contract, self.ended)
        waiting = self._answers.descriptor
        if select.select([waiting], [], [], 0)[0]:
            self._break(contract, "sent an answer before it was asked" if _waiting(waiting) else None)
        try:
            write(self._requests, request, arrays)
            answer = _answers.decode(read_header(self._answers.descriptor))
        except (Violation, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            self._break(contract, f"sent something that is not an answer: {error}")
        except (EOFError, OSError):
            self._break(contract, None)
        if answer.number != request.number:
            self._break(contract, "sent the reply to another request")
        if isinstance(answer, AllocationFailed):
            raise MemoryError(answer.detail)
        if isinstance(answer, EvaluationFailed):
            raise ReferenceFailed(
                answer.message, file=answer.file, line=answer.line, column=answer.column, hint=answer.hint
            )
        return answer

    def _taken(
        self,
        contract: Contract,
        answer: ReferenceLoaded | ArraysMade | ReferenceTraced,
        wanted: Mapping[str, tuple[tuple[int, ...], frozenset[str]]],
    ) -> Arrays:
        """Returns the arrays after a header, after a check that the header announces exactly the expected arrays."""
        if not isinstance(answer, ArraysMade) or [name for name, _, _ in answer.arrays] != list(wanted):
            self._break(contract, "sent other arrays than were asked for")
        for name, dtype, shape in answer.arrays:
            if shape != tuple(wanted[name][0]) or dtype not in wanted[name][1]:
                self._break(contract, f"sent {dtype} of shape {list(shape)} for {name}")
        try:
            return {name: array.copy() for name, array in read_arrays(self._answers, answer.arrays).items()}
        except (EOFError, OSError):
            self._break(contract, None)

    def _break(self, contract: Contract, what: str | None) -> NoReturn:
        """Kills the process after a protocol violation; if it ended by itself, reports its status."""
        until = time.monotonic() + (GRACE_S if what is None else 0)
        with suppress(ChildProcessError):
            while not (ended := os.waitpid(self._pid, os.WNOHANG))[0]:
                if time.monotonic() >= until:
                    what = what or "closed its channel"
                    os.kill(self._pid, signal.SIGKILL)
                time.sleep(0.01)
            status = os.waitstatus_to_exitcode(ended[1])
            what = what or (f"ended with exit status {status}" if status >= 0 else f"was killed by {_signal(-status)}")
        self.ended = what or "ended"
        self._refuse(contract, self.ended)

    def _refuse(self, contract: Contract, what: str) -> NoReturn:
        where = contract.reference if contract.reference is not None else contract.inputs
        raise ReferenceFailed(
            f"The process of the reference {where!r} {what}.",
            line=contract.line,
            hint="A reference must return its arrays, and do nothing to its process.",
        )


def answer_name(index: int, output: str) -> str:
    """Returns the name under which an output of one of several calls is sent."""
    return f"{index}:{output}"


def _shared(calls: Sequence[Call]) -> tuple[Arrays, tuple[tuple[str | None, dict[str, str]], ...]]:
    """Returns the arrays of all calls, each once, and each call as a list of array names."""
    names: dict[int, str] = {}
    arrays: Arrays = {}
    for given, _ in calls:
        for array in given.values():
            arrays[names.setdefault(id(array), str(len(names)))] = array
    return arrays, tuple(
        (_spelled(working), {name: names[id(array)] for name, array in given.items()}) for given, working in calls
    )


def _spelled(working: np.dtype[Any] | None) -> str | None:
    return None if working is None else "fused" if is_fused(working) else working.name


def working_dtype(spelled: str | None) -> np.dtype[Any] | None:
    """Returns the dtype that a call names, in which the reference computes."""
    return None if spelled is None else FUSED if spelled == "fused" else np.dtype(spelled)


def _signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _waiting(descriptor: int) -> bool:
    """Returns True if bytes wait to be read; False at the end of the stream."""
    return bool(os.read(descriptor, 1))


def _outputs(dtype: str) -> frozenset[str]:
    """Returns the types allowed for a reference's output for an argument of this dtype (`reference._widely`)."""
    declared = numpy_dtype(dtype)
    if not is_inexact(declared):
        return TYPES
    return frozenset({"complex128" if declared.kind == "c" else "float64"})


def described(arrays: Arrays) -> Described:
    """Returns name, type and shape of each array, as in headers."""
    return tuple((name, array.dtype.name, array.shape) for name, array in arrays.items())


def write(channel: Channel, message: Request | Answer, arrays: Arrays) -> None:
    """Writes a message and the arrays that its header describes: into shared memory if all fit, else after the header."""
    header = msgspec.msgpack.encode(message)
    # One call if possible: each further one could wake the other side for a partial message.
    parts = [memoryview(len(header).to_bytes(_LENGTH, "big") + header)]
    places = _places(channel, described(arrays))
    for name, array in arrays.items():
        if places is not None:
            _held(channel, places[name], array.dtype, array.shape)[...] = array
        elif array.size:
            parts.append(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    while parts:
        written = os.writev(channel.descriptor, parts)
        while parts and written >= len(parts[0]):
            written -= len(parts.pop(0))
        if parts:
            parts[0] = parts[0][written:]


def _places(channel: Channel, arrays: Described) -> dict[str, int] | None:
    """Returns the offset of each array in shared memory; None if they do not all fit."""
    places, end = {}, 0
    for name, type_name, shape in arrays:
        places[name] = end
        end += -(-_bytes(type_name, shape) // _ALIGNED) * _ALIGNED
    return places if end <= len(channel.area) else None


def _bytes(type_name: str, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * numpy_dtype(type_name).itemsize


def _held(channel: Channel, place: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Array:
    return np.frombuffer(channel.area, dtype, math.prod(shape), place).reshape(shape)


def read_header(descriptor: int) -> bytes:
    """Reads the bytes of a message.

    Raises:
        EOFError: the other process has ended.
        Violation: its stated length exceeds the limit.
    """
    length = int.from_bytes(_read_all(descriptor, _LENGTH), "big")
    if length > MAX_HEADER:
        raise Violation(f"a header of {length} bytes")
    return bytes(_read_all(descriptor, length))


def read_arrays(channel: Channel, arrays: Described) -> Arrays:
    """Returns the arrays that a checked header describes; arrays in shared memory are not copied.

    Raises:
        EOFError: the other process has ended.
    """
    places = _places(channel, arrays)
    found: Arrays = {}
    for name, type_name, shape in arrays:
        dtype = numpy_dtype(type_name)
        if places is not None:
            found[name] = _held(channel, places[name], dtype, shape)
        else:
            found[name] = np.frombuffer(_read_all(channel.descriptor, _bytes(type_name, shape)), dtype).reshape(shape)
    return found


def _read_all(descriptor: int, count: int) -> bytearray:
    data = bytearray(count)
    rest = memoryview(data)
    while rest:
        got = os.readv(descriptor, [rest])
        if not got:
            raise EOFError
        rest = rest[got:]
    return data


_current: ReferenceProcess | None = None


def use(process: ReferenceProcess | None) -> None:
    """Sets the process that evaluates references from now on; None means the judging process itself."""
    global _current
    _current = process


def current() -> ReferenceProcess | None:
    """Returns the process that evaluates references; None if it is this one."""
    return _current
