"""A launch's time from what an emulated run of it counted. A prediction, never to be shown as a measurement.

Each part of the GPU gets the time that it alone would need: DRAM, L2, L1, shared memory, issue slots, arithmetic pipes,
atomics. A part inside an SM counts for the SM with the most blocks, so a ragged last wave costs what it costs. Beside
them stands latency: with few warps per SM (low occupancy, small grids) nothing is used to its limit, and the time is
the number of rounds of resident blocks times what one warp needs from start to end (Little's law, per warp). The parts
overlap imperfectly, which a norm of high order stands for, and the launch floor is added.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernelmate.backends.base import RunResult
from kernelmate.compiler import occupancy
from kernelmate.measure import constants
from kernelmate.measure.instructions import Mix, basic_blocks, count
from kernelmate.measure.statistics import MODEL_FACTOR
from kernelmate.measure.traffic import Traffic, traffic
from kernelmate.records import Compiled, LaunchShape, Occupancy, Target, Timing


@dataclass(frozen=True, slots=True)
class Breakdown:
    """What a prediction is made of.

    Attributes:
        parts_us: microseconds that each part of the GPU would need alone, L2 warm; `latency` is one of them.
        parts_cold_us: likewise with an empty L2.
        floor_us: what any launch takes.
        rounds: how many times an SM's slots are filled, one after the other.
        occupancy: of the launch.
        traffic: bytes at each level.
        mix: instructions of all threads.
    """

    parts_us: Mapping[str, float]
    parts_cold_us: Mapping[str, float]
    floor_us: float
    rounds: int
    occupancy: Occupancy
    traffic: Traffic
    mix: Mix

    @property
    def warm_us(self) -> float:
        """The predicted time where an equal launch went just before."""
        return self.floor_us + _join(self.parts_us, self.rounds)

    @property
    def cold_us(self) -> float:
        """The predicted time with nothing in L2."""
        return self.floor_us + _join(self.parts_cold_us, self.rounds)

    @property
    def limiter(self) -> str:
        """The part that needs longest with a warm L2, or `launch` where the floor is more than all of them."""
        if not self.parts_us:
            return "launch"
        part, longest = max(self.parts_us.items(), key=lambda item: item[1])
        return part if longest > self.floor_us else "launch"


def predict(target: Target, compiled: Compiled, shape: LaunchShape, result: RunResult) -> Timing:
    """The time that one launch would take on the target.

    The interval is the model's own error (`statistics.MODEL_FACTOR`), not a spread of runs: two predictions of the same
    kernel share most of it, which `statistics.speedup` accounts for.
    """
    made_of = explain(target, compiled, shape, result)
    warm, cold = made_of.warm_us, made_of.cold_us
    return Timing(
        kind="predicted",
        median_us=warm,
        ci95_us=(warm / MODEL_FACTOR, warm * MODEL_FACTOR),
        cold_l2_us=max(warm, cold),
        replay_period_us=None,
        runs=None,
        sm_clock_mhz=None,
        throttled=None,
    )


def explain(target: Target, compiled: Compiled, shape: LaunchShape, result: RunResult) -> Breakdown:
    """The prediction's parts: what limits a launch, and what would if that were gone."""
    resources = compiled.resources
    assert resources is not None, "only a kernel that compiled can have run"
    resources = replace(resources, dynamic_shared_bytes=shape.shared_bytes)
    fits = occupancy(target, resources, shape)
    mix = count(basic_blocks(compiled.ptx, compiled.lowered_name), result.block_counts)
    moved = traffic(target, shape, result, fits.blocks_per_sm, resources.shared_bytes + shape.shared_bytes)
    per_clock = target.clock_mhz  # clocks of one SM in a microsecond
    busiest = _share_of_busiest(target, shape)
    inside = _inside_sm(target, shape, result, mix)
    parts = {name: clocks * busiest / per_clock for name, clocks in inside.items()}
    parts["l2"] = moved.l2 / (_l2_per_clock(target) * per_clock)
    parts["atomics"] = _atomics(result, mix) / (constants.ATOMIC_RATE.value * per_clock)
    parts["blocks"] = shape.blocks / (constants.BLOCK_RATE.value * per_clock)
    bandwidth = target.memory_gbps * 1e3 * constants.DRAM_EFFICIENCY.value  # bytes in a microsecond
    rounds = _rounds(target, shape, fits)
    warm = dict(parts)
    warm["dram"] = moved.dram_warm / bandwidth
    warm["latency"] = rounds * _warp_clocks(shape, result, mix, moved, warm=True) / per_clock
    cold = dict(parts)
    cold["dram"] = moved.dram_cold / bandwidth
    cold["latency"] = rounds * _warp_clocks(shape, result, mix, moved, warm=False) / per_clock
    return Breakdown(warm, cold, constants.LAUNCH_FLOOR.value, rounds, fits, moved, mix)


def _join(parts: Mapping[str, float], rounds: int) -> float:
    order = constants.OVERLAP_NORM.value if rounds > 1 else constants.ALONE_NORM.value
    return float(sum(part**order for part in parts.values()) ** (1 / order))


def _share_of_busiest(target: Target, shape: LaunchShape) -> float:
    """The part of the whole work that the SM with the most blocks gets."""
    blocks = max(shape.blocks, 1)
    return -(-blocks // target.sms) / blocks


def _rounds(target: Target, shape: LaunchShape, fits: Occupancy) -> int:
    """How many times an SM's slots are filled, one after the other."""
    resident = max(fits.blocks_per_sm, 1)
    on_busiest = -(-max(shape.blocks, 1) // target.sms)
    return -(-on_busiest // resident)


def _l2_per_clock(target: Target) -> float:
    return target.sms * constants.for_capability(constants.L2_BYTES_PER_SM, target.capability)


def _atomics(result: RunResult, mix: Mix) -> float:
    """Lanes that do an atomic on global memory."""
    requests = float((result.counters and result.counters.global_atomic_requests) or 0)
    return max(requests, mix.work.get("atomic", 0.0) + mix.work.get("reduction", 0.0)) if requests else 0.0


def _l1_clocks(result: RunResult) -> float:
    """Clocks of an SM's L1, which looks up one 128-byte line per clock and at least one per request.

    Lines are not counted, sectors are. Where the sectors are just those that the asked-for bytes fill, four of them share a
    line; the more there are beyond, the likelier it is that each lies in a line of its own.
    """
    counters = result.counters
    if counters is None:
        return 0.0
    requests = (counters.global_load_requests or 0) + (counters.global_store_requests or 0)
    sectors = (counters.global_load_sectors or 0) + (counters.global_store_sectors or 0)
    filled = min((counters.global_bytes_asked or 0) / constants.SECTOR_BYTES, sectors)
    scattered = min(1.0, sectors / filled - 1) if filled else 1.0
    together = constants.SECTOR_BYTES / constants.L1_BYTES.value
    return float(max(requests, sectors * (scattered + (1 - scattered) * together)))


def _lanes(target: Target, tflops: float) -> float:
    """Results per clock and SM of a pipe whose peak (two operations per result) is given."""
    return max(tflops * 1e6 / (2 * target.sms * target.clock_mhz), 0.5)


def _warp_fill(shape: LaunchShape) -> float:
    """Lanes in a block's warps over its threads: 1 for whole warps, 32 for a block of one thread."""
    warps = -(-shape.threads // constants.WARP)
    return warps * constants.WARP / max(shape.threads, 1)


def _inside_sm(target: Target, shape: LaunchShape, result: RunResult, mix: Mix) -> dict[str, float]:
    """Clocks that each part of an SM needs for the whole launch's work, as if one SM did it all."""
    fill = _warp_fill(shape)
    counters = result.counters
    wavefronts = 0.0
    divergent = 0.0
    if counters is not None:
        wavefronts = float((counters.shared_load_wavefronts or 0) + (counters.shared_store_wavefronts or 0))
        divergent = float(counters.divergent_branches or 0)
    work = {name: lanes * fill for name, lanes in mix.work.items()}
    fp64_lanes = _lanes(target, target.fp64_tflops)
    issue = mix.issue * fill / constants.WARP + divergent * constants.DIVERGENCE_COST.value
    return {
        "issue": issue / constants.ISSUE_SLOTS.value,
        "fp32": work.get("fp32", 0.0) / _lanes(target, target.fp32_tflops),
        "fp64": work.get("fp64", 0.0) / fp64_lanes + work.get("convert64", 0.0) / min(fp64_lanes, 16.0),
        "fp16": work.get("fp16", 0.0) / _lanes(target, target.fp16_tflops),
        "sfu": work.get("sfu", 0.0) / constants.SFU_LANES.value,
        "int": constants.INT_SURVIVORS.value * work.get("int", 0.0) / constants.INT_LANES.value,
        "shuffle": work.get("shuffle", 0.0) / constants.SHUFFLE_LANES.value,
        "shared": wavefronts / constants.SHARED_WAVEFRONTS.value,
        "l1": _l1_clocks(result),
    }


def _warp_clocks(shape: LaunchShape, result: RunResult, mix: Mix, moved: Traffic, *, warm: bool) -> float:
    """Clocks from a block's start to its end, if it had the SM for itself: the path of a mean thread."""
    threads = max(shape.blocks * shape.threads, 1)
    l2_hits = moved.l2_hits if warm else _cold_l2_hits(moved)
    load = moved.l1_hits * constants.L1_LATENCY.value + (1 - moved.l1_hits) * (
        l2_hits * constants.L2_LATENCY.value + (1 - l2_hits) * constants.DRAM_LATENCY.value
    )
    clocks = mix.issue / threads * constants.ISSUE_LATENCY.value
    clocks += mix.rounds.get("global_load", 0.0) / threads * load
    shared = constants.SHARED_LATENCY.value * _conflict_factor(result)
    for kind in ("shared_load", "shared_atomic"):
        clocks += mix.rounds.get(kind, 0.0) / threads * shared
    clocks += mix.rounds.get("shuffle", 0.0) / threads * constants.SHUFFLE_LATENCY.value
    clocks += mix.rounds.get("local_load", 0.0) / threads * constants.L1_LATENCY.value
    clocks += mix.rounds.get("atomic", 0.0) / threads * constants.ATOMIC_LATENCY.value
    warps = -(-shape.threads // constants.WARP)
    barrier = constants.BARRIER_LATENCY.value + constants.BARRIER_PER_WARP.value * warps
    clocks += mix.work.get("barrier", 0.0) / threads * barrier
    return clocks + constants.BLOCK_START.value


def _cold_l2_hits(moved: Traffic) -> float:
    through = moved.l2 or 1.0
    return max(0.0, 1 - moved.dram_cold / through)


def _conflict_factor(result: RunResult) -> float:
    """How many times longer a shared access takes for its bank conflicts, a conflict adding one clock of latency."""
    counters = result.counters
    if counters is None or not counters.bank_conflicts:
        return 1.0
    wavefronts = (counters.shared_load_wavefronts or 0) + (counters.shared_store_wavefronts or 0)
    requests = max(wavefronts - counters.bank_conflicts, 1)
    return 1 + counters.bank_conflicts / requests / constants.SHARED_LATENCY.value
