"""The reference process: the confined process in which references and `inputs` functions run, and return arrays.

The worker forks it before CUDA is opened and threads are started. Of the worker's descriptors it holds only the two for
printing and its own two pipes, and it is subject to `confinement`. It ends with the worker.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import select
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from kernelmate.backends.processes import IDLE_S, die_with_parent, return_freed_memory
from kernelmate.checks.evaluations import Reference
from kernelmate.checks.inputs import made_inputs
from kernelmate.checks.precision import Arrays
from kernelmate.checks.reference import python_reference
from kernelmate.checks.reference_messages import (
    AllocationFailed,
    Answer,
    ArraysMade,
    EvaluateReference,
    EvaluationFailed,
    LoadReference,
    MakeInputs,
    ReferenceLoaded,
    ReferenceTraced,
    Request,
    TraceReference,
)
from kernelmate.checks.reference_process import (
    MAX_HEADER,
    TYPES,
    Channel,
    ReferenceProcess,
    answer_name,
    described,
    read_arrays,
    read_header,
    working_dtype,
    write,
)
from kernelmate.checks.userfiles import helpers_of
from kernelmate.confinement import ancestors, confine
from kernelmate.errors import KernelmateError, ReferenceFailed
from kernelmate.records import Contract
from kernelmate.source import argument_shapes

KEPT = 16
"""Number of references that stay loaded; a task has one."""

_F_SETPIPE_SZ, _PIPE_BYTES = 1031, 1 << 20
"""Linux, `<linux/fcntl.h>`; the largest default limit for a user's pipe, in which arrays of usual sizes fit."""

_AREA_BYTES = 64 << 20
"""Bytes of shared memory for arrays in each direction.

Pages are allocated on first write, and larger data goes through the pipe.
"""

_CACHES = ("TMPDIR", "NUMBA_CACHE_DIR", "TRITON_CACHE_DIR", "MPLCONFIGDIR")
"""Variables that name folders in which a reference's libraries write."""

_requests: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)


def forked(begin: Callable[[], None], scratch: Path) -> ReferenceProcess:
    """Forks a reference process.

    Args:
        begin: called first in the child, for example to close descriptors that it must not hold.
        scratch: the folder that it may write to.

    Raises:
        OSError: the system cannot start a process.
    """
    protected = (os.getpid(), *ancestors())
    their_requests, our_requests = os.pipe()
    our_answers, their_answers = os.pipe()
    to_them, to_us = mmap.mmap(-1, _AREA_BYTES), mmap.mmap(-1, _AREA_BYTES)
    for end in (our_requests, our_answers):
        with contextlib.suppress(OSError):
            fcntl.fcntl(end, _F_SETPIPE_SZ, _PIPE_BYTES)
    pid = os.fork()
    if pid:
        os.close(their_requests)
        os.close(their_answers)
        return ReferenceProcess(Channel(our_requests, to_them), Channel(our_answers, to_us), pid)
    try:
        die_with_parent()
        begin()
        _close_others(their_requests, their_answers)
        _move_to(scratch)
        confine(scratch, protected)
        _Evaluator(Channel(their_requests, to_them), Channel(their_answers, to_us)).serve()
    except BaseException:  # noqa: BLE001 -- whatever it is, the worker sees its end, and the session what it printed
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _close_others(*kept: int) -> None:
    """Closes all descriptors except those for printing and the given ones."""
    below = 3
    for descriptor in sorted(kept):
        os.closerange(below, descriptor)
        below = descriptor + 1
    os.closerange(below, os.sysconf("SC_OPEN_MAX"))


def _move_to(scratch: Path) -> None:
    """Redirects temporary files and library caches to the scratch folder."""
    for name in _CACHES:
        os.environ[name] = str(scratch)
    tempfile.tempdir = None


def _trace(request: TraceReference) -> ReferenceTraced:
    """Returns the graph of a reference, or a description of the return values for a contract without results.

    Raises:
        ReferenceFailed: it cannot be traced, or has more operations than an answer holds.
    """
    from kernelmate.synthesis.results import traced_text

    text = traced_text(request.contract, Path(request.directory))
    if len(text) > MAX_HEADER // 2:
        raise ReferenceFailed(
            "The reference has too many operations for a kernel to be written from it.", line=request.contract.line
        )
    return ReferenceTraced(request.number, text)


def _evaluated(reference: Reference, request: EvaluateReference, arrays: Arrays) -> Arrays:
    """Returns the outputs of all calls, by the names under which they are sent."""
    made: Arrays = {}
    for index, (working, named) in enumerate(request.calls):
        given = {name: arrays[key] for name, key in named.items()}
        # The type may be wider than any array's type.
        outputs = reference(given, request.size, working_dtype(working))
        made.update({answer_name(index, name): array for name, array in outputs.items()})
    return made


class _Evaluator:
    """Server of requests, one after another."""

    def __init__(self, requests: Channel, answers: Channel) -> None:
        self._requests, self._answers = requests, answers
        self._loaded: dict[int, tuple[Contract, Reference]] = {}

    def serve(self) -> None:
        """Answers requests until the input ends."""
        while True:
            if not select.select([self._requests.descriptor], [], [], IDLE_S)[0]:
                return_freed_memory()
            try:
                request = _requests.decode(read_header(self._requests.descriptor))
                arrays = read_arrays(self._requests, request.arrays) if isinstance(request, EvaluateReference) else {}
            except EOFError:
                return
            answer, made = self._answered(request, arrays)
            write(self._answers, answer, made)

    def _answered(self, request: Request, arrays: Arrays) -> tuple[Answer, Arrays]:
        helpers: dict[str, str] = {}
        try:
            match request:
                case LoadReference():
                    return self._load(request), {}
                case TraceReference():
                    return _trace(request), {}
                case EvaluateReference():
                    contract, reference = self._loaded[request.loaded]
                    made, where = _evaluated(reference, request, arrays), contract.reference
                case MakeInputs():
                    contract, where = request.contract, request.contract.inputs
                    shapes = argument_shapes(contract, request.size)
                    made = made_inputs(contract, request.size, request.seed, shapes, Path(request.directory))
                    helpers = helpers_of(where, Path(request.directory))
        except KernelmateError as error:
            return EvaluationFailed(request.number, error.message, error.file, error.line, error.column, error.hint), {}
        except MemoryError as error:
            return AllocationFailed(request.number, str(error) or "an allocation failed"), {}
        made = {name: np.asarray(array, array.dtype.newbyteorder("=")) for name, array in made.items()}
        strange = next((array.dtype.name for array in made.values() if array.dtype.name not in TYPES), None)
        if strange is not None:
            return EvaluationFailed(
                request.number, f"{where} returned an array of {strange}.", None, contract.line, None, None
            ), {}
        return ArraysMade(request.number, described(made), helpers), made

    def _load(self, request: LoadReference) -> ReferenceLoaded:
        directory = Path(request.directory)
        reference = python_reference(request.contract, directory)
        if reference is None:
            raise ReferenceFailed("The contract has no reference in Python.", line=request.contract.line)
        self._loaded[request.number] = request.contract, reference
        for number in list(self._loaded)[:-KEPT]:
            del self._loaded[number]
        return ReferenceLoaded(request.number, helpers_of(request.contract.reference, directory))
