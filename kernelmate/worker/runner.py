"""The runner process: the CUDA context in which kernels under judgement are launched and timed.

The worker forks it before either process opens CUDA. It knows no contracts, references or expected outputs; it receives
code and arrays, and returns a launch's outputs. It shares the worker's standard streams and process group, and ends
with it.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelmate.backends.base import ArrayArgument, UnsupportedInstruction
from kernelmate.backends.cuda.exchange import Exchange, LaunchLayout
from kernelmate.backends.cuda.isolated import (
    GpuFailed,
    LaunchBegun,
    LaunchReply,
    LaunchRequest,
    LoadRefused,
    LoadRequest,
    MeasureReply,
    MeasureRequest,
    RemarksRequest,
    Runner,
)
from kernelmate.backends.processes import die_with_parent, keep_freed_memory
from kernelmate.errors import BackendUnavailable, DeviceFailed

if TYPE_CHECKING:
    from kernelmate.backends.cuda.backend import CudaBackend, CudaModule
    from kernelmate.backends.cuda.pipeline_timing import CudaPipeline
    from kernelmate.backends.pipeline import PipelineLaunch

WARM_UP_ELEMENTS = 1 << 10
"""Elements of the array that warms up the helpers of the first launch; any number works."""


def forked(begin: Callable[[], None], exchange: Exchange) -> Runner:
    """Forks a runner; call it before CUDA is opened and threads are started.

    Args:
        begin: called first in the new process, for example to close descriptors.
        exchange: the shared memory.
    """
    ours, theirs = Pipe()
    pid = os.fork()
    if pid:
        theirs.close()
        return Runner(ours, pid, exchange)
    try:
        ours.close()
        die_with_parent()
        keep_freed_memory(kept=False)
        begin()
        _serve(theirs, exchange)
    except BaseException:  # noqa: BLE001 -- whatever it is, the worker ends with it, and its session must hear why
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


def _serve(connection: Connection, exchange: Exchange) -> None:
    """Opens the GPU that the first message names, then answers requests until the end."""
    with suppress(EOFError):
        device, memory_limit = connection.recv()
        from kernelmate.backends.cuda.backend import CudaBackend

        try:
            backend = CudaBackend(device, memory_limit)
        except (BackendUnavailable, DeviceFailed) as error:
            connection.send((GpuFailed(error.message, error.hint), False))
            return
        connection.send((None, False))
        _warm_up(backend)
        server = Server(backend, exchange, lambda: connection.send((LaunchBegun(), False)))
        while True:
            dropped, request = connection.recv()
            answer = server.answer(dropped, request)
            connection.send((answer, backend.poisoned))


def _warm_up(backend: CudaBackend) -> None:
    """Loads what large launches and timing need, while the worker opens its own context.

    CuPy's first reduction imports `cupyx`, with SciPy where that is installed: 0.4 s that the first verdict would
    otherwise wait for.
    """
    import cupy

    import kernelmate.worker.timers  # noqa: F401
    from kernelmate.backends.cuda.arena import LargeArena

    with suppress(cupy.cuda.memory.OutOfMemoryError), backend.turns.shared(), backend.device, backend.stream:
        LargeArena([ArrayArgument("x", np.zeros(WARM_UP_ELEMENTS, np.float32), written=False)], 0).read()


class Server:
    """Answers requests by a backend.

    Args:
        backend: the backend of the GPU.
        exchange: shared with the worker.
        begun: signals the worker that a launch is on the GPU.
    """

    def __init__(self, backend: CudaBackend, exchange: Exchange, begun: Callable[[], None]) -> None:
        self._backend, self._exchange, self._begun = backend, exchange, begun
        self._modules: dict[int, CudaModule] = {}
        self._numbers = 0

    def answer(self, dropped: tuple[int, ...], request: object) -> object:
        """Unloads modules that are no longer needed, and answers a request."""
        for number in dropped:
            self._modules.pop(number, None)
        try:
            match request:
                case LoadRequest():
                    self._numbers += 1
                    self._modules[self._numbers] = self._backend.load(request.compiled, request.target, emulated=False)
                    return self._numbers
                case LaunchRequest():
                    return self._launched(request)
                case MeasureRequest():
                    return self._measured(request)
                case RemarksRequest():
                    return self._backend.take_remarks()
        except UnsupportedInstruction as error:
            return LoadRefused(error.finding)
        except DeviceFailed as error:
            return GpuFailed(error.message, error.hint)
        raise ValueError(request)

    def _launched(self, request: LaunchRequest) -> LaunchReply:
        module, layout = self._modules[request.module], request.layout
        if layout is None:
            return LaunchReply(module.launch(request.run, begun=self._begun))
        self._exchange.pin(layout.end)
        written: list[str] = []

        def take(argument: ArrayArgument, address: int) -> Any:
            self._taken(layout, f"{argument.name}/0", address)
            written.append(f"{argument.name}/0")
            return None

        result = module.launch(self._exchange.resolved(request.run), take, self._begun)
        return LaunchReply(replace(result, arrays={}), tuple(written))

    def _taken(self, layout: LaunchLayout, name: str, address: int) -> None:
        """Copies from the device to a place in shared memory."""
        import cupy

        view, stream = self._exchange.view(layout.outputs[name]), cupy.cuda.get_current_stream()
        if view.nbytes:
            cupy.cuda.runtime.memcpyAsync(view.ctypes.data, address, view.nbytes, 2, stream.ptr)
            stream.synchronize()

    def _measured(self, request: MeasureRequest) -> MeasureReply:
        # Timing needs this module; a launch does not.
        from kernelmate.worker.timers import measured_on

        layout = request.layout
        if layout is not None:
            self._exchange.pin(layout.end)
        run = self._exchange.resolved(request.run)
        mine, theirs = request.pipelines
        baseline = (
            None if request.baseline is None else (self._version(request.baseline[0], theirs), request.baseline[1])
        )
        seen = measured_on(
            self._backend, self._version(request.module, mine), run, baseline, request.restored, request.budget_s,
            full=request.full, quick=request.quick,
        )  # fmt: skip
        if layout is None:
            return seen
        written = [*self._left(layout, seen.outputs, 0)]
        if seen.repeats is not None:
            written += self._left(layout, seen.repeats.arrays, 1)
            seen = replace(seen, repeats=replace(seen.repeats, arrays={}))
        return replace(seen, outputs=None if seen.outputs is None else {}, written=tuple(written))

    def _version(self, number: int, pipeline: PipelineLaunch | None) -> CudaModule | CudaPipeline:
        """Returns a loaded version: a kernel by its number, or a pipeline."""
        if pipeline is None:
            return self._modules[number]
        from kernelmate.backends.cuda.pipeline_timing import CudaPipeline

        modules = tuple(None if one is None else self._modules[one] for one in pipeline.modules)
        return CudaPipeline(modules, pipeline)

    def _left(self, layout: LaunchLayout, arrays: Any, copy: int) -> list[str]:
        """Writes arrays to shared memory, and returns their names there."""
        for name, array in (arrays or {}).items():
            np.copyto(self._exchange.view(layout.outputs[f"{name}/{copy}"]), array)
        return [f"{name}/{copy}" for name in arrays or {}]
