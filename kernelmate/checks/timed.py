"""Data passed to a timer for launches that were judged right, and the timer's results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from kernelmate.backends.base import Module, Run, RunResult
from kernelmate.backends.timed import RepeatedLaunch
from kernelmate.checks.answers import ExpectedOutputs
from kernelmate.checks.canonical import canonical
from kernelmate.checks.case_launches import LaunchOutcome
from kernelmate.checks.precision import Array, module_of
from kernelmate.records import Alternative, Contract, Finding, LaunchShape, Size, Speedup, Timing, Version, Work


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
        size: the size.
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
    size: Size = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MeasuredAlternative:
    """A library's time of the kernel's computation, and its outputs, which are still to be compared; empty if it has none."""

    found: Alternative
    outputs: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class LaunchTimes:
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
        against: times of libraries that compute the same.
    """

    timing: Timing | None
    beside: Timing | None = None
    speedup: Speedup | None = None
    outputs: Mapping[str, Array] | None = None
    finding: Finding | None = None
    repeats: RepeatedLaunch | None = None
    doubt: str | None = None
    stages: tuple[Timing | None, ...] = ()
    against: tuple[MeasuredAlternative, ...] = ()


Timer = Callable[[TimedLaunch], LaunchTimes | None]
Model = Callable[[Version, LaunchShape, RunResult], tuple[Work | None, Timing | None]]
"""Function that returns work and traffic of one counted launch, and the predicted time next to a measured one."""


@dataclass(frozen=True, slots=True)
class JudgedLaunch:
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


def checked_library_time(
    measured: MeasuredAlternative, contract: Contract, size: Size, kept: JudgedLaunch | None
) -> Alternative:
    """Returns a library's result; its time is removed unless its outputs are right within the kernel's tolerance.

    Args:
        measured: the time and the outputs.
        contract: the contract in force.
        size: the headline size.
        kept: the judged launch, with the expected outputs of the same inputs.
    """
    found, answer = measured.found, None if kept is None else kept.answer
    if not measured.outputs:
        return found
    untimed = replace(found, timing=None, kernel=None, speedup=None)
    if kept is None or answer is None:
        return replace(untimed, why="there are no expected results to compare its results with")
    made = {name: module_of(answer.want[name]).asarray(array) for name, array in measured.outputs.items()}
    made = canonical(contract, size, made, kept.outcome.given)
    worst = max((answer.difference(name, made[name]) for name in answer.want), key=lambda one: one.error)
    if worst.right:
        return replace(found, correct=True, max_error=worst.error)
    first = worst.first
    where = "" if first is None else f" at {list(first.index)} ({first.got}, not {first.want})"
    far = f", {worst.error:.3g} times the kernel's tolerance" if math.isfinite(worst.error) else ""
    why = f"it computes something else: {worst.argument} differs{where}{far}"
    return replace(untimed, correct=False, max_error=worst.error, why=why)
