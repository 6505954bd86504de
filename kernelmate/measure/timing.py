"""Timing of versions: measured side by side, with the number of launches fixed before the first timed one.

A time is the Hodges-Lehmann median over blocks of a launch's duration, as `kernelmate.backends.timed` defines it.
Reported separately are the duration with a cold L2, the replay period minus that of an empty kernel, and CUPTI's
durations. The number of blocks follows from a few trial launches and the budget, never from the blocks' own times,
since stopping at a good interval would bias the interval.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy.typing as npt

from kernelmate.backends.timed import CannotCapture, CuptiUnavailable, GpuState, TimingDevice
from kernelmate.measure.blocks import midmean, ratio_of, time_of
from kernelmate.measure.statistics import SHORT_TIMES
from kernelmate.records import MOSTLY_LAUNCHING, Speedup, Timing

LONG_US = 1e6
"""Kernel time in microseconds from which launches are as few as an interval allows, and only with warm L2."""

BLOCKS, FEWEST_BLOCKS = 12, 6
"""Number of timing blocks, each with its own memory placement; the second is the minimum for small budgets."""

SLOW_US, SLOW_BLOCKS, LONG_BLOCKS = 20_000.0, 4, 2
"""Kernel time in microseconds from which fewer blocks are used, and their number from there and from `LONG_US` on.

With fewer than `blocks.BOOTSTRAP_FROM` blocks, Student's t gives the interval.
"""

ORDER = (0, 1, 1, 0, 1, 0, 0, 1)
"""Order of the two versions' launches in a block: it cancels linear and quadratic drift.

Its first half, A B B A, cancels linear drift.
"""

TURNS, FEWEST_TURNS = 4, 2
"""Turns of each version in a block; the second is the minimum for small budgets."""

MOST_LAUNCHES = 32
"""Maximum number of timed launches per turn; it grows in proportion to a budget over `USUAL_BUDGET_US`."""

USUAL_BUDGET_US = 0.2e6

LEAD, LEAD_TO_US = 8, 200.0
"""Untimed launches at the head of a block, whose placement has just changed; for kernels up to the given time."""

WARM_UP, WARM_UP_TO_US = 2, 1_000.0
"""Untimed launches at the head of each turn, for kernels up to the given time; longer kernels warm L2 themselves."""

GRAPH_US, FEWEST_IN_GRAPH, MOST_IN_GRAPH = 1_000.0, 10, 500
"""Desired duration of a CUDA graph in microseconds (starting one costs about 10 us), and bounds of its number of launches."""

FEW_US, FEW_IN_GRAPH = 2_000.0, 3
"""Kernel time in microseconds from which a graph contains only few launches, and that number.

The gaps between launches are then under a thousandth of the time.
"""

PERIOD_ROUNDS = 7
COLD_LAUNCHES, FEWEST_COLD = 144, 5
WARM_SHARE, COLD_SHARE, PERIOD_SHARE = 0.55, 0.15, 0.3
"""Fractions of the budget for warm, cold and replay-period measurements if all are made."""


@dataclass(frozen=True, slots=True)
class TimingPlan:
    """The launches of a timing.

    Attributes:
        blocks: number of blocks.
        lead: untimed launches at the head of each block.
        turns: turns of each version in a block.
        warm_up: untimed launches at the head of each turn.
        counted: timed launches of each turn.
        cold: launches of each version with a cold L2; 0 for none.
        period_rounds: replays of each version's graph; 0 for none.
        in_graph: launches in each graph.
    """

    blocks: int
    lead: int
    turns: int
    warm_up: int
    counted: int
    cold: int
    period_rounds: int
    in_graph: tuple[int, ...]

    def order(self, block: int, versions: int) -> tuple[int, ...]:
        """Returns the version of each launch in a block; every other block swaps the two versions."""
        turns = ORDER[: 2 * self.turns] if versions > 1 else (0,) * self.turns
        if versions > 1 and block % 2:
            turns = tuple(1 - version for version in turns)
        launches = tuple(version for version in turns for _ in range(self.warm_up + self.counted))
        return turns[:1] * self.lead + launches

    def counts(self, position: int) -> bool:
        """Returns True if the launch at a position of the order is timed."""
        after_lead = position - self.lead
        return after_lead >= 0 and after_lead % (self.warm_up + self.counted) >= self.warm_up


def plan(times_us: Sequence[float], cost_us: float, budget_us: float, *, flush_us: float, full: bool) -> TimingPlan:
    """Plan the launches that a budget allows.

    Args:
        times_us: approximate duration of a launch of each version.
        cost_us: average cost of a launch, host overhead included.
        budget_us: the whole budget.
        flush_us: cost of emptying L2.
        full: also plan cold launches and replay periods.
    """
    longest, versions = max(times_us), len(times_us)
    warm_up, lead = WARM_UP if longest <= WARM_UP_TO_US else 0, LEAD if longest <= LEAD_TO_US else 0
    share = budget_us * (WARM_SHARE if full else 1.0)
    cost_us = max(cost_us, longest / versions)
    in_block = share / (cost_us * BLOCKS) - lead
    blocks, turns = BLOCKS, TURNS
    most = int(MOST_LAUNCHES * max(1.0, budget_us / USUAL_BUDGET_US))
    counted = min(int(in_block / (versions * turns)) - warm_up, most)
    if counted < 1:
        turns = FEWEST_TURNS
        counted = max(1, int(in_block / (versions * turns)) - warm_up)
        fewest = LONG_BLOCKS if longest >= LONG_US else SLOW_BLOCKS if longest >= SLOW_US else FEWEST_BLOCKS
        affordable = share / (cost_us * (versions * turns * (counted + warm_up) + lead))
        blocks = max(fewest, min(BLOCKS, int(affordable)))
    in_graph = tuple(graph_launches(one) for one in times_us)
    if not full or longest >= LONG_US:
        return TimingPlan(blocks, lead, turns, warm_up, counted, 0, 0, in_graph)
    cold = _affordable(budget_us * COLD_SHARE, (cost_us + flush_us) * versions, FEWEST_COLD, COLD_LAUNCHES)
    round_us = sum(launches * one for launches, one in zip(in_graph, times_us, strict=True)) + GRAPH_US
    rounds = _affordable(budget_us * PERIOD_SHARE, round_us, 3, PERIOD_ROUNDS)
    if longest >= SLOW_US:
        cold, rounds = 2, 2
    return TimingPlan(blocks, lead, turns, warm_up, counted, cold, rounds, in_graph)


def graph_launches(time_us: float) -> int:
    """Returns the number of launches in a graph of a version with the given time; one for very long kernels."""
    wanted = math.ceil(GRAPH_US / max(time_us, 0.1))
    fewest = FEWEST_IN_GRAPH if time_us < FEW_US else FEW_IN_GRAPH if time_us < SLOW_US else 1
    return max(fewest, min(MOST_IN_GRAPH, wanted))


def _affordable(budget: float, cost: float, fewest: int, most: int) -> int:
    return max(fewest, min(most, int(budget / cost)))


REPEATS = 3
"""Maximum number of repetitions of a block with throttled clocks, before it is kept and labelled."""

CLOCK_DROP = 0.03
"""Fraction below this timing's highest clock from which a block counts as throttled, whatever the driver reports."""

SETTLED = 0.01
MOST_PROBES = 200
"""Clock probes: three in a row within the given fraction mean a stable clock; after the maximum, timing starts anyway."""

PILOT_LAUNCHES, PILOT_TO_US = 4, 2_000.0
"""Trial launches of each version to measure a launch's cost; made for kernels up to the given time in microseconds.

Host overhead is a small part of the cost of longer kernels.
"""

TRACED_LAUNCHES, FEWEST_TRACED, EMPTY_LAUNCHES = 10, 2, 10
"""Launches that CUPTI records: of each version, of versions of at least `SLOW_US`, and of an empty kernel."""

PLACES_APART = 1.1
"""Ratio of the second slowest block to the second fastest from which a note on memory placement is added."""

LONG_PERIOD, ATTEMPTS = 1.5, 3
"""Ratio of replay period to duration from which both are measured again, and the maximum of measurements.

Another process's work may have made one of them long; a kernel that works only in a graph makes the period long every time.
"""

FLUSH_US = 150.0
"""Approximate cost of emptying L2 in microseconds; used only for planning."""


@dataclass(frozen=True, slots=True)
class MeasuredVersions:
    """Times of versions measured side by side.

    Attributes:
        timings: one per version of the timer.
        speedup: the first version's time over the last one's, from the blocks' ratios; None for a single version.
        outputs: outputs of the last version's last timed launch, whose buffers were poisoned before; None unless
            requested.
    """

    timings: tuple[Timing, ...]
    speedup: Speedup | None
    outputs: Mapping[str, npt.NDArray[Any]] | None


@dataclass(slots=True)
class _Blocks:
    """Measurements of the blocks.

    Attributes:
        times: for each version, one time per block.
        conditions: state of the GPU after each block.
        held_down: the reason for each block that was kept in spite of throttled clocks.
    """

    times: list[list[float]]
    conditions: list[GpuState] = field(default_factory=list)
    held_down: list[tuple[str, ...]] = field(default_factory=list)

    @property
    def slow(self) -> bool:
        """Returns True if a launch of some version takes `SLOW_US` or longer."""
        return max(max(times) for times in self.times) >= SLOW_US


def measure(
    timer: TimingDevice, budget_s: float, *, full: bool, alone: bool = True, outputs: bool = True
) -> MeasuredVersions:
    """Times every version of a timer.

    Args:
        timer: one version, or the baseline and the version that is compared with it.
        budget_s: time budget in seconds; kernels of several milliseconds may exceed it, since a few blocks are always
            measured.
        full: also measure cold durations and replay periods.
        alone: False adds the note that another timing of KernelMate ran on the GPU.
        outputs: copy the last version's outputs to the host.

    Raises:
        TimedFault: a launch failed.
    """
    settle(timer.condition)
    chosen = _planned(timer, budget_s, full=full)
    for _ in range(ATTEMPTS):
        blocks = _take_blocks(timer, chosen)
        periods, refused = _periods(timer, chosen)
        if not _is_long(periods, blocks):
            break
    cold = _cold(timer, chosen)
    left = _last_outputs(timer, chosen) if outputs else None
    to_trace = FEWEST_TRACED if blocks.slow else TRACED_LAUNCHES
    traced = _traced(timer, to_trace) if chosen.period_rounds else [None] * timer.versions
    words = (*refused, *_held_words(blocks), *timer.machine)
    if not alone:
        words += ("another process kept the GPU's lock for too long, so others may have run beside this",)
    empty = midmean(timer.durations([None] * EMPTY_LAUNCHES))
    timings = tuple(
        _timing(blocks, version, chosen, (cold[version], periods[version], traced[version]), empty, words)
        for version in range(timer.versions)
    )
    ratio = ratio_of(blocks.times[0], blocks.times[-1]) if timer.versions > 1 else None
    return MeasuredVersions(timings, ratio, left)


def settle(probe: Callable[[], GpuState]) -> None:
    """Keeps the GPU busy until its SM clock is stable, or until `MOST_PROBES` probes were made."""
    last: list[float] = []
    for _ in range(MOST_PROBES):
        clock = probe().sm_clock_mhz
        if clock is None:
            return
        last = [*last[-2:], clock]
        if len(last) == 3 and max(last) <= min(last) * (1 + SETTLED):
            return


def _planned(timer: TimingDevice, budget_s: float, *, full: bool) -> TimingPlan:
    """Plans the timing from a few trial launches, which are not timed results."""
    order = [version for version in range(timer.versions) for _ in range(2)]
    seen = timer.durations(order)
    times = [seen[2 * version + 1] for version in range(timer.versions)]
    cost_us = sum(times) / len(times)
    if max(times) < PILOT_TO_US:
        order *= PILOT_LAUNCHES
        began = time.perf_counter()
        timer.durations(order)
        cost_us = max(cost_us, (time.perf_counter() - began) * 1e6 / len(order))
    return plan(times, cost_us, budget_s * 1e6, flush_us=FLUSH_US, full=full)


def _take_blocks(timer: TimingDevice, chosen: TimingPlan) -> _Blocks:
    """Measures all blocks; a block with throttled clocks is repeated, up to `REPEATS` times.

    Once repetition has not helped, later blocks are not repeated.
    """
    blocks = _Blocks([[] for _ in range(timer.versions)])
    repeats, highest = REPEATS, 0.0
    for number in range(chosen.blocks):
        for attempt in range(repeats + 1):
            times = _take_block(timer, chosen, number)
            condition = timer.condition()
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


def held_down(condition: GpuState, highest_mhz: float) -> tuple[str, ...]:
    """Returns the reasons for clocks below their maximum; empty if clocks are not throttled."""
    if condition.throttle_reasons:
        return condition.throttle_reasons
    clock = condition.sm_clock_mhz
    if clock is not None and clock < highest_mhz * (1 - CLOCK_DROP):
        return (f"clock down to {clock:.0f} MHz from {highest_mhz:.0f}",)
    return ()


def _take_block(timer: TimingDevice, chosen: TimingPlan, number: int) -> list[float]:
    """Measures one block and returns the time of each version."""
    order = chosen.order(number, timer.versions)
    seen = timer.durations(order, placement=number % timer.placements)
    counted = [(version, one) for at, (version, one) in enumerate(zip(order, seen, strict=True)) if chosen.counts(at)]
    return [midmean([one for other, one in counted if other == version]) for version in range(timer.versions)]


def _cold(timer: TimingDevice, chosen: TimingPlan) -> list[float | None]:
    """Measures each version with a cold L2, in all memory placements; versions take turns."""
    if chosen.cold == 0:
        return [None] * timer.versions
    each: list[list[float]] = [[] for _ in range(timer.versions)]
    places = min(timer.placements, chosen.cold)
    for place in range(places):
        launches = -(-chosen.cold // places)
        seen = timer.durations(list(range(timer.versions)) * launches, cold=True, placement=place)
        for version, times in enumerate(each):
            times += seen[version :: timer.versions]
    return [midmean(times) for times in each]


def _last_outputs(timer: TimingDevice, chosen: TimingPlan) -> Mapping[str, npt.NDArray[Any]]:
    """Returns outputs of the last version, launched as in timing, with poisoned output buffers."""
    timer.poison()
    timer.durations([timer.versions - 1] * (chosen.warm_up + chosen.counted))
    return timer.outputs()


def _traced(timer: TimingDevice, launches: int) -> list[float | None]:
    """Returns CUPTI's duration of each version in microseconds; None for every version without CUPTI."""
    each = 1 + launches
    try:
        seen = timer.traced([version for version in range(timer.versions) for _ in range(each)])
    except CuptiUnavailable:
        return [None] * timer.versions
    return [midmean(seen[each * version + 1 : each * (version + 1)]) for version in range(timer.versions)]


def _is_long(periods: Sequence[float | None], blocks: _Blocks) -> bool:
    """Returns True if some version's replay period is much longer than its launches in the blocks."""
    warm = (time_of(times)[0] for times in blocks.times)
    return any(period is not None and period > LONG_PERIOD * us for period, us in zip(periods, warm, strict=True))


def _periods(timer: TimingDevice, chosen: TimingPlan) -> tuple[list[float | None], tuple[str, ...]]:
    """Returns the replay period of each version minus an empty kernel's, and reasons for missing ones.

    A difference within the empty kernel's own spread is not significant and is left out.
    """
    found: list[float | None] = [None] * timer.versions
    if chosen.period_rounds == 0:
        return found, ()
    seen: list[list[float]] = [[] for _ in range(timer.versions)]
    empty: list[float] = []
    try:
        for _ in range(chosen.period_rounds):
            empty.append(timer.period(None, max(chosen.in_graph)))
            for version in range(timer.versions):
                seen[version].append(timer.period(version, chosen.in_graph[version]))
    except CannotCapture as refused:
        return found, (f"no replay period: the launch cannot be captured in a graph ({refused})",)
    nothing, spread = statistics.median(empty), max(empty) - min(empty)
    words: tuple[str, ...] = ()
    for version, periods in enumerate(seen):
        net = statistics.median(periods) - nothing
        if net > spread:
            found[version] = net
        elif version == timer.versions - 1:
            words = ("no replay period: in a graph it takes no longer than an empty kernel",)
    return found, words


def _timing(
    blocks: _Blocks,
    version: int,
    chosen: TimingPlan,
    others: tuple[float | None, float | None, float | None],
    empty: float,
    words: tuple[str, ...],
) -> Timing:
    """Builds one version's `Timing`.

    `others` are cold time, period and CUPTI's duration, `empty` an empty kernel's duration.
    """
    median, interval = time_of(blocks.times[version])
    runs = chosen.blocks * chosen.turns * chosen.counted
    clocks = [one.sm_clock_mhz for one in blocks.conditions if one.sm_clock_mhz is not None]
    temperatures = [one.temperature_c for one in blocks.conditions if one.temperature_c is not None]
    if median >= LONG_US:
        words = (f"over a second: launched {runs} times, warm only", *words)
    elif median < SHORT_TIMES * empty:
        words = (f"{MOSTLY_LAUNCHING}: an empty kernel takes {empty:.2g} us", *words)
    words = (*_placed_words(blocks.times[version]), *words)
    cold, period, traced = others
    return Timing(
        kind="measured",
        median_us=median,
        ci95_us=interval,
        cold_l2_us=cold,
        replay_period_us=period,
        runs=runs,
        sm_clock_mhz=round(statistics.median(clocks)) if clocks else None,
        throttled=bool(blocks.held_down),
        cupti_us=traced,
        temperature_c=max(temperatures, default=None),
        notes=words,
    )


def _placed_words(times: Sequence[float]) -> tuple[str, ...]:
    """Describes the spread between placements if it is large and more than one block shows it at either end."""
    ordered = sorted(times)
    if len(ordered) < FEWEST_BLOCKS or ordered[-2] < PLACES_APART * ordered[1]:
        return ()
    return (
        f"depends on the placement of code and arrays: {ordered[1]:.3g} to {ordered[-2]:.3g} us over {len(ordered)} placements",
    )


def _held_words(blocks: _Blocks) -> tuple[str, ...]:
    if not blocks.held_down:
        return ()
    reasons = ", ".join(dict.fromkeys(reason for block in blocks.held_down for reason in block))
    count, every = len(blocks.held_down), len(blocks.conditions)
    return (f"clocks were throttled in {count} of {every} blocks, after repeats ({reasons})",)
