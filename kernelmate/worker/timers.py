"""Where a judged launch gets its time from: measured where it ran on a GPU, predicted where it was emulated."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from kernelmate.backends.base import Backend, RunResult
from kernelmate.backends.timed import TimedFault
from kernelmate.checks.timed import Model, Timed, TimedLaunch, Timer
from kernelmate.measure.predict import predict
from kernelmate.measure.timing import measure
from kernelmate.measure.work import work_of
from kernelmate.records import JudgeTask, LaunchShape, Timing, Version, Work

if TYPE_CHECKING:
    from kernelmate.backends.cuda.backend import CudaBackend

HEADLINE_SHARE = 0.6
"""Part of the budget that the headline size gets where there are others."""


def timer_for(task: JudgeTask, backend: Backend) -> Timer:
    """The timer of a task. What runs on a GPU is measured there or has no time: a prediction would pass for one."""

    def predicted(launch: TimedLaunch) -> Timed | None:
        return Timed(predict(task.target, launch.version.compiled, launch.shape, launch.result))

    def measured(launch: TimedLaunch) -> Timed | None:
        if not launch.sound or task.timing_budget_s <= 0:
            return None
        return _measure(cast("CudaBackend", backend), launch, budget_of(launch, task.timing_budget_s))

    return predicted if backend.name == "emulator" else measured


def model_for(task: JudgeTask, backend: Backend) -> Model:
    """What a judged launch computes and moves, and where it is timed on a GPU the time that the model says beside it."""

    def modelled(version: Version, shape: LaunchShape, result: RunResult) -> tuple[Work | None, Timing | None]:
        # Only the emulator counts how often each block of code was entered.
        if result.counters is None or not result.block_counts:
            return None, None
        beside = predict(task.target, version.compiled, shape, result) if backend.name == "cuda" else None
        return work_of(task.target, version.compiled, shape, result), beside

    return modelled


def budget_of(launch: TimedLaunch, budget_s: float) -> float:
    """Seconds for one size."""
    if launch.sizes == 1:
        return budget_s
    return budget_s * (HEADLINE_SHARE if launch.headline else (1 - HEADLINE_SHARE) / (launch.sizes - 1))


def _measure(backend: CudaBackend, launch: TimedLaunch, budget_s: float) -> Timed:
    """Time a version, and its baseline in the same blocks."""
    versions = [(launch.module, launch.shape)]
    if launch.baseline is not None:
        versions.insert(0, launch.baseline)
    try:
        run = launch.run()
        with backend.turns.alone() as alone, backend.rig(versions, run, launch.restored) as rig:
            seen = measure(rig, budget_s, full=launch.headline, alone=alone)
    except TimedFault as fault:
        return Timed(None, finding=fault.finding)
    beside = seen.timings[0] if launch.baseline is not None else None
    return Timed(seen.timings[-1], beside, seen.speedup, seen.outputs)
