"""Finds a time below the minimum for the bytes or operations at the GPU's peak rates: the work was not done, or not timed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelmate.backends.base import RunResult
from kernelmate.compiler.peaks import Peaks
from kernelmate.records import Contract, Timing

WARM_SHARE = 0.9
"""Times down to this share of the bound are let pass: clocks may be a little above the table's."""

COLD_SHARE = 0.6
"""The same for times with an emptied L2, where some lines always survive the emptying."""

SECTOR_BYTES = 32


@dataclass(frozen=True, slots=True)
class LeastWork:
    """Least work of one launch.

    Attributes:
        read_bytes: different bytes of global memory that it loads.
        written_bytes: different bytes that it stores, those among them that it loads too left out.
        flops: floating-point operations by precision (`fp16`, `fp32`, `fp64`), as far as they are known.
    """

    read_bytes: float
    written_bytes: float
    flops: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TimeBound:
    """The least time in microseconds, and what it comes from, in words."""

    us: float
    why: str


def need_of(contract: Contract, result: RunResult, flops: Mapping[str, float]) -> LeastWork:
    """Least work of a launch.

    Outputs are written whole, or the launch is wrong. Loads are known where the launch was counted: not more than its
    sectors, nor than what it touched apart from arrays that it only writes.

    Args:
        contract: says what the outputs are.
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
        return LeastWork(0.0, float(written_only), flops)
    read = min(SECTOR_BYTES * counters.global_load_sectors, max(result.footprint_bytes - written_only, 0))
    return LeastWork(float(read), float(written_only), flops)


def least_warm(need: LeastWork, peaks: Peaks, l2_bytes: int) -> TimeBound:
    """The least time of a launch that finds in L2 whatever fits there."""
    beyond = max(need.read_bytes - l2_bytes, 0.0)
    bounds = [
        TimeBound(max(need.read_bytes, need.written_bytes) / peaks.l2_bytes, "its bytes at the rate that SMs reach L2 with"),
        TimeBound(beyond / peaks.dram_bytes, f"the {_bytes(beyond)} that it reads beyond what L2 holds, at peak DRAM bandwidth"),
        *_operations(need, peaks),
    ]  # fmt: skip
    return max(bounds, key=lambda bound: bound.us)


def least_cold(need: LeastWork, peaks: Peaks, l2_bytes: int) -> TimeBound:
    """The least time of a launch that finds nothing in L2 and may leave there what it writes."""
    moved = need.read_bytes + max(need.written_bytes - l2_bytes, 0.0)
    bounds = [TimeBound(moved / peaks.dram_bytes, f"the {_bytes(moved)} that it must move at peak DRAM bandwidth"), *_operations(need, peaks)]  # fmt: skip
    return max(bounds, key=lambda bound: bound.us)


def find(timing: Timing, need: LeastWork, peaks: Peaks, l2_bytes: int) -> str | None:
    """A sentence where a measured time is below what is possible; None for times that were not measured.

    Args:
        timing: of the launch. Its interval's upper end is what is held against the bound.
        need: of the same launch.
        peaks: of the GPU that it was timed on.
        l2_bytes: of that GPU.
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


def _operations(need: LeastWork, peaks: Peaks) -> list[TimeBound]:
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
