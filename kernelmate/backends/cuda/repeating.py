"""Repeats one launch many times, as timing does, and checks that later launches still do the work.

Two graphs are timed. In both, arrays that are read and written are reset before each launch. In the second, outputs are
overwritten as well, and module variables are reset to their initial values. The time of the resets is measured
separately and subtracted.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernelmate.backends.base import Run
from kernelmate.backends.cuda.initial_state import fill_shared_memory
from kernelmate.backends.cuda.memory import DeviceVariable, variables_of
from kernelmate.backends.cuda.timing_arena import ON_DEVICE, Launch, TimingArena
from kernelmate.backends.timed import RepeatedLaunch, TimedFault
from kernelmate.compiler.ptx_text import used_names_of
from kernelmate.records import Finding, FindingCode

if TYPE_CHECKING:
    from kernelmate.backends.cuda.backend import CudaModule

MOST_LAUNCHES = 16
"""Maximum number of launches in one graph."""

GRAPH_US = 4000.0
"""Approximate duration of a graph; launches longer than half of it are timed one by one."""

_NOTHING, _MEMORY, _SHARED = range(3)
"""State that is reset before each launch, besides arrays that are read and written.

Each level includes the preceding ones.
"""

REPLAYS = 3
"""Number of measurements of which the fastest counts: other work on the machine only makes a replay slower."""

DOUBTED, ROUNDS = 0.6, 4
"""Fraction of a fresh launch's time below which a launch over its own results is measured again, and the maximum of repetitions."""


def repeat(module: CudaModule, run: Run, restored: frozenset[str]) -> RepeatedLaunch:
    """Repeats a launch on arrays of its own, at other addresses than when it was judged.

    Args:
        module: the loaded version. If it has variables it is loaded again, to get their initial values.
        run: the launch.
        restored: names of the arrays that are read and written.

    Raises:
        TimedFault: a launch failed, or the GPU's memory does not suffice.
    """
    import cupy

    backend, compiled = module.backend, module.compiled
    try:
        with backend.device, backend.stream:
            if used_names_of(compiled.ptx):
                module = backend.load(compiled, module.target)
            stage = TimingArena(run, restored, backend.stream)
            function = module.ready(run.shape)
            launch = stage.launcher(function, run.shape)
            kept = [_KeptVariable(one) for one in variables_of(function, compiled.ptx)]
            shares = bool(run.shape.shared_bytes or function.shared_size_bytes)
            repeated = _LaunchRepeater(stage, launch, kept, backend.stream, int(backend.device.id), bool(restored))
            try:
                return repeated.all(shares=shares)
            finally:
                if not backend.poisoned:
                    stage.scrub()
    except cupy.cuda.memory.OutOfMemoryError as error:
        message = f"not launched many times over: the GPU's memory does not suffice ({error})"
        raise TimedFault(Finding(FindingCode.OUT_OF_MEMORY, "note", message)) from None
    except (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError) as error:
        raise TimedFault(backend.fault(int(error.status), str(error), traps=module.traps)) from None


class _KeptVariable:
    """A module variable, with its initial value."""

    def __init__(self, variable: DeviceVariable) -> None:
        import cupy

        self._variable, self._copy = variable, cupy.cuda.alloc(variable.size)
        cupy.cuda.runtime.memcpy(self._copy.ptr, variable.address, variable.size, ON_DEVICE)

    def restore(self, stream: int) -> None:
        import cupy

        variable = self._variable
        cupy.cuda.runtime.memcpyAsync(variable.address, self._copy.ptr, variable.size, ON_DEVICE, stream)


@dataclass(frozen=True, slots=True)
class _Elapsed:
    """Microseconds between two events; and those since an earlier event, by the GPU's and the host's clock."""

    work_us: float
    gpu_us: float
    host_us: float


@dataclass(slots=True)
class _LaunchRepeater:
    """A launch on its arena, which counts how often it was made."""

    stage: TimingArena
    launch: Launch
    variables: list[_KeptVariable]
    stream: Any
    device: int
    in_place: bool
    launches: int = 0
    clocks_us: tuple[float, float] | None = None
    least: dict[tuple[int, bool], float] = field(default_factory=dict)
    """Shortest time of a launch in microseconds, by the reset level and by whether it is made."""

    def all(self, *, shares: bool) -> RepeatedLaunch:
        """Makes every measurement, then the last launch; `shares` is True if the kernel has shared memory."""
        once = max(self._between(lambda: self._go(1)).work_us, 1.0)
        count = int(min(GRAPH_US / once, MOST_LAUNCHES))

        def measured(resets: int) -> float | None:
            return self._period(count, resets) if count > 1 else self._alone(resets)

        for _ in range(ROUNDS):
            own, afresh = measured(_NOTHING), measured(_MEMORY)
            scrubbed = measured(_SHARED) if shares else None
            if own is None or all(other is None or own >= DOUBTED * other for other in (afresh, scrubbed)):
                break
            # Short graphs end before the GPU switches to another process.
            count = max(min(count, 2), count // 4)
        self._reset(_NOTHING)
        self.stage.poison(self.stream.ptr)
        self._go(1)
        return RepeatedLaunch(self.launches, own, afresh, scrubbed, self.stage.outputs(), self.clocks_us)

    def _alone(self, resets: int) -> float:
        """Returns the microseconds of one long launch by itself, without the preceding resets."""
        self._reset(resets)
        took = self._between(lambda: self._go(1))
        self.clocks_us = self.clocks_us or (took.gpu_us, took.host_us)
        return self._least((resets, True), took.work_us)

    def _least(self, key: tuple[int, bool], us: float) -> float:
        self.least[key] = min(us, self.least.get(key, us))
        return self.least[key]

    def _period(self, count: int, resets: int) -> float | None:
        """Returns the microseconds of one launch in a graph of `count`, without resets.

        The result is None if CUDA refuses to capture it.
        """
        whole = self._replayed(count, resets, launching=True)
        if whole is None or (resets == _NOTHING and not self.in_place):
            return whole
        alone = self._replayed(count, resets, launching=False)
        return None if alone is None else whole - alone

    def _replayed(self, count: int, resets: int, *, launching: bool) -> float | None:
        import cupy

        errors = (cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError)
        self.stream.begin_capture(cupy.cuda.runtime.streamCaptureModeThreadLocal)
        try:
            for _ in range(count):
                self._reset(resets)
                self._go(launching)
        except errors:
            # A capture that was started must be ended, or the stream becomes unusable.
            with suppress(*errors):
                self.stream.end_capture()
            return None
        graph = self.stream.end_capture()
        graph.launch(self.stream)
        self.launches += count * REPLAYS * launching
        replays = [self._between(lambda: graph.launch(self.stream)) for _ in range(REPLAYS)]
        if launching and self.clocks_us is None:
            quickest = min(replays, key=lambda took: took.host_us)
            self.clocks_us = quickest.gpu_us / count, quickest.host_us / count
        return self._least((resets, launching), min(took.work_us for took in replays) / count)

    def _reset(self, resets: int) -> None:
        self.stage.restore(self.stream.ptr)
        if resets >= _MEMORY:
            self.stage.poison(self.stream.ptr)
            for variable in self.variables:
                variable.restore(self.stream.ptr)
        if resets >= _SHARED:
            fill_shared_memory(self.device, 0)

    def _go(self, times: int) -> None:
        for _ in range(times):
            self.launch(self.stream.ptr)
        self.launches += times

    def _between(self, work: Callable[[], object]) -> _Elapsed:
        """Measures the duration of work.

        Both clocks start after the GPU has responded: other processes' work may precede that, and between two events of
        this stream it counts in both.
        """
        import cupy

        ready, begin, end = (cupy.cuda.Event() for _ in range(3))
        ready.record(self.stream)
        ready.synchronize()
        began = time.perf_counter()
        begin.record(self.stream)
        work()
        end.record(self.stream)
        end.synchronize()
        host = (time.perf_counter() - began) * 1e6
        elapsed = cupy.cuda.get_elapsed_time
        return _Elapsed(float(elapsed(begin, end)) * 1e3, float(elapsed(ready, end)) * 1e3, host)
