"""Data passed to a timer for launches that were judged right, and the timer's results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernelmate.backends.base import Module, Run, RunResult
from kernelmate.backends.timed import RepeatedLaunch
from kernelmate.checks.answers import ExpectedOutputs
from kernelmate.checks.precision import Array
from kernelmate.checks.trials import LaunchOutcome
from kernelmate.records import Finding, LaunchShape, Speedup, Timing, Version, Work


@dataclass(frozen=True, slots=True)
class TimedLaunch:
    """One listed size of the version under judgement, to be timed.

    Attributes:
        version: the version.
        shape: its launch shape at the size.
        result: result of the counted launch.
        sound: True if no finding rejects the version so far.
        headline: True for the first listed size.
        sizes: number of listed sizes to time.
        module: the loaded version.
        run: its launch, with the inputs that were judged.
        baseline: the loaded baseline and its launch shape; None without a baseline that runs at this size.
        restored: arrays that are read and written, which must be reset before every timed launch.
        baseline_run: the baseline's own run if it is a pipeline; else it takes the arguments of `run`.
    """

    version: Version
    shape: LaunchShape
    result: RunResult
    sound: bool
    headline: bool
    sizes: int
    module: Module
    run: Callable[[], Run]
    baseline: tuple[Module, LaunchShape] | None
    restored: frozenset[str]
    baseline_run: Callable[[], Run] | None = None


@dataclass(frozen=True, slots=True)
class Timed:
    """A timer's results for one launch.

    Attributes:
        timing: the version's time.
        beside: the baseline's time from the same measurement blocks.
        speedup: the ratio of the times over those blocks.
        outputs: outputs of timed launches, to compare with the judged ones; None if nothing ran.
        finding: the failure of a launch that prevented timing.
        repeats: results of many equal launches, if measured.
        doubt: the reason to call the time physically impossible.
        stages: of a pipeline, the predicted time of each stage alone; None for one that was not counted.
    """

    timing: Timing | None
    beside: Timing | None = None
    speedup: Speedup | None = None
    outputs: Mapping[str, Array] | None = None
    finding: Finding | None = None
    repeats: RepeatedLaunch | None = None
    doubt: str | None = None
    stages: tuple[Timing | None, ...] = ()


Timer = Callable[[TimedLaunch], Timed | None]
Model = Callable[[Version, LaunchShape, RunResult], tuple[Work | None, Timing | None]]
"""Function that returns work and traffic of one counted launch, and the predicted time next to a measured one."""


@dataclass(frozen=True, slots=True)
class KeptLaunch:
    """A judged ordinary launch of a listed size, with its expected outputs."""

    outcome: LaunchOutcome
    answer: ExpectedOutputs | None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = [*self.outcome.given.values(), *self.outcome.result.arrays.values()]
        if self.answer is not None:
            arrays += self.answer.arrays()
        return sum(array.nbytes for array in arrays)
