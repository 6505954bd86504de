"""Launches that are handed over to be timed once they are judged right, and what is made of what comes back."""

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
    """One listed size of the version under judgement.

    Attributes:
        version: what is judged. shape: its launch at the size. result: of the launch that was counted.
        sound: nothing was found so far that rejects the version.
        headline: the first of the listed sizes.
        sizes: how many listed sizes are timed in all.
        module: the version, loaded. run: its launch, with inputs as they were when it was judged.
        baseline: the version it is compared with, loaded, and its launch; None without one that runs here.
        restored: arrays that are read and written, which every timed launch must find as they were.
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


@dataclass(frozen=True, slots=True)
class Timed:
    """A timer's result for a launch.

    Attributes:
        timing: of the version. beside: of the baseline in the same blocks. speedup: by those blocks.
        outputs: what timed launches left, to be held against what was judged; None where nothing was run.
        finding: why there is no time, where a launch failed.
        repeats: what many equal launches did, where that was looked at.
        doubt: why the time is below what is possible at all.
    """

    timing: Timing | None
    beside: Timing | None = None
    speedup: Speedup | None = None
    outputs: Mapping[str, Array] | None = None
    finding: Finding | None = None
    repeats: RepeatedLaunch | None = None
    doubt: str | None = None


Timer = Callable[[TimedLaunch], Timed | None]
Model = Callable[[Version, LaunchShape, RunResult], tuple[Work | None, Timing | None]]
"""Work and traffic of one counted launch, and the predicted time beside a measured one."""


@dataclass(frozen=True, slots=True)
class KeptLaunch:
    """An ordinary launch of a listed size that was judged, and what it should have given."""

    outcome: LaunchOutcome
    answer: ExpectedOutputs | None

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        arrays = [*self.outcome.given.values(), *self.outcome.result.arrays.values()]
        if self.answer is not None:
            arrays += self.answer.arrays()
        return sum(array.nbytes for array in arrays)
