"""Detects a time below the minimum at the GPU's peak rates: work was skipped, or not timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelmate.backends.base import RunResult
from kernelmate.compiler.targets import Peaks
from kernelmate.records import Contract, Timing

WARM_SHARE = 0.9
"""Fraction of the minimum time that still passes, since clocks may be slightly above those of the peak rates."""

COLD_SHARE = 0.6
"""Fraction of the minimum time that a time with a cold L2 must reach, since emptying L2 always leaves some lines."""

SECTOR_BYTES = 32


@dataclass(frozen=True, slots=True)
class MinimumWork:
    """Minimum work of one launch.

    Attributes:
        read_bytes: distinct bytes of global memory that it loads.
        written_bytes: distinct bytes that it stores but does not load.
        flops: floating-point operations by precision (`fp16`, `fp32`, `fp64`), as far as known.
    """

    read_bytes: float
    written_bytes: float
    flops: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimeBound:
    """The minimum time in microseconds, and the resource that limits it, as text."""

    us: float
    why: str


def need_of(contract: Contract, result: RunResult, flops: Mapping[str, float]) -> MinimumWork:
    """Computes the minimum work of a launch.

    A correct launch writes its outputs completely. If the launch was counted, the loaded bytes are the smaller of its
    load sectors and its footprint without arrays that are only written; otherwise they are 0.

    Args:
        contract: defines the outputs.
        result: the launch.
        flops: its operations by precision.
    """
    written_only = sum(
        result.arrays[a.name].nbytes
        for a in contract.args
        if a.direction == "out" and a.name in result.arrays and a.name not in result.reads
    )
    counters = result.counters
    if counters is None or counters.global_load_sectors is None or result.footprint_bytes is None:
        return MinimumWork(0.0, float(written_only), flops)
    read = min(SECTOR_BYTES * counters.global_load_sectors, max(result.footprint_bytes - written_only, 0))
    return MinimumWork(float(read), float(written_only), flops)


def least_warm(need: MinimumWork, peaks: Peaks, l2_bytes: int) -> TimeBound:
    """Returns the minimum time of a launch with a warm L2, which holds as much of its data as fits."""
    beyond = max(need.read_bytes - l2_bytes, 0.0)
    bounds = [
        TimeBound(max(need.read_bytes, need.written_bytes) / peaks.l2_bytes, "its bytes at the rate that SMs reach L2 with"),
        TimeBound(beyond / peaks.dram_bytes, f"the {_bytes(beyond)} that it reads beyond what L2 holds, at peak DRAM bandwidth"),
        *_operations(need, peaks),
    ]  # fmt: skip
    return max(bounds, key=lambda bound: bound.us)


def least_cold(need: MinimumWork, peaks: Peaks, l2_bytes: int) -> TimeBound:
    """Returns the minimum time of a launch with a cold L2 that may keep its writes."""
    moved = need.read_bytes + max(need.written_bytes - l2_bytes, 0.0)
    bounds = [TimeBound(moved / peaks.dram_bytes, f"the {_bytes(moved)} that it must move at peak DRAM bandwidth"), *_operations(need, peaks)]  # fmt: skip
    return max(bounds, key=lambda bound: bound.us)


def find(timing: Timing, need: MinimumWork, peaks: Peaks, l2_bytes: int) -> str | None:
    """Returns a sentence if a measured time is below the minimum; None otherwise and for times that were not measured.

    Args:
        timing: the launch's time; the upper end of its interval is compared with the minimum.
        need: work of the same launch.
        peaks: peak rates of the GPU it was timed on.
        l2_bytes: L2 size of that GPU.
    """
    if timing.kind != "measured":
        return None
    warm, cold = least_warm(need, peaks, l2_bytes), least_cold(need, peaks, l2_bytes)
    if timing.ci95_us[1] < WARM_SHARE * warm.us:
        return _sentence(f"{timing.ci95_us[1]:.3g} us", warm)
    if timing.cold_l2_us is not None and timing.cold_l2_us < COLD_SHARE * cold.us:
        return _sentence(f"{timing.cold_l2_us:.3g} us with an emptied L2", cold)
    return None


def _sentence(time: str, bound: TimeBound) -> str:
    return (
        f"{time} is not possible: {bound.why} take {bound.us:.3g} us; the launches that were timed did not do the work, "
        "or the clock was wrong"
    )


def _operations(need: MinimumWork, peaks: Peaks) -> list[TimeBound]:
    return [
        TimeBound(count / peaks.flops[name], f"{count:.3g} {name} operations at peak rate")
        for name, count in need.flops.items()
        if peaks.flops.get(name)
    ]


def _bytes(count: float) -> str:
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count:.0f} bytes"
