"""Timing of versions on a GPU: `kernelmate.backends.timed.TimingDevice` by CuPy, CUPTI and NVML.

A duration is measured as follows. A spinning kernel keeps the GPU busy until the host has submitted everything, so that
gaps between time stamps are never the host's. Before each pair of stamps the GPU spins again for a moment, in which its
front end fetches the next commands; otherwise a fetch over the bus would count. The time of the stamps themselves
differs between processes by 0.2 us. Therefore empty kernels are stamped in the same way, and a duration is the
difference of a launch's span from theirs, plus the duration of an empty kernel.

CUPTI's records begin and end with the blocks, 1.2 us less on an H100, and tracing makes kernels that write much up to
7% slower. They are therefore reported beside the duration and not instead of it.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from kernelmate.backends.base import Run
from kernelmate.backends.cuda import cupti
from kernelmate.backends.cuda.helpers import EMPTY_PLACES, durations_of, helper_launch, helpers, kept_ahead
from kernelmate.backends.cuda.pipeline_timing import ReplayedVersion
from kernelmate.backends.cuda.sensors import sensors
from kernelmate.backends.cuda.timing_arena import Launch, TimingArena
from kernelmate.backends.timed import CannotCapture, CuptiUnavailable, GpuState, TimedFault
from kernelmate.records import Finding, FindingCode, LaunchShape

if TYPE_CHECKING:
    from kernelmate.backends.cuda.backend import CudaBackend, CudaModule

L2_TIMES = 4
"""Multiple of L2's capacity that a flush reads: its replacement policy is not strictly LRU."""

FLUSH_BLOCKS_PER_SM, FLUSH_THREADS = 8, 256

CLOCK_NS = 50_000
"""Nanoseconds for which the clock is measured. The GPU's timer may step by a microsecond, which is at worst 2%."""

AT_ONCE = 96
"""Launches in the stream at once; about a thousand commands fit, and each launch takes up to six."""

HOST_NS, LEAST_HOST_NS = 18_000, 6_000
"""Initial and minimum time in nanoseconds allowed for submitting one launch; later 1.5 times the last measured time."""

HEAD_NS = 60_000
REFILL_NS = 5_000
"""Nanoseconds for which the GPU spins before the first launch, beside the time for submission, and before each pair of
stamps.
"""

PATIENCE = 3
"""Number of times that a chunk is repeated if the host was too slow."""

EMPTY_PAIRS = 2 * EMPTY_PLACES
"""Pairs of time stamps around empty kernels in each chunk; the copies of the empty kernel take turns."""

EMPTY_US = {(9, 0): (1.92, 2.15)}
"""Duration assigned to the timer's empty kernel, with warm and with emptied L2, by compute capability.

It is calibrated so that a separate empty kernel has the duration that Nsight Compute shows for it, 1.89
to 2.00 us warm and 1.98 to 2.16 us cold on two H100s (`benchmarks/gpu_timing.py`)."""

EMPTY_US_ELSEWHERE = (1.9, 2.1)
"""Duration assigned to the empty kernel, warm and cold, on GPUs that were not calibrated; all durations there are off by its error."""

PLACED_BYTES = {64 << 20: 12, 512 << 20: 4}
"""Number of placements for arrays up to a total size. Larger arrays far exceed L2 and are distributed evenly in it."""

MOST_KEPT_BYTES = 256 << 20
"""Maximum bytes of free memory that are kept for the next timer."""

EMPTY_SHAPE = LaunchShape((1, 1, 1), (32, 1, 1))
CLOCK_SHAPE = LaunchShape((1, 1, 1), (1, 1, 1))


class CudaTimingDevice:
    """Versions of one kernel on one GPU, with the same memory.

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
        versions: Sequence[tuple[CudaModule | ReplayedVersion, LaunchShape]],
        run: Run,
        restored: frozenset[str],
    ) -> None:
        self.versions = len(versions)
        self.placements = placements_for(TimingArena.bytes_of(run, restored))
        self._backend, self._stream = backend, backend.stream
        self._graphs: dict[tuple[int | None, int], Any] = {}
        self._host_ns = HOST_NS
        self._calls = self._made = 0
        self._modules = [module for module, _ in versions]
        self._empty_us = EMPTY_US.get(capability_of(backend.device), EMPTY_US_ELSEWHERE)
        self._shapes = [shape for _, shape in versions]
        with self._guarded():
            import cupy

            number = int(backend.device.id)
            self._sensors = sensors(backend.gpu.uuid)
            self._helpers = helpers(number)
            self._make_helpers(cupy)
            self._stages = [TimingArena(run, restored, self._stream)]
            for place in range(1, self.placements):
                try:
                    self._stages.append(TimingArena(run, restored, self._stream, place, self._stages[0]))
                except cupy.cuda.memory.OutOfMemoryError:
                    self.placements = place  # as many as fit into memory
                    break
            self._empties = itertools.cycle([helper_launch(one, EMPTY_SHAPE) for one in self._helpers.empties])
            self._launches = [self._placed(place) for place in range(self.placements)]
            self._events = [(cupy.cuda.Event(), cupy.cuda.Event()) for _ in range(AT_ONCE + EMPTY_PAIRS)]

    @property
    def machine(self) -> tuple[str, ...]:
        """Returns missing sensors, and other processes on the GPU."""
        missing, others = self._sensors.missing, self._sensors.others()
        return (*((missing,) if missing else ()), *((f"also on the GPU: {', '.join(others)}",) if others else ()))

    def durations(self, order: Sequence[int | None], *, cold: bool = False, placement: int = 0) -> tuple[float, ...]:
        """Implements `TimingDevice.durations`."""
        found: list[float] = []
        with self._guarded():
            self._untrace()
            self._calls += 1
            for start in range(0, len(order), AT_ONCE):
                spans, empties = self._stamped(order[start : start + AT_ONCE], placement, cold=cold)
                found += durations_of(spans, empties, self._empty_us[cold])
        return tuple(found)

    def spans(self, order: Sequence[int | None], placement: int = 0) -> tuple[list[float], list[float]]:
        """Returns the spans between time stamps of at most `AT_ONCE` warm launches, and of the empty kernels after them.

        Raises:
            TimedFault: a launch failed.
        """
        with self._guarded():
            self._untrace()
            self._calls += 1
            return self._stamped(order, placement, cold=False)

    def _in_step(self) -> None:
        """Makes the number of launches so far even in two calls of `durations` and odd in the next two.

        On an H100 a kernel whose arrays just fit into L2 took 9.1 us after an even number of launches and 9.6 us after
        an odd one, or vice versa. As there is one other launch between two timed ones, a whole timing would have one of
        the two by chance. This way all versions of a block have the same parity, and half of the blocks have the other.
        """
        if self._made % 2 != (self._calls // 2) % 2:
            next(self._empties)(self._stream.ptr)
            self._made += 1

    def period(self, version: int | None, launches: int) -> float:
        """Implements `TimingDevice.period`."""
        key = (version, launches)
        with self._guarded():
            self._untrace()
            if key not in self._graphs:
                self._graphs[key] = self._captured(version, launches)
                self._graphs[key].launch(self._stream)
            start, end = self._events[0]
            start.record(self._stream)
            self._graphs[key].launch(self._stream)
            end.record(self._stream)
            end.synchronize()
            return _microseconds(start, end) / launches

    def traced(self, order: Sequence[int]) -> tuple[float, ...]:
        """Implements `TimingDevice.traced`."""
        if any(isinstance(self._modules[version], ReplayedVersion) for version in order):
            raise CuptiUnavailable("it has several kernels in each run")
        tracer = cupti.tracer()
        with self._guarded():
            tracer.on()
            for version in order:
                self._once(version)(self._stream.ptr)
            self._stream.synchronize()
            records = tracer.records(len(order))
            tracer.off()
        return tuple(float(one) for one in cupti.durations_of(records, [self._shapes[version] for version in order]))

    def condition(self) -> GpuState:
        """Implements `TimingDevice.condition`."""
        with self._guarded():
            self._untrace()
            self._spin(CLOCK_NS)
            cycles, nanoseconds = (int(value) for value in self._ticks.get(stream=self._stream))
        clock = cycles * 1e3 / nanoseconds if nanoseconds > 0 else None
        return GpuState(clock, self._sensors.temperature_c(), self._sensors.throttle_reasons())

    def poison(self) -> None:
        """Implements `TimingDevice.poison`."""
        with self._guarded():
            self._stages[0].poison(self._stream.ptr)

    def outputs(self) -> Mapping[str, npt.NDArray[Any]]:
        """Implements `TimingDevice.outputs`."""
        with self._guarded():
            return self._stages[0].outputs()

    def changed(self, name: str) -> bool:
        """Returns True if an array in the first placement no longer has the contents that it was filled with."""
        with self._guarded():
            return self._stages[0].changed(name)

    def launch(self, version: int, times: int, stream: int | None = None, placement: int = 0) -> None:
        """Launches a version repeatedly without timing, for external tools.

        Args:
            version: its number.
            times: number of launches.
            stream: handle of the stream, which is not awaited; None for the timer's own, which is.
            placement: number of the placement.
        """
        once = self._once(version, placement)
        with self._guarded():
            self._untrace()
            for _ in range(times):
                once(self._stream.ptr if stream is None else stream)
            if stream is None:
                self._stream.synchronize()

    def close(self) -> None:
        """Stops tracing, and releases graphs and memory."""
        import cupy

        with self._guarded():
            self._untrace()
            self._graphs.clear()
            self._launches.clear()
            for stage in self._stages:
                stage.scrub()
            self._stages.clear()
            del self._zeros, self._flush
            pool = cupy.get_default_memory_pool()
            if pool.free_bytes() > MOST_KEPT_BYTES:
                pool.free_all_blocks()

    def _make_helpers(self, cupy: Any) -> None:
        """Creates the launches of the helper kernels, with their memory."""
        attributes = self._backend.device.attributes
        flushed = L2_TIMES * int(attributes["L2CacheSize"]) // 16
        self._zeros = cupy.zeros(4 * flushed + 4, cupy.uint32)
        self._ticks = cupy.zeros(2, cupy.uint64)
        self._stream.synchronize()
        blocks = FLUSH_BLOCKS_PER_SM * int(attributes["MultiProcessorCount"])
        zeros = int(self._zeros.data.ptr)
        shape = LaunchShape((blocks, 1, 1), (FLUSH_THREADS, 1, 1))
        self._flush = helper_launch(self._helpers.flush, shape, zeros, flushed, zeros + 16 * flushed)

    def _spin(self, nanoseconds: int) -> None:
        """Lets one GPU thread watch the clock for this time; the result goes to `_ticks`."""
        self._made += 1
        helper_launch(self._helpers.clock, CLOCK_SHAPE, int(self._ticks.data.ptr), nanoseconds)(self._stream.ptr)

    def _placed(self, place: int) -> list[Launch]:
        """Returns the launches of all versions in a placement; every other placement loads their code in reverse order."""
        found: dict[int, Launch] = {}
        for version in list(range(self.versions))[:: -1 if place % 2 else 1]:
            module, shape = self._modules[version], self._shapes[version]
            if isinstance(module, ReplayedVersion):
                found[version] = module.placed(self._stages[place], place, self._stream)
                continue
            function = module.ready_elsewhere(shape, place) if place else module.ready(shape)
            found[version] = self._stages[place].launcher(function, shape)
        return [found[version] for version in range(self.versions)]

    def _stamped(self, order: Sequence[int | None], placement: int, *, cold: bool) -> tuple[list[float], list[float]]:
        """Returns spans of launches that fit into the stream together, and those of the empty kernels after them."""
        launches: list[int | None] = [*order, *[None] * EMPTY_PAIRS]
        for _ in range(PATIENCE):
            self._in_step()
            waited = HEAD_NS + self._host_ns * len(launches)
            took = self._enqueue(launches, placement, waited, cold=cold)
            self._host_ns = max(LEAST_HOST_NS, 3 * took // (2 * len(launches)))
            self._stream.synchronize()
            spans = [_microseconds(start, end) for start, end in self._events[: len(launches)]]
            if kept_ahead(took, waited, spans[: len(order)]):
                break
        return spans[: len(order)], spans[len(order) :]

    def _enqueue(self, order: Sequence[int | None], placement: int, wait_ns: int, *, cold: bool) -> int:
        """Submits time stamps and launches after a wait; returns the host's nanoseconds."""
        stream, stage, launches = self._stream.ptr, self._stages[placement], self._launches[placement]
        refill = helper_launch(self._helpers.clock, CLOCK_SHAPE, int(self._ticks.data.ptr), REFILL_NS)
        self._spin(wait_ns)
        began = time.perf_counter_ns()
        for version, (start, end) in zip(order, self._events, strict=False):
            if version is not None:
                stage.restore(stream)
                if cold:
                    self._flush(stream)
            launch = next(self._empties) if version is None else launches[version]
            self._made += 2 + (stage.restoring + cold if version is not None else 0)
            refill(stream)
            start.record(self._stream)
            launch(stream)
            end.record(self._stream)
        return time.perf_counter_ns() - began

    def _once(self, version: int | None, place: int = 0) -> Launch:
        """Returns a function that restores the arrays of placement `place`, then launches a version (None: the empty kernel)."""

        def once(stream: int) -> None:
            self._stages[place].restore(stream)
            launch = next(self._empties) if version is None else self._launches[place][version]
            launch(stream)

        return once

    def _captured(self, version: int | None, launches: int) -> Any:
        """Captures a graph of launches.

        Raises:
            CannotCapture: CUDA refuses.
        """
        import cupy

        once = self._once(version)
        self._stream.begin_capture(cupy.cuda.runtime.streamCaptureModeThreadLocal)
        try:
            for _ in range(launches):
                once(self._stream.ptr)
        except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError, CannotCapture) as error:
            # A capture that was started must be ended, or the stream becomes unusable.
            with suppress(cupy.cuda.runtime.CUDARuntimeError):
                self._stream.end_capture()
            raise CannotCapture(str(error)) from None
        try:
            return self._stream.end_capture()
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise CannotCapture(str(error)) from None

    def _untrace(self) -> None:
        """Stops tracing if an interrupted call left it on."""
        if cupti.tracer.cache_info().currsize and cupti.tracer().is_on:
            self._stream.synchronize()
            cupti.tracer().records(0)
            cupti.tracer().off()

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Context manager with device and stream current.

        CUDA errors become faults, and the backend learns of a lost context.
        """
        import cupy

        try:
            with self._backend.device, self._stream:
                yield
        except cupy.cuda.memory.OutOfMemoryError as error:
            raise TimedFault(
                Finding(FindingCode.OUT_OF_MEMORY, "note", f"not timed: the GPU's memory does not suffice ({error})")
            ) from None
        except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
            traps = any(module.traps for module in self._modules)
            raise TimedFault(self._backend.fault(int(error.status), str(error), traps=traps)) from None


def prepare_timing(device: int, uuid: str) -> None:
    """Loads what every timing needs (about 0.1 s), so that the first verdict need not wait for it.

    Missing parts are reported when something is timed.
    """
    import cupy

    sensors(uuid)
    with suppress(cupy.cuda.driver.CUDADriverError):
        helpers(device)
    with suppress(CuptiUnavailable):
        cupti.tracer()


def placements_for(array_bytes: int) -> int:
    """Returns the number of placements for arrays of this total size."""
    return next((count for limit, count in PLACED_BYTES.items() if array_bytes <= limit), 1)


def capability_of(device: Any) -> tuple[int, int]:
    """Returns a CuPy device's compute capability."""
    digits = str(device.compute_capability)
    return int(digits[:-1]), int(digits[-1])


def _microseconds(start: Any, end: Any) -> float:
    """Returns the microseconds between two CuPy events."""
    import cupy

    return float(cupy.cuda.get_elapsed_time(start, end)) * 1e3
