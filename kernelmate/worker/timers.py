"""Times of judged launches: measured on a GPU, predicted in the emulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias, cast

from kernelmate.backends.base import Backend, Module, Run, RunResult
from kernelmate.backends.cuda.initial_state import release_persisting
from kernelmate.backends.cuda.isolated import IsolatedCuda, IsolatedModule, MeasuredBaseline, MeasureReply
from kernelmate.backends.cuda.pipeline_timing import CudaPipeline
from kernelmate.backends.cuda.printing import captured_output
from kernelmate.backends.cuda.repeating import repeat
from kernelmate.backends.pipeline import PipelineModule, outer_run, pipeline_launch
from kernelmate.backends.timed import RepeatedLaunch, TimedFault
from kernelmate.checks.guards.sub_physical_time import find, need_of
from kernelmate.checks.timed import LaunchTimes, Model, TimedLaunch, Timer
from kernelmate.compiler.targets import peaks_of, with_raised_peaks
from kernelmate.measure.predict import operations, predict, predict_library, predict_sequence, work_of
from kernelmate.measure.timing import measure
from kernelmate.records import JudgeTask, LaunchShape, Target, Timing, Version, Work
from kernelmate.worker.against import measure_against

if TYPE_CHECKING:
    from kernelmate.backends.cuda.backend import CudaBackend, CudaModule

CudaVersion: TypeAlias = "CudaModule | CudaPipeline"
"""A version that a timing device takes."""

HEADLINE_SHARE = 0.6
"""Fraction of the budget for the headline size if there are other sizes."""


PRINTS = "it prints, which takes its time"


def timer_for(task: JudgeTask, backend: Backend) -> Timer:
    """Returns the timer of a task.

    A launch on a GPU is measured or has no time, since a prediction could be mistaken for one.
    """

    def predicted(launch: TimedLaunch) -> LaunchTimes | None:
        if launch.result.stages:
            stages = stage_times(task.target, launch.version, launch.result)
            return LaunchTimes(sequence_time(stages), stages=stages)
        return LaunchTimes(predict(task.target, launch.version.compiled, launch.shape, launch.result))

    def measured(launch: TimedLaunch) -> LaunchTimes | None:
        if not launch.sound or task.timing_budget_s <= 0:
            return None
        gpu = cast("CudaBackend | IsolatedCuda", backend)
        budget_s = budget_of(launch, task.timing_budget_s)
        timed = _measure(gpu, launch, budget_s, quick=task.glance)
        own = gpu.own if isinstance(gpu, IsolatedCuda) else gpu
        beside = bool(task.against) and launch.headline and timed.timing is not None
        return replace(
            timed,
            against=measure_against(task, launch, own, budget_s) if beside else (),
            stages=stage_times(task.target, launch.version, launch.result),
            doubt=_doubt(own, task.target, launch, timed.timing),
        )

    return predicted if backend.name == "emulator" else measured


def model_for(task: JudgeTask, backend: Backend) -> Model:
    """Returns the function that computes work, and the predicted time next to a measured one."""

    def modelled(version: Version, shape: LaunchShape, result: RunResult) -> tuple[Work | None, Timing | None]:
        if result.stages:
            return None, sequence_time(stage_times(task.target, version, result)) if backend.name == "cuda" else None
        # Only the emulator counts executions of each basic block.
        if result.counters is None or not result.block_counts:
            return None, None
        beside = predict(task.target, version.compiled, shape, result) if backend.name == "cuda" else None
        return work_of(task.target, version.compiled, shape, result), beside

    return modelled


def stage_times(target: Target, version: Version, result: RunResult) -> tuple[Timing | None, ...]:
    """Returns the predicted time of each stage of a pipeline; None for one that did not run, or was not counted."""
    kernels = iter(version.stages)
    found: list[Timing | None] = []
    for stage in result.stages:
        if stage.shape is None:
            found.append(predict_library(target, stage.moved_bytes))
            continue
        compiled = next(kernels).compiled
        counted = stage.result is not None and stage.result.counters is not None and stage.result.block_counts
        found.append(predict(target, compiled, stage.shape, stage.result) if counted and stage.result else None)
    return (*found, *[None] * (len(version.contract.stages) - len(found)))


def sequence_time(stages: Sequence[Timing | None]) -> Timing | None:
    """Returns the predicted time of a pipeline; None if that of a stage is unknown."""
    known = [one for one in stages if one is not None]
    return predict_sequence(known) if known and len(known) == len(stages) else None


def budget_of(launch: TimedLaunch, budget_s: float) -> float:
    """Returns the seconds for one size."""
    if launch.sizes == 1:
        return budget_s
    return budget_s * (HEADLINE_SHARE if launch.headline else (1 - HEADLINE_SHARE) / (launch.sizes - 1))


def measured_on(
    backend: CudaBackend, module: CudaVersion, run: Run, baseline: tuple[CudaVersion, LaunchShape] | None,
    restored: frozenset[str], budget_s: float, *, full: bool, quick: bool,
) -> MeasureReply:  # fmt: skip
    """Times a version, and its baseline in the same blocks, in the process that has loaded both.

    Args:
        backend: the GPU's backend.
        module: the loaded version.
        run: its launch.
        baseline: the loaded baseline with its launch.
        restored: arrays that are reset before each launch.
        budget_s: time budget.
        full: also measure cold durations and replay periods.
        quick: measure warm durations only, without checks of outputs and repeated launches.
    """
    versions = [(module, run.shape)]
    if baseline is not None:
        versions.insert(0, baseline)
    try:
        with backend.turns.alone() as alone, captured_output(any(one.prints for one, _ in versions)) as printed:
            with backend.device:
                release_persisting()
            with backend.timer(versions, run, restored) as timer:
                seen = measure(timer, budget_s, full=full and not quick, alone=alone, outputs=not quick)
            # A pipeline's results are not reused between its own runs: its temporaries are checked for that.
            repeats = None if quick or isinstance(module, CudaPipeline) else _repeated(module, run, restored)
    except TimedFault as fault:
        return MeasureReply(finding=fault.finding)
    return MeasureReply(seen.timings, seen.speedup, seen.outputs, repeats, prints=bool(printed.size))


def _measure(backend: CudaBackend | IsolatedCuda, launch: TimedLaunch, budget_s: float, *, quick: bool) -> LaunchTimes:
    """Times a version where it is loaded; arguments as for `measured_on`."""
    run, full = launch.run(), launch.headline
    if isinstance(backend, IsolatedCuda):
        mine = cast("IsolatedModule | PipelineModule", launch.module)
        seen = backend.measure(mine, run, _beside(launch), launch.restored, budget_s, full=full, quick=quick)
    else:
        other = None
        if launch.baseline is not None:
            theirs = launch.baseline_run() if launch.baseline_run is not None else run
            other = _loaded_version(launch.baseline[0], theirs), launch.baseline[1]
        version = _loaded_version(launch.module, run)
        seen = measured_on(backend, version, outer_run(run), other, launch.restored, budget_s, full=full, quick=quick)
    if seen.finding is not None:
        return LaunchTimes(None, finding=seen.finding)
    timings = [with_note(timing, PRINTS) if seen.prints else timing for timing in seen.timings]
    together = timings[0] if len(timings) > 1 else None
    return LaunchTimes(timings[-1], together, seen.speedup, seen.outputs, repeats=seen.repeats)


def _beside(launch: TimedLaunch) -> MeasuredBaseline | None:
    """Returns the baseline of a launch, to be loaded in the runner; None if there is none."""
    if launch.baseline is None:
        return None
    module, shape = launch.baseline
    if isinstance(module, PipelineModule):
        assert launch.baseline_run is not None, "a baseline that is a pipeline comes with its run"
        kernels = cast("list[CudaModule | None]", list(module.modules))
        target = next(one.target for one in kernels if one is not None)
        codes = tuple(None if one is None else one.compiled for one in kernels)
        return MeasuredBaseline(codes, target, launch.baseline_run())
    kernel = cast("CudaModule", module)
    return MeasuredBaseline((kernel.compiled,), kernel.target, Run(shape, ()))


def _loaded_version(module: Module, run: Run) -> CudaVersion:
    """Returns a version that is loaded in this process, as a timing device takes it."""
    if not isinstance(module, PipelineModule):
        return cast("CudaModule", module)
    return CudaPipeline(cast("tuple[CudaModule | None, ...]", module.modules), pipeline_launch(run, ()))


def _repeated(module: CudaModule, run: Run, restored: frozenset[str]) -> RepeatedLaunch | None:
    """Returns the result of many equal launches; None if it could not be measured, which says nothing about the version.

    Raises:
        TimedFault: a launch failed.
    """
    try:
        return repeat(module, run, restored)
    except TimedFault as fault:
        if fault.finding.severity == "error":
            raise
        return None


def with_note(timing: Timing, note: str) -> Timing:
    """Returns the time with one more note."""
    return replace(timing, notes=(*timing.notes, note))


def _doubt(backend: CudaBackend, target: Target, launch: TimedLaunch, timing: Timing | None) -> str | None:
    """Returns the reason why a time is physically impossible, by the launch's work and the GPU's peak rates.

    The result is None if the time is possible.
    """
    if timing is None:
        return None
    stated = backend.device.attributes
    peaks = with_raised_peaks(
        peaks_of(target),
        target,
        # Memory clock in kHz, two transfers per cycle, times the bus width in bits.
        memory_gbps=2 * int(stated["MemoryClockRate"]) * int(stated["GlobalMemoryBusWidth"]) / 8e6,
        sms=int(stated["MultiProcessorCount"]),
        clock_mhz=int(stated["ClockRate"]) / 1e3,
    )
    result, compiled = launch.result, launch.version.compiled
    need = need_of(launch.version.contract, result, operations(compiled, result) if result.block_counts else {})
    return find(timing, need, peaks, max(int(stated["L2CacheSize"]), target.l2_bytes))
