"""Isolation of kernels under judgement: their process and CUDA context contain no expected outputs.

The worker keeps expected outputs and baselines' outputs in its own process and context; candidates
are launched and timed by its *runner* (`kernelmate.worker.runner`), which is forked before either opens CUDA. Small
launches are sent to it as messages, large ones through shared memory.
"""

from __future__ import annotations

import os
import signal
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any, NoReturn

import numpy as np

from kernelmate.backends.base import ArrayArgument, Run, RunResult, UnsupportedInstruction
from kernelmate.backends.cuda.backend import CudaBackend, with_aligned_pointers
from kernelmate.backends.cuda.emulated_checks import EmulatedChecks
from kernelmate.backends.cuda.exchange import Exchange, LaunchLayout, is_large, layout_of, with_shared_arrays
from kernelmate.backends.pipeline import PipelineLaunch, PipelineModule, outer_run, pipeline_launch
from kernelmate.backends.timed import RepeatedLaunch
from kernelmate.errors import DeviceFailed
from kernelmate.records import BackendName, Compiled, Finding, FindingCode, LaunchShape, Speedup, Target, Timing

LAUNCH_SHARE, LAUNCH_LEAST_S = 8, 5.0
"""Time limit of a launch.

This fraction of a task's limit, since a verdict needs several launches, and a minimum in seconds.
"""


MEANWHILE_S = 0.02
"""Seconds between two calls of `IsolatedCuda.meanwhile`."""


@dataclass(frozen=True, slots=True)
class LoadRequest:
    """Requests that compiled code be loaded; the reply is its number."""

    compiled: Compiled
    target: Target


@dataclass(frozen=True, slots=True)
class LaunchRequest:
    """Requests one launch; large arrays are given by their locations in the exchange. The reply is a `LaunchReply`."""

    module: int
    run: Run
    layout: LaunchLayout | None


@dataclass(frozen=True, slots=True)
class LaunchBegun:
    """Precedes the reply to a `LaunchRequest` once other processes have freed the GPU; time limits start here."""


@dataclass(frozen=True, slots=True)
class LaunchReply:
    """Result of one launch. For a large launch, `written` names the arrays in shared memory; all others are unchanged."""

    result: RunResult
    written: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MeasureRequest:
    """Requests a version's time, beside its baseline's. The reply is a `MeasureReply`.

    Attributes:
        module: the version's number.
        baseline: the baseline's number and launch.
        run: the arguments, and the version's launch.
        layout: offsets of large arrays.
        restored: arrays that are reset before each launch.
        budget_s: time budget.
        full: also measure cold durations and replay periods.
        quick: measure warm durations only, without checking outputs.
        pipelines: the version's and the baseline's run where they are pipelines; their numbers are then not used.
    """

    module: int
    baseline: tuple[int, LaunchShape] | None
    run: Run
    layout: LaunchLayout | None
    restored: frozenset[str]
    budget_s: float
    full: bool
    quick: bool
    pipelines: tuple[PipelineLaunch | None, PipelineLaunch | None] = (None, None)


@dataclass(frozen=True, slots=True)
class MeasureReply:
    """Result of a timing.

    Attributes:
        timings: times of the baseline, if there is one, and of the version.
        speedup: the baseline's time over the version's; None without a baseline.
        outputs: outputs of the last timed launch; empty if they are in shared memory, None if nothing ran.
        repeats: results of many equal launches, if measured.
        finding: the failure of a launch that prevented timing.
        prints: True if a kernel printed.
        written: names of the outputs in shared memory: NAME/0 after timed launches, NAME/1 after repeated ones.
    """

    timings: tuple[Timing, ...] = ()
    speedup: Speedup | None = None
    outputs: Mapping[str, Any] | None = None
    repeats: RepeatedLaunch | None = None
    finding: Finding | None = None
    prints: bool = False
    written: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RemarksRequest:
    """Requests disagreements with the driver."""


@dataclass(frozen=True, slots=True)
class LoadRefused:
    """Reply if code cannot be loaded."""

    finding: Finding


@dataclass(frozen=True, slots=True)
class GpuFailed:
    """Reply if the GPU failed."""

    message: str
    hint: str | None


class Runner:
    """The worker's end of the connection to its runner.

    Args:
        connection: to the runner.
        pid: its process.
        exchange: the memory that both share.
    """

    def __init__(self, connection: Connection, pid: int, exchange: Exchange) -> None:
        self._connection, self._pid, self.exchange = connection, pid, exchange
        self._dropped: list[int] = []
        self.poisoned = False

    def open(self, device: int, memory_limit: int | None) -> None:
        """Starts opening the GPU; the first reply shows whether it succeeded."""
        self._connection.send((device, memory_limit))

    def drop(self, module: int) -> None:
        """Unloads a module before the next request."""
        self._dropped.append(module)

    def send(self, request: object) -> None:
        """Sends a request without waiting for its answer."""
        dropped, self._dropped = self._dropped, []
        try:
            self._connection.send((tuple(dropped), request))
        except OSError:
            self._end_alike()

    def answers_within(self, seconds: float) -> bool:
        """Waits for a reply, or the runner's end; returns False if there was neither."""
        return self._connection.poll(seconds)

    def receive(self, limit_s: float | None = None) -> Any:
        """Returns the reply; None if a launch has not ended `limit_s` seconds after its start, which ends the runner.

        Raises:
            DeviceFailed: the GPU failed. UnsupportedInstruction: the driver cannot load the code.
        """
        try:
            answer, self.poisoned = self._connection.recv()
            if isinstance(answer, LaunchBegun):
                if limit_s is not None and not self._connection.poll(limit_s):
                    os.kill(self._pid, signal.SIGKILL)
                    self.poisoned = True
                    return None
                answer, self.poisoned = self._connection.recv()
        except (EOFError, OSError):
            self._end_alike()
        if isinstance(answer, LoadRefused):
            raise UnsupportedInstruction(answer.finding)
        if isinstance(answer, GpuFailed):
            raise DeviceFailed(answer.message, hint=answer.hint)
        return answer

    def ask(self, request: object, limit_s: float | None = None) -> Any:
        """Sends a request, and returns the reply as `receive` does."""
        self.send(request)
        return self.receive(limit_s)

    def _end_alike(self) -> NoReturn:
        """Ends this process with the runner's exit status, so that the session learns how the kernel ended it."""
        _, status = os.waitpid(self._pid, 0)
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            signal.signal(number, signal.SIG_DFL) if number not in (signal.SIGKILL, signal.SIGSTOP) else None
            os.kill(os.getpid(), number)
        os._exit(os.waitstatus_to_exitcode(status) or 1)


@dataclass(frozen=True, slots=True)
class MeasuredBaseline:
    """The baseline that a version is timed beside, to be loaded in the runner.

    Attributes:
        codes: its kernel, or for each stage of a pipeline its kernel or None.
        target: what they are compiled for.
        run: its launch, or its run if it is a pipeline.
    """

    codes: tuple[Compiled | None, ...]
    target: Target
    run: Run


def _numbers(module: PipelineModule) -> list[int | None]:
    """Returns the numbers of a pipeline's kernels in the runner."""
    return [one.number if isinstance(one, IsolatedModule) else None for one in module.modules]


class IsolatedCuda:
    """`Backend` for kernels under judgement, which loads and launches them in the runner.

    Args:
        runner: the runner, with its GPU opened.
        own: this process's backend of the same GPU, for references and baselines.

    Attributes:
        launch_limit_s: seconds after which a launch counts as hung, and its runner is killed; None for no limit.
        foreseen: emulated launches of the version under judgement that were started before; None without any.
        meanwhile: called again and again while the runner times a version.
    """

    name: BackendName = "cuda"

    def __init__(self, runner: Runner, own: CudaBackend) -> None:
        self.runner, self.own = runner, own
        self.launch_limit_s: float | None = None
        self.foreseen: EmulatedChecks | None = None
        self.meanwhile: Callable[[], None] = lambda: None

    def limit(self, timeout_s: float | None) -> None:
        """Bounds launches by the time limit of the task that they belong to, None for no limit."""
        self.launch_limit_s = None if timeout_s is None else max(timeout_s / LAUNCH_SHARE, LAUNCH_LEAST_S)

    @property
    def poisoned(self) -> bool:
        """True if either of the two contexts is lost."""
        return self.runner.poisoned or self.own.poisoned

    @property
    def trusted(self) -> CudaBackend:
        """The backend for references and baselines."""
        return self.own

    def load(self, compiled: Compiled, target: Target) -> IsolatedModule:
        """Implements `Backend.load`."""
        number = self.runner.ask(LoadRequest(compiled, target))
        companion = self.foreseen
        if companion is None or companion.compiled != compiled:
            companion = self.own.companion(compiled, target)
        else:
            self.foreseen = None
        return IsolatedModule(self, compiled, target, number, companion)

    def measure(
        self, module: IsolatedModule | PipelineModule, run: Run, baseline: MeasuredBaseline | None,
        restored: frozenset[str], budget_s: float, *, full: bool, quick: bool,
    ) -> MeasureReply:  # fmt: skip
        """Returns a version's time, beside its baseline's.

        Args:
            module: the version.
            run: its launch, or its run if it is a pipeline.
            baseline: the baseline.
            restored: arrays that are reset before each launch.
            budget_s: time budget.
            full: also measure cold durations and replay periods.
            quick: measure warm durations only, without checking outputs.

        Raises:
            DeviceFailed: the GPU failed.
        """
        mine = pipeline_launch(run, _numbers(module)) if isinstance(module, PipelineModule) else None
        number = 0 if isinstance(module, PipelineModule) else module.number
        beside, theirs, loaded = self._loaded_beside(baseline)
        run = outer_run(run)
        layout = self._handed_over(run, copies=2)
        self.runner.send(
            MeasureRequest(
                number,
                beside,
                run if layout is None else with_shared_arrays(run, layout),
                layout,
                restored,
                budget_s,
                full,
                quick,
                (mine, theirs),
            )
        )
        while not self.runner.answers_within(MEANWHILE_S):
            self.meanwhile()
        seen: MeasureReply = self.runner.receive()
        for one in loaded:
            self.runner.drop(one)
        if layout is None:
            return seen
        outputs = self._taken(run, layout, seen.written, 0)
        repeats = seen.repeats
        if repeats is not None:
            repeats = replace(repeats, arrays=self._taken(run, layout, seen.written, 1))
        self.runner.exchange.clear(layout.middle, layout.end)
        return replace(seen, outputs=outputs if seen.outputs is not None else None, repeats=repeats)

    def _loaded_beside(
        self, baseline: MeasuredBaseline | None
    ) -> tuple[tuple[int, LaunchShape] | None, PipelineLaunch | None, list[int]]:
        """Loads a baseline in the runner; returns its number and launch, its run if it is a pipeline, and modules to drop."""
        if baseline is None:
            return None, None, []
        loaded: list[int] = []
        try:
            for compiled in baseline.codes:
                if compiled is not None:
                    loaded.append(self.runner.ask(LoadRequest(compiled, baseline.target)))
        except UnsupportedInstruction:
            for one in loaded:
                self.runner.drop(one)
            return None, None, []
        if not baseline.run.stages:
            return (loaded[0], baseline.run.shape), None, loaded
        numbers = iter(loaded)
        placed = [None if compiled is None else next(numbers) for compiled in baseline.codes]
        return (0, baseline.run.shape), pipeline_launch(baseline.run, placed), loaded

    def launch(self, module: IsolatedModule, run: Run) -> RunResult:
        """Makes one launch in the runner.

        Raises:
            DeviceFailed: the GPU failed, which says nothing about the kernel.
        """
        given = {item.name: item.data for item in run.arguments if isinstance(item, ArrayArgument)}
        if self.runner.poisoned:
            lost = Finding(FindingCode.LAUNCH_FAILURE, "error", "an earlier launch destroyed the GPU's context")
            return RunResult(given, (lost,))
        layout = self._handed_over(run)
        handed = replace(run, key=None) if layout is None else with_shared_arrays(run, layout)
        seen: LaunchReply | None = self.runner.ask(LaunchRequest(module.number, handed, layout), self.launch_limit_s)
        if seen is None:
            hung = Finding(
                FindingCode.HANG, "error", f"the launch had not ended after {self.launch_limit_s:g} s, and was killed"
            )
            return RunResult(given, (hung,))
        if layout is None:
            return seen.result
        arrays = given | self._taken(run, layout, seen.written, 0)
        self.runner.exchange.clear(layout.middle, layout.end)
        return replace(seen.result, arrays=arrays)

    def _handed_over(self, run: Run, copies: int = 1) -> LaunchLayout | None:
        """Copies a large launch's inputs to the exchange; None for a small one."""
        if not is_large(run):
            return None
        layout, exchange = layout_of(run, copies), self.runner.exchange
        exchange.pin(layout.end)
        with self.own.device:
            for item in run.arguments:
                if isinstance(item, ArrayArgument) and item.name in layout.inputs:
                    _copy(exchange.view(layout.inputs[item.name]), item.data)
        return layout

    def _taken(self, run: Run, layout: LaunchLayout, written: Iterable[str], copy: int) -> dict[str, Any]:
        """Returns arrays that the runner wrote to shared memory, placed like their arguments."""
        import cupy

        found: dict[str, Any] = {}
        names = {name for name in written if name.endswith(f"/{copy}")}
        with self.own.device:
            for item in run.arguments:
                if not isinstance(item, ArrayArgument) or f"{item.name}/{copy}" not in names:
                    continue
                held = self.runner.exchange.view(layout.outputs[f"{item.name}/{copy}"])
                found[item.name] = cupy.asarray(held) if item.device else held.copy()
            cupy.cuda.get_current_stream().synchronize()
        return found

    @contextmanager
    def computing(self) -> Iterator[Any]:
        """Implements `Computes.computing`: in this process's own context."""
        import cupy

        with self.own.turns.shared(), self.own.device:
            yield cupy
            cupy.cuda.get_current_stream().synchronize()

    def take_remarks(self) -> tuple[str, ...]:
        """Returns disagreements with the driver in either process since the last call, each once."""
        theirs = () if self.runner.poisoned else self.runner.ask(RemarksRequest())
        return tuple(dict.fromkeys((*theirs, *self.own.take_remarks())))


class EmulationAhead:
    """`Backend` that loads an announced version only for its emulated launches; nothing reaches the runner.

    Attributes:
        companion: the emulator's module of the version that was loaded last; None before.
    """

    name: BackendName = "cuda"
    poisoned = False

    def __init__(self, gpu: IsolatedCuda) -> None:
        self._gpu = gpu
        self.companion: EmulatedChecks | None = None

    @property
    def trusted(self) -> CudaBackend:
        """The backend for references and baselines, in this process's own context."""
        return self._gpu.own

    def computing(self) -> AbstractContextManager[Any]:
        """Implements `Computes.computing`, in this process's own context."""
        return self._gpu.computing()

    def load(self, compiled: Compiled, target: Target) -> EmulatedChecks:
        """Implements `Backend.load`."""
        self.companion = self._gpu.own.companion(compiled, target)
        if self.companion is None:
            message = "the emulator does not run this code"
            raise UnsupportedInstruction(Finding(FindingCode.UNSUPPORTED_INSTRUCTION, "note", message))
        return self.companion


def _copy(to: np.ndarray[Any, Any], data: Any) -> None:
    """Fills host memory from an array of NumPy's or CuPy's."""
    if isinstance(data, np.ndarray):
        np.copyto(to, data)
    elif data.size:
        data.get(out=to)


class IsolatedModule:
    """One version in the runner, with the emulator beside it in this process.

    Attributes:
        compiled: the code.
        target: its target.
        number: its number in the runner.
    """

    def __init__(
        self, backend: IsolatedCuda, compiled: Compiled, target: Target, number: int, companion: EmulatedChecks | None
    ) -> None:
        self.backend, self.compiled, self.target, self.number = backend, compiled, target, number
        self._companion = companion
        weakref.finalize(self, backend.runner.drop, number)

    def foresee(self, runs: Iterable[Run]) -> None:
        """Implements `Foresees.foresee`."""
        if self._companion is not None:
            self._companion.foresee(runs)

    def run(self, run: Run) -> RunResult:
        """Runs a launch as `CudaModule.run` does, but a large launch does not wait for the emulator."""
        if is_large(run):
            return self._large(run)
        seen = None if self._companion is None else self._companion.seen(run)
        if seen is not None and any(finding.severity == "error" for finding in seen.findings):
            return seen
        result = self.backend.launch(self, run if seen is not None else with_aligned_pointers(run))
        return result if seen is None else with_gpu_arrays(seen, result)

    def _large(self, run: Run) -> RunResult:
        result = self.backend.launch(self, with_aligned_pointers(run))
        if not run.count or self._companion is None:
            return result
        return replace(result, counting=self._companion.counting(with_shared_arrays(run, layout_of(run))))


def with_gpu_arrays(seen: RunResult, result: RunResult) -> RunResult:
    """Combines the emulator's result of a launch with the GPU's arrays and findings."""
    return replace(
        seen,
        arrays=result.arrays,
        findings=(*result.findings, *seen.findings),
        printed=result.printed or seen.printed,
    )
