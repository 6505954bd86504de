"""Counts of instructions as counts of source lines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace

from kernelmate.backends.base import CacheSample, RunResult
from kernelmate.backends.emulator.bound import InstructionCounts
from kernelmate.backends.emulator.counters import BranchCounter, GlobalCounter, LocalCounter, SharedCounter, SiteCount
from kernelmate.backends.emulator.decode import DecodedKernel
from kernelmate.backends.emulator.operations import Barrier, ClusterBarrier
from kernelmate.backends.emulator.types import Array
from kernelmate.records import LaunchShape, LineCounters

Counted = tuple[GlobalCounter, SharedCounter, BranchCounter, LocalCounter]


def with_l1(result: RunResult, decoded: DecodedKernel) -> RunResult:
    """Returns a launch's result with the modelled hit rates of L1, and the sampled contention of atomics, at its lines."""
    if result.l1 is None:
        return result
    asked: defaultdict[int | None, int] = defaultdict(int)
    held: defaultdict[int | None, int] = defaultdict(int)
    for number, (sectors, hits) in result.l1.loads.items():
        asked[_line(decoded, number)] += sectors
        held[_line(decoded, number)] += hits
    lines = (
        replace(line, l1_load_hit_rate=held[line.line] / asked[line.line]) if asked.get(line.line) else line
        for line in result.lines
    )
    return replace(result, lines=_contended(tuple(lines), result.l1, decoded))


def _contended(
    lines: tuple[LineCounters, ...], sample: CacheSample, decoded: DecodedKernel
) -> tuple[LineCounters, ...]:
    requests: defaultdict[int | None, int] = defaultdict(int)
    longest: defaultdict[int | None, int] = defaultdict(int)
    for number, (warps, most) in sample.atomics.items():
        requests[_line(decoded, number)] += warps
        longest[_line(decoded, number)] += most
    return tuple(
        replace(line, atomic_contention=longest[line.line] / requests[line.line]) if requests.get(line.line) else line
        for line in lines
    )


def with_lines(
    result: RunResult, decoded: DecodedKernel, counted: Counted, tally: InstructionCounts, shape: LaunchShape,
    footprints: Mapping[int | None, int | None],
) -> RunResult:  # fmt: skip
    """Adds counters per line to a launch's result; `footprints` are the bytes that each line touched."""
    lines = tuple(
        replace(line, footprint_bytes=footprints.get(line.line, 0))
        for line in lines_of(decoded, counted, tally.entered, shape.threads)
    )
    return replace(result, lines=lines, atomic_sectors=len(counted[0].atomic_sectors))


def lines_of(decoded: DecodedKernel, counted: Counted, entered: Array, threads: int) -> tuple[LineCounters, ...]:
    """Returns the counters of every executed line, in order; counts without a line come last.

    Args:
        decoded: the kernel.
        counted: counters of a launch.
        entered: entries into each basic block, in threads.
        threads: threads per block.
    """
    figures: defaultdict[int | None, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for block, times in zip(decoded.blocks, entered, strict=True):
        if not times:
            continue
        for number in range(block.start, block.end):
            at = figures[_line(decoded, number)]
            at["thread_instructions"] += int(times)
            operation = decoded.steps[number].operation
            if isinstance(operation, Barrier) or (isinstance(operation, ClusterBarrier) and operation.waits):
                at["barriers"] += int(times) // threads
    memory, shared, branches, local = counted
    for number, site in memory.sites.items():
        for name, amount in _global_figures(site):
            figures[_line(decoded, number)][name] += amount
    for number, site in shared.sites.items():
        at = figures[_line(decoded, number)]
        at[f"shared_{site.action}_wavefronts"] += site.passes
        if site.action == "atomic":
            at["shared_atomic_requests"] += site.requests
        at["bank_conflicts"] += site.passes - site.requests
    for number, site in local.sites.items():
        if site.passes:
            figures[_line(decoded, number)]["local_sectors"] += site.passes
    for number, times in branches.divergent.items():
        figures[_line(decoded, number)]["divergent_branches"] += times
    ordered = sorted(figures, key=lambda line: (line is None, line or 0))
    return tuple(LineCounters(line, **figures[line]) for line in ordered)


def _global_figures(site: SiteCount) -> Iterator[tuple[str, int]]:
    yield f"global_{site.action}_requests", site.requests
    yield f"global_{site.action}_sectors", site.passes
    yield "global_bytes_asked", site.size * site.lanes
    if site.action == "store":
        yield "global_bytes_stored", site.size * site.lanes
    if site.action != "atomic":
        yield "l1_lines", site.lines


def _line(decoded: DecodedKernel, number: int) -> int | None:
    position = decoded.steps[number].position
    return position.line or None if position else None
