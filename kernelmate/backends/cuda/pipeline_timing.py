"""Pipelines on a GPU, timed as a whole: their stages, fills and library steps as one CUDA graph.

Replaying a graph leaves no gaps that depend on how fast the host submits launches, as a program that captures its
stages has none. Inside another capture, where a graph cannot be launched, the stages are submitted one by one.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from kernelmate.backends.base import ArrayArgument, ScalarArgument, StageLaunch
from kernelmate.backends.cuda.launching import device_view
from kernelmate.backends.cuda.timing_arena import Launch, TimingArena, launcher
from kernelmate.backends.pipeline import PipelineLaunch, Temporary
from kernelmate.backends.timed import TimedFault
from kernelmate.records import Finding, FindingCode
from kernelmate.source import numpy_dtype

if TYPE_CHECKING:
    from kernelmate.backends.cuda.backend import CudaModule


@dataclass(frozen=True, slots=True)
class CudaPipeline:
    """The loaded kernels of a pipeline, and its run; stands among the versions of a timing device.

    Attributes:
        modules: for each stage its kernel, or None for a step of a library.
        launch: the run.
    """

    modules: tuple[CudaModule | None, ...]
    launch: PipelineLaunch

    @property
    def prints(self) -> bool:
        """True if a kernel may print."""
        return any(one.prints for one in self.modules if one is not None)

    @property
    def traps(self) -> bool:
        """True if a kernel contains a trap instruction."""
        return any(one.traps for one in self.modules if one is not None)

    def placed(self, arena: TimingArena, place: int, stream: Any) -> Launch:
        """Returns a launcher of the whole pipeline on an arena's arrays, with temporaries of its own.

        Args:
            arena: has the arrays that the pipeline takes.
            place: number of the placement, which decides where the kernels' code is.
            stream: the current CuPy stream.
        """
        import cupy

        held = {one.name: _HeldTemporary(one, cupy.cuda.alloc(max(one.nbytes, 1))) for one in self.launch.temporaries}
        places = {**arena.places, **{name: int(one.memory.ptr) for name, one in held.items()}}
        types = {
            one.name: (one.data.shape, one.data.dtype) for one in arena.arguments if isinstance(one, ArrayArgument)
        }
        types |= {one.name: (one.shape, numpy_dtype(one.dtype)) for one in self.launch.temporaries}
        steps: list[Launch] = [one.fill for one in held.values() if one.temporary.fill is not None]
        for stage, module in zip(self.launch.stages, self.modules, strict=True):
            if module is None:
                steps.append(_LibraryStep(stage, places, types))
            else:
                steps.append(_kernel_step(stage, module, place, places, types, stream))
        return _ReplayedPipeline(steps, stream, tuple(held.values()))


@dataclass(frozen=True, slots=True)
class _HeldTemporary:
    """Device memory of a temporary."""

    temporary: Temporary
    memory: Any

    def fill(self, stream: int) -> None:
        """Clears the memory as the host does, or fills it with ones."""
        import cupy

        one = self.temporary
        if not one.nbytes:
            return
        if one.fill == 0:
            cupy.cuda.runtime.memsetAsync(self.memory.ptr, 0, one.nbytes, stream)
        else:
            device_view(int(self.memory.ptr), one.shape, numpy_dtype(one.dtype)).fill(one.fill)


def _kernel_step(
    stage: StageLaunch, module: CudaModule, place: int, places: dict[str, int], types: dict[str, Any], stream: Any
) -> Launch:
    """Returns a launcher of one kernel on the arrays of the run."""
    assert stage.shape is not None
    arguments: list[ArrayArgument | ScalarArgument] = []
    addresses: dict[str, int] = {}
    for one in stage.arguments:
        if isinstance(one, ScalarArgument):
            arguments.append(one)
            continue
        parameter, source = one
        addresses[parameter] = places[source]
        arguments.append(ArrayArgument(parameter, np.empty(0, types[source][1])))
    function = module.ready_elsewhere(stage.shape, place) if place else module.ready(stage.shape)
    return launcher(function, stage.shape, arguments, addresses, stream)


class _LibraryStep:
    """An expression evaluated by CuPy on the arrays of the run; its intermediate arrays keep memory of their own."""

    def __init__(self, stage: StageLaunch, places: dict[str, int], types: dict[str, Any]) -> None:
        import cupy

        assert stage.text is not None
        arrays = [one for one in stage.arguments if not isinstance(one, ScalarArgument)]
        named: dict[str, Any] = {name: device_view(places[source], *types[source]) for name, source in arrays}
        self._result = next(named[name] for name, source in arrays if source in stage.writes)
        named |= {one.name: one.value.item() for one in stage.arguments if isinstance(one, ScalarArgument)}
        # A keyword of Python has a trailing underscore in expressions.
        self._names = {name + "_" * keyword.iskeyword(name): value for name, value in named.items()}
        self._names |= {"np": cupy, **stage.sizes}
        self._text = stage.text
        self._code = compile(stage.text, f"<stage {stage.name}>", "eval")
        self._pool = cupy.cuda.MemoryPool()

    def __call__(self, stream: int) -> None:
        """Evaluates the expression, whose names the worker has checked, into the result's memory."""
        import cupy

        errors = (
            cupy.cuda.driver.CUDADriverError,
            cupy.cuda.runtime.CUDARuntimeError,
            cupy.cuda.memory.OutOfMemoryError,
        )
        try:
            with cupy.cuda.using_allocator(self._pool.malloc):
                self._result[...] = eval(self._code, dict(self._names))  # noqa: S307
        except errors:
            raise
        except Exception as error:  # noqa: BLE001 -- CuPy has not every function and type of NumPy
            said = f"not timed: CuPy does not compute {self._text!r} ({type(error).__name__}: {error})"
            raise TimedFault(Finding(FindingCode.LAUNCH_FAILURE, "note", said)) from None


class _ReplayedPipeline:
    """All steps of a pipeline: a graph that is replayed, or the steps themselves where a graph cannot be launched.

    Args:
        steps: launchers, in order.
        stream: the stream on which the graph is captured and replayed.
        held: memory that must live as long as the graph.
    """

    def __init__(self, steps: Sequence[Launch], stream: Any, held: object) -> None:
        self._steps, self._stream, self._held = steps, stream, held
        # Libraries make handles and allocate memory at their first call, which a capture forbids.
        self._submit(stream.ptr)
        stream.synchronize()
        self._graph = _captured(stream, lambda: self._submit(stream.ptr))

    def _submit(self, stream: int) -> None:
        for step in self._steps:
            step(stream)

    def __call__(self, stream: int) -> None:
        """Makes one run on a stream, given by its handle."""
        if self._graph is None or stream != self._stream.ptr or self._stream.is_capturing():
            self._submit(stream)
        else:
            self._graph.launch(self._stream)


def _captured(stream: Any, submit: Callable[[], None]) -> Any:
    """Returns a graph of what is submitted; None if CUDA or a library refuses to be captured."""
    import cupy

    errors = (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError)
    stream.begin_capture(cupy.cuda.runtime.streamCaptureModeThreadLocal)
    try:
        submit()
    except (*errors, TimedFault):
        # A capture that was started must be ended, or the stream becomes unusable.
        with suppress(*errors):
            stream.end_capture()
        return None
    try:
        return stream.end_capture()
    except errors:
        return None
