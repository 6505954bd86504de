"""Predicted time of a launch from the counts of its emulated run. Never shown as a measurement.

Each part of the GPU gets the time that it alone would need: DRAM, L2, L1, shared memory, issue slots, arithmetic pipes,
atomics. Parts inside an SM are computed for the SM with the most blocks, which accounts for a partial last wave.
Latency is one more part: with few warps per SM (low occupancy, small grids) no part reaches its limit, and the time is
the number of rounds of resident blocks times what one warp needs from start to end (Little's law, per warp). The parts
overlap imperfectly, so a norm of high order combines them, and the launch floor is added.

`fit.json` beside this module holds the values, the GPU and the launches that they were fitted to, and the error on families of kernels
that were held out; `python -m benchmarks.prediction report --write` writes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from kernelmate.backends.base import RunResult
from kernelmate.compiler import occupancy
from kernelmate.measure import constants
from kernelmate.measure.instructions import Mix, basic_blocks, count
from kernelmate.measure.statistics import MODEL_FACTOR, SHORT_TIMES
from kernelmate.measure.traffic import Traffic, traffic
from kernelmate.records import MOSTLY_LAUNCHING, Compiled, LaunchShape, Occupancy, Target, Timing, Work


@dataclass(frozen=True, slots=True)
class FittedConstants:
    """Fitted constants, in SM clock cycles unless stated otherwise.

    Attributes:
        launch_floor: microseconds of an empty launch.
        dram_efficiency: share of peak bandwidth that a streaming kernel reaches.
        dram_latency, l2_latency, l1_latency: latency of a load that misses L2, hits L2, or hits L1, with queueing.
        shared_latency: latency of a shared-memory load without conflicts.
        shuffle_latency: latency of a warp shuffle.
        sfu_latency: latency of the special function unit.
        issue_latency: mean gap between two instructions of one warp.
        barrier_latency: cost of one block-wide barrier.
        barrier_per_warp: additional cost per warp of the block.
        block_start: time from the end of a block to the first instruction of its successor in the same slot.
        block_rate: blocks that the whole GPU starts per cycle.
        int_survivors: fraction of PTX integer instructions that remain as integer instructions in SASS.
        atomic_rate: sectors per cycle on which the whole GPU performs atomics.
        atomic_place_rate: likewise on a single sector.
        divergence_cost: issue slots that one divergent branch costs a warp.
        l2_bytes: L2 bandwidth in bytes per cycle and SM (on the GPU of the fit).
        partial_store: cost in L2 of a partially written sector, relative to a fully written one.
        overlap_norm: order of the norm that combines the times of overlapping parts of the GPU if blocks follow each
            other.
        alone_norm: likewise if all blocks start together, so that their phases use the same part at once.
    """

    launch_floor: float
    dram_efficiency: float
    dram_latency: float
    l2_latency: float
    l1_latency: float
    shared_latency: float
    shuffle_latency: float
    sfu_latency: float
    issue_latency: float
    barrier_latency: float
    barrier_per_warp: float
    block_start: float
    block_rate: float
    int_survivors: float
    atomic_rate: float
    atomic_place_rate: float
    divergence_cost: float
    l2_bytes: float
    partial_store: float
    overlap_norm: float
    alone_norm: float


@cache
def stored() -> Mapping[str, Any]:
    """Returns the contents of `fit.json`: `values`, `provenance` and `error`."""
    text = resources.files("kernelmate.measure").joinpath("fit.json").read_text(encoding="utf-8")
    found: Mapping[str, Any] = json.loads(text)
    return found


@cache
def stored_fit() -> FittedConstants:
    """Returns the fit that predictions use."""
    return FittedConstants(**stored()["values"])


FITTED_ON = (9, 0)
"""Compute capability of the GPU behind `fit.json`."""


ALONE_US = 1.2
"""Microseconds by which an isolated launch's duration, between GPU time stamps, exceeds its period in back-to-back launches.

The median over 30 kernels of a few microseconds, measured on an H100 (half of them between 1.1 and 1.5):
`benchmarks/recipes_gpu`.
"""


@dataclass(frozen=True, slots=True)
class LaunchFacts:
    """Facts about one launch that do not depend on fitted constants."""

    target: Target
    shape: LaunchShape
    result: RunResult
    occupancy: Occupancy
    traffic: Traffic
    mix: Mix


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Parts of a prediction.

    Attributes:
        parts_us: microseconds that each part of the GPU would need alone, L2 warm; `latency` is one of them.
        parts_cold_us: likewise with an empty L2.
        floor_us: time of an empty launch.
        rounds: number of waves of blocks on an SM.
        occupancy: the launch's occupancy.
        traffic: bytes at each memory level.
        mix: instructions of all threads.
        fit: the fitted figures that it uses.
    """

    parts_us: Mapping[str, float]
    parts_cold_us: Mapping[str, float]
    floor_us: float
    rounds: int
    occupancy: Occupancy
    traffic: Traffic
    mix: Mix
    fit: FittedConstants

    @property
    def warm_us(self) -> float:
        """The predicted time directly after an equal launch."""
        return self.floor_us + _join(self.parts_us, self.rounds, self.fit)

    @property
    def cold_us(self) -> float:
        """The predicted time with a cold L2."""
        return self.floor_us + _join(self.parts_cold_us, self.rounds, self.fit)

    @property
    def limiter(self) -> str:
        """The part with the longest time for a warm L2, or `launch` if the launch floor exceeds all of them."""
        if not self.parts_us:
            return "launch"
        part, longest = max(self.parts_us.items(), key=lambda item: item[1])
        return part if longest > self.floor_us else "launch"


def predict(target: Target, compiled: Compiled, shape: LaunchShape, result: RunResult) -> Timing:
    """Predicts the time of one launch on the target.

    The interval is the model's own error (`statistics.MODEL_FACTOR`), not a spread of runs: two predictions of the same
    kernel share most of it, which `statistics.speedup` accounts for. The model predicts the period of back-to-back
    launches; adding `ALONE_US` gives the duration that a measurement reports.
    """
    made_of = explain(target, compiled, shape, result)
    warm, cold = made_of.warm_us + ALONE_US, made_of.cold_us + ALONE_US
    empty = made_of.floor_us + ALONE_US
    launching = (f"{MOSTLY_LAUNCHING}: an empty kernel is predicted to take {empty:.2g} us",)
    return replace(_predicted(warm, notes=launching if warm < SHORT_TIMES * empty else ()), cold_l2_us=max(warm, cold))


LIBRARY_STEP = (
    "a library's step counts with the time that its arrays take at memory bandwidth, which is the least it needs"
)


def predict_library(target: Target, moved_bytes: int) -> Timing:
    """Returns the least time of a library's step, of which the model knows only the bytes of its arrays."""
    least = stored_fit().launch_floor + ALONE_US + moved_bytes / (1e3 * target.memory_gbps)
    return _predicted(least, notes=(LIBRARY_STEP,))


def predict_sequence(stages: Sequence[Timing]) -> Timing:
    """Returns the time of launches that follow each other on one stream: the sum of their periods, as for `ALONE_US`."""
    total = sum(one.median_us for one in stages) - ALONE_US * (len(stages) - 1)
    said = (note for one in stages for note in one.notes if not note.startswith(MOSTLY_LAUNCHING))
    return _predicted(total, notes=tuple(dict.fromkeys(said)))


def _predicted(time_us: float, notes: tuple[str, ...]) -> Timing:
    return Timing(
        kind="predicted",
        median_us=time_us,
        ci95_us=(time_us / MODEL_FACTOR, time_us * MODEL_FACTOR),
        cold_l2_us=None,
        replay_period_us=None,
        runs=None,
        sm_clock_mhz=None,
        throttled=None,
        notes=notes,
    )


def explain(target: Target, compiled: Compiled, shape: LaunchShape, result: RunResult) -> Breakdown:
    """Returns the prediction's parts, which show the limiter of a launch and the next one if it were removed."""
    return estimate(launch_facts(target, compiled, shape, result), stored_fit())


def launch_facts(target: Target, compiled: Compiled, shape: LaunchShape, result: RunResult) -> LaunchFacts:
    """Returns the facts about the launch, without fitted constants."""
    resources = compiled.resources
    assert resources is not None, "only a kernel that compiled can have run"
    resources = replace(resources, dynamic_shared_bytes=shape.shared_bytes)
    fits = occupancy(target, resources, shape)
    mix = count(basic_blocks(compiled.ptx, compiled.lowered_name), result.block_counts)
    moved = traffic(target, shape, result, fits.blocks_per_sm, resources.shared_bytes + shape.shared_bytes)
    return LaunchFacts(target, shape, result, fits, moved, mix)


def estimate(launch: LaunchFacts, fit: FittedConstants) -> Breakdown:
    """Returns the times of all parts for a fit."""
    target, shape, moved = launch.target, launch.shape, launch.traffic
    per_clock = target.clock_mhz  # clocks of one SM in a microsecond
    busiest = _share_of_busiest(target, shape)
    parts = {name: clocks * busiest / per_clock for name, clocks in _inside_sm(launch, fit).items()}
    parts["l2"] = _l2_bytes(launch, fit) / (_l2_per_clock(target, fit) * per_clock)
    parts["atomics"] = _atomic_clocks(launch, fit) / per_clock
    parts["blocks"] = shape.blocks / (fit.block_rate * per_clock)
    bandwidth = target.memory_gbps * 1e3 * fit.dram_efficiency  # bytes in a microsecond
    rounds = _rounds(target, shape, launch.occupancy)
    warm = dict(parts)
    warm["dram"] = moved.dram_warm / bandwidth
    longer = _rounds_of_long_threads(launch, rounds)
    warm["latency"] = _latency_clocks(launch, fit, rounds, longer, warm=True) / per_clock
    cold = dict(parts)
    cold["dram"] = moved.dram_cold / bandwidth
    cold["latency"] = _latency_clocks(launch, fit, rounds, longer, warm=False) / per_clock
    return Breakdown(warm, cold, fit.launch_floor, rounds, launch.occupancy, moved, launch.mix, fit)


def _join(parts: Mapping[str, float], rounds: int, fit: FittedConstants) -> float:
    order = fit.overlap_norm if rounds > 1 else fit.alone_norm
    return float(sum(part**order for part in parts.values()) ** (1 / order))


def _share_of_busiest(target: Target, shape: LaunchShape) -> float:
    """Returns the fraction of the whole work on the SM with the most blocks."""
    blocks = max(shape.blocks, 1)
    return -(-blocks // target.sms) / blocks


def _rounds(target: Target, shape: LaunchShape, fits: Occupancy) -> int:
    """Returns the number of waves of blocks on an SM."""
    resident = max(fits.blocks_per_sm, 1)
    on_busiest = -(-max(shape.blocks, 1) // target.sms)
    return -(-on_busiest // resident)


LONG_THREAD = 4.0
"""Instructions of the longest thread, relative to the average one, up to which all threads are taken to be equal.

Guards, tails and rows of unequal length are below it; sections of one thread, such as a loop over a row by thread 0, far above.
"""


def _rounds_of_long_threads(launch: LaunchFacts, rounds: int) -> float:
    """Returns what threads that execute far more than others add to the waves of blocks, in paths of the average thread.

    A wave takes as long as its longest thread. All instructions of the launch suffice for a limited number of blocks with
    such a thread, so that a single long thread in the grid lengthens one wave only.
    """
    longest, total, shape = launch.result.longest_thread, launch.result.ptx_instructions, launch.shape
    if not longest or not total:
        return 0.0
    ratio = longest * shape.blocks * shape.threads / total
    if ratio <= LONG_THREAD:
        return 0.0
    together = max(launch.occupancy.blocks_per_sm, 1) * launch.target.sms
    waves = min(rounds, max(1.0, min(total / longest, shape.blocks) / together))
    return waves * (ratio - LONG_THREAD)


def _l2_per_clock(target: Target, fit: FittedConstants) -> float:
    """Returns L2 bytes per cycle; other GPUs scale the fitted value by the ratio of their table entries."""
    per_sm = constants.for_capability(constants.L2_BYTES_PER_SM, target.capability)
    return target.sms * fit.l2_bytes * per_sm / constants.for_capability(constants.L2_BYTES_PER_SM, FITTED_ON)


def _l2_bytes(launch: LaunchFacts, fit: FittedConstants) -> float:
    """Returns bytes through L2, with partially written sectors weighted by their higher cost."""
    stored = sum(line.global_store_sectors for line in launch.result.lines) * constants.SECTOR_BYTES
    filled = sum(line.global_bytes_stored for line in launch.result.lines)
    return launch.traffic.l2 + max(stored - filled, 0) * (fit.partial_store - 1)


def _atomic_clocks(launch: LaunchFacts, fit: FittedConstants) -> float:
    """Returns clock cycles of global atomics.

    Requests proceed one sector at a time, and few distinct sectors limit parallelism.
    """
    counters, result = launch.result.counters, launch.result
    requests = float((counters and counters.global_atomic_requests) or 0)
    sectors = sum(line.global_atomic_sectors for line in result.lines) or requests
    places = result.atomic_sectors
    rate = fit.atomic_rate if not places else min(fit.atomic_rate, places * fit.atomic_place_rate)
    return sectors / rate


def _l1_clocks(result: RunResult) -> float:
    """Returns clock cycles of an SM's L1, which looks up one 128-byte line per cycle."""
    if result.lines or result.counters is None:
        return float(sum(line.l1_lines for line in result.lines))
    counters = result.counters
    requests = (counters.global_load_requests or 0) + (counters.global_store_requests or 0)
    sectors = (counters.global_load_sectors or 0) + (counters.global_store_sectors or 0)
    return float(max(requests, sectors * constants.SECTOR_BYTES / constants.L1_BYTES.value))


def _lanes(target: Target, tflops: float) -> float:
    """Returns results per cycle and SM of a pipe with the given peak (two operations per result)."""
    return max(tflops * 1e6 / (2 * target.sms * target.clock_mhz), 0.5)


def _warp_fill(shape: LaunchShape) -> float:
    """Returns warp lanes over threads of a block: 1 for whole warps, 32 for a block of one thread."""
    warps = -(-shape.threads // constants.WARP)
    return warps * constants.WARP / max(shape.threads, 1)


def _shared_passes(result: RunResult) -> float:
    """Returns shared-memory wavefronts, atomics included."""
    counters = result.counters
    if counters is None:
        return 0.0
    atomics = sum(line.shared_atomic_wavefronts for line in result.lines)
    return float((counters.shared_load_wavefronts or 0) + (counters.shared_store_wavefronts or 0) + atomics)


def _inside_sm(launch: LaunchFacts, fit: FittedConstants) -> dict[str, float]:
    """Returns clock cycles that each part of an SM needs for the whole launch's work, as if one SM did it all."""
    target, mix, counters = launch.target, launch.mix, launch.result.counters
    fill = _warp_fill(launch.shape)
    divergent = float((counters and counters.divergent_branches) or 0)
    work = {name: lanes * fill for name, lanes in mix.work.items()}
    fp64_lanes = _lanes(target, target.fp64_tflops)
    issue = mix.issue * fill / constants.WARP + divergent * fit.divergence_cost
    return {
        "issue": issue / constants.ISSUE_SLOTS.value,
        "fp32": work.get("fp32", 0.0) / _lanes(target, target.fp32_tflops),
        "fp64": work.get("fp64", 0.0) / fp64_lanes + work.get("convert64", 0.0) / min(fp64_lanes, 16.0),
        "fp16": work.get("fp16", 0.0) / _lanes(target, target.fp16_tflops),
        "tensor": mix.flops.get("tensor", 0.0)
        * fill
        / (2 * _lanes(target, target.tensor_tflops or target.fp16_tflops)),
        "sfu": work.get("sfu", 0.0) / constants.SFU_LANES.value,
        "int": fit.int_survivors * work.get("int", 0.0) / constants.INT_LANES.value,
        "shuffle": work.get("shuffle", 0.0) / constants.SHUFFLE_LANES.value,
        "shared": _shared_passes(launch.result) / constants.SHARED_WAVEFRONTS.value,
        "l1": _l1_clocks(launch.result),
    }


def _latency_clocks(launch: LaunchFacts, fit: FittedConstants, rounds: int, longer: float, *, warm: bool) -> float:
    """Returns the clock cycles of all waves of blocks, with `longer` further paths of the average thread."""
    path = _warp_clocks(launch, fit, warm=warm)
    return (rounds + longer) * path + rounds * fit.block_start


def _warp_clocks(launch: LaunchFacts, fit: FittedConstants, *, warm: bool) -> float:
    """Returns clock cycles of the path of an average thread of a block that has the SM to itself."""
    shape, mix, moved = launch.shape, launch.mix, launch.traffic
    threads = max(shape.blocks * shape.threads, 1)
    l2_hits = moved.l2_hits if warm else _cold_l2_hits(moved)
    load = moved.l1_hits * fit.l1_latency + (1 - moved.l1_hits) * (
        l2_hits * fit.l2_latency + (1 - l2_hits) * fit.dram_latency
    )
    warps = -(-shape.threads // constants.WARP)
    shared = fit.shared_latency + _conflicts_each(launch)
    clocks = (
        mix.issue * fit.issue_latency
        + mix.rounds.get("global_load", 0.0) * load
        + (mix.rounds.get("shared_load", 0.0) + mix.rounds.get("shared_atomic", 0.0)) * shared
        + mix.rounds.get("shuffle", 0.0) * fit.shuffle_latency
        + mix.rounds.get("local_load", 0.0) * fit.l1_latency
        + mix.rounds.get("atomic", 0.0) * constants.ATOMIC_LATENCY.value
        + mix.work.get("sfu", 0.0) * fit.sfu_latency
        + mix.work.get("barrier", 0.0) * (fit.barrier_latency + fit.barrier_per_warp * warps)
    )
    return clocks / threads


def _cold_l2_hits(moved: Traffic) -> float:
    through = moved.l2 or 1.0
    return max(0.0, 1 - moved.dram_cold / through)


def _conflicts_each(launch: LaunchFacts) -> float:
    """Returns the average clock cycles that bank conflicts add to one shared-memory access."""
    conflicts = float((launch.result.counters and launch.result.counters.bank_conflicts) or 0)
    requests = max(_shared_passes(launch.result) - conflicts, 1.0)
    return conflicts / requests


def work_of(target: Target, compiled: Compiled, shape: LaunchShape, result: RunResult) -> Work:
    """Returns operations, bytes and, by the prediction, the limiter of the launch on the target."""
    made_of = explain(target, compiled, shape, result)
    moved = made_of.traffic
    return Work(made_of.mix.flops, moved.unique, moved.l1, moved.l2, made_of.limiter)


def operations(compiled: Compiled, result: RunResult) -> Mapping[str, float]:
    """Returns the floating-point operations of a launch by precision (`fp16`, `fp32`, `fp64`, `tensor`).

    A fused multiply-add is two.
    """
    return count(basic_blocks(compiled.ptx, compiled.lowered_name), result.block_counts).flops
