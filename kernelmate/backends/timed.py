"""Interface of timing devices. The cuda backend has one such device; tests have simulated clocks.

Three figures, which answer different questions and are never mixed. A duration is the time between two time stamps that
the GPU's front end takes before and after a launch, less what it is with no launch between: what Nsight Compute calls
`gpu__time_duration`. A period is how much later the next launch of a graph begins: what a launch adds to a stream of equal
ones. CUPTI's activity records span from the first block's start to the last block's end, as Nsight Systems shows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy.typing as npt

from kernelmate.records import Finding


@dataclass(frozen=True, slots=True)
class GpuState:
    """State of the GPU between two blocks of launches.

    Attributes:
        sm_clock_mhz: cycles of an SM over the GPU's own timer, counted by a kernel just now; None where unknown.
        temperature_c: of the GPU; None where NVML is absent.
        throttle_reasons: why the driver holds the clocks down, in words; empty when it does not, or nobody can tell.
    """

    sm_clock_mhz: float | None
    temperature_c: int | None = None
    throttle_reasons: tuple[str, ...] = ()


class TimingDevice(Protocol):
    """Versions of one kernel, ready to be launched on the same memory. Times are microseconds.

    Versions go by number; `None` is an empty kernel in the place of one. Arrays that a version reads and writes get
    their first contents back before every launch, which is counted in no duration and cancels in a difference of
    periods.

    Where code and arrays lie moves the time of a launch by up to some per cent (the sets of L2 that they share), and lasts
    as long as they lie there. So there are several placements: in each all versions have the same arrays at the same
    addresses, and in each both arrays and code lie elsewhere.

    Attributes:
        versions: how many there are.
        placements: how many places there are for code and arrays.
    """

    versions: int
    placements: int

    @property
    def machine(self) -> tuple[str, ...]:
        """Reasons that measurements here may be off, in whole phrases: sensors that are absent, other processes."""
        ...

    def durations(self, order: Sequence[int | None], *, cold: bool = False, placement: int = 0) -> tuple[float, ...]:
        """Launch in this order, in one placement, and give each launch's duration; `cold` empties L2 before each.

        Raises:
            TimedFault: a launch failed.
        """
        ...

    def period(self, version: int | None, launches: int) -> float:
        """Replay a graph of so many launches once, and give the period of one.

        Raises:
            CannotCapture: the launch cannot be part of a graph. TimedFault: a launch failed.
        """
        ...

    def traced(self, order: Sequence[int]) -> tuple[float, ...]:
        """Launch in this order while CUPTI traces, and give the time that each launch's record spans.

        Raises:
            Untraced: CUPTI is absent or gave no records of these launches. TimedFault: a launch failed.
        """
        ...

    def condition(self) -> GpuState:
        """Present state of the GPU."""
        ...

    def poison(self) -> None:
        """Overwrite every array of the first placement that is only written, so that who writes nothing shows."""
        ...

    def outputs(self) -> Mapping[str, npt.NDArray[Any]]:
        """The arrays that may be written, as the last launch in the first placement left them."""
        ...


@dataclass(frozen=True, slots=True)
class RepeatedLaunch:
    """One launch made again and again.

    Attributes:
        launches: how many were made before the last one.
        over_own_us: microseconds of a launch right after an equal one, over the results of that; arrays that it both
            reads and writes hold their first contents again. None where it could not be timed.
        afresh_us: likewise, where before each launch outputs were overwritten and the variables of the module got their
            first values back, so that nothing of an earlier launch is left to be used.
        scrubbed_us: as `afresh_us`, where shared memory was overwritten as well; None for a kernel that has none.
        arrays: what the last launch left, over outputs that were overwritten just before.
        clocks_us: the same replays by the GPU's clock and by the host's, microseconds for each launch; None where there
            were none.
    """

    launches: int
    over_own_us: float | None
    afresh_us: float | None
    scrubbed_us: float | None
    arrays: Mapping[str, npt.NDArray[Any]]
    clocks_us: tuple[float, float] | None = None


class Untraced(Exception):
    """CUPTI gives no records; the message says why."""


class CannotCapture(Exception):
    """CUDA refuses to record the launch in a graph; the message says why."""


class TimedFault(Exception):
    """A launch that had been judged failed when it was timed."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding
