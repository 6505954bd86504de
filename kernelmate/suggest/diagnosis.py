"""Diagnosis of the factors that limit a kernel, from its verdict alone; missing figures are not estimated.

The rules are those of the CUDA C++ Best Practices Guide (memory optimizations, execution configuration, instruction
optimization), applied to counted figures.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from kernelmate.compiler import find_target
from kernelmate.errors import KernelmateError
from kernelmate.measure.weights import line_cost
from kernelmate.records import Cause, LineCounters, Verdict

SECTOR = 32
LEAST_SHARE = 0.02
"""Smallest share of the kernel's cost for which a line is named."""
USED_WELL = 0.75
"""Fraction of moved bytes that are requested from which an access counts as coalesced."""
REREAD = 3.0
"""Average number of times that a byte crosses L1 from which reuse in registers or shared memory is advised."""
LOW_OCCUPANCY = 0.5
THIN_TAIL = 0.5
MOST_WAVES_WITH_TAIL = 4
CONTENDED = 2.0
"""Average number of a warp's lanes that update one address from which a line's atomics are named."""
OFTEN = 0.25
"""Fraction of all barriers from which a line is named as a cause of waiting."""
BARRIER_CLOCKS = 30
"""Approximate clock cycles of one barrier if all warps of the block arrive together."""
DIVERGENCE_CLOCKS = 8
"""Approximate clock cycles that one divergent branch adds."""
SHORT_US = 4.0
"""Duration in microseconds below which launch overhead is a large part of a launch."""


def diagnose(verdict: Verdict, text: str = "") -> tuple[Cause, ...]:
    """Returns all limiters: those of lines by estimated time, then those of the launch, then minor ones of lines."""
    lines = [line for line in verdict.lines or () if line.line is not None]
    total = sum(map(line_cost, verdict.lines or ())) or 1.0
    limiter = "" if verdict.roofline is None else verdict.roofline.work.limiter
    by_line = [cost for line in lines for cost in _of_line(line, line_cost(line) / total, limiter, text)]
    if limiter == "latency":
        by_line += _waiting(lines, total, {cost.cause.line for cost in by_line if cost.cause.code == "barriers"})
    whole = max(total, _clocks_of(verdict)) if limiter in ("latency", "launch") else total
    by_line.sort(key=lambda cost: (-cost.clocks, -(cost.cause.share or 0.0)))
    large = [cost.timed(verdict, whole) for cost in by_line if cost.clocks >= LEAST_SHARE * whole]
    small = [cost.timed(verdict, whole) for cost in by_line if cost.clocks < LEAST_SHARE * whole]
    return (*_bound(verdict), *large, *_of_launch(verdict), *small)


@dataclass(frozen=True, slots=True)
class _LineCause:
    """A cause on a line, with its cost in cycles of one SM."""

    cause: Cause
    clocks: float

    def timed(self, verdict: Verdict, whole: float) -> Cause:
        """Returns the cause with its estimated time: the launch's time times its fraction of the cycles `whole`."""
        if verdict.timing is None:
            return self.cause
        return replace(self.cause, estimated_us=verdict.timing.median_us * min(self.clocks / whole, 1.0))


def _clocks_of(verdict: Verdict) -> float:
    """Returns the cycles of all SMs during a launch."""
    if verdict.timing is None:
        return 0.0
    try:
        target = find_target(verdict.target)
    except KernelmateError:
        return 0.0
    return verdict.timing.median_us * target.clock_mhz * target.sms


def _bound(verdict: Verdict) -> Iterator[Cause]:
    roofline = verdict.roofline
    if roofline is None:
        return
    limiter = roofline.work.limiter
    said = _LIMITERS.get(limiter, (f"{limiter} is what its time goes by.", "Ask for less of it."))
    reached = ""
    if roofline.warm is not None and roofline.kind is not None:
        share = f"{roofline.warm:.0%}" if roofline.warm >= 0.01 else "less than 1%"
        reached = f" It reaches {share} of its roof, as {roofline.kind}."
    part = "" if limiter == roofline.bound else f" ({limiter})"
    yield Cause("bound", f"bound by {roofline.bound}{part}.{reached}", *said)


def _of_line(line: LineCounters, share: float, limiter: str, text: str) -> Iterator[_LineCause]:
    if share < LEAST_SHARE:
        return
    yield from _global_memory(line, share, limiter)
    yield from _contended(line, share)
    yield from _inside_blocks(line, share, text)


def _contended(line: LineCounters, share: float) -> Iterator[_LineCause]:
    contention = line.atomic_contention or 1.0
    if contention < CONTENDED:
        return
    shared = line.shared_atomic_requests >= line.global_atomic_requests
    requests, where = line.shared_atomic_requests + line.global_atomic_requests, "shared" if shared else "global"
    remedy = "let the lanes of a warp that meet at an address add up first (__match_any_sync, or __reduce_add_sync where all do)"
    if shared:
        remedy = f"give each warp a copy of the array and add the copies up at the end, or {remedy}"
    cause = Cause(
        "contended-atomics",
        f"{requests:,} atomics of warps on {where} memory, in each of which {contention:.1f} lanes update the same address",
        "updates of one address are made one after the other, and the other lanes of the warp wait for them",
        remedy,
        line.line,
        share,
    )
    yield _LineCause(cause, float(line.atomic_repeats))


def _global_memory(line: LineCounters, share: float, limiter: str) -> Iterator[_LineCause]:
    requests = line.global_load_requests + line.global_store_requests
    moved = line.global_bytes_moved
    if requests and moved and line.global_bytes_asked < USED_WELL * moved:
        sectors = moved / SECTOR / requests
        cause = Cause(
            "uncoalesced",
            f"each warp's request moves {sectors:.1f} sectors, of whose bytes {line.global_bytes_asked / moved:.0%} are used",
            "neighbouring threads touch addresses that lie apart, so most of each 32-byte sector is moved for nothing",
            "let threadIdx.x run along the index that is contiguous in memory, or stage a tile in shared memory",
            line.line,
            share,
        )
        yield _LineCause(cause, line.l1_lines * (1 - line.global_bytes_asked / moved))
    if line.global_atomic_requests and limiter == "atomics":
        cause = Cause(
            "atomics",
            f"{line.global_atomic_requests:,} atomic requests bring {line.global_atomic_sectors:,} sectors to L2",
            "updates of one address are made one after the other, and all blocks share what makes them",
            "gather in registers or shared memory first, and add once per warp or block",
            line.line,
            share,
        )
        yield _LineCause(cause, float(line.global_atomic_sectors))


def _inside_blocks(line: LineCounters, share: float, text: str) -> Iterator[_LineCause]:
    passes = line.shared_load_wavefronts + line.shared_store_wavefronts + line.shared_atomic_wavefronts
    if line.bank_conflicts and passes:
        ways = passes / max(passes - line.bank_conflicts, 1)
        cause = Cause(
            "bank-conflicts",
            f"{line.bank_conflicts:,} of {passes:,} passes over shared memory are repeats: {ways:.1f}-way conflicts",
            "threads of a warp touch different words of one bank, which are served one after the other",
            _spread(line, text),
            line.line,
            share,
        )
        yield _LineCause(cause, float(line.bank_conflicts))
    if line.divergent_branches:
        cause = Cause(
            "divergence",
            f"{line.divergent_branches:,} branches split their warp",
            "both sides are run one after the other with part of the lanes idle",
            "let the condition be the same for all 32 threads of a warp, or make both sides one by arithmetic",
            line.line,
            share,
        )
        yield _LineCause(cause, float(line.divergent_branches * DIVERGENCE_CLOCKS))
    if line.barriers and share > 0.1:
        yield _barrier(line, share)


def _spread(line: LineCounters, text: str) -> str:
    """Returns the remedy for bank conflicts, which depends on how the array is indexed."""
    if line.shared_atomic_wavefronts > line.shared_load_wavefronts + line.shared_store_wavefronts:
        return "the addresses follow from the data: give each warp a copy of the array, which lie in different banks"
    rows = text.splitlines()
    used = set(re.findall(r"\w+", rows[line.line - 1])) if line.line is not None and line.line <= len(rows) else set()
    shared = {match["name"]: match["extents"] for match in _SHARED_ARRAY.finditer(text) if match["name"] in used}
    flat = shared and all(extents.count("[") == 1 for extents in shared.values())
    if flat and "*" not in rows[(line.line or 1) - 1]:
        return "let neighbouring threads use neighbouring elements: change the stride, or which index threadIdx.x runs along"
    return "pad the row of the tile by one element, or change which index threadIdx.x runs along"


_SHARED_ARRAY = re.compile(r"__shared__\b[^;=(){}\[\]]*?\b(?P<name>\w+)\s*(?P<extents>(?:\[[^\]]*\]\s*)+)")


def _waiting(lines: Sequence[LineCounters], total: float, told: set[int | None]) -> Iterator[_LineCause]:
    """Yields the causes of lines with the most barriers, if latency dominates."""
    barriers = sum(line.barriers for line in lines)
    for line in lines:
        if barriers and line.barriers >= OFTEN * barriers and line.line not in told:
            yield _barrier(line, line_cost(line) / total)


def _barrier(line: LineCounters, share: float) -> _LineCause:
    cause = Cause(
        "barriers",
        f"blocks arrive at a barrier here {line.barriers:,} times",
        "every warp waits for the slowest one",
        "exchange within warps by shuffles where 32 threads are enough, or do more work between barriers",
        line.line,
        share,
    )
    return _LineCause(cause, float(line.barriers * BARRIER_CLOCKS))


def _of_launch(verdict: Verdict) -> Iterator[Cause]:
    yield from _rereading(verdict)
    yield from _room(verdict)
    yield from _shape(verdict)


def _rereading(verdict: Verdict) -> Iterator[Cause]:
    roofline = verdict.roofline
    if roofline is None or not roofline.work.dram_bytes:
        return
    times = roofline.work.l1_bytes / roofline.work.dram_bytes
    if times >= REREAD:
        yield Cause(
            "rereading",
            f"each byte it touches crosses L1 {times:.1f} times",
            "the same data is loaded again by other threads, or by the same one later",
            "keep it in registers or in a tile of shared memory, and let each thread compute more than one element",
        )


def _room(verdict: Verdict) -> Iterator[Cause]:
    resources, occupancy = verdict.resources, verdict.occupancy
    if resources is not None and resources.spill_bytes:
        yield Cause(
            "spills",
            f"{resources.spill_bytes} bytes of each thread's registers are spilled to local memory",
            "spilled values travel through L1, and through L2 when there are many",
            "hold fewer values at once, lower unrolling, or raise the limit of registers (__launch_bounds__)",
        )
    elif resources is not None and resources.local_bytes:
        yield Cause(
            "local-memory",
            f"each thread keeps {resources.local_bytes} bytes in local memory",
            "an array that is indexed by a variable cannot be in registers",
            "unroll the loops over it, so that every index is a constant",
        )
    if occupancy is not None and occupancy.theoretical < LOW_OCCUPANCY and occupancy.limiter != "launch":
        yield Cause(
            "occupancy",
            f"{occupancy.theoretical:.0%} of the warps that an SM can hold, limited by {occupancy.limiter}",
            "while one warp waits for memory there are few others to go on with",
            _OCCUPANCY.get(occupancy.limiter, "change the block size"),
        )


def _shape(verdict: Verdict) -> Iterator[Cause]:
    occupancy, timing = verdict.occupancy, verdict.timing
    waves = None if occupancy is None else occupancy.waves
    if waves is not None and 0 < waves < LOW_OCCUPANCY:
        yield Cause(
            "small-grid",
            f"the grid fills {f'{waves:.0%}' if waves >= 0.01 else 'less than 1%'} of the GPU's block slots",
            "most SMs have nothing to do, or too few warps to hide latency",
            "use smaller blocks, split the work of a block, or let one launch do several problems",
        )
    elif waves is not None and 1 < waves < MOST_WAVES_WITH_TAIL and 0 < waves - int(waves) < THIN_TAIL:
        yield Cause(
            "tail",
            f"the grid takes {waves:.2f} rounds, and the last one fills {waves - int(waves):.0%} of the block slots",
            "the last round takes as long as a full one",
            "choose a block size or a grid-stride loop for which the blocks go up in whole rounds",
        )
    if timing is not None and timing.median_us < SHORT_US:
        yield Cause(
            "short",
            f"one launch takes {timing.median_us:.3g} us, {timing.kind}",
            "starting and ending a kernel is a large part of that",
            "do more in one launch: fuse it with its neighbours, or launch it from a CUDA graph",
        )


_LIMITERS: dict[str, tuple[str, str]] = {
    "dram": ("Its bytes at DRAM's bandwidth take the longest.", "Move fewer bytes: smaller types, fusion with its neighbours, reuse of what was loaded."),
    "l2": ("What crosses L2 takes the longest.", "Reuse what was loaded in shared memory or registers, and coalesce accesses."),
    "l1": ("Its accesses look up more lines of L1 than anything else takes.", "Load wider (float4), and coalesce accesses."),
    "shared": ("Passes over shared memory take the longest.", "Remove bank conflicts, load wider, or keep values in registers."),
    "atomics": ("Atomic updates take the longest.", "Gather in registers or shared memory before updating global memory."),
    "latency": ("Waiting takes the longest: too few independent instructions are in flight.", "Have more warps, more independent work per thread, or fewer steps that wait for each other."),
    "launch": ("Starting the launch takes the longest.", "Do more in one launch."),
    "blocks": ("Starting blocks takes the longest.", "Let a block do more: a grid-stride loop, or more elements per thread."),
    "fp64": ("Double-precision arithmetic takes the longest.", "Use float where the tolerance allows it; check for double literals."),
    "fp32": ("Single-precision arithmetic takes the longest.", "Do fewer operations, or let tensor cores do them where the precision allows it."),
    "int": ("Integer arithmetic takes the longest, which is mostly indexing.", "Hoist index computations out of loops, and step pointers; replace division by shifts or multiplication."),
    "fp16": ("Half-precision arithmetic takes the longest.", "Use the two-wide forms (__half2), or tensor cores."),
    "shuffle": ("Shuffles between lanes take the longest.", "Exchange less: reduce within a thread first."),
    "tensor": ("Tensor cores take the longest.", "Use operands of fewer bits where the tolerance allows it, or compute less."),
    "sfu": ("Special functions take the longest.", "Compute fewer of them, or use the fast forms where the tolerance allows it."),
    "issue": ("Starting instructions takes the longest.", "Execute fewer: wider loads, less indexing, unrolled loops."),
}  # fmt: skip

_OCCUPANCY: dict[str, str] = {
    "registers": "use fewer registers per thread: a smaller unroll, shorter lives of values, or __launch_bounds__",
    "shared": "use less shared memory per block, or smaller blocks",
    "blocks": "use larger blocks",
    "threads": "choose a block size that divides the threads of an SM",
}
