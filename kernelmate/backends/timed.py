"""Interface of timing devices: the cuda backend's, and simulated clocks in tests.

There are three distinct quantities. A duration is the time between two time stamps of the GPU's front end before and
after a launch, minus that without a launch: Nsight Compute's `gpu__time_duration`. A period is the time from one launch
of a graph to the next: the time that a launch adds to a stream of equal ones. CUPTI's activity records span from the
first block's start to the last block's end, as Nsight Systems shows them.
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
        sm_clock_mhz: SM cycles over the GPU's timer, measured by a kernel just now; None if unknown.
        temperature_c: the GPU's temperature; None without NVML.
        throttle_reasons: the driver's throttle reasons as text; empty if there are none or they are unknown.
    """

    sm_clock_mhz: float | None
    temperature_c: int | None = None
    throttle_reasons: tuple[str, ...] = ()


class TimingDevice(Protocol):
    """Versions of one kernel, ready to be launched on the same memory. Times are microseconds.

    Versions are numbered; `None` denotes an empty kernel. Arrays that a version reads and writes are reset before every
    launch, which is not part of a duration and cancels in a difference of periods.

    The placement of code and arrays changes a launch's time by up to some per cent (the sets of L2 that they share),
    constantly for that placement. So there are several placements: within one, all versions have the same arrays at the
    same addresses; between them, both arrays and code move.

    Attributes:
        versions: how many there are.
        placements: how many places there are for code and arrays.
    """

    versions: int
    placements: int

    @property
    def machine(self) -> tuple[str, ...]:
        """Returns reasons for inaccurate measurements here, as whole phrases: missing sensors, other processes."""
        ...

    def durations(self, order: Sequence[int | None], *, cold: bool = False, placement: int = 0) -> tuple[float, ...]:
        """Launches in this order, in one placement, and returns each launch's duration; `cold` empties L2 before each.

        Raises:
            TimedFault: a launch failed.
        """
        ...

    def period(self, version: int | None, launches: int) -> float:
        """Replays a graph of this many launches once, and returns the period of one.

        Raises:
            CannotCapture: the launch cannot be part of a graph. TimedFault: a launch failed.
        """
        ...

    def traced(self, order: Sequence[int]) -> tuple[float, ...]:
        """Launches in this order while CUPTI traces, and returns the duration in each launch's record.

        Raises:
            CuptiUnavailable: CUPTI is absent or gave no records of these launches. TimedFault: a launch failed.
        """
        ...

    def condition(self) -> GpuState:
        """Returns the present state of the GPU."""
        ...

    def poison(self) -> None:
        """Overwrites every array of the first placement that is only written, so that missing writes are detected."""
        ...

    def outputs(self) -> Mapping[str, npt.NDArray[Any]]:
        """Returns the writable arrays after the last launch in the first placement."""
        ...


@dataclass(frozen=True, slots=True)
class RepeatedLaunch:
    """One launch made again and again.

    Attributes:
        launches: number of launches before the last one.
        over_own_us: microseconds of a launch directly after an equal one, over its results; arrays that it both reads
            and writes are reset. None if it could not be timed.
        afresh_us: likewise, with outputs overwritten and module variables reset before each launch, so that no earlier
            results can be reused.
        scrubbed_us: as `afresh_us`, with shared memory overwritten as well; None for a kernel without shared memory.
        arrays: contents after the last launch, before which all outputs were overwritten.
        clocks_us: the same replays by the GPU's clock and by the host's, microseconds for each launch; None if there
            were none.
    """

    launches: int
    over_own_us: float | None
    afresh_us: float | None
    scrubbed_us: float | None
    arrays: Mapping[str, npt.NDArray[Any]]
    clocks_us: tuple[float, float] | None = None


class CuptiUnavailable(Exception):
    """CUPTI gives no records; the message gives the reason."""


class CannotCapture(Exception):
    """CUDA refuses to capture the launch in a graph; the message gives the reason."""


class TimedFault(Exception):
    """A launch that was judged before failed when it was timed."""

    def __init__(self, finding: Finding) -> None:
        super().__init__(finding.message)
        self.finding = finding
