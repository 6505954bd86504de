"""The rig on which versions are timed on a GPU: `kernelmate.backends.timed.Rig` by CuPy, CUPTI and NVML."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from kernelmate.backends.base import Run
from kernelmate.backends.cuda import cupti
from kernelmate.backends.cuda.helpers import helpers
from kernelmate.backends.cuda.sensors import gpu_uuid, sensors
from kernelmate.backends.cuda.stage import Launch, Stage
from kernelmate.backends.timed import CannotCapture, Condition, TimedFault, Untraced
from kernelmate.records import Finding, LaunchShape

if TYPE_CHECKING:
    from kernelmate.backends.cuda.backend import CudaBackend, CudaModule

L2_TIMES = 4
"""A flush reads so many times what L2 holds: its replacement is not the oldest first, so once is not enough."""

FLUSH_BLOCKS_PER_SM, FLUSH_THREADS = 8, 256

CLOCK_NS = 50_000
"""How long the clock is watched. The GPU's timer may step by a microsecond, so 2 in 100 at worst, mostly far less."""

TRACED_AT_ONCE = 4096
"""Launches between two looks at the records, which wait in the process's memory."""

EMPTY_SHAPE = LaunchShape((1, 1, 1), (32, 1, 1))
CLOCK_SHAPE = LaunchShape((1, 1, 1), (1, 1, 1))


class CudaRig:
    """Versions of one kernel on one GPU, on the same memory.

    Args:
        backend: has the context and the stream.
        versions: each loaded, with its launch.
        run: the arguments, which are the same for all.
        restored: names of the arrays that are read and written.

    Raises:
        TimedFault: the GPU's memory does not suffice, or it fails otherwise.
    """

    def __init__(
        self,
        backend: CudaBackend,
        versions: Sequence[tuple[CudaModule, LaunchShape]],
        run: Run,
        restored: frozenset[str],
    ) -> None:
        self.versions = len(versions)
        self._backend, self._stream = backend, backend.stream
        self._graphs: dict[tuple[int | None, int, bool], Any] = {}
        self._strays: list[LaunchShape] = []
        self._modules = [module for module, _ in versions]
        self._shapes = [shape for _, shape in versions]
        with self._guarded():
            import cupy

            number = int(backend.device.id)
            self._sensors = sensors(gpu_uuid(cupy.cuda.runtime.getDeviceProperties(number)["uuid"]))
            self._helpers = helpers(number)
            self._stage = Stage(run, restored, self._stream)
            self._launches = [self._stage.launcher(module, shape) for module, shape in versions]
            self._events = cupy.cuda.Event(), cupy.cuda.Event()
            self._make_helpers(cupy)
        self.untraced: str | None = None
        try:
            self._tracer: cupti.Tracer | None = cupti.tracer()
        except Untraced as reason:
            self.untraced, self._tracer = str(reason), None

    @property
    def machine(self) -> tuple[str, ...]:
        """Sensors that are absent, and other processes on the GPU."""
        missing, others = self._sensors.missing, self._sensors.others()
        return (*((missing,) if missing else ()), *((f"also on the GPU: {', '.join(others)}",) if others else ()))

    def durations(self, order: Sequence[int], *, cold: bool = False) -> tuple[float, ...]:
        """As `Rig.durations`."""
        if self._tracer is None:
            raise Untraced(self.untraced or "")
        found: list[float] = []
        for start in range(0, len(order), TRACED_AT_ONCE):
            found += self._traced(self._tracer, order[start : start + TRACED_AT_ONCE], cold=cold)
        return tuple(found)

    def period(self, version: int | None, launches: int, *, cold: bool = False) -> float:
        """As `Rig.period`."""
        key = (version, launches, cold)
        with self._guarded():
            self._untrace()
            if key not in self._graphs:
                self._graphs[key] = self._captured(version, launches, cold=cold)
                self._graphs[key].launch(self._stream)
            return self._between(lambda: self._graphs[key].launch(self._stream)) / launches

    def elapsed(self, version: int | None, launches: int) -> float:
        """As `Rig.elapsed`."""
        once, stream = self._once(version, cold=False), self._stream.ptr

        def go() -> None:
            for _ in range(launches):
                once(stream)

        with self._guarded():
            self._untrace()
            return self._between(go) / launches

    def condition(self) -> Condition:
        """As `Rig.condition`."""
        with self._guarded():
            self._clock(self._stream.ptr)
            if self._tracer is not None and self._tracer.is_on:
                self._strays.append(CLOCK_SHAPE)
            cycles, nanoseconds = (int(value) for value in self._ticks.get(stream=self._stream))
        clock = cycles * 1e3 / nanoseconds if nanoseconds > 0 else None
        return Condition(clock, self._sensors.temperature_c(), self._sensors.throttle_reasons())

    def poison(self) -> None:
        """As `Rig.poison`."""
        with self._guarded():
            self._stage.poison(self._stream.ptr)

    def outputs(self) -> Mapping[str, npt.NDArray[Any]]:
        """As `Rig.outputs`."""
        with self._guarded():
            return self._stage.outputs()

    def launch(self, version: int, times: int, stream: int | None = None) -> None:
        """Launch a version so often and time nothing: what other tools are put in front of.

        Args:
            version: its number.
            times: how often.
            stream: the handle of the stream to launch on, and not to wait for; None for the rig's own, which is waited for.
        """
        once = self._once(version, cold=False)
        with self._guarded():
            for _ in range(times):
                once(self._stream.ptr if stream is None else stream)
            if stream is None:
                self._stream.synchronize()

    def close(self) -> None:
        """Stop tracing, and give the graphs back."""
        with self._guarded():
            self._untrace()
            self._graphs.clear()

    def _make_helpers(self, cupy: Any) -> None:
        """The launches of the helper kernels, with their memory."""
        attributes = self._backend.device.attributes
        flushed = L2_TIMES * int(attributes["L2CacheSize"]) // 16
        self._zeros = cupy.zeros(4 * flushed + 4, cupy.uint32)
        self._ticks = cupy.zeros(2, cupy.uint64)
        self._stream.synchronize()
        blocks = FLUSH_BLOCKS_PER_SM * int(attributes["MultiProcessorCount"])
        self._flush_shape = LaunchShape((blocks, 1, 1), (FLUSH_THREADS, 1, 1))
        zeros = int(self._zeros.data.ptr)
        self._empty = _helper(self._helpers.empty, EMPTY_SHAPE)
        self._flush = _helper(self._helpers.flush, self._flush_shape, zeros, flushed, zeros + 16 * flushed)
        self._clock = _helper(self._helpers.clock, CLOCK_SHAPE, int(self._ticks.data.ptr), CLOCK_NS)

    def _traced(self, tracer: cupti.Tracer, order: Sequence[int], *, cold: bool) -> list[float]:
        stream = self._stream.ptr
        with self._guarded():
            tracer.on()
            for version in order:
                self._stage.restore(stream)
                if cold:
                    self._flush(stream)
                self._launches[version](stream)
            self._stream.synchronize()
            shapes, self._strays = self._strays, []
            before = len(shapes)
            for version in order:
                shapes += [self._flush_shape, self._shapes[version]] if cold else [self._shapes[version]]
            records = tracer.records(len(shapes))
        found = cupti.durations_of(records, shapes)[before:]
        return [float(value) for value in (found[1::2] if cold else found)]

    def _once(self, version: int | None, *, cold: bool) -> Launch:
        """One launch with what has to come before it."""
        launch = self._empty if version is None else self._launches[version]

        def once(stream: int) -> None:
            self._stage.restore(stream)
            if cold:
                self._flush(stream)
            launch(stream)

        return once

    def _captured(self, version: int | None, launches: int, *, cold: bool) -> Any:
        """A graph of so many launches.

        Raises:
            CannotCapture: CUDA refuses.
        """
        import cupy

        once = self._once(version, cold=cold)
        self._stream.begin_capture(cupy.cuda.runtime.streamCaptureModeThreadLocal)
        try:
            for _ in range(launches):
                once(self._stream.ptr)
        except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
            # What was begun must be ended, or the stream stays of no use.
            with suppress(cupy.cuda.runtime.CUDARuntimeError):
                self._stream.end_capture()
            raise CannotCapture(str(error)) from None
        try:
            return self._stream.end_capture()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise CannotCapture(str(error)) from None

    def _between(self, work: Callable[[], object]) -> float:
        """Microseconds between an event before and one after."""
        import cupy

        start, end = self._events
        start.record(self._stream)
        work()
        end.record(self._stream)
        end.synchronize()
        return float(cupy.cuda.get_elapsed_time(start, end)) * 1e3

    def _untrace(self) -> None:
        """Stop tracing, and forget what was traced and not asked for."""
        if self._tracer is not None and self._tracer.is_on:
            self._stream.synchronize()
            self._tracer.records(len(self._strays))
            self._strays.clear()
            self._tracer.off()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """The device and stream current, and CUDA's errors as faults; the backend learns what has cost its context."""
        import cupy

        try:
            with self._backend.device, self._stream:
                yield
        except cupy.cuda.memory.OutOfMemoryError as error:
            raise TimedFault(
                Finding("out-of-memory", "note", f"not timed: the GPU's memory does not suffice ({error})")
            ) from None
        except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
            traps = any(module.traps for module in self._modules)
            raise TimedFault(self._backend.fault(int(error.status), str(error), traps=traps)) from None


def _helper(function: int, shape: LaunchShape, *numbers: int) -> Launch:
    """A launch of a helper kernel with 64-bit arguments."""
    from cupy.cuda import driver

    values = np.array(numbers or (0,), np.uint64)
    pointers = (ctypes.c_void_p * len(values))(*(values.ctypes.data + 8 * index for index in range(len(values))))
    address = ctypes.addressof(pointers)

    def launch(stream: int) -> None:
        assert pointers is not None
        assert values is not None
        driver.launchKernel(function, *shape.grid, *shape.block, 0, stream, address, 0)

    return launch
