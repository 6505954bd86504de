"""Sampled L1 hits of a launch: one SM's blocks run again, in parallel, and their accesses are traced.

An SM gets every n-th block, n being the number of SMs, and as many at a time as fit; their warps alternate instruction
by instruction. Long launches are traced only at the start, since hit rates soon become steady.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np

from kernelmate.backends.base import ArrayArgument, CacheSample, Run
from kernelmate.backends.emulator.bind import Binder, fold_constants
from kernelmate.backends.emulator.bound import InstructionCounts, InstructionLimits, Overrun
from kernelmate.backends.emulator.caches import AccessTrace, l1_hits
from kernelmate.backends.emulator.decode import DecodedKernel
from kernelmate.backends.emulator.facts import Facts
from kernelmate.backends.emulator.findings import LaunchStopped
from kernelmate.backends.emulator.lanes import Lanes
from kernelmate.backends.emulator.launch import Launch
from kernelmate.backends.emulator.machine import MemoryInstruction
from kernelmate.backends.emulator.schedule import Scheduler
from kernelmate.backends.emulator.types import Array
from kernelmate.compiler import occupancy, sm_limits
from kernelmate.records import Compiled, LaunchShape, Target

_MOST_INSTRUCTIONS = 8_000_000
_ISSUED = (1_500, 6_000)
"""Bounds of a sample: thread-instructions, and issued instructions; between 15 and 100 ms of CPU time."""
_PER_ISSUED = 100_000
"""Thread-instructions of a launch for each instruction that its sample may issue; sampling then takes about a fifth of the launch's time."""
_MOST_ACCESSES = 60_000
"""Number of lines looked up in L1, over all warps of the SM, after which the sample suffices."""
_MOST_BYTES = 256 << 20
"""Total size of arrays above which they are not copied again for a sample."""


class _Full(Exception):
    """Raised when the trace is long enough."""


class _SmLanes(Lanes):
    """The blocks of one SM, as many in a batch as it holds at once."""

    def __init__(self, shape: LaunchShape, resident: int, sms: int) -> None:
        # From the middle of the grid, since threads at the edges have less work.
        first = min(sms // 2, shape.blocks - 1)
        self._mine = range(first, shape.blocks, sms)
        width = -(-shape.threads // 32) * 32
        super().__init__(shape, min(resident, len(self._mine)) * width, 0)

    def batches(self) -> int:
        return -(-len(self._mine) // self.blocks)

    def order(self, number: int) -> Array:
        return np.array(self._mine[number * self.blocks : (number + 1) * self.blocks])


class _Tracer:
    """Records lines and sectors that the warps of a batch access, instruction by instruction.

    Attributes:
        atomics: by instruction, warps' atomics, and the lanes that update the most frequent address in each.
    """

    def __init__(self) -> None:
        self._lines: list[Array] = []
        self._sectors: list[Array] = []
        self._sites: list[tuple[MemoryInstruction, int]] = []
        self._length = 0
        self.atomics: dict[int, tuple[int, int]] = {}

    def access(self, site: MemoryInstruction, lanes: Array, offsets: Array, values: Array | None) -> None:
        """Traces one instruction of some lanes; atomics and bulk copies bypass L1."""
        del values
        if site.proxy:
            return
        if site.action == "atomic":
            self.contend(site, lanes, offsets)
            return
        warps = (lanes >> 5).astype(np.int64) << 43
        sectors = np.unique(warps | (offsets >> np.uint64(5)).astype(np.int64))
        lines = sectors >> 2
        new = np.ones(len(lines), bool)
        new[1:] = lines[1:] != lines[:-1]
        starts = np.flatnonzero(new)
        bits = np.left_shift(1, sectors & 3).astype(np.uint8)
        self._lines.append(lines[starts] & ((1 << 41) - 1))
        self._sectors.append(np.bitwise_or.reduceat(bits, starts))
        self._sites.append((site, len(starts)))
        self._length += len(starts)
        if self._length >= _MOST_ACCESSES:
            raise _Full

    def contend(self, site: MemoryInstruction, lanes: Array, offsets: Array) -> None:
        """Counts, for each warp, the lanes that update its most frequent address."""
        warps, places = (lanes >> 5).astype(np.int64), offsets.astype(np.int64)
        order = np.lexsort((places, warps))
        warps, places = warps[order], places[order]
        first = np.ones(len(order), bool)
        first[1:] = (warps[1:] != warps[:-1]) | (places[1:] != places[:-1])
        starts = np.flatnonzero(first)
        together = np.diff(np.append(starts, len(order)))
        owners = warps[starts]
        each = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
        requests, most = self.atomics.get(site.number, (0, 0))
        longest = int(np.maximum.reduceat(together, each).sum())
        self.atomics[site.number] = (requests + len(each), most + longest)

    def sample(self, cache_bytes: int) -> CacheSample | None:
        """Returns the sampled cache contents; None without accesses."""
        if not self._length:
            return CacheSample(cache_bytes, {}, {}, self.atomics) if self.atomics else None
        lengths = [length for _, length in self._sites]
        stores = np.repeat([site.action == "store" for site, _ in self._sites], lengths)
        trace = AccessTrace(np.concatenate(self._lines), np.concatenate(self._sectors), stores)
        found = l1_hits(trace, cache_bytes)
        asked: Counter[tuple[int, str]] = Counter()
        held: Counter[tuple[int, str]] = Counter()
        wanted = np.bitwise_count(trace.sectors)
        ends = np.cumsum(lengths)
        for (site, length), end in zip(self._sites, ends, strict=True):
            key = (site.number, site.action)
            asked[key] += int(wanted[end - length : end].sum())
            held[key] += int(found[end - length : end].sum())
        return CacheSample(
            cache_bytes,
            {number: (asked[number, action], held[number, action]) for number, action in asked if action == "load"},
            {number: (asked[number, action], held[number, action]) for number, action in asked if action == "store"},
            self.atomics,
        )


class _SharedTracer:
    """Records contention of atomics in shared memory."""

    def __init__(self, tracer: _Tracer) -> None:
        self._tracer = tracer

    def access(self, site: MemoryInstruction, lanes: Array, offsets: Array, values: Array | None) -> None:
        """Traces one instruction of some lanes."""
        del values
        if site.action == "atomic" and not site.proxy:
            self._tracer.contend(site, lanes, offsets)


class Sample(Launch):
    """The blocks of one SM, run without counters and checks except L1 requests."""

    def __init__(self, decoded: DecodedKernel, target: Target, run: Run, facts: Facts, variables: dict[str, Array],
                 resident: int) -> None:  # fmt: skip
        self._resident = resident
        super().__init__(decoded, target, replace(run, count=False, check=False, schedule_seed=0), facts, variables)

    def _lanes(self) -> Lanes:
        return _SmLanes(self.shape, self._resident, self.target.sms)

    def look(self, cache_bytes: int, issued: int) -> CacheSample | None:
        """Runs for a number of issued instructions; returns None without accesses."""
        machine, tracer = self.machine, _Tracer()
        machine.global_monitors.append(tracer)
        machine.shared.monitors.append(_SharedTracer(tracer))
        fold_constants(self.facts.foldable, self.decoded, machine)
        tally = InstructionCounts(np.zeros(len(self.decoded.blocks), np.int64))
        limits = InstructionLimits(self.run.step_limit, "", _MOST_INSTRUCTIONS, issued=issued)
        scheduler = Scheduler(machine, self.decoded, Binder(self.decoded, machine).blocks(), limits, tally)
        try:
            for number in range(self.lanes.batches()):
                scheduler.run(self._fresh(number))
        except (LaunchStopped, Overrun, _Full):
            pass  # pass: the accesses so far are the sample
        return tracer.sample(cache_bytes)


def sample_l1(
    compiled: Compiled,
    decoded: DecodedKernel,
    target: Target,
    run: Run,
    facts: Facts,
    variables: dict[str, Array],
    taken: int,
) -> CacheSample | None:
    """Samples one SM's L1; returns None if blocks wait for each other, as those of a cluster do, or nothing was accessed.

    Args:
        compiled: the kernel.
        decoded: the same.
        target: the GPU.
        run: the launch.
        facts: the kernel's facts.
        variables: contents of `__device__` variables before the launch.
        taken: thread-instructions of the launch.
    """
    arrays = sum(argument.data.nbytes for argument in run.arguments if isinstance(argument, ArrayArgument))
    together = run.shape.cooperative or run.shape.cluster is not None
    if facts.waits or together or compiled.resources is None or arrays > _MOST_BYTES:
        return None
    resident = occupancy(target, compiled.resources, run.shape).blocks_per_sm
    if not resident:
        return None
    with np.errstate(all="ignore"):
        sample = Sample(decoded, target, run, facts, dict(variables), resident)
        issued = min(max(taken // _PER_ISSUED, _ISSUED[0]), _ISSUED[1])
        shared = compiled.resources.shared_bytes + run.shape.shared_bytes
        return sample.look(l1_bytes(target, shared, resident), issued)


def l1_bytes(target: Target, shared_bytes: int, resident: int) -> int:
    """Returns L1's capacity beside the shared memory of the blocks resident on an SM."""
    limits = sm_limits(target.capability)
    taken = resident * (shared_bytes + limits.shared_reserved) if shared_bytes else 0
    carved = next((size for size in _CARVEOUTS if size << 10 >= taken), limits.shared_per_sm >> 10)
    unified = (limits.shared_per_sm >> 10) + _LEAST_L1_KIB
    return (unified - min(carved, limits.shared_per_sm >> 10)) << 10


_CARVEOUTS = (0, 8, 16, 32, 64, 96, 100, 132, 164, 196, 228)
"""Shared-memory configurations in KiB.

CUDA C++ Programming Guide, Compute Capability 8.x and 9.0, Shared Memory; a GPU without one of them uses the next
larger.
"""
_LEAST_L1_KIB = 28
"""Smallest L1 in KiB, at the largest shared-memory configuration.

256 - 228 KiB on 9.0 and 10.0, 128 - 100 on 8.6, 8.9 and 12.x, 192 - 164 on 8.0.
"""
