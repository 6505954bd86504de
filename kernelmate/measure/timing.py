"""How long versions of a kernel take: measured, side by side, by a rule that is fixed before the first counted launch.

What a time is: the median over blocks of a launch's duration, by the GPU's own time stamps; where those cannot be had,
of the replay period, and `Timing.figure` says so. Beside it stand, never mixed with it, the duration with nothing in L2
and the replay period: how much later the next launch of a graph begins, less that of an empty kernel. How many blocks
there are follows from a few launches before them and the budget, and from nothing that the blocks show: who stops when
the interval looks good gets intervals that look good.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from kernelmate.backends.timed import CannotCapture, Condition, Rig, Untraced
from kernelmate.measure.blocks import midmean, ratio_of, time_of
from kernelmate.measure.plans import LONG_US, SHORT_US, SLOTS, Plan, plan
from kernelmate.measure.sources import Source, best_source
from kernelmate.records import Speedup, Timing

REPEATS = 3
"""How often a block is taken again whose clocks were held down, before it is kept and labelled."""

CLOCK_DROP = 0.03
"""A clock lower than the highest of this timing by more than this fraction is held down, whatever the driver says."""

SETTLED = 0.01
MOST_PROBES = 200
"""The clock has settled when three probes in a row are within this fraction; after so many it is taken as it is."""

PILOT_LAUNCHES = 4

FLUSH_US = 150.0
"""About what emptying L2 costs; only for planning."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Versions timed side by side.

    Attributes:
        timings: one for each version of the rig.
        speedup: the first version's time over the last one's, by blocks; None for a single version.
        outputs: what the last version's last timed launch left, where launches before it had left poison.
    """

    timings: tuple[Timing, ...]
    speedup: Speedup | None
    outputs: Mapping[str, npt.NDArray[Any]]


@dataclass(slots=True)
class _Blocks:
    """What was seen of the blocks.

    Attributes:
        times: for each version, a time for each block. conditions: of the GPU after each block.
        held_down: for each block that was kept although its clocks were held down, why.
    """

    times: list[list[float]]
    conditions: list[Condition] = field(default_factory=list)
    held_down: list[tuple[str, ...]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Seen:
    """Everything that one source of times has given; `cold` has an entry for each version."""

    plan: Plan
    blocks: _Blocks
    cold: list[float | None]
    outputs: Mapping[str, npt.NDArray[Any]]


def measure(rig: Rig, budget_s: float, *, full: bool, alone: bool = True) -> Measured:
    """Time every version of a rig.

    Args:
        rig: one version, or the baseline and the version that is compared with it.
        budget_s: seconds that this should take; kernels of some milliseconds and more take what a few blocks need.
        full: measure cold durations and replay periods too.
        alone: no other timing of KernelMate ran on the GPU; else that is said of the times.

    Raises:
        TimedFault: a launch failed.
    """
    settle(rig.condition)
    source = best_source(rig)
    try:
        seen = _seen(rig, source, budget_s, full=full)
    except Untraced as lost:
        source = best_source(rig, lost)
        seen = _seen(rig, source, budget_s, full=full)
    chosen, blocks = seen.plan, seen.blocks
    periods, refused = _periods(rig, chosen) if source.figure != "replay" else ([None] * rig.versions, ())
    words = (*source.words, *refused, *_held_words(blocks), *rig.machine)
    if not alone:
        words += ("another process kept the GPU's lock for too long, so others may have run beside this",)
    timings = tuple(_timing(seen, version, source, periods[version], words) for version in range(rig.versions))
    ratio = ratio_of(blocks.times[0], blocks.times[-1]) if rig.versions > 1 else None
    return Measured(timings, ratio, seen.outputs)


def _seen(rig: Rig, source: Source, budget_s: float, *, full: bool) -> _Seen:
    chosen = _planned(rig, source, budget_s, full=full)
    blocks = _take_blocks(rig, source, chosen)
    return _Seen(chosen, blocks, _cold(rig, source, chosen), _last_outputs(rig, source, chosen))


def settle(probe: Callable[[], Condition]) -> None:
    """Keep the GPU busy until its clock stays where it is."""
    last: list[float] = []
    for _ in range(MOST_PROBES):
        clock = probe().sm_clock_mhz
        if clock is None:
            return
        last = [*last[-2:], clock]
        if len(last) == 3 and max(last) <= min(last) * (1 + SETTLED):
            return


def _planned(rig: Rig, source: Source, budget_s: float, *, full: bool) -> Plan:
    """The plan, from a few launches that count for nothing else."""
    order = [version for version in range(rig.versions) for _ in range(2)]
    seen = source.times(order)
    times = [seen[2 * version + 1] for version in range(rig.versions)]
    if max(times) < LONG_US:
        order *= PILOT_LAUNCHES
    began = time.perf_counter()
    if max(times) < LONG_US:
        source.times(order)
    cost_us = (time.perf_counter() - began) * 1e6 / len(order)
    each = [launches * one for launches, one in zip(source.launches, times, strict=True)]
    return plan(times, max(cost_us, sum(each) / len(each)), budget_s * 1e6, flush_us=FLUSH_US, full=full)


def _take_blocks(rig: Rig, source: Source, chosen: Plan) -> _Blocks:
    """All blocks; one whose clocks were held down is taken again, up to `REPEATS` times in a row.

    Where that has not helped once, it will not help later in the same timing.
    """
    blocks = _Blocks([[] for _ in range(rig.versions)])
    repeats, highest = REPEATS, 0.0
    for number in range(chosen.blocks):
        for attempt in range(repeats + 1):
            times = _take_block(rig, source, chosen, number)
            condition = rig.condition()
            highest = max(highest, condition.sm_clock_mhz or 0.0)
            reasons = held_down(condition, highest)
            if not reasons or attempt == repeats:
                break
        if reasons:
            repeats = 0
            blocks.held_down.append(reasons)
        blocks.conditions.append(condition)
        for version, one in enumerate(times):
            blocks.times[version].append(one)
    return blocks


def held_down(condition: Condition, highest_mhz: float) -> tuple[str, ...]:
    """Why the clocks are not what they could be; empty where they are."""
    if condition.throttle_reasons:
        return condition.throttle_reasons
    clock = condition.sm_clock_mhz
    if clock is not None and clock < highest_mhz * (1 - CLOCK_DROP):
        return (f"clock down to {clock:.0f} MHz from {highest_mhz:.0f}",)
    return ()


def _take_block(rig: Rig, source: Source, chosen: Plan, number: int) -> list[float]:
    """One block's time of each version."""
    order = chosen.order(number, rig.versions)
    seen = source.times(order)
    counted = [(version, one) for at, (version, one) in enumerate(zip(order, seen, strict=True)) if chosen.counts(at)]
    return [midmean([one for other, one in counted if other == version]) for version in range(rig.versions)]


def _cold(rig: Rig, source: Source, chosen: Plan) -> list[float | None]:
    """The median time of each version with an empty L2; versions take turns."""
    nothing: list[float | None] = [None] * rig.versions
    if chosen.cold == 0:
        return nothing
    order = list(range(rig.versions)) * chosen.cold
    seen = source.cold(order)
    if seen is None:
        return nothing
    return [statistics.median(seen[version :: rig.versions]) for version in range(rig.versions)]


def _last_outputs(rig: Rig, source: Source, chosen: Plan) -> Mapping[str, npt.NDArray[Any]]:
    """What the last version leaves when it is launched as it was when it was timed, on outputs that held nothing."""
    rig.poison()
    source.times([rig.versions - 1] * (chosen.warm_up + chosen.counted))
    return rig.outputs()


def _periods(rig: Rig, chosen: Plan) -> tuple[list[float | None], tuple[str, ...]]:
    """The replay period of each version less an empty kernel's, and why there is none where there is none.

    A difference that is not larger than the empty kernel's own spread tells nothing and is left out.
    """
    found: list[float | None] = [None] * rig.versions
    if chosen.period_rounds == 0:
        return found, ()
    seen: list[list[float]] = [[] for _ in range(rig.versions)]
    empty: list[float] = []
    try:
        for _ in range(chosen.period_rounds):
            empty.append(rig.period(None, max(chosen.in_graph)))
            for version in range(rig.versions):
                seen[version].append(rig.period(version, chosen.in_graph[version]))
    except CannotCapture as refused:
        return found, (f"no replay period: the launch cannot be captured in a graph ({refused})",)
    nothing, spread = statistics.median(empty), max(empty) - min(empty)
    words: tuple[str, ...] = ()
    for version, periods in enumerate(seen):
        net = statistics.median(periods) - nothing
        if net > spread:
            found[version] = net
        elif version == rig.versions - 1:
            words = ("no replay period: in a graph it takes no longer than an empty kernel",)
    return found, words


def _timing(seen: _Seen, version: int, source: Source, period: float | None, words: tuple[str, ...]) -> Timing:
    blocks = seen.blocks
    median, interval = time_of(blocks.times[version])
    runs = seen.plan.blocks * SLOTS * seen.plan.counted * source.launches[version]
    clocks = [one.sm_clock_mhz for one in blocks.conditions if one.sm_clock_mhz is not None]
    temperatures = [one.temperature_c for one in blocks.conditions if one.temperature_c is not None]
    if median >= LONG_US:
        words = (f"over a second: launched {runs} times, warm only", *words)
    elif median < SHORT_US:
        words = ("under two microseconds: mostly what any launch takes", *words)
    return Timing(
        kind="measured",
        median_us=median,
        ci95_us=interval,
        cold_l2_us=seen.cold[version],
        replay_period_us=median if source.figure == "replay" else period,
        runs=runs,
        sm_clock_mhz=round(statistics.median(clocks)) if clocks else None,
        throttled=bool(blocks.held_down),
        figure=source.figure,
        temperature_c=max(temperatures, default=None),
        notes=words,
    )


def _held_words(blocks: _Blocks) -> tuple[str, ...]:
    if not blocks.held_down:
        return ()
    reasons = ", ".join(dict.fromkeys(reason for block in blocks.held_down for reason in block))
    count, every = len(blocks.held_down), len(blocks.conditions)
    return (f"clocks were held down in {count} of {every} blocks, after repeats ({reasons})",)
